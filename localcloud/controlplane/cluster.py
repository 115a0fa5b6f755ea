"""The Kubernetes side of the local cloud: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok."""

import functools
import json
import pathlib
import secrets
import ssl
import urllib.error
import urllib.request

from localcloud.controlplane import processes, tools
from localcloud.controlplane.tools import log_progress

HERE = pathlib.Path(__file__).resolve().parent
NAMESPACE = "instance-manager"
SERVICE_ACCOUNT = "instance-manager"
KUBELET_LABEL = "local.instance-manager/kubelet"
# Lease duration of a node (kubelets renew after a quarter of it) and node monitor grace period, in seconds.
HEARTBEAT_SETTINGS = {"short": (20, 20), "realistic": (40, 50)}
# The users in the audit log. All of them are cluster administrators.
USERS = ("admin", "system:kube-controller-manager", "system:kube-scheduler", "kwok", "aws-simulator")
# The controllers that nodes, drains and garbage collection need. The others only use CPU.
CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
)
# What an API server does from time to time although nobody needs it here: it compares each watch cache with etcd, measures
# the objects of each resource, and announces itself to other API servers.
DISABLED_GATES = ("APIServerIdentity", "DetectCacheInconsistency", "SizeBasedListCostEstimate", "UnknownVersionInteroperabilityProxy")
# Resources that hardly anything reads.
UNCACHED = (
    "endpoints",
    "limitranges",
    "persistentvolumeclaims",
    "persistentvolumes",
    "podtemplates",
    "replicationcontrollers",
    "resourcequotas",
    "services",
    "mutatingadmissionpolicies.admissionregistration.k8s.io",
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
    "mutatingwebhookconfigurations.admissionregistration.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io",
    "apiservices.apiregistration.k8s.io",
    "controllerrevisions.apps",
    "horizontalpodautoscalers.autoscaling",
    "cronjobs.batch",
    "jobs.batch",
    "certificatesigningrequests.certificates.k8s.io",
    "endpointslices.discovery.k8s.io",
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
    "ingressclasses.networking.k8s.io",
    "ingresses.networking.k8s.io",
    "ipaddresses.networking.k8s.io",
    "networkpolicies.networking.k8s.io",
    "servicecidrs.networking.k8s.io",
    "runtimeclasses.node.k8s.io",
    "deviceclasses.resource.k8s.io",
    "resourceclaims.resource.k8s.io",
    "resourceclaimtemplates.resource.k8s.io",
    "resourceslices.resource.k8s.io",
    "priorityclasses.scheduling.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "csidrivers.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "csistoragecapacities.storage.k8s.io",
    "storageclasses.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "volumeattributesclasses.storage.k8s.io",
)


