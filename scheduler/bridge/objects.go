package bridge

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	pb "tutti/scheduler/bridge/bridgev1"
)

const (
	// discoverEvery is how often a resource that the API server doesn't serve is looked for again.
	discoverEvery = 5 * time.Second
	// firstSync bounds how long the first guest waits for the objects, so that a scheduler that starts doesn't tell
	// every gang that its PodGroup is missing.
	firstSync = 10 * time.Second
)

// objects caches custom resources that may or may not be installed.
type objects struct {
	ctx     context.Context
	changed func(r *pb.Resource, namespace, name string)
	dynamic dynamic.Interface
	disco   discovery.DiscoveryInterface
	every   time.Duration // discoverEvery but in tests

	mu    sync.Mutex
	kinds map[schema.GroupVersionResource]*kind
}

// kind is one resource.
type kind struct {
	known  chan struct{} // closed when it is known whether the API server serves it, and if so the cache is filled
	mu     sync.Mutex
	served bool
	store  cache.Store
	encode map[string]encoded // by namespace/name
}

type encoded struct {
	of   *unstructured.Unstructured
	json []byte
}

func newObjects(ctx context.Context, config *rest.Config, changed func(*pb.Resource, string, string)) *objects {
	o := &objects{ctx: ctx, changed: changed, every: discoverEvery, kinds: map[schema.GroupVersionResource]*kind{}}
	if config == nil {
		return o
	}
	config = rest.CopyConfig(config)
	config.ContentType = "application/json" // custom resources have no protobuf form
	config.AcceptContentTypes = "application/json"
	var err error
	if o.dynamic, err = dynamic.NewForConfig(config); err == nil {
		o.disco, err = discovery.NewDiscoveryClientForConfig(config)
	}
	if err != nil {
		klog.ErrorS(err, "bridge: custom resources can't be read")
		o.disco = nil
	}
	return o
}

// follow starts to follow a resource, once.
func (o *objects) follow(r *pb.Resource) *kind {
	id := gvr(r)
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.kinds[id]
	if k == nil {
		k = &kind{known: make(chan struct{}), encode: map[string]encoded{}}
		o.kinds[id] = k
		if o.disco == nil {
			close(k.known)
		} else {
			go o.run(k, r)
		}
	}
	return k
}

// waitKnown waits until each of the resources is known, or firstSync is over.
func (o *objects) waitKnown(kinds []*kind) {
	timeout := time.After(firstSync)
	for _, k := range kinds {
		select {
		case <-k.known:
		case <-timeout:
			klog.InfoS("bridge: custom resources are not known yet, going on without", "waited", firstSync)
			return
		case <-o.ctx.Done():
			return
		}
	}
}

// run looks for the resource until the API server serves it, then fills the cache and keeps it.
func (o *objects) run(k *kind, r *pb.Resource) {
	id := gvr(r)
	told := false
	tell := func() {
		if !told {
			told = true
			close(k.known)
		}
	}
	defer tell()
	for !o.isServed(id) {
		if o.ctx.Err() != nil {
			return
		}
		if !told {
			klog.InfoS("bridge: the API server doesn't serve this resource; looking again from time to time", "resource", id)
		}
		tell()
		select {
		case <-time.After(o.every):
		case <-o.ctx.Done():
			return
		}
	}
	informer := dynamicinformer.NewFilteredDynamicInformer(o.dynamic, id, "", 0, cache.Indexers{}, nil).Informer()
	_ = informer.SetTransform(func(obj any) (any, error) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			u.SetManagedFields(nil)
			unstructured.RemoveNestedField(u.Object, "status")
		}
		return obj, nil
	})
	notify := func(old, obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return
		}
		if before, ok := old.(*unstructured.Unstructured); ok && before.GetUID() == u.GetUID() && before.GetGeneration() == u.GetGeneration() &&
			u.GetGeneration() != 0 && equalMaps(before.GetAnnotations(), u.GetAnnotations()) {
			return // status only
		}
		o.changed(r, u.GetNamespace(), u.GetName())
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { notify(nil, obj) },
		UpdateFunc: notify,
		DeleteFunc: func(obj any) { notify(nil, obj) },
	}); err != nil {
		klog.ErrorS(err, "bridge: objects can't be followed", "resource", id)
	}
	go informer.Run(o.ctx.Done())
	cache.WaitForCacheSync(o.ctx.Done(), informer.HasSynced)
	k.mu.Lock()
	k.served, k.store = true, informer.GetStore()
	k.mu.Unlock()
	late := told
	tell()
	if late { // installed after we had said that it isn't
		o.changed(r, "", "")
	}
}

func equalMaps(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func (o *objects) isServed(id schema.GroupVersionResource) bool {
	list, err := o.disco.ServerResourcesForGroupVersion(id.GroupVersion().String())
	if err != nil {
		if !apierrors.IsNotFound(err) {
			klog.V(2).InfoS("bridge: discovery failed", "resource", id, "err", err)
		}
		return false
	}
	for _, r := range list.APIResources {
		if r.Name == id.Resource {
			return true
		}
	}
	return false
}

// get returns the object as the cache has it now.
func (o *objects) get(id schema.GroupVersionResource, namespace, name string) *pb.Object {
	o.mu.Lock()
	k := o.kinds[id]
	o.mu.Unlock()
	if k == nil {
		k = o.follow(&pb.Resource{Group: id.Group, Version: id.Version, Resource: id.Resource})
		o.waitKnown([]*kind{k})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.served {
		return &pb.Object{}
	}
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	obj, ok, err := k.store.GetByKey(key)
	if err != nil || !ok {
		delete(k.encode, key)
		return &pb.Object{Served: true}
	}
	u := obj.(*unstructured.Unstructured)
	e := k.encode[key]
	if e.of != u {
		data, err := json.Marshal(u.Object)
		if err != nil {
			klog.ErrorS(err, "bridge: an object can't be encoded", "resource", id, "object", key)
			return &pb.Object{Served: true}
		}
		e = encoded{u, data}
		k.encode[key] = e
	}
	return &pb.Object{Served: true, Found: true, Uid: string(u.GetUID()), ResourceVersion: u.GetResourceVersion(), Json: e.json}
}
