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
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"tutti/scheduler/fakekubelet"
	"tutti/scheduler/localcluster"
)

// workload is nodes of 8 GPUs, and gangs of pods of one GPU each. Gangs of one are pods of no gang.
type workload struct{ nodes, gangs, size int }

func (w workload) pods() int { return w.gangs * w.size }

func (w workload) String() string {
	if w.size == 1 {
		return fmt.Sprintf("%d nodes, %d pods of no gang", w.nodes, w.gangs)
	}
	return fmt.Sprintf("%d nodes, %d gangs of %d", w.nodes, w.gangs, w.size)
}

// contender is a scheduler to measure.
type contender struct {
	name      string
	scheduler localcluster.SchedulerOptions
}

// result is pods per second, processor seconds and peak resident MiB of the scheduler process.
type result struct{ rate, cpu, rss float64 }

func throughput(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("throughput", flag.ContinueOnError)
	runs := flags.Int("runs", 3, "runs of each, of which the median counts")
	quick := flags.Bool("quick", false, "one run of small workloads, to see that all works; no figures to publish")
	work := flags.String("workloads", "500x250x8,1000x20x200,5000x100x8", "nodes x gangs x size, comma-separated")
	coscheduling := flags.String("coscheduling", "", "a scheduler with the Coscheduling plugin; \"\" leaves it out")
	plugin := flags.String("plugin", "out/guest/plugin.wasm", "the guest")
	scheduler := flags.String("kube-scheduler", "scheduler/bin/kube-scheduler", "the scheduler")
	local := flags.String("tutti-local", "scheduler/bin/tutti-local", "the binary with the API server")
	profiles := flags.String("profiles", "", "directory for profiles (pprof) of each run: CPU of the first five seconds, and memory at the end; the profiler costs a little itself")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *quick {
		*runs, *work = 1, "50x25x8,50x2x100,50x200x1"
	}
	if *runs < 1 {
		return usageError{errors.New("--runs must be at least 1")}
	}
	var workloads []workload
	for text := range strings.SplitSeq(*work, ",") {
		var w workload
		if n, err := fmt.Sscanf(text+"\n", "%dx%dx%d\n", &w.nodes, &w.gangs, &w.size); err != nil || n != 3 || min(w.nodes, w.gangs, w.size) < 1 {
			return usageError{fmt.Errorf("--workloads: %q is not nodes x gangs x size, as 500x250x8", text)}
		}
		if w.pods() > 8*w.nodes {
			return usageError{fmt.Errorf("--workloads: %q wants %d pods on %d GPUs", text, w.pods(), 8*w.nodes)}
		}
		workloads = append(workloads, w)
	}
	binary, err := filepath.Abs(*local)
	if err != nil {
		return err
	}
	contenders := []contender{
		{"no plugin", localcluster.SchedulerOptions{Binary: *scheduler}},
		{"Tutti", localcluster.SchedulerOptions{Binary: *scheduler, Plugin: *plugin}},
	}
	if *coscheduling != "" {
		contenders = append(contenders, contender{"Coscheduling", localcluster.SchedulerOptions{Binary: *coscheduling, Coscheduling: true}})
	}
	for _, c := range append(contenders, contender{scheduler: localcluster.SchedulerOptions{Binary: binary}}) {
		for _, file := range []string{c.scheduler.Binary, c.scheduler.Plugin} {
			if _, err := os.Stat(file); file != "" && err != nil {
				return usageError{fmt.Errorf("%w; make bench-scheduler builds it", err)}
			}
		}
	}
	fmt.Printf("Median of %d. Ratios are to the same binary without a plugin.\n\n"+
		"| workload | scheduler | pods/s | CPU ms per pod | peak RSS MiB | pods/s ratio | CPU ratio | RSS ratio |\n|---|---|---|---|---|---|---|---|\n", *runs)
	for _, w := range workloads {
		all := make([][]result, len(contenders))
		for run := range *runs {
			for i, c := range contenders { // in turn, so that a drift of the machine meets all alike
				profile := ""
				if *profiles != "" {
					profile = filepath.Join(*profiles, fmt.Sprintf("%dx%dx%d-%s-%d", w.nodes, w.gangs, w.size, strings.ReplaceAll(c.name, " ", "-"), run))
				}
				r, err := once(ctx, w, c.scheduler, binary, profile)
				if err != nil {
					return fmt.Errorf("%v, %s: %w", w, c.name, err)
				}
				fmt.Fprintf(os.Stderr, "%s  %v, %s, run %d: %.0f pods/s, CPU %.1f s, RSS %.0f MiB\n",
					time.Now().Format(time.TimeOnly), w, c.name, run+1, r.rate, r.cpu, r.rss)
				all[i] = append(all[i], r)
			}
		}
		name := w.String()
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
			fmt.Printf("| %s | %s | %.0f | %.2f | %.0f | %.2f | %.2f | %.2f |\n", name, c.name,
				m.rate, 1000*m.cpu/float64(w.pods()), m.rss, m.rate/base.rate, m.cpu/base.cpu, m.rss/base.rss)
			name = ""
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

// longest bounds one run.
const longest = 5 * time.Minute

// once runs the workload on a fresh cluster. The clock starts when the scheduler has all pods in its queue.
func once(ctx context.Context, w workload, o localcluster.SchedulerOptions, binary, profile string) (r result, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("not done in %v", longest))
	defer cancel()
	cluster, err := localcluster.Start(ctx, localcluster.Options{Binary: binary})
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
	bound, err := follow(ctx, cluster.Client, gotNode)
	if err != nil {
		return r, err
	}
	s, err := cluster.StartScheduler(o)
	if err != nil {
		return r, err
	}
	defer s.Kill()
	if err := s.WaitHealthy(time.Minute); err != nil {
		return r, err
	}
	for queued := 0.0; queued < float64(w.pods()); time.Sleep(5 * time.Millisecond) {
		samples, err := s.Metrics()
		if err != nil {
			return r, err
		}
		queued = samples[`scheduler_queue_incoming_pods_total{event="UnschedulablePodAdd",queue="active"}`]
		if ctx.Err() != nil {
			return r, fmt.Errorf("%.0f of %d pods are in the queue: %w", queued, w.pods(), context.Cause(ctx))
		}
	}
	start := time.Now()
	before, _, err := usage(s.PID())
	if err != nil {
		return r, err
	}
	profiled := make(chan error, 1)
	go func() {
		if profile == "" {
			profiled <- nil
			return
		}
		data, err := s.CPUProfile(5 * time.Second)
		profiled <- errors.Join(err, os.WriteFile(profile+"-cpu.pprof", data, 0o644))
	}()
	for n := range w.pods() {
		select {
		case <-bound:
		case <-s.Done():
			return r, s.Err()
		case <-ctx.Done():
			return r, fmt.Errorf("%d of %d pods are bound: %w", n, w.pods(), context.Cause(ctx))
		}
	}
	r.rate = float64(w.pods()) / time.Since(start).Seconds()
	if r.cpu, r.rss, err = usage(s.PID()); err != nil {
		return r, err
	}
	r.cpu -= before
	if err := <-profiled; err != nil || profile == "" {
		return r, err
	}
	data, err := s.HeapProfile()
	return r, errors.Join(err, os.WriteFile(profile+"-heap.pprof", data, 0o644))
}

// gotNode tells whether the pod's change is that it got a node.
func gotNode(before, now *v1.Pod) bool {
	return now.Spec.NodeName != "" && (before == nil || before.Spec.NodeName == "")
}

// follow sends each pod whose change is of interest. before is nil for one that is new.
func follow(ctx context.Context, client kubernetes.Interface, interest func(before, now *v1.Pod) bool) (<-chan *v1.Pod, error) {
	changed := make(chan *v1.Pod, 1000)
	look := func(old, obj any) {
		before, _ := old.(*v1.Pod)
		if pod, ok := obj.(*v1.Pod); ok && interest(before, pod) {
			select {
			case changed <- pod:
			case <-ctx.Done():
			}
		}
	}
	informer := coreinformers.NewPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(pod any) { look(nil, pod) }, UpdateFunc: look,
	}); err != nil {
		return nil, err
	}
	go informer.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, context.Cause(ctx)
	}
	return changed, nil
}

