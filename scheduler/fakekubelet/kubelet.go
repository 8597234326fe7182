// Package fakekubelet makes nodes that run nothing, and lets the pods bound to them live: they run at once, end after
// their annotated time, and go when deleted.
package fakekubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Duration is the annotation of a pod that ends by itself: a Go duration. Without it a pod runs until deleted.
const Duration = "tutti.dev/duration"

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

// Kubelet acts for all nodes.
type Kubelet struct {
	client kubernetes.Interface
	store  cache.Store
	queue  workqueue.TypedRateLimitingInterface[string]
}

// workers bounds the API calls under way.
const workers = 16

// Run acts until ctx ends. It returns an error when the pods can't be followed.
func Run(ctx context.Context, client kubernetes.Interface) error {
	informer := coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	})
	k := &Kubelet{client: client, store: informer.GetStore(), queue: workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 5*time.Second))}
	add := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			k.queue.Add(key)
		}
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) }, DeleteFunc: add,
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

func (k *Kubelet) next(ctx context.Context) bool {
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
func (k *Kubelet) sync(ctx context.Context, key string) (time.Duration, error) {
	obj, ok, err := k.store.GetByKey(key)
	if err != nil || !ok {
		return 0, err
	}
	pod := obj.(*v1.Pod)
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
		return 0, k.setStatus(ctx, pod, status)
	case v1.PodRunning:
		text, ok := pod.Annotations[Duration]
		if !ok || pod.Status.StartTime == nil {
			return 0, nil
		}
		duration, err := time.ParseDuration(text)
		if err != nil {
			klog.ErrorS(err, "fake kubelet: the annotation is no duration; the pod runs until deleted", "pod", key, "annotation", Duration)
			return 0, nil
		}
		if left := time.Until(pod.Status.StartTime.Add(duration)); left > 0 {
			return left, nil
		}
		return 0, k.setStatus(ctx, pod, v1.PodStatus{Phase: v1.PodSucceeded})
	}
	return 0, nil
}

func (k *Kubelet) setStatus(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
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
