package bridge

import (
	"context"
	"sync"

	"github.com/spf13/cobra"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"tutti/scheduler/podgroup"
)

// Command is the kube-scheduler command with the wasm plugins that the arguments' --config lists.
func Command(args []string) (*cobra.Command, error) {
	plugins, err := PluginsOf(args)
	if err != nil {
		return nil, err
	}
	var options []app.Option
	for _, p := range plugins {
		factory := Factory(p.Name)
		if p.PodGroupStatus {
			factory = withStatus(factory)
		}
		options = append(options, app.WithPlugin(p.Name, factory))
	}
	command := app.NewSchedulerCommand(options...)
	command.SetArgs(args)
	return command, nil
}

// statusOnce: a factory runs once for each profile.
var statusOnce sync.Once

// withStatus also keeps the status of PodGroups, in the background.
func withStatus(factory frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args kruntime.Object, handle framework.Handle) (framework.Plugin, error) {
		plugin, err := factory(ctx, args, handle)
		if err == nil {
			statusOnce.Do(func() {
				go func() {
					if err := podgroup.Lead(ctx, handle.KubeConfig()); err != nil {
						klog.ErrorS(err, "The status of PodGroups isn't kept")
					}
				}()
			})
		}
		return plugin, err
	}
}