class Cluster:
    """A control plane with its files under `state`.

    Its processes are `children`, started from `programs`. `delays` is a key of HEARTBEAT_SETTINGS; `node_timeout` replaces
    both of its times.
    """

    def __init__(self, programs, children, state, delays, node_timeout=None):
        self._programs = programs
        self._children = children
        self._state = state
        self._pki = state / "pki"
        self._lease, self._grace = (node_timeout, node_timeout) if node_timeout else HEARTBEAT_SETTINGS[delays]
        self.tokens = {user: secrets.token_urlsafe(24) for user in USERS}
        self.url = f"https://127.0.0.1:{processes.free_port()}"
        self.ca = self._pki / "apiserver.crt"
        self.audit_log = state / "audit.jsonl"
        self.kubeconfig = state / "kubeconfig"

    def start(self):
        """Start every process. Returns when the API server is ready and service accounts exist."""
        self._write_secrets()
        etcd = self._start_etcd()
        self._start_apiserver(etcd)
        self._children.wait_until(lambda: self._get("/readyz"), "the API server")
        log_progress("kube-apiserver is ready")
        self._start_clients()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self._children.wait_until(lambda: self._get(account), "the controller manager")

    def _write_secrets(self):
        # Only the tests' Python has what it imports.
        from localcloud.controlplane import certificates

        self._pki.mkdir()
        certificates.write(self.ca)
        (self._pki / "service-accounts.key").write_bytes(certificates.private_key()[1])
        lines = [f'{token},{user},{user},"system:masters"\n' for user, token in self.tokens.items()]
        (self._pki / "tokens.csv").write_text("".join(lines))

    def _start(self, name, *flags):
        self._children.start(name, [*self._programs[name], *flags])

    def _start_etcd(self):
        client, peer = (f"http://127.0.0.1:{processes.free_port()}" for _ in range(2))
        self._start(
            "etcd",
            f"--data-dir={self._state / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            # One member elects itself once, after the election timeout, and needs no heartbeats.
            "--heartbeat-interval=500",
            "--election-timeout=2500",
            "--log-level=warn",
        )
        return client

    def _start_apiserver(self, etcd):
        key = self._pki / "service-accounts.key"
        flags = (
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.url.rsplit(':', 1)[1]}",
            f"--cert-dir={self._pki}",
            f"--token-auth-file={self._pki / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=172.20.0.0/16",
            f"--audit-policy-file={HERE / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=0",
            "--profiling=false",
            # No client of a local cloud is slowed down in favor of another, and the bookkeeping costs CPU time.
            "--enable-priority-and-fairness=false",
            f"--feature-gates={','.join(f'{gate}=false' for gate in DISABLED_GATES)}",
            # A watch cache uses CPU time also when nothing changes.
            f"--watch-cache-sizes={','.join(f'{resource}#0' for resource in UNCACHED)}",
        )
        self._children.start_killable("kube-apiserver", [*self._programs["kube-apiserver"], *flags])

    def _start_clients(self):
        common = ("--leader-elect=false", "--secure-port=0", "--kube-api-qps=200", "--kube-api-burst=400")
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.write_kubeconfig('system:kube-controller-manager')}",
            f"--controllers={','.join(CONTROLLERS)}",
            f"--node-monitor-grace-period={self._grace}s",
            *common,
        )
        self._start("kube-scheduler", f"--kubeconfig={self.write_kubeconfig('system:kube-scheduler')}", *common)
        self._start(
            "kwok",
            f"--kubeconfig={self.write_kubeconfig('kwok')}",
            f"--config={HERE / 'kwok-stages.yaml'}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-label-selector={KUBELET_LABEL} in (alive,never-ready)",
            f"--node-lease-duration-seconds={self._lease}",
            "--node-port=0",
        )

    def write_kubeconfig(self, user, token=None, path=None):
        """Write a kubeconfig (as JSON, which is YAML) for one of `USERS`, or for `user` with a `token`. Returns its
        path.
        """
        path = path or self._pki / f"{user.replace(':', '-')}.kubeconfig"
        name = "local-cloud"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}],
            "users": [{"name": user, "user": {"token": token or self.tokens[user]}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        }
        path.touch(mode=0o600)
        path.write_text(json.dumps(content, indent=1))
        return path

    @functools.cached_property
    def _tls(self):
        return ssl.create_default_context(cafile=str(self.ca))

    def _request(self, method, path, body=None, content_type="application/json"):
        """The response body of a request of the administrator. Raises OSError."""
        headers = {"Authorization": f"Bearer {self.tokens['admin']}", "Content-Type": content_type}
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        # A new API server is slow on a busy machine. A read is tried again sooner, see `_get`.
        with urllib.request.urlopen(request, timeout=5 if method == "GET" else 120, context=self._tls) as answer:
            return answer.read().decode()

    def _get(self, path):
        """The response body for `path`, or None if the API server does not respond yet."""
        try:
            return self._request("GET", path)
        except OSError:  # the base class of all errors of urllib and ssl
            return None

    @property
    def kubectl(self):
        """The start of every kubectl command line for the cluster's administrator."""
        program = self._state / "bin" / "kubectl"
        return [str(program), f"--kubeconfig={self.kubeconfig}", f"--cache-dir={self._state / 'kubectl-cache'}"]

    def install_kubectl(self):
        """Install kubectl and the administrator's kubeconfig at the paths in `kubectl`."""
        (self._state / "bin").mkdir()
        (self._state / "bin" / "kubectl").symlink_to(self._programs["kubectl"][0])
        self.write_kubeconfig("admin", path=self.kubeconfig)

    def _apply(self, text):
        """Do what `kubectl apply --server-side` does with these documents. kubectl itself takes much longer to start."""
        import yaml

        for document in filter(None, yaml.load_all(text, yaml.CSafeLoader)):
            version, metadata = document["apiVersion"], document["metadata"]
            place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
            collection = f"/{'apis' if '/' in version else 'api'}/{version}{place}/{document['kind'].lower()}s"
            path = f"{collection}/{metadata['name']}?fieldManager=kubectl&fieldValidation=Strict"
            try:
                self._request("PATCH", path, json.dumps(document).encode(), "application/apply-patch+yaml")
            except urllib.error.HTTPError as error:
                raise processes.ProcessExited(f"{document['kind']} {metadata['name']}: {error.read().decode()}") from error

    def _established(self):
        # `kubectl wait` fails for an object that has no conditions yet.
        crds = json.loads(self._get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions") or "{}").get("items", [])
        wanted = {"type": "Established", "status": "True"}
        return bool(crds) and all(
            any(wanted.items() <= condition.items() for condition in crd["status"].get("conditions") or []) for crd in crds
        )

    def apply_manifests(self, with_crds):
        """Apply the CRDs and the RBAC manifest that a cluster admin applies. Returns the controller's kubeconfig."""
        crds = tools.REPOSITORY / "crds"
        if with_crds and any(crds.glob("*.yaml")):
            self._apply("\n---\n".join(path.read_text() for path in sorted(crds.glob("*.yaml"))))
            self._children.wait_until(self._established, "the CRDs")
        self._apply((tools.REPOSITORY / "deploy" / "rbac.yaml").read_text())
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}/token"
        wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 720 * 3600}}
        token = json.loads(self._request("POST", path, json.dumps(wanted).encode()))["status"]["token"]
        return self.write_kubeconfig(SERVICE_ACCOUNT, token, self._state / "controller.kubeconfig")
