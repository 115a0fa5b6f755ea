//! SHA-256 digests as text.

use sha2::{Digest, Sha256};

/// The SHA-256 of a text as 64 hexadecimal digits.
pub fn sha256_hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
