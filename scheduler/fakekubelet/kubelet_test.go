package fakekubelet

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

func pod(name, node string, annotations map[string]string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Annotations: annotations},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "main", Image: "pause"}}},
		Status:     v1.PodStatus{Phase: v1.PodPending},
	}
}

// start runs the kubelet on a fake API with these pods.
func start(t *testing.T, o Options, pods ...*v1.Pod) *fake.Clientset {
	t.Helper()
	client := fake.NewClientset()
	for _, p := range pods {
		if err := client.Tracker().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, client, o) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return client
}

func get(t *testing.T, client *fake.Clientset, name string) *v1.Pod {
	t.Helper()
	p, err := client.CoreV1().Pods("default").Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func phase(p *v1.Pod) v1.PodPhase {
	if p == nil {
		return "gone"
	}
	return p.Status.Phase
}

// becomes waits for the phase; "gone" is one too.
func becomes(t *testing.T, client *fake.Clientset, name string, want v1.PodPhase) *v1.Pod {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		p := get(t, client, name)
		if phase(p) == want {
			return p
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is %s, not %s", name, phase(p), want)
		}
	}
}

const quiet = 150 * time.Millisecond // in which nothing may happen

func TestPodsLive(t *testing.T) {
	deleted := metav1.Now()
	terminating, kept := pod("p", "n", nil), pod("p", "n", nil)
	terminating.DeletionTimestamp = &deleted
	kept.DeletionTimestamp, kept.Finalizers = &deleted, []string{"example.com/keep"}
	failed := pod("p", "n", map[string]string{Duration: "1ms"})
	failed.Status.Phase = v1.PodFailed
	for name, c := range map[string]struct {
		pod   *v1.Pod
		speed float64
		want  v1.PodPhase
		stays bool // it is so from the beginning
	}{
		"without a node it stays":      {pod: pod("p", "", nil), want: v1.PodPending, stays: true},
		"with a node it runs":          {pod: pod("p", "n", nil), want: v1.PodRunning},
		"it ends after its time":       {pod: pod("p", "n", map[string]string{Duration: "20ms"}), want: v1.PodSucceeded},
		"time passes faster":           {pod: pod("p", "n", map[string]string{Duration: "1m"}), speed: 3000, want: v1.PodSucceeded},
		"a bad duration is no end":     {pod: pod("p", "n", map[string]string{Duration: "soon"}), want: v1.PodRunning},
		"deleted, it goes":             {pod: terminating, want: "gone"},
		"a finalizer keeps it":         {pod: kept, want: v1.PodPending, stays: true},
		"failed, it stays so":          {pod: failed, want: v1.PodFailed, stays: true},
		"a collective of one is whole": {pod: pod("p", "n", map[string]string{Collective: "c", Duration: "20ms"}), want: v1.PodSucceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := start(t, Options{Speed: c.speed}, c.pod)
			if c.stays {
				time.Sleep(quiet)
			}
			p := becomes(t, client, "p", c.want)
			if c.want == v1.PodRunning && (p.Status.StartTime == nil || len(p.Status.ContainerStatuses) != 1 || !p.Status.ContainerStatuses[0].Ready) {
				t.Errorf("the status of a running pod is %+v", p.Status)
			}
		})
	}
}

// TestCollective: members work from when the last of them runs, and only those of the same name and namespace count.
func TestCollective(t *testing.T) {
	together := map[string]string{Collective: "c", Duration: "50ms"}
	other := pod("other", "", together)
	other.Namespace = "elsewhere"
	client := start(t, Options{}, pod("a", "n", together), pod("b", "", together), other)
	becomes(t, client, "a", v1.PodRunning)
	time.Sleep(quiet)
	if p := get(t, client, "a"); phase(p) != v1.PodRunning {
		t.Fatalf("a is %s before b runs", phase(p))
	}
	b := get(t, client, "b")
	b.Spec.NodeName = "n"
	if _, err := client.CoreV1().Pods("default").Update(t.Context(), b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes(t, client, "a", v1.PodSucceeded)
	becomes(t, client, "b", v1.PodSucceeded)
}

func TestNodes(t *testing.T) {
	nodes := Nodes(34, 4)
	last := nodes[33]
	gpus := last.Status.Allocatable[GPU]
	if last.Name != "node-33" || gpus.Value() != 4 || last.Labels[v1.LabelHostname] != "node-33" || last.Labels["topology.kubernetes.io/rack"] != "rack-1" {
		t.Errorf("node 33 is %+v", last)
	}
}
