// Package fakekubelet makes nodes that run nothing, and lets the pods bound to them live: they run at once, end after
// their annotated time, and go when deleted.
package fakekubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Annotations of pods, the same as in a replay (docs/replay.md).
const (
	// Duration is how long a pod runs, a Go duration, before it ends with success. Without it a pod runs until deleted.
	Duration = "tutti.dev/duration"
	// Collective names pods of a namespace that work only together: their durations count from when the last of them runs.
	Collective = "tutti.dev/collective"
)

// GPU is the resource of fake GPU nodes.
const GPU = "nvidia.com/gpu"

// Nodes returns n nodes node-0… with so many GPUs each, 32 nodes to a rack (label topology.kubernetes.io/rack).
func Nodes(n, gpus int) []*v1.Node {
	nodes := make([]*v1.Node, n)
	for i := range nodes {
		name := "node-" + strconv.Itoa(i)
		nodes[i] = Node(name, v1.ResourceList{
			v1.ResourceCPU:    resource.MustParse("64"),
			v1.ResourceMemory: resource.MustParse("512Gi"),
			v1.ResourcePods:   resource.MustParse("110"),
			GPU:               *resource.NewQuantity(int64(gpus), resource.DecimalSI),
		})
		nodes[i].Labels["topology.kubernetes.io/rack"] = "rack-" + strconv.Itoa(i/32)
	}
	return nodes
}

// Node returns a ready node with this capacity.
func Node(name string, capacity v1.ResourceList) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}},
		Status: v1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "FakeKubelet"}},
		},
	}
}

// Options of the kubelet. The zero value is usable.
type Options struct {
	Speed float64 // durations pass so many times faster; 0: 1
}

// kubelet acts for all nodes.
type kubelet struct {
	client kubernetes.Interface
	pods   cache.Indexer
	queue  workqueue.TypedRateLimitingInterface[string]
	speed  float64

	mu      sync.Mutex
	started map[types.UID]time.Time // more exactly than the API's seconds
}

// workers bounds the API calls under way.
const workers = 16

// byCollective is the index of pods that work together.
const byCollective = "collective"

// Run acts until ctx ends. It returns an error when the pods can't be followed.
func Run(ctx context.Context, client kubernetes.Interface, o Options) error {
	informer := coreinformers.NewPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{byCollective: func(obj any) ([]string, error) {
		if pod, ok := obj.(*v1.Pod); ok && pod.Annotations[Collective] != "" {
			return []string{collective(pod)}, nil
		}
		return nil, nil
	}})
	k := &kubelet{client: client, pods: informer.GetIndexer(), speed: o.Speed, started: map[types.UID]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second))}
	if k.speed == 0 {
		k.speed = 1
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: k.look, UpdateFunc: func(_, obj any) { k.look(obj) }, DeleteFunc: k.gone,
	}); err != nil {
		return err
	}
	for range workers {
		go func() {
			for k.next(ctx) {
			}
		}()
	}
	informer.Run(ctx.Done())
	k.queue.ShutDown()
	return nil
}

func collective(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Annotations[Collective] }

// look queues a pod that changed, and those that work with it.
func (k *kubelet) look(obj any) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	together := []any{pod}
	if pod.Annotations[Collective] != "" {
		others, err := k.pods.ByIndex(byCollective, collective(pod))
		if err == nil {
			together = append(together, others...)
		}
	}
	for _, p := range together {
		if p := p.(*v1.Pod); p.Spec.NodeName != "" {
			k.queue.Add(p.Namespace + "/" + p.Name)
		}
	}
}

func (k *kubelet) gone(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	k.look(obj)
	if pod, ok := obj.(*v1.Pod); ok {
		k.mu.Lock()
		delete(k.started, pod.UID)
		k.mu.Unlock()
	}
}

func (k *kubelet) next(ctx context.Context) bool {
	key, quit := k.queue.Get()
	if quit {
		return false
	}
	defer k.queue.Done(key)
	again, err := k.sync(ctx, key)
	switch {
	case err != nil:
		klog.V(2).InfoS("fake kubelet: trying again", "pod", key, "err", err)
		k.queue.AddRateLimited(key)
	case again > 0:
		k.queue.Forget(key)
		k.queue.AddAfter(key, again)
	default:
		k.queue.Forget(key)
	}
	return true
}

// sync takes the pod one step further, and says when to look again.
func (k *kubelet) sync(ctx context.Context, key string) (time.Duration, error) {
	obj, ok, err := k.pods.GetByKey(key)
	if err != nil || !ok {
		return 0, err
	}
	pod := obj.(*v1.Pod)
	if pod.Spec.NodeName == "" {
		return 0, nil
	}
	if pod.DeletionTimestamp != nil {
		if len(pod.Finalizers) > 0 {
			return 0, nil
		}
		err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		return 0, ignoreGone(err)
	}
	switch pod.Status.Phase {
	case v1.PodPending, "":
		now := metav1.Now()
		status := v1.PodStatus{Phase: v1.PodRunning, StartTime: &now, Conditions: []v1.PodCondition{
			{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: now},
		}}
		for _, c := range pod.Spec.Containers {
			status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
				Name: c.Name, Image: c.Image, Ready: true, State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
			})
		}
		k.mu.Lock()
		k.started[pod.UID] = now.Time
		k.mu.Unlock()
		return 0, k.setStatus(ctx, pod, status)
	case v1.PodRunning:
		since, working := k.since(pod)
		if !working || pod.Annotations[Duration] == "" {
			return 0, nil
		}
		duration, err := time.ParseDuration(pod.Annotations[Duration])
		if err != nil {
			klog.ErrorS(err, "fake kubelet: the annotation is no duration; the pod runs until deleted", "pod", key, "annotation", Duration)
			return 0, nil
		}
		if left := time.Until(since.Add(time.Duration(float64(duration) / k.speed))); left > 0 {
			return left, nil
		}
		return 0, k.setStatus(ctx, pod, v1.PodStatus{Phase: v1.PodSucceeded})
	}
	return 0, nil
}

// since is when the pod's work began, false while it waits for others.
func (k *kubelet) since(pod *v1.Pod) (since time.Time, working bool) {
	together := []any{pod}
	if pod.Annotations[Collective] != "" {
		var err error
		if together, err = k.pods.ByIndex(byCollective, collective(pod)); err != nil {
			return since, false
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range together {
		p := p.(*v1.Pod)
		if p.Status.StartTime == nil || p.Status.Phase != v1.PodRunning && p.Status.Phase != v1.PodSucceeded {
			return since, false
		}
		at, ok := k.started[p.UID]
		if !ok {
			at = p.Status.StartTime.Time // of an earlier run
		}
		if at.After(since) {
			since = at
		}
	}
	return since, true
}

func (k *kubelet) setStatus(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	fields, err := json.Marshal(status)
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":%s}`, pod.UID, fields)
	_, err = k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return ignoreGone(err)
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another pod of that name: its own event follows
	}
	return err
}
