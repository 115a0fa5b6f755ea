// Pins promtool, which tests deploy/alerts.yaml: see localcloud/controlplane/tools.py, which builds it.
module instance-manager.local/promtool

go 1.26.7

godebug default=go1.26

require github.com/prometheus/prometheus v0.316.0 // indirect
