//! Which provisioners there are: the one line of dispatch for each.

use serde::Serialize;

use super::{Provisioner, eks, eks_managed, fargate};
use crate::api::ProvisionerKind;
use crate::apply::{Apply, Run, Stepped};
use crate::plan::{Act, Step};

/// One line a provisioner: its kind, what walks for it, and its steps, which tell of themselves and apply themselves.
macro_rules! provisioners {
    ($($kind:ident: $walks:path, $step:path;)*) => {
        /// A step that only one provisioner does.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Own {
            $(#[doc = concat!("Of the provisioner `", stringify!($kind), "`.")] $kind($step),)*
        }

        impl Own {
            /// What the provisioner tells of it.
            pub fn act(&self) -> &dyn Act {
                match self {
                    $(Own::$kind(step) => step,)*
                }
            }
        }

        impl Apply for Own {
            async fn apply(&self, run: &mut Run<'_>) -> Stepped {
                match self {
                    $(Own::$kind(step) => step.apply(run).await,)*
                }
            }
        }

        $(impl From<$step> for Step {
            fn from(step: $step) -> Self {
                Step::Own(Own::$kind(step))
            }
        })*

        /// The provisioner of a kind.
        pub fn of(kind: ProvisionerKind) -> &'static dyn Provisioner {
            match kind {
                $(ProvisionerKind::$kind => &$walks,)*
            }
        }
    };
}

provisioners! {
    Eks: eks::Eks, eks::step::EksStep;
    EksManaged: eks_managed::EksManaged, eks_managed::step::EksManagedStep;
    EksFargate: fargate::Fargate, fargate::step::FargateStep;
}
