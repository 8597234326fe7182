package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tutti/scheduler/fakekubelet"
	"tutti/scheduler/localcluster"
)

// plain makes a pod of no gang for a profile.
func (c *testCluster) plain(t *testing.T, profile, name, image string, labels map[string]string) {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels},
		Spec: v1.PodSpec{
			SchedulerName: profile, TerminationGracePeriodSeconds: new(int64),
			Containers: []v1.Container{{Name: "main", Image: image}},
		},
	}
	if _, err := c.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// pod reads a pod.
func (c *testCluster) pod(t *testing.T, name string) *v1.Pod {
	t.Helper()
	pod, err := c.Client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

// TestExampleGuests runs the guests of examples/ side by side, each in a profile of its own.
func TestExampleGuests(t *testing.T) {
	t.Parallel()
	c := take(t)
	const pause, large = "registry.k8s.io/pause:3.10", "registry.k8s.io/large:1"
	for i, node := range fakekubelet.Nodes(8, 1) {
		switch i {
		case 5:
			node.Status.Images = []v1.ContainerImage{{Names: []string{large}, SizeBytes: 20 << 30}}
		case 6:
			node.Labels["example.com/fast"] = "yes"
		case 7:
			node.Labels["example.com/fast"], node.Labels["example.com/maintenance"] = "yes", "today"
		}
		if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const interval = 3 * time.Second
	guest := func(name string) string { return "../../out/guest/" + name + ".wasm" }
	c.scheduler(t, localcluster.SchedulerOptions{Profiles: []localcluster.Profile{
		{Name: "number", Guest: guest("node_number")},
		{Name: "other-number", Guest: guest("node_number"), GuestConfig: `{"reverse": true}`},
		{Name: "image", Guest: guest("image_locality"), Disabled: []string{"ImageLocality"}},
		{Name: "label", Guest: guest("node_label"), GuestConfig: `{"presentLabels": ["example.com/fast"], "absentLabels": ["example.com/maintenance"]}`},
		{Name: "rate", Guest: guest("rate_limit"), GuestConfig: fmt.Sprintf(`{"label": "class", "pods": 2, "intervalSeconds": %.0f}`, interval.Seconds())},
	}})
	placed := func(t *testing.T, name string) string {
		t.Helper()
		c.soon(t, 10*time.Second, name+" has a node", func() bool { return c.pod(t, name).Spec.NodeName != "" })
		return c.pod(t, name).Spec.NodeName
	}
	// One after another on the same cluster: they take seconds together.
	t.Run("node-number", func(t *testing.T) {
		for _, pod := range []string{"job-3", "job-1", "other-3", "job-13"} {
			c.plain(t, "number", pod, pause, nil)
			if node := placed(t, pod); node[len(node)-1] != pod[len(pod)-1] {
				t.Errorf("%s went to %s", pod, node)
			}
		}
		c.plain(t, "other-number", "not-2", pause, nil)
		if node := placed(t, "not-2"); node == "node-2" {
			t.Errorf("reverse: not-2 went to %s", node)
		}
	})
	t.Run("image-locality", func(t *testing.T) {
		for _, pod := range []string{"large-a", "large-b", "large-c"} {
			c.plain(t, "image", pod, large, nil)
			if node := placed(t, pod); node != "node-5" {
				t.Errorf("%s went to %s, the image is on node-5", pod, node)
			}
		}
	})
	t.Run("node-label", func(t *testing.T) {
		for _, pod := range []string{"label-a", "label-b", "label-c"} {
			c.plain(t, "label", pod, pause, nil)
			if node := placed(t, pod); node != "node-6" {
				t.Errorf("%s went to %s, only node-6 has the one label and not the other", pod, node)
			}
		}
		if err := c.Client.CoreV1().Nodes().Delete(t.Context(), "node-6", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.plain(t, "label", "label-d", pause, nil)
		c.soon(t, 10*time.Second, "label-d is told why", func() bool {
			reason := reasonOf(c.pod(t, "label-d"))
			return strings.Contains(reason, "node(s) lacked the label example.com/fast") &&
				strings.Contains(reason, "node(s) had the label example.com/maintenance")
		})
	})
	t.Run("rate-limit", func(t *testing.T) {
		pods := []string{"rate-a", "rate-b", "rate-c", "rate-d", "rate-e"}
		for _, pod := range pods {
			c.plain(t, "rate", pod, pause, map[string]string{"class": "slow"})
		}
		c.plain(t, "rate", "rate-free", pause, nil)
		placed(t, "rate-free")
		starts := map[string]time.Time{}
		c.soon(t, 4*interval, "all of the class have started", func() bool {
			for _, pod := range pods {
				if _, ok := starts[pod]; !ok && c.pod(t, pod).Spec.NodeName != "" {
					starts[pod] = time.Now()
				}
			}
			return len(starts) == len(pods)
		})
		var order []time.Time
		for _, at := range starts {
			order = append(order, at)
		}
		slices.SortFunc(order, time.Time.Compare)
		for i := 2; i < len(order); i++ {
			// Seen every 20 ms, and the interval counts from the decision, not from the binding.
			if gap := order[i].Sub(order[i-2]); gap < interval-time.Second {
				t.Errorf("three pods started within %v, two are allowed in %v", gap, interval)
			}
		}
	})
}

// noBridge is in what the plugin says without the bridge; docs/messages.md lists it.
const noBridge = "the gang plugin can't work: this scheduler has no Tutti bridge"

// TestStockExtension runs the plugin in the extension's own scheduler, without the bridge: members of gangs are refused in
// plain words and not held, other pods are scheduled. The scheduler with the bridge then starts the gang.
func TestStockExtension(t *testing.T) {
	t.Parallel()
	c := take(t)
	c.nodes(t, 2, 1)
	stock := c.scheduler(t, localcluster.SchedulerOptions{Binary: stockBinary, Plugin: plugin, Name: "stock"})
	g := gang{name: "ga", min: 2}
	c.group(t, g)
	c.member(t, g, 0)
	c.member(t, g, 1)
	c.plain(t, "", "other", "registry.k8s.io/pause:3.10", nil)
	c.soon(t, 10*time.Second, "the pod of no gang has a node", func() bool { return c.pod(t, "other").Spec.NodeName != "" })
	c.soon(t, 10*time.Second, "the members are told why", func() bool {
		return strings.Contains(reasonOf(c.pod(t, "ga-0")), noBridge) && strings.Contains(reasonOf(c.pod(t, "ga-1")), noBridge)
	})
	if n := assumed(t, stock); n != 0 {
		t.Errorf("%v pods hold room", n)
	}
	stock.Kill()
	c.scheduler(t, localcluster.SchedulerOptions{Plugin: plugin})
	c.soon(t, 20*time.Second, "all members bound", func() bool { return c.bound(t, "ga") == 2 })
}
