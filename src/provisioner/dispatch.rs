//! Maps `spec.provisioner` to its implementation.

use super::{Provisioner, eks, fargate, nodegroup};
use crate::api::ProvisionerKind;

/// The provisioner of a kind.
pub(crate) fn for_kind(kind: ProvisionerKind) -> &'static dyn Provisioner {
    match kind {
        ProvisionerKind::Eks => &eks::Eks,
        ProvisionerKind::EksManaged => &nodegroup::EksManaged,
        ProvisionerKind::EksFargate => &fargate::Fargate,
    }
}
