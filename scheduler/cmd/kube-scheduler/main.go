// Command kube-scheduler is the upstream kube-scheduler with the upstream wasm extension: every plugin that the
// configuration file gives a guestURL is registered, and its framework handle is wrapped by the bridge.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"tutti/scheduler/bridge"
)

func main() {
	plugins, err := bridge.PluginsOf(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-scheduler:", err)
		os.Exit(2)
	}
	var options []app.Option
	for _, name := range plugins {
		options = append(options, app.WithPlugin(name, bridge.Factory(name)))
	}
	os.Exit(cli.Run(app.NewSchedulerCommand(options...)))
}
