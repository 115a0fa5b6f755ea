//! The flags that select the cluster and the groups of a command. All commands share them.

use std::path::PathBuf;

use clap::Args;
use kube::config::KubeconfigError;

use super::values::GroupRef;
use crate::k8s;

/// Which cluster a command talks to.
#[derive(Clone, Debug, Default, Args)]
pub struct ConnectionArgs {
    /// Kubeconfig file [default: KUBECONFIG, ~/.kube/config, or the service account of the pod]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

impl ConnectionArgs {
    /// Connects to the API server.
    ///
    /// # Errors
    /// There is no usable configuration.
    pub(crate) async fn connect(&self) -> anyhow::Result<kube::Client> {
        self.connect_as(None).await
    }

    /// Connects, with impersonation of another user.
    ///
    /// # Errors
    /// There is no usable configuration.
    pub(crate) async fn connect_as(&self, user: Option<&str>) -> anyhow::Result<kube::Client> {
        let client = k8s::connect_as(self.kubeconfig.as_deref(), self.context.as_deref(), user).await;
        client.map_err(connect_error)
    }

    /// Whether a cluster is named.
    pub(crate) fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }
}

/// Why there is no client, with what to do. kube's own error names the variables of a pod first.
fn connect_error(error: kube::Error) -> anyhow::Error {
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |cause| cause.source());
    let Some(kubeconfig) = causes.filter_map(|cause| cause.downcast_ref::<KubeconfigError>()).next() else {
        return anyhow::Error::new(error).context("connecting to the API server");
    };
    let problem = match kubeconfig {
        KubeconfigError::ReadConfig(error, path) => format!("{} cannot be read: {error}", path.display()),
        error => error.to_string(),
    };
    let pod = match error {
        kube::Error::InferConfig(_) => "this is not a pod with a service account, and ",
        _ => "",
    };
    anyhow::anyhow!(
        "no Kubernetes cluster: {pod}the kubeconfig is not usable: {problem}; name one with --kubeconfig or KUBECONFIG, \
         and one of its contexts with --context"
    )
}

/// The namespace of a command's groups.
#[derive(Clone, Debug, Default, Args)]
pub struct NamespaceArgs {
    /// Namespace of the groups [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

impl NamespaceArgs {
    /// Namespace and name of one group. Without a namespace, that of the kubeconfig counts.
    ///
    /// # Errors
    /// The group and the flag name different namespaces.
    pub(crate) fn of_group(&self, group: &GroupRef) -> anyhow::Result<(Option<String>, String)> {
        group.in_namespace(self.namespace.as_deref()).map_err(anyhow::Error::msg)
    }
}

/// The groups of a command that is about one, a namespace, or all.
#[derive(Clone, Debug, Args)]
pub struct ScopeArgs {
    /// The group, as NAMESPACE/NAME or as NAME with --namespace
    #[arg(value_name = "GROUP")]
    pub group: Option<GroupRef>,

    #[command(flatten)]
    pub namespace: NamespaceArgs,

    /// All groups of the cluster
    #[arg(short = 'A', long, conflicts_with_all = ["group", "namespace"])]
    pub all_namespaces: bool,
}

impl ScopeArgs {
    /// The groups. Without a group and a namespace, those of the kubeconfig's namespace.
    ///
    /// # Errors
    /// The arguments name two namespaces.
    pub(crate) fn target(&self) -> anyhow::Result<Target> {
        Ok(match &self.group {
            None if self.all_namespaces => Target::All,
            None => Target::Namespace(self.namespace.namespace.clone()),
            Some(group) => {
                let (namespace, name) = self.namespace.of_group(group)?;
                Target::Group(namespace, name)
            }
        })
    }

    /// Whether the arguments name neither a group nor a namespace.
    pub(crate) fn is_empty(&self) -> bool {
        self.group.is_none() && self.namespace.namespace.is_none() && !self.all_namespaces
    }
}

/// The groups that a command is about. A namespace that is `None` is that of the kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Every group of the cluster.
    All,
    /// Every group of a namespace.
    Namespace(Option<String>),
    /// One group, by namespace and name.
    Group(Option<String>, String),
}

impl Target {
    /// The same with the namespace of the kubeconfig where none is given.
    pub(crate) fn with_default_namespace(self, default: &str) -> Self {
        let or_default = |given: Option<String>| Some(given.unwrap_or_else(|| default.to_owned()));
        match self {
            Target::All => Target::All,
            Target::Namespace(given) => Target::Namespace(or_default(given)),
            Target::Group(given, name) => Target::Group(or_default(given), name),
        }
    }

    /// The namespace of the groups; `None` for all.
    pub(crate) fn namespace(&self) -> Option<&str> {
        match self {
            Target::All => None,
            Target::Namespace(namespace) | Target::Group(namespace, _) => namespace.as_deref(),
        }
    }
}
