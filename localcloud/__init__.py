"""The local cloud: a Kubernetes control plane and a simulated AWS on this machine."""
