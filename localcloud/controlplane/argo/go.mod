// Which release of Argo Workflows the tests take the definition of a Workflow from; go.sum pins its content.
module instance-manager.local/argo

go 1.21

require github.com/argoproj/argo-workflows/v3 v3.6.10
