//! SHA-256 digests as text.

use sha2::{Digest, Sha256};

/// The SHA-256 of a text as 64 hexadecimal digits.
pub(crate) fn sha256_hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The client token of an AWS call: 48 hexadecimal digits, equal for equal parts. AWS performs calls with the same
/// client token once, so that a retry after a lost response creates nothing twice. The answer is the first result, even
/// after its deletion, so the parts include the state that was observed.
pub(crate) fn client_token(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\n").as_bytes());
    digest.iter().take(24).map(|byte| format!("{byte:02x}")).collect()
}
