//! Size limits of user data.

/// What EC2 accepts, in bytes of raw user data before base64.
pub const MAX_BYTES: usize = 16_384;

/// The most bytes that are parsed and compressed; more would not fit into [`MAX_BYTES`] after compression.
pub(super) const MAX_UNCOMPRESSED_BYTES: usize = 131_072;
