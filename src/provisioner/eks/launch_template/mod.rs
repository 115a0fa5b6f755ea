//! launch_template

pub mod drift;
pub mod fingerprint;
pub mod launch_checks;
pub mod versions;
