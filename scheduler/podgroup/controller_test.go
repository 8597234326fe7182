package podgroup

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
)

var sig, volcano = apis[0], apis[1]

// cluster is an API server of memory with the controller at it.
type cluster struct {
	*testing.T
	client *fake.Clientset
	dyn    *dynamicfake.FakeDynamicClient
	events *record.FakeRecorder
}

func newCluster(t *testing.T) *cluster {
	kinds := map[schema.GroupVersionResource]string{}
	for _, a := range apis {
		kinds[a.gvr] = "PodGroupList"
	}
	return &cluster{
		t, fake.NewSimpleClientset(), dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds),
		record.NewFakeRecorder(100),
	}
}

// install makes the API server serve the API.
func (c *cluster) install(apis ...*api) {
	for _, a := range apis {
		c.client.Lock()
		c.client.Resources = append(c.client.Resources, &metav1.APIResourceList{
			GroupVersion: a.gvr.GroupVersion().String(), APIResources: []metav1.APIResource{{Name: a.gvr.Resource}},
		})
		c.client.Unlock()
	}
}

func (c *cluster) start() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- run(ctx, c.client, c.dyn, c.events, 5*time.Millisecond) }()
	c.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			c.Error(err)
		}
	})
}

func (c *cluster) group(a *api, name string, least int64, managers ...string) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"minMember": least}}}
	u.SetGroupVersionKind(a.gvr.GroupVersion().WithKind("PodGroup"))
	u.SetNamespace("ns")
	u.SetName(name)
	u.SetUID(types.UID(name))
	var fields []metav1.ManagedFieldsEntry
	for _, m := range managers {
		fields = append(fields, metav1.ManagedFieldsEntry{Manager: m, Subresource: "status"})
	}
	u.SetManagedFields(fields)
	if _, err := c.dyn.Resource(a.gvr).Namespace("ns").Create(context.Background(), u, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) pod(a *api, group, name string, options ...option) {
	p := pods(1, options...)[0]
	p.Namespace, p.Name, p.UID = "ns", name, types.UID(name)
	if a == sig {
		p.Labels = map[string]string{"scheduling.x-k8s.io/pod-group": group}
	} else {
		p.Annotations = map[string]string{"scheduling.k8s.io/group-name": group}
	}
	core := c.client.CoreV1().Pods("ns")
	_, err := core.Create(context.Background(), p, metav1.CreateOptions{})
	if err != nil {
		_, err = core.Update(context.Background(), p, metav1.UpdateOptions{})
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) status(a *api, name string) map[string]any {
	u, err := c.dyn.Resource(a.gvr).Namespace("ns").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	status, _, _ := unstructured.NestedMap(u.Object, "status")
	return status
}

// want waits until the status has these fields.
func (c *cluster) want(a *api, name string, fields map[string]any) {
	c.Helper()
	var last map[string]any
	err := wait.PollUntilContextTimeout(context.Background(), 2*time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
		last = c.status(a, name)
		for k, v := range fields {
			if last[k] != v {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		text, _ := json.Marshal(last)
		c.Fatalf("%s is %s, want %v", name, text, fields)
	}
}

func TestStatusFollowsThePods(t *testing.T) {
	for _, a := range apis {
		t.Run(a.gvr.Group, func(t *testing.T) {
			c := newCluster(t)
			c.install(a)
			c.group(a, "ga", 2)
			c.pod(a, "ga", "a", why("no room"))
			c.start()
			c.want(a, "ga", map[string]any{"phase": "Pending", "running": int64(0)})
			c.pod(a, "ga", "b", why("no room"))
			c.want(a, "ga", map[string]any{"phase": map[*api]string{sig: "Scheduling", volcano: "Inqueue"}[a]})
			condition := c.status(a, "ga")["conditions"].([]any)[0].(map[string]any)
			if condition["type"] != "Scheduled" || condition["status"] != "False" || condition["reason"] != "Unschedulable" || condition["message"] != "no room" {
				t.Errorf("condition %v", condition)
			}
			for _, name := range []string{"a", "b"} {
				c.pod(a, "ga", name, placed, in(v1.PodRunning))
			}
			c.want(a, "ga", map[string]any{"phase": "Running", "running": int64(2)})
			if scheduled, has := c.status(a, "ga")["scheduled"]; has != a.sig || a.sig && scheduled != int64(2) {
				t.Errorf("scheduled is %v", scheduled)
			}
			if err := c.client.CoreV1().Pods("ns").Delete(context.Background(), "b", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			c.want(a, "ga", map[string]any{"running": int64(1)})
			var said []string
			for len(c.events.Events) > 0 {
				said = append(said, <-c.events.Events)
			}
			if n := strings.Count(strings.Join(said, "\n"), "Normal Running 2 of at least 2 members have a node"); n != 1 {
				t.Errorf("%d events say that it runs: %q", n, said)
			}
		})
	}
}

// An API that is installed later is picked up, beside the one that was there.
func TestAPIInstalledLater(t *testing.T) {
	c := newCluster(t)
	for _, a := range apis {
		c.group(a, "ga", 1)
	}
	c.install(sig)
	c.start()
	c.want(sig, "ga", map[string]any{"phase": "Pending"})
	if status := c.status(volcano, "ga"); status != nil {
		t.Fatalf("status %v of an API that isn't served", status)
	}
	c.install(volcano)
	c.want(volcano, "ga", map[string]any{"phase": "Pending"})
}

// A status that another controller writes is left alone; one that it wrote itself isn't.
func TestForeignStatus(t *testing.T) {
	c := newCluster(t)
	c.install(volcano)
	c.group(volcano, "theirs", 1, Manager, "vc-controller-manager")
	c.group(volcano, "ours", 1, Manager)
	c.start()
	for i := range 3 {
		c.pod(volcano, "theirs", fmt.Sprint("t", i), placed, in(v1.PodRunning))
		c.pod(volcano, "ours", fmt.Sprint("o", i), placed, in(v1.PodRunning))
	}
	c.want(volcano, "ours", map[string]any{"running": int64(3)})
	if status := c.status(volcano, "theirs"); status != nil {
		t.Errorf("wrote %v", status)
	}
	for _, a := range c.dyn.Actions() {
		if a.GetVerb() == "patch" && a.GetSubresource() != "status" {
			t.Errorf("%v is not a change of the status", a)
		}
	}
}

// A pod that changes its group counts in the new one only.
func TestPodChangesGroup(t *testing.T) {
	c := newCluster(t)
	c.install(sig)
	c.group(sig, "ga", 1)
	c.group(sig, "gb", 1)
	c.pod(sig, "ga", "a", placed, in(v1.PodRunning))
	c.start()
	c.want(sig, "ga", map[string]any{"running": int64(1)})
	c.pod(sig, "gb", "a", placed, in(v1.PodRunning))
	c.want(sig, "gb", map[string]any{"running": int64(1)})
	c.want(sig, "ga", map[string]any{"running": int64(0), "phase": "Pending"})
}
