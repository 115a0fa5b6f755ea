//! role

pub mod previous_roles;
