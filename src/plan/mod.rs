//! The plan is a value: what one pass does to one group, why, and the state that follows.
//!
//! Golden files test it, `instance-manager plan` prints it, [`crate::apply`] applies it, and
//! [`crate::controller::report`] turns it into status and events. This file only re-exports.

mod builder;
pub(crate) mod drift;
pub(crate) mod event;
mod event_reason;
pub(crate) mod in_place;
pub(crate) mod node_usage;
pub(crate) mod outcome;
pub(crate) mod persistent_failure;
pub(crate) mod stalled_reason;
pub(crate) mod step;
pub(crate) mod types;
pub(crate) mod write;

pub(crate) use builder::blocked_plan;
pub use builder::{PlanBuilder, waiting};
pub use drift::Drift;
pub(crate) use drift::TEMPLATE_VERSION;
pub use event::{ConditionUpdate, Event, EventKind, EventObject, ObjectEvent};
pub use event_reason::EventReason;
pub use in_place::{InPlaceChange, InPlaceRecord, NodeAttributes, NodeTaint};
pub use node_usage::{Allowance, BATCH, NodeStart, NodeUsage, ZoneUsage};
pub use outcome::{Outcome, Phase, Recheck};
pub use persistent_failure::PersistentFailure;
pub use stalled_reason::StalledReason;
pub(crate) use step::on_pod;
pub use step::{
    EksStep, FargateStep, IamStep, JoinStep, NodeStep, NodegroupStep, ObjectStep, Pin, PodRef, Step, StepFields,
    StepInfo, StrategyStep, UncordonReason,
};
pub use types::{FieldRejection, Plan, PlannedStep, StatusUpdate};
pub use write::Write;
