// Package podgroup keeps the status of PodGroup objects: phase, counts and a condition with the reason. It only reports;
// no gang needs it to start. It leaves alone every PodGroup whose status another manager writes.
package podgroup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Manager is the field manager of the status, by which the controller knows its own writes.
const Manager = "tutti-podgroup"

// discoverEvery is how often a PodGroup API that isn't installed is looked for.
const discoverEvery = 10 * time.Second

// api is one PodGroup API.
type api struct {
	gvr   schema.GroupVersionResource
	of    func(*v1.Pod) string // name of the pod's group, or ""
	phase func(tally, int64) string
	sig   bool
}

var apis = []*api{
	{
		gvr:   schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"},
		of:    func(p *v1.Pod) string { return p.Labels["scheduling.x-k8s.io/pod-group"] },
		phase: sigPhase, sig: true,
	},
	{
		gvr:   schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "podgroups"},
		of:    func(p *v1.Pod) string { return p.Annotations["scheduling.k8s.io/group-name"] },
		phase: volcanoPhase,
	},
}

type key struct {
	api  *api
	name types.NamespacedName
}

type controller struct {
	dynamic dynamic.Interface
	pods    cache.Indexer
	queue   workqueue.TypedRateLimitingInterface[key]
	events  record.EventRecorder

	mu     sync.Mutex
	groups map[*api]cache.Store // of the APIs that are installed and read
}

// keep keeps statuses until ctx ends. It returns an error when it can't start.
func keep(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	jsonConfig := rest.CopyConfig(config)
	jsonConfig.ContentType, jsonConfig.AcceptContentTypes = "", "" // custom resources have no protobuf form
	dyn, err := dynamic.NewForConfig(jsonConfig)
	if err != nil {
		return err
	}
	broadcaster := record.NewBroadcaster()
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcore.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return run(ctx, client, dyn, broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: Manager}), discoverEvery)
}

func run(ctx context.Context, client kubernetes.Interface, dyn dynamic.Interface, events record.EventRecorder, discover time.Duration) error {
	indexers := cache.Indexers{}
	for _, a := range apis {
		indexers[a.gvr.Group] = func(obj any) ([]string, error) {
			pod, ok := obj.(*v1.Pod)
			if !ok || a.of(pod) == "" {
				return nil, nil
			}
			return []string{pod.Namespace + "/" + a.of(pod)}, nil
		}
	}
	pods := coreinformers.NewPodInformer(client, metav1.NamespaceAll, 0, indexers)
	c := &controller{
		dynamic: dyn, pods: pods.GetIndexer(), events: events, groups: map[*api]cache.Store{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[key]()),
	}
	defer c.queue.ShutDown()
	if err := pods.SetTransform(slim); err != nil {
		return err
	}
	if err := follow(pods, func(obj any) {
		if pod, ok := obj.(*v1.Pod); ok {
			for _, a := range apis {
				if name := a.of(pod); name != "" {
					c.queue.Add(key{a, types.NamespacedName{Namespace: pod.Namespace, Name: name}})
				}
			}
		}
	}); err != nil {
		return err
	}
	go pods.Run(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return nil
	}
	for _, a := range apis {
		go c.watch(ctx, a, client.Discovery(), discover)
	}
	go func() {
		<-ctx.Done()
		c.queue.ShutDown()
	}()
	for c.next(ctx) {
	}
	return nil
}

// slim keeps of a pod what is read here: the process may be a scheduler, which has all pods in memory once already.
func slim(obj any) (any, error) {
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return obj, nil
	}
	out := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			Labels: pod.Labels, Annotations: pod.Annotations,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
		},
		Spec:   v1.PodSpec{NodeName: pod.Spec.NodeName, SchedulingGates: pod.Spec.SchedulingGates},
		Status: v1.PodStatus{Phase: pod.Status.Phase},
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled {
			out.Status.Conditions = []v1.PodCondition{c}
		}
	}
	return out, nil
}

