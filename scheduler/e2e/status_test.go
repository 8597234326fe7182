package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"tutti/scheduler/localcluster"
)

// TestStatusFollowsPods: the counts and the phase of a PodGroup go up and down with its pods, and its condition has the
// scheduler's reason.
func TestStatusFollowsPods(t *testing.T) {
	t.Parallel()
	c := take(t)
	c.nodes(t, 2, 5)
	c.scheduler(t, localcluster.SchedulerOptions{Plugin: plugin})
	g := gang{name: "ga", min: 8}
	c.group(t, g)
	status := func() (phase string, scheduled, running, succeeded int64, why string) {
		u, err := c.find("podgroup.scheduling.x-k8s.io/ga")
		if err != nil {
			t.Fatal(err)
		}
		phase, _, _ = unstructured.NestedString(u.Object, "status", "phase")
		scheduled, _, _ = unstructured.NestedInt64(u.Object, "status", "scheduled")
		running, _, _ = unstructured.NestedInt64(u.Object, "status", "running")
		succeeded, _, _ = unstructured.NestedInt64(u.Object, "status", "succeeded")
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, condition := range conditions {
			if m, ok := condition.(map[string]any); ok && m["type"] == "Scheduled" {
				why = fmt.Sprint(m["message"])
			}
		}
		return
	}
	becomes := func(phase string, scheduled, running, succeeded int64, why string) {
		t.Helper()
		want := fmt.Sprintln(phase, scheduled, running, succeeded, why)
		var have string
		for deadline := time.Now().Add(15 * time.Second); have != want; time.Sleep(tick) {
			if time.Now().After(deadline) {
				t.Fatalf("the status is %s, not %s", have, want)
			}
			have = fmt.Sprintln(status())
		}
	}
	add := func(from, to int) {
		for i := from; i < to; i++ {
			c.member(t, g, i)
		}
	}
	remove := func(from, to int) {
		for i := from; i < to; i++ {
			if err := c.Client.CoreV1().Pods("default").Delete(t.Context(), fmt.Sprintf("ga-%d", i), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	add(0, 7)
	becomes("Pending", 0, 0, 0, "0/2 nodes are available: gang default/ga is incomplete: have 7 of 8 members.")
	add(7, 10)
	becomes("Running", 10, 10, 0, "")
	remove(5, 10)
	becomes("Pending", 5, 5, 0, "")
	add(5, 10)
	becomes("Running", 10, 10, 0, "")
	for i := range 8 {
		_, err := c.Client.CoreV1().Pods("default").Patch(t.Context(), fmt.Sprintf("ga-%d", i), "application/merge-patch+json",
			[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
	}
	becomes("Finished", 10, 2, 8, "")

	phases := map[string]bool{}
	c.soon(t, 10*time.Second, "an event tells each phase", func() bool {
		events, err := c.Client.CoreV1().Events("default").List(context.Background(), metav1.ListOptions{FieldSelector: "involvedObject.kind=PodGroup"})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
			phases[e.Reason] = true
		}
		return phases["Running"] && phases["Pending"] && phases["Finished"]
	})
}
