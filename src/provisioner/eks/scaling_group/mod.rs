//! The Auto Scaling group: creation, attributes, purchase options, readiness, and scale-in.

pub mod attributes;
pub mod create;
pub mod mixed_instances;
pub mod readiness;
pub mod scale_in;
pub mod spot;
