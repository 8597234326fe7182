// Command kube-scheduler is the upstream kube-scheduler with the upstream wasm extension: every plugin that the
// configuration file gives a guestURL is registered, and its framework handle is wrapped by the bridge.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"

	"tutti/scheduler/bridge"
)

func main() {
	command, err := bridge.Command(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-scheduler:", err)
		os.Exit(2)
	}
	os.Exit(cli.Run(command))
}
