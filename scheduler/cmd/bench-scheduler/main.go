// Command bench-scheduler compares schedulers on one machine: each workload's pods are all in the queue before the scheduler
// starts, and the time from its first binding's request to the last pod bound is taken. It prints pods per second, processor
// seconds and peak memory of the scheduler process, as medians, and the ratios to the first scheduler.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"tutti/scheduler/fakekubelet"
	"tutti/scheduler/localcluster"
)

// workload is nodes of 8 GPUs, and gangs of pods of one GPU each.
type workload struct{ nodes, gangs, size int }

func (w workload) String() string {
	return fmt.Sprintf("%d nodes, %d gangs of %d", w.nodes, w.gangs, w.size)
}

// contender is a scheduler to measure.
type contender struct {
	name    string
	binary  string
	args    []string
	plugin  string
	cosched bool
}

type result struct{ rate, cpu, rss float64 }

func main() {
	runs := flag.Int("runs", 3, "runs of each, of which the median counts")
	coscheduling := flag.String("coscheduling", "", "a scheduler with the Coscheduling plugin; \"\" leaves it out")
	plugin := flag.String("plugin", "out/guest/plugin.wasm", "the guest")
	work := flag.String("workloads", "500x250x8,1000x20x200,5000x100x8", "nodes x gangs x size, comma-separated")
	local := flag.String("tutti-local", "scheduler/bin/tutti-local", "the binary with API server and scheduler")
	flag.Parse()
	klog.SetLogger(klog.Logger{})
	if err := measure(*runs, *local, *plugin, *coscheduling, *work); err != nil {
		fmt.Fprintln(os.Stderr, "bench-scheduler:", err)
		os.Exit(1)
	}
}

func measure(runs int, local, plugin, coscheduling, work string) error {
	local, err := filepath.Abs(local)
	if err != nil {
		return err
	}
	contenders := []contender{
		{name: "no plugin", binary: local, args: []string{"kube-scheduler"}},
		{name: "Tutti", binary: local, args: []string{"kube-scheduler"}, plugin: plugin},
	}
	if coscheduling != "" {
		contenders = append(contenders, contender{name: "Coscheduling", binary: coscheduling, cosched: true})
	}
	for text := range strings.SplitSeq(work, ",") {
		var w workload
		if _, err := fmt.Sscanf(text, "%dx%dx%d", &w.nodes, &w.gangs, &w.size); err != nil {
			return fmt.Errorf("--workloads: %q is not nodes x gangs x size", text)
		}
		all := make([][]result, len(contenders))
		for range runs {
			for i, c := range contenders { // in turn, so that a drift of the machine meets all alike
				r, err := one(w, c, local)
				if err != nil {
					return fmt.Errorf("%v, %s: %w", w, c.name, err)
				}
				all[i] = append(all[i], r)
			}
		}
		fmt.Printf("\n%v (%d runs, medians)\n%-14s %9s %9s %9s %8s %8s %8s\n", w, runs, "", "pods/s", "CPU s", "RSS MiB", "rate", "CPU", "RSS")
		var base result
		for i, c := range contenders {
			m := result{
				median(all[i], func(r result) float64 { return r.rate }),
				median(all[i], func(r result) float64 { return r.cpu }),
				median(all[i], func(r result) float64 { return r.rss }),
			}
			if i == 0 {
				base = m
			}
			fmt.Printf("%-14s %9.0f %9.1f %9.0f %7.2fx %7.2fx %7.2fx\n", c.name, m.rate, m.cpu, m.rss, m.rate/base.rate, m.cpu/base.cpu, m.rss/base.rss)
		}
	}
	return nil
}

func median(all []result, of func(result) float64) float64 {
	var v []float64
	for _, r := range all {
		v = append(v, of(r))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

var podGroups = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

// one runs the workload once on a fresh cluster.
func one(w workload, c contender, local string) (r result, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cluster, err := localcluster.Start(ctx, localcluster.Options{Binary: local})
	if err != nil {
		return r, err
	}
	defer cluster.Stop()
	if err := cluster.InstallCRDs(ctx); err != nil {
		return r, err
	}
	if err := fill(ctx, cluster, w); err != nil {
		return r, err
	}
	pods, err := cluster.Client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return r, err
	}
	defer pods.Stop()
	s, err := cluster.StartScheduler(localcluster.SchedulerOptions{
		Binary: c.binary, Args: c.args, Plugin: c.plugin, Coscheduling: c.cosched,
	})
	if err != nil {
		return r, err
	}
	defer s.Kill()
	bound := map[string]bool{}
	var first time.Time
	for len(bound) < w.gangs*w.size {
		select {
		case e, ok := <-pods.ResultChan():
			if !ok {
				return r, errors.New("the watch of the pods ended")
			}
			if pod, is := e.Object.(*v1.Pod); is && pod.Spec.NodeName != "" {
				if first.IsZero() {
					first = time.Now()
				}
				bound[string(pod.UID)] = true
			}
		case <-s.Done():
			return r, fmt.Errorf("the scheduler ended: %w", s.Err())
		case <-ctx.Done():
			return r, fmt.Errorf("%d of %d pods are bound: %w", len(bound), w.gangs*w.size, ctx.Err())
		}
	}
	r.rate = float64(w.gangs*w.size) / time.Since(first).Seconds()
	r.cpu, r.rss, err = usage(s.PID())
	return r, err
}

// fill makes nodes, groups and pods.
func fill(ctx context.Context, cluster *localcluster.Cluster, w workload) error {
	nodes := fakekubelet.Nodes(w.nodes, 8)
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	each := func(n int, f func(int) error) error {
		workqueue.ParallelizeUntil(ctx, 32, n, func(i int) {
			if err := f(i); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
		select {
		case err := <-failed:
			return err
		default:
			return ctx.Err()
		}
	}
	if err := each(len(nodes), func(i int) error {
		_, err := cluster.Client.CoreV1().Nodes().Create(ctx, nodes[i], metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	if err := each(w.gangs, func(i int) error {
		_, err := client.Resource(podGroups).Namespace("default").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
			"metadata": map[string]any{"name": "g" + strconv.Itoa(i)}, "spec": map[string]any{"minMember": int64(w.size)},
		}}, metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	return each(w.gangs*w.size, func(i int) error {
		_, err := cluster.Client.CoreV1().Pods("default").Create(ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:   fmt.Sprintf("g%d-%d", i/w.size, i%w.size),
				Labels: map[string]string{"scheduling.x-k8s.io/pod-group": "g" + strconv.Itoa(i/w.size)},
			},
			Spec: v1.PodSpec{Containers: []v1.Container{{
				Name: "main", Image: "registry.k8s.io/pause:3.10",
				Resources: v1.ResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")},
					Limits:   v1.ResourceList{fakekubelet.GPU: resource.MustParse("1")},
				},
			}}},
		}, metav1.CreateOptions{})
		return err
	})
}

// usage is processor seconds and peak resident MiB of a process, from /proc.
func usage(pid int) (cpu, rss float64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, i := range []int{11, 12} { // utime, stime, in hundredths of a second
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return 0, 0, err
		}
		cpu += v / 100
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			v, err := strconv.ParseFloat(strings.Fields(kib)[0], 64)
			return cpu, v / 1024, err
		}
	}
	return cpu, 0, errors.New("no VmHWM")
}
