//! The provisioner `eks`: a launch template, a scaling group, and a role.

pub mod adopt;
pub mod attributes;
pub mod check;
pub mod configuration;
pub mod create;
pub mod delete;
pub mod drift;
pub mod environment;
pub mod foresee;
pub mod handback;
pub mod hash;
pub mod names;
pub mod observe;
pub mod plan;
pub mod purchase;
pub mod remains;
pub mod resolve;
pub mod rotate;
pub mod standing;
pub mod state;
pub mod user_data;
pub mod versions;
pub mod wanted;
pub mod warm;
