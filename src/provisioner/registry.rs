//! Which provisioners there are: the one line of dispatch.

use super::{Provisioner, eks, eks_managed, fargate};
use crate::api::ProvisionerKind;

/// The provisioner of a kind.
pub fn of(kind: ProvisionerKind) -> &'static dyn Provisioner {
    match kind {
        ProvisionerKind::Eks => &eks::Eks,
        ProvisionerKind::EksManaged => &eks_managed::EksManaged,
        ProvisionerKind::EksFargate => &fargate::Fargate,
    }
}
