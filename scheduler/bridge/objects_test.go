package bridge

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	pb "tutti/scheduler/bridge/bridgev1"
)

var podGroupAPIs = []*pb.Resource{
	{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"},
	{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "podgroups"},
}

// A resource that the API server doesn't serve is that, at once; when it is installed its objects are there, and the
// groups that they describe are told.
func TestObjectsInstalledLater(t *testing.T) {
	for _, r := range podGroupAPIs {
		t.Run(r.Group, func(t *testing.T) {
			client := fake.NewSimpleClientset()
			dyn := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr(r): "PodGroupList"})
			var mu sync.Mutex
			var told []string
			o := newObjects(t.Context(), nil, func(_ *pb.Resource, namespace, name string) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, namespace+"/"+name)
			})
			o.dynamic, o.disco, o.every = dyn, client.Discovery(), 5*time.Millisecond
			get := func(name string) *pb.Object { return o.get(gvr(r), "ns", name) }
			want := func(what string, name string, sound func(*pb.Object) bool) {
				t.Helper()
				if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
					return sound(get(name)), nil
				}); err != nil {
					t.Fatalf("%s: %v", what, get(name))
				}
			}
			if got := get("ga"); got.Served || got.Found {
				t.Fatalf("not installed: %v", got)
			}

			put := func(least int64, status string, create bool) {
				u := &unstructured.Unstructured{Object: map[string]any{
					"spec": map[string]any{"minMember": least}, "status": map[string]any{"phase": status},
				}}
				u.SetGroupVersionKind(schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: "PodGroup"})
				u.SetNamespace("ns")
				u.SetName("ga")
				u.SetGeneration(least)
				u.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "someone"}})
				groups, err := dyn.Resource(gvr(r)).Namespace("ns"), error(nil)
				if create {
					_, err = groups.Create(t.Context(), u, metav1.CreateOptions{})
				} else {
					_, err = groups.Update(t.Context(), u, metav1.UpdateOptions{})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			put(3, "Pending", true)
			client.Lock()
			client.Resources = []*metav1.APIResourceList{{GroupVersion: gvr(r).GroupVersion().String(), APIResources: []metav1.APIResource{{Name: r.Resource}}}}
			client.Unlock()
			want("installed", "ga", func(got *pb.Object) bool { return got.Served && got.Found })
			if text := string(get("ga").Json); text != fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"PodGroup","metadata":{"generation":3,"name":"ga","namespace":"ns"},"spec":{"minMember":3}}`, r.Group, r.Version) {
				t.Error(text) // no status and no managed fields: nobody reads them
			}
			if got := get("other"); !got.Served || got.Found {
				t.Errorf("an object that isn't: %v", got)
			}
			count := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(told)
			}
			if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
				mu.Lock()
				defer mu.Unlock()
				return fmt.Sprint(told) == "[ns/ga /]" || fmt.Sprint(told) == "[/ ns/ga]", nil
			}); err != nil {
				t.Fatalf("told %v", told)
			}
			put(3, "Running", false) // the status only: nobody is told
			put(4, "Running", false)
			want("changed", "ga", func(got *pb.Object) bool {
				return got.Found && len(got.Json) > 0 && string(got.Json[len(got.Json)-4:]) == ":4}}"
			})
			if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 5*time.Second, true, func(context.Context) (bool, error) {
				return count() == 3, nil
			}); err != nil {
				t.Errorf("told %v, want one more", told)
			}
			if err := dyn.Resource(gvr(r)).Namespace("ns").Delete(t.Context(), "ga", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			want("deleted", "ga", func(got *pb.Object) bool { return got.Served && !got.Found })
		})
	}
}
