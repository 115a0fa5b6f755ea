//! leader

pub mod election;
pub mod other_controller;
