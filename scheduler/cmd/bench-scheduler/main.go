// Command bench-scheduler measures schedulers on a local cluster.
//
//	bench-scheduler throughput   pods per second, processor time and memory: with the plugin, without it, Coscheduling
//	bench-scheduler training     a workload of training jobs with the plugin and without it, its time compressed
//
// Both print tables in Markdown. bench/run.sh builds what they need.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

func main() {
	klog.SetLogger(klog.Logger{}) // of client-go: the cluster's end isn't news
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := command(ctx, os.Args[1:])
	if err == nil {
		return
	}
	var usage usageError
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.As(err, &usage):
		fmt.Fprintln(os.Stderr, "bench-scheduler:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench-scheduler:", err)
		os.Exit(1)
	}
}

type usageError struct{ error }

func command(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "throughput":
			return throughput(ctx, args[1:])
		case "training":
			return training(ctx, args[1:])
		}
	}
	return usageError{errors.New("the first argument is throughput or training; -h after it lists the flags")}
}

// parse reads a command's flags; it takes no arguments besides.
func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return err
	case err != nil:
		return usageError{err}
	case flags.NArg() > 0:
		return usageError{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	}
	return nil
}