var podGroups = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

// fill makes nodes, groups and pods.
func fill(ctx context.Context, cluster *localcluster.Cluster, w workload) error {
	nodes := fakekubelet.Nodes(w.nodes, 8)
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		return err
	}
	if err := parallel(ctx, len(nodes), func(i int) error {
		_, err := cluster.Client.CoreV1().Nodes().Create(ctx, nodes[i], metav1.CreateOptions{})
		return err
	}); err != nil {
		return err
	}
	if w.size > 1 {
		if err := parallel(ctx, w.gangs, func(i int) error {
			_, err := client.Resource(podGroups).Namespace("default").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
				"metadata": map[string]any{"name": "g" + strconv.Itoa(i)}, "spec": map[string]any{"minMember": int64(w.size)},
			}}, metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	return parallel(ctx, w.pods(), func(i int) error {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("g%d-%d", i/w.size, i%w.size)},
			Spec: v1.PodSpec{Containers: []v1.Container{{
				Name: "main", Image: "registry.k8s.io/pause:3.10",
				Resources: v1.ResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")},
					Limits:   v1.ResourceList{fakekubelet.GPU: resource.MustParse("1")},
				},
			}}},
		}
		if w.size > 1 {
			pod.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": "g" + strconv.Itoa(i/w.size)}
		}
		_, err := cluster.Client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
}

// parallel calls f with 0 to n-1 on several goroutines and returns the first error.
func parallel(ctx context.Context, n int, f func(int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workqueue.ParallelizeUntil(ctx, 32, n, func(i int) {
		if err := f(i); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
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
