package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"tutti/scheduler/fakekubelet"
	"tutti/scheduler/localcluster"
	"tutti/scheduler/scenario"
)

// stillness is how long nothing may come to pass, in the workload's time, before a run without a whole job is deadlocked.
const stillness = 30 * time.Minute

func training(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("training", flag.ContinueOnError)
	file := flags.String("file", "testdata/examples/training-50x8/training.yaml", "the workload, as tutti generate writes it")
	speed := flags.Float64("speed", 30, "how many times faster than written the jobs work; the scheduler's own times stay what they are")
	seed := flags.Uint64("seed", 1, "of the order in which the pods of an anyOrder step come")
	plugin := flags.String("plugin", "out/guest/plugin.wasm", "the guest")
	config := flags.String("guest-config", `{"backoffMaxSeconds": 1}`, "the plugin's settings, JSON; its times aren't compressed, so the longest backoff is set to 30 s of the jobs' time")
	local := flags.String("tutti-local", "scheduler/bin/tutti-local", "the binary with API server and scheduler")
	if err := parse(flags, args); err != nil {
		return err
	}
	if *speed <= 0 {
		return usageError{errors.New("--speed must be above 0")}
	}
	work, err := readTraining(*file)
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", *file, err)}
	}
	if _, err := os.Stat(*plugin); err != nil {
		return usageError{fmt.Errorf("--plugin: %w; make guests builds it", err)}
	}
	binary, err := filepath.Abs(*local)
	if err != nil {
		return err
	}
	fmt.Printf("%d jobs, %d pods, %d GPUs; %gx speed, seed %d. Times are the workload's.\n\n"+
		"| scheduler | deadlocked | jobs done | all done after | peak | mean | taken but idle |\n|---|---|---|---|---|---|---|\n",
		len(work.jobs), len(work.pods), work.gpus, *speed, *seed)
	for _, name := range []string{"plain", "Tutti"} {
		o := localcluster.SchedulerOptions{Binary: binary, Args: []string{"kube-scheduler"}, MaxBackoff: time.Second}
		if name == "Tutti" {
			o.Plugin, o.GuestConfig = *plugin, *config
		}
		u, err := work.run(ctx, o, *speed, *seed)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		done, deadlocked := "never", "yes"
		if !u.deadlocked {
			done, deadlocked = fmt.Sprintf("%.1f min", u.end.Minutes()), "no"
		}
		percent := func(part, whole float64) string { return fmt.Sprintf("%.1f %%", 100*part/whole) }
		all := float64(work.gpus) * u.end.Seconds()
		fmt.Printf("| %s | %s | %s | %s | %s | %s | %s |\n", name, deadlocked, percent(float64(u.jobs), float64(len(work.jobs))), done,
			percent(float64(u.peak), float64(work.gpus)), percent(u.worked, all), percent(u.taken-u.worked, u.taken))
	}
	return nil
}

// trainingWork is a workload of jobs that hold one GPU per pod.
type trainingWork struct {
	cluster []map[string]any // nodes and PodGroups
	pods    []map[string]any
	jobs    map[string]int // pods, by job
	gpus    int
}

// resourceName is the GPU of generated workloads.
const resourceName = "example.com/gpu"

func readTraining(file string) (*trainingWork, error) {
	s, err := scenario.Read(file)
	if err != nil {
		return nil, err
	}
	w := &trainingWork{jobs: map[string]int{}}
	for _, step := range s.Steps {
		if step.At.Duration > time.Second || step.Every.Duration > 0 || step.When != nil || len(step.Create) == 0 {
			return nil, errors.New("only workloads whose pods all come at once can be run on a cluster")
		}
		for i := range step.Create {
			item := &step.Create[i]
			objects, err := item.Objects()
			if err != nil {
				return nil, err
			}
			if len(item.Pod) == 0 {
				w.cluster = append(w.cluster, objects...)
				for range item.Node {
					n := 0
					if _, err := fmt.Sscan(fmt.Sprint(item.Allocatable[resourceName]), &n); err != nil {
						return nil, fmt.Errorf("node %s: %s: %w", item.Node[0], resourceName, err)
					}
					w.gpus += n
				}
				continue
			}
			if !item.Collective || item.StartTimeout != nil || fmt.Sprint(item.Requests[resourceName]) != "1" {
				return nil, fmt.Errorf("pod %s: only collective pods of one GPU without startTimeout can be run on a cluster", item.Pod[0])
			}
			w.pods = append(w.pods, objects...)
			w.jobs[item.Group] += len(objects)
		}
	}
	if len(w.pods) == 0 || w.gpus == 0 {
		return nil, errors.New("no pods, or no GPUs")
	}
	return w, nil
}

// usageOfGPUs is what came of a run. Times are the workload's; GPU time is in GPU seconds.
type usageOfGPUs struct {
	deadlocked    bool
	jobs          int // done
	end           time.Duration
	peak          int // GPUs of whole jobs
	worked, taken float64
}

