//! The Auto Scaling group: creation, attributes, purchase options, readiness, and scale-in.

pub(crate) mod attributes;
pub(crate) mod create;
pub(crate) mod hooks;
pub(crate) mod instance_tags;
pub(crate) mod lost_instances;
pub(crate) mod mixed_instances;
pub(crate) mod readiness;
pub(crate) mod scale_in;
pub(crate) mod spot;
pub(crate) mod subnets;
pub(crate) mod suspended;
pub(crate) mod weights;
