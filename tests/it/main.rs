//! The Rust integration tests as one crate, so that they are linked once.

mod aws;
mod aws_auth;
mod cli;
mod common;
mod crd;
mod docs;
mod examples;
mod hashes;
mod instance;
mod layout;
mod lint;
mod mixed_instances;
mod named_files;
mod plans;
mod purity;
mod rbac;
mod recipes;
mod report;
mod systemd;
mod user_data;
