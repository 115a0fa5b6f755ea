//! SHA-256 digests as text.

use sha2::{Digest, Sha256};

/// The SHA-256 of a text as 64 hexadecimal digits.
pub fn sha256_hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An idempotency token for an AWS call: equal inputs give the same token of 48 hexadecimal digits.
pub fn idempotency_token(parts: &[&str]) -> String {
    let digest = Sha256::digest(parts.join("\n").as_bytes());
    digest.iter().take(24).map(|byte| format!("{byte:02x}")).collect()
}
