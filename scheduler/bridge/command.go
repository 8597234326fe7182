package bridge

import (
	"github.com/spf13/cobra"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Command is the kube-scheduler command with the wasm plugins that the arguments' --config lists.
func Command(args []string) (*cobra.Command, error) {
	plugins, err := PluginsOf(args)
	if err != nil {
		return nil, err
	}
	var options []app.Option
	for _, name := range plugins {
		options = append(options, app.WithPlugin(name, Factory(name)))
	}
	command := app.NewSchedulerCommand(options...)
	command.SetArgs(args)
	return command, nil
}