// watch follows the groups of one API, as soon as it is installed.
func (c *controller) watch(ctx context.Context, a *api, d discovery.DiscoveryInterface, every time.Duration) {
	for !served(d, a) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
	groups := dynamicinformer.NewFilteredDynamicInformer(c.dynamic, a.gvr, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := follow(groups, func(obj any) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			c.queue.Add(key{a, types.NamespacedName{Namespace: u.GetNamespace(), Name: u.GetName()}})
		}
	}); err != nil {
		klog.ErrorS(err, "podgroup: groups can't be followed", "api", a.gvr)
		return
	}
	c.mu.Lock()
	c.groups[a] = groups.GetStore()
	c.mu.Unlock()
	groups.Run(ctx.Done())
}

func served(d discovery.DiscoveryInterface, a *api) bool {
	list, err := d.ServerResourcesForGroupVersion(a.gvr.GroupVersion().String())
	if err != nil {
		if !apierrors.IsNotFound(err) {
			klog.V(1).InfoS("podgroup: discovery failed", "api", a.gvr, "err", err)
		}
		return false
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == a.gvr.Resource })
}

func follow(informer cache.SharedIndexInformer, look func(any)) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look,
		UpdateFunc: func(old, obj any) {
			look(old) // a pod may have changed its group
			look(obj)
		},
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			look(obj)
		},
	})
	return err
}

func (c *controller) next(ctx context.Context) bool {
	k, quit := c.queue.Get()
	if quit {
		return false
	}
	defer c.queue.Done(k)
	if err := c.sync(ctx, k); err != nil {
		klog.V(1).InfoS("podgroup: the status can't be written now; trying again", "group", k.name, "err", err)
		c.queue.AddRateLimited(k)
		return true
	}
	c.queue.Forget(k)
	return true
}

func (c *controller) sync(ctx context.Context, k key) error {
	c.mu.Lock()
	store := c.groups[k.api]
	c.mu.Unlock()
	if store == nil {
		return nil // this API isn't installed
	}
	obj, ok, err := store.GetByKey(k.name.String())
	if err != nil || !ok {
		return err
	}
	group := obj.(*unstructured.Unstructured)
	if foreign(group) {
		return nil
	}
	indexed, err := c.pods.ByIndex(k.api.gvr.Group, k.name.String())
	if err != nil {
		return err
	}
	pods := make([]*v1.Pod, 0, len(indexed))
	for _, p := range indexed {
		pods = append(pods, p.(*v1.Pod))
	}
	least, _, _ := unstructured.NestedInt64(group.Object, "spec", "minMember")
	before, _, _ := unstructured.NestedMap(group.Object, "status")
	now := count(pods)
	status := statusOf(k.api, now, least, group, before)
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": group.GetUID()}, "status": status})
	if err != nil {
		return err
	}
	_, err = c.dynamic.Resource(k.api.gvr).Namespace(k.name.Namespace).Patch(ctx, k.name.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: Manager}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or made again: its own event follows
	}
	if err == nil && before["phase"] != status["phase"] {
		c.events.Eventf(group, v1.EventTypeNormal, fmt.Sprint(status["phase"]), "%d of at least %d members have a node", now.scheduled, least)
	}
	return err
}

// foreign tells whether somebody else writes the status.
func foreign(u *unstructured.Unstructured) bool {
	for _, f := range u.GetManagedFields() {
		if f.Subresource == "status" && f.Manager != Manager {
			return true
		}
	}
	return false
}

func statusOf(a *api, t tally, least int64, group *unstructured.Unstructured, before map[string]any) map[string]any {
	status := map[string]any{
		"phase": a.phase(t, least), "running": t.running, "succeeded": t.succeeded, "failed": t.failed,
	}
	if a.sig {
		status["scheduled"] = t.scheduled
	}
	c := scheduledCondition(t, least, group.GetGeneration())
	condition := map[string]any{
		"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
	// The time is that of the status' last change, not of the last look.
	if list, ok := before["conditions"].([]any); ok {
		for _, x := range list {
			if old, ok := x.(map[string]any); ok && old["type"] == c.Type && old["status"] == string(c.Status) {
				condition["lastTransitionTime"] = old["lastTransitionTime"]
			}
		}
	}
	status["conditions"] = []any{condition}
	return status
}
