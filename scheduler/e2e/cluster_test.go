package e2e

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"tutti/scheduler/podgroup"
)

// resources that a scenario or test may leave, pods first.
var resources = []struct {
	schema.GroupVersionResource
	kind       string
	namespaced bool
}{
	{schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "Pod", true},
	{schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, "Node", false},
	{schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}, "PodGroup", true},
	{schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "podgroups"}, "PodGroup", true},
	{schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "queues"}, "Queue", false},
	{schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1", Resource: "priorityclasses"}, "PriorityClass", false},
	{schema.GroupVersionResource{Group: "node.k8s.io", Version: "v1", Resource: "runtimeclasses"}, "RuntimeClass", false},
	{schema.GroupVersionResource{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}, "PodDisruptionBudget", true},
	{schema.GroupVersionResource{Version: "v1", Resource: "events"}, "Event", true},
}

func (c *testCluster) dynamic() dynamic.Interface {
	return dynamic.NewForConfigOrDie(c.Config)
}

// wipe removes everything, finalizers included.
func (c *testCluster) wipe() error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client := c.dynamic()
	for _, r := range resources {
		for {
			list, err := client.Resource(r.GroupVersionResource).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			left := 0
			for _, item := range list.Items {
				if r.kind == "PriorityClass" && item.GetAnnotations()[ours] == "" {
					continue // the system's own
				}
				left++
				one := client.Resource(r.GroupVersionResource).Namespace(item.GetNamespace())
				if len(item.GetFinalizers()) > 0 {
					_, _ = one.Patch(ctx, item.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				}
				zero := int64(0)
				if err := one.Delete(ctx, item.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
			if left == 0 || r.kind == "Event" {
				break
			}
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("%d %s are still there: %w", left, r.Resource, err)
			}
		}
	}
	// Schedulers are killed at the end of their tests; the next one shouldn't wait until their leases have run out.
	leases := c.Client.CoordinationV1().Leases(metav1.NamespaceSystem)
	for _, name := range []string{"kube-scheduler", podgroup.Manager} {
		if err := leases.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// ours marks what tests made of kinds that have objects of the system's.
const ours = "tutti.dev/e2e"

// classes makes the PriorityClass and RuntimeClass that a pod's numbers come from: a scenario says the numbers, and the API
// server takes them from a class only.
func (c *testCluster) classes(ctx context.Context, spec map[string]any) error {
	if priority, ok := spec["priority"]; ok && spec["priorityClassName"] == nil {
		value, err := strconv.ParseInt(fmt.Sprint(priority), 10, 32)
		if err != nil {
			return fmt.Errorf("priority: %w", err)
		}
		name := fmt.Sprintf("priority-%d", value)
		if value < 0 {
			name = fmt.Sprintf("priority-minus-%d", -value)
		}
		class := map[string]any{"value": value}
		if policy, ok := spec["preemptionPolicy"]; ok {
			name += "-" + strings.ToLower(fmt.Sprint(policy))
			class["preemptionPolicy"] = policy
		}
		if err := c.class(ctx, "scheduling.k8s.io/v1", "PriorityClass", name, class); err != nil {
			return err
		}
		delete(spec, "priority")
		spec["priorityClassName"] = name
	}
	if overhead, ok := spec["overhead"]; ok && spec["runtimeClassName"] == nil {
		const name = "with-overhead"
		class := map[string]any{"handler": "none", "overhead": map[string]any{"podFixed": overhead}}
		if err := c.class(ctx, "node.k8s.io/v1", "RuntimeClass", name, class); err != nil {
			return err
		}
		spec["runtimeClassName"] = name
	}
	return nil
}

func (c *testCluster) class(ctx context.Context, apiVersion, kind, name string, class map[string]any) error {
	class["apiVersion"], class["kind"] = apiVersion, kind
	class["metadata"] = map[string]any{"name": name, "annotations": map[string]any{ours: "yes"}}
	err := c.create(ctx, class)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// create makes the object, and its namespace where it lacks, and writes its status too where it has one.
func (c *testCluster) create(ctx context.Context, object map[string]any) error {
	u := &unstructured.Unstructured{Object: object}
	r, err := resourceOf(u)
	if err != nil {
		return err
	}
	client := c.dynamic().Resource(r)
	status, hasStatus := object["status"]
	made, err := client.Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) && u.GetNamespace() != "" {
		_, e := c.Client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: u.GetNamespace()}}, metav1.CreateOptions{})
		if e != nil && !apierrors.IsAlreadyExists(e) {
			return e
		}
		made, err = client.Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
	}
	// Admission learns of a new class a moment later than we.
	for deadline := time.Now().Add(5 * time.Second); apierrors.IsForbidden(err) && time.Now().Before(deadline); time.Sleep(tick) {
		made, err = client.Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if hasStatus && u.GetKind() == "Node" {
		made.Object["status"] = status
		_, err = client.UpdateStatus(ctx, made, metav1.UpdateOptions{})
	}
	return err
}

func resourceOf(u *unstructured.Unstructured) (schema.GroupVersionResource, error) {
	for _, r := range resources {
		if r.kind == u.GetKind() && r.GroupVersion().String() == u.GetAPIVersion() {
			if r.namespaced && u.GetNamespace() == "" {
				u.SetNamespace("default")
			}
			return r.GroupVersionResource, nil
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("%s %s is a kind that these tests don't know", u.GetAPIVersion(), u.GetKind())
}
