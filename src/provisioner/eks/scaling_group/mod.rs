//! scaling_group

pub mod attributes;
pub mod mixed_instances;
pub mod readiness;
pub mod scale_in;
pub mod spot;
