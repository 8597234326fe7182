// Command tutti-local is a cluster on one machine, to try Tutti: etcd, kube-apiserver, kube-scheduler with the plugin, a Job
// controller, and nodes that only pretend to run pods. Everything listens on 127.0.0.1.
//
// It starts itself again for the parts that must be processes of their own: "tutti-local kube-apiserver …" and
// "tutti-local kube-scheduler …" are those commands, with their usual flags.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/component-base/cli"
	"k8s.io/klog/v2"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/controller/job"

	"tutti/scheduler/bridge"
	"tutti/scheduler/fakekubelet"
	"tutti/scheduler/localcluster"
)

func main() {
	if len(os.Args) > 1 {
		switch part, args := os.Args[1], os.Args[2:]; part {
		case "kube-apiserver":
			command := apiserver.NewAPIServerCommand()
			command.SetArgs(args)
			os.Exit(cli.Run(command))
		case "kube-scheduler":
			command, err := bridge.Command(args)
			if err != nil {
				fmt.Fprintln(os.Stderr, "kube-scheduler:", err)
				os.Exit(2)
			}
			os.Exit(cli.Run(command))
		}
	}
	if err := up(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tutti-local:", err)
		var usage usageError
		if errors.As(err, &usage) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}

type usageError struct{ error }

func up(args []string) error {
	flags := flag.NewFlagSet("tutti-local", flag.ContinueOnError)
	nodes := flags.Int("nodes", 8, "number of fake nodes")
	gpus := flags.Int("gpus-per-node", 1, "GPUs of each ("+fakekubelet.GPU+")")
	plugin := flags.String("plugin", "out/guest/plugin.wasm", "the guest; \"\" runs the scheduler without a plugin")
	guestConfig := flags.String("guest-config", "{}", "the plugin's settings, JSON")
	dir := flags.String("dir", "", "directory for all data, kept and found again by the next start; default a temporary one")
	port := flags.Int("port", 0, "port of the API server; default a free one")
	verbose := flags.Bool("v", false, "log what the controllers do")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return usageError{err}
	}
	switch {
	case flags.NArg() > 0:
		return usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	case *nodes < 0 || *gpus < 0 || *port < 0 || *port > 65535:
		return usageError{errors.New("--nodes, --gpus-per-node and --port can't be negative, and a port ends at 65535")}
	}
	if *plugin != "" {
		if _, err := os.Stat(*plugin); err != nil {
			return usageError{fmt.Errorf("--plugin: %w; make guests builds it", err)}
		}
		if !json.Valid([]byte(*guestConfig)) {
			return usageError{fmt.Errorf("--guest-config: %q is no JSON", *guestConfig)}
		}
	}
	if !*verbose {
		klog.SetOutput(io.Discard)
		klog.LogToStderr(false)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	fmt.Println("starting etcd and kube-apiserver …")
	cluster, err := localcluster.Start(ctx, localcluster.Options{Dir: *dir, Port: *port, Binary: self})
	if err != nil {
		return err
	}
	defer cluster.Stop()
	if err := cluster.InstallCRDs(ctx); err != nil {
		return err
	}
	for _, node := range fakekubelet.Nodes(*nodes, *gpus) {
		if _, err := cluster.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("node %s: %w", node.Name, err)
		}
	}
	failed := make(chan error, 2)
	go func() { failed <- fakekubelet.Run(ctx, cluster.Client, fakekubelet.Options{}) }()
	go func() { failed <- runJobs(ctx, cluster) }()
	scheduler, err := cluster.StartScheduler(localcluster.SchedulerOptions{
		Binary: self, Args: []string{"kube-scheduler"}, Plugin: *plugin, GuestConfig: *guestConfig, PodGroupStatus: true,
	})
	if err != nil {
		return err
	}
	defer scheduler.Stop(5 * time.Second)
	if err := scheduler.WaitHealthy(time.Minute); err != nil {
		return err
	}
	fmt.Printf(`%d nodes are up, %s: %d each. In another terminal:

  export KUBECONFIG=%s
  kubectl apply -f scheduler-config/examples/gang.yaml
  kubectl get pods -o wide -w
  kubectl get podgroups.scheduling.x-k8s.io

Logs and data: %s. Ctrl-C stops everything.
`, *nodes, fakekubelet.GPU, *gpus, cluster.Kubeconfig, cluster.Dir)

	select {
	case <-ctx.Done():
		fmt.Println("\nstopping …")
		return nil
	case <-scheduler.Done():
		return fmt.Errorf("kube-scheduler: %w", scheduler.Err())
	case err := <-failed:
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("a controller ended: %w", err)
	}
}

// runJobs runs the upstream Job controller, the one controller that the examples need.
func runJobs(ctx context.Context, cluster *localcluster.Cluster) error {
	factory := informers.NewSharedInformerFactory(cluster.Client, 0)
	controller, err := job.NewController(ctx, factory.Core().V1().Pods(), factory.Batch().V1().Jobs(), cluster.Client)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	controller.Run(ctx, 2)
	return nil
}