// run plays the workload on a fresh cluster.
func (w *trainingWork) run(ctx context.Context, o localcluster.SchedulerOptions, speed float64, seed uint64) (u usageOfGPUs, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cluster, err := localcluster.Start(ctx, localcluster.Options{Binary: o.Binary})
	if err != nil {
		return u, err
	}
	defer cluster.Stop()
	if err := cluster.InstallCRDs(ctx); err != nil {
		return u, err
	}
	if err := createAll(ctx, cluster, w.cluster); err != nil {
		return u, err
	}
	failed := make(chan error, 1)
	go func() { failed <- fakekubelet.Run(ctx, cluster.Client, fakekubelet.Options{Speed: speed}) }()
	changes, err := follow(ctx, cluster.Client, func(before, now *v1.Pod) bool {
		return now.Spec.NodeName != "" && (before == nil || before.Spec.NodeName == "" || before.Status.Phase != now.Status.Phase)
	})
	if err != nil {
		return u, err
	}
	s, err := cluster.StartScheduler(o)
	if err != nil {
		return u, err
	}
	defer s.Kill()
	if err := s.WaitHealthy(time.Minute); err != nil {
		return u, err
	}
	begin := time.Now()
	order := rand.New(rand.NewPCG(seed, 0)).Perm(len(w.pods))
	pods := make([]map[string]any, len(w.pods))
	for i, from := range order {
		pods[i] = w.pods[from]
	}
	made := make(chan error, 1)
	go func() { made <- createAll(ctx, cluster, pods) }()

	clock := func() time.Duration { return time.Duration(float64(time.Since(begin)) * speed) }
	tally := newTally(w.jobs)
	lastChange := time.Duration(0)
	for tally.done < len(w.pods) {
		select {
		case pod := <-changes:
			lastChange = clock()
			tally.see(pod, lastChange)
		case <-time.After(100 * time.Millisecond):
			if tally.working == 0 && clock()-lastChange > stillness {
				tally.pass(clock())
				tally.deadlocked = true
				return tally.usageOfGPUs, nil
			}
		case err := <-made:
			if err != nil {
				return u, err
			}
			made = nil
		case err := <-failed:
			return u, fmt.Errorf("the fake kubelet ended: %w", err)
		case <-s.Done():
			return u, s.Err()
		case <-ctx.Done():
			return u, context.Cause(ctx)
		}
	}
	return tally.usageOfGPUs, nil
}

// tally keeps count of GPUs as pods come and go.
type tally struct {
	usageOfGPUs
	size    map[string]int // pods, by job
	over    map[string]int // finished pods, by job
	pods    map[string]*v1.Pod
	at      time.Duration
	working int // GPUs of whole jobs
	idle    int // GPUs of others
	done    int // pods
}

func newTally(size map[string]int) *tally {
	return &tally{size: size, over: map[string]int{}, pods: map[string]*v1.Pod{}}
}

// pass lets time pass with the GPUs as they are.
func (t *tally) pass(to time.Duration) {
	seconds := (to - t.at).Seconds()
	t.worked += float64(t.working) * seconds
	t.taken += float64(t.working+t.idle) * seconds
	t.at, t.end = to, to
}

// see takes note of a pod that got its node or ended.
func (t *tally) see(pod *v1.Pod, at time.Duration) {
	t.pass(at)
	before := t.pods[pod.Name]
	t.pods[pod.Name] = pod
	job := pod.Annotations[fakekubelet.Collective]
	if ended(pod) && (before == nil || !ended(before)) {
		t.done++
		if t.over[job]++; t.over[job] == t.size[job] {
			t.jobs++
		}
	}
	bound, running := map[string]int{}, map[string]int{}
	for _, p := range t.pods {
		job := p.Annotations[fakekubelet.Collective]
		bound[job]++
		if !ended(p) {
			running[job]++
		}
	}
	t.working, t.idle = 0, 0
	for job, n := range running {
		if bound[job] == t.size[job] {
			t.working += n
		} else {
			t.idle += n
		}
	}
	t.peak = max(t.peak, t.working)
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// createAll makes the objects, several at a time.
func createAll(ctx context.Context, cluster *localcluster.Cluster, objects []map[string]any) error {
	client, err := dynamic.NewForConfig(cluster.Config)
	if err != nil {
		return err
	}
	return parallel(ctx, len(objects), func(i int) error {
		u := &unstructured.Unstructured{Object: objects[i]}
		gv, err := schema.ParseGroupVersion(u.GetAPIVersion())
		if err != nil {
			return err
		}
		resource, _ := meta.UnsafeGuessKindToResource(gv.WithKind(u.GetKind()))
		_, err = client.Resource(resource).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
		return err
	})
}
