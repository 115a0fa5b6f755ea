// Nodes reads user data with the code of the programs that run on a node: the
// kubelet's flags and configuration, and nodeadm's NodeConfig. Each line of
// standard input is one request in JSON, and each line of standard output is
// its answer: the result, or the error of the program.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/klog/v2"
)

type request struct {
	// Kubelet is the command line and the configuration of a kubelet.
	Kubelet *kubeletRequest `json:"kubelet"`
	// UserData is what nodeadm reads from the instance metadata service.
	UserData []byte `json:"nodeadm"`
}

type answer struct {
	Result any    `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

func respond(line []byte) answer {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: err.Error()}
	}
	var result any
	var err error
	if asked.Kubelet != nil {
		result, err = startKubelet(asked.Kubelet)
	} else {
		result, err = readUserData(asked.UserData)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Result: result}
}

func main() {
	klog.SetOutput(os.Stderr)
	klog.LogToStderr(false)
	lines := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		if err := out.Encode(respond(line)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
