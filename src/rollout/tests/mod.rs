//! Rollouts played over simulated groups. What a group did is judged from its own record, not from the decisions.

mod cases;
mod changes;
mod checks;
mod examples;
mod failures;
mod groups;
mod history_faults;
mod images;
mod judges;
mod lost_key;
mod orders;
mod properties;
mod simulated_cluster;
mod small_edits;
mod times;
mod waiting;
