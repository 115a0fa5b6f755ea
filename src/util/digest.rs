//! SHA-256 digests as text.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The SHA-256 of a text as 64 hexadecimal digits.
pub(crate) fn sha256_hex(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// The client token of an AWS call: 48 hexadecimal digits, equal for equal parts. AWS performs calls with the same
/// client token once, so that a retry after a lost response creates nothing twice. The answer is the first result, even
/// after its deletion, so the parts include the state that was observed.
pub(crate) fn client_token(parts: &[&str]) -> String {
    hex(&Sha256::digest(parts.join("\n").as_bytes())[..24])
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
