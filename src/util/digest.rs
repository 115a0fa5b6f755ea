//! SHA-256 digests as text.

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
    const DIGITS: [char; 16] = ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'];
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)]);
        text.push(DIGITS[usize::from(byte & 0xf)]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded hashes are compared as text: another notation would replace every node.
    #[test]
    fn every_byte_has_two_lower_case_digits() {
        for byte in u8::MIN..=u8::MAX {
            assert_eq!(hex(&[byte]), format!("{byte:02x}"));
        }
        assert_eq!(hex(&[0x00, 0xa0, 0x0f]), "00a00f");
    }
}
