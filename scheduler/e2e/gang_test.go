package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"tutti/scheduler/fakekubelet"
	"tutti/scheduler/localcluster"
)

// gang is a PodGroup and its pods, one GPU each.
type gang struct {
	name string
	min  int32
	runs time.Duration // 0: until deleted
	via  string        // schedulerName; "": the default
}

func (c *testCluster) group(t *testing.T, g gang) {
	t.Helper()
	err := c.create(t.Context(), map[string]any{
		"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup",
		"metadata": map[string]any{"name": g.name, "namespace": "default"},
		"spec":     map[string]any{"minMember": g.min},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (c *testCluster) member(t *testing.T, g gang, i int) {
	t.Helper()
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%d", g.name, i), Namespace: "default",
			Labels: map[string]string{"scheduling.x-k8s.io/pod-group": g.name},
		},
		Spec: v1.PodSpec{
			SchedulerName: g.via, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64),
			Containers: []v1.Container{{
				Name: "main", Image: "registry.k8s.io/pause:3.10",
				Resources: v1.ResourceRequirements{Limits: v1.ResourceList{fakekubelet.GPU: resource.MustParse("1")}},
			}},
		},
	}
	if g.runs > 0 {
		pod.Annotations = map[string]string{fakekubelet.Duration: g.runs.String()}
	}
	if _, err := c.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *testCluster) nodes(t *testing.T, n, gpus int) {
	t.Helper()
	for _, node := range fakekubelet.Nodes(n, gpus) {
		if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// bound is how many pods of the gang have a node, finished ones included.
func (c *testCluster) bound(t *testing.T, gang string) int {
	t.Helper()
	return c.withNode(t, "scheduling.x-k8s.io/pod-group="+gang)
}

// withNode is how many pods with these labels have a node.
func (c *testCluster) withNode(t *testing.T, selector string) (n int) {
	t.Helper()
	list, err := c.Client.CoreV1().Pods("default").List(context.Background(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// soon fails the test unless the condition comes to hold within the time.
func (c *testCluster) soon(t *testing.T, within time.Duration, what string, holds func() bool) time.Duration {
	t.Helper()
	begin := time.Now()
	if err := wait.PollUntilContextTimeout(context.Background(), 20*time.Millisecond, within, true, func(context.Context) (bool, error) {
		return holds(), nil
	}); err != nil {
		t.Fatalf("%s: not within %v\n%s", what, within, c.pods())
	}
	return time.Since(begin)
}

func (c *testCluster) pods() string {
	var b strings.Builder
	list, err := c.Client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	for _, p := range list.Items {
		fmt.Fprintf(&b, "%s %s on %q: %s\n", p.Name, p.Status.Phase, p.Spec.NodeName, reasonOf(&p))
	}
	return b.String()
}

// TestLastMemberStartsTheGang: nobody starts before the last member exists, and then all do within a second.
func TestLastMemberStartsTheGang(t *testing.T) {
	t.Parallel()
	c := take(t)
	c.nodes(t, 4, 1)
	c.scheduler(t, localcluster.SchedulerOptions{Plugin: plugin})
	g := gang{name: "ga", min: 4}
	c.group(t, g)
	for i := range 3 {
		c.member(t, g, i)
	}
	time.Sleep(2 * time.Second)
	if n := c.bound(t, "ga"); n != 0 {
		t.Fatalf("%d members started before the last one existed", n)
	}
	c.member(t, g, 3)
	took := c.soon(t, 5*time.Second, "all members bound", func() bool { return c.bound(t, "ga") == 4 })
	if took > time.Second {
		t.Errorf("the gang started %v after its last member, not within a second", took)
	}
}

// TestInterleavedGangs: members of two gangs come in a random order to room for one. One gang runs, the other starts when
// it has ended; never does a part of a gang run.
func TestInterleavedGangs(t *testing.T) {
	t.Parallel()
	rounds := 20
	if os.Getenv("E2E_FULL") != "" {
		rounds = 100
	}
	c := take(t)
	c.nodes(t, 4, 1)
	c.scheduler(t, localcluster.SchedulerOptions{Plugin: plugin})
	random := rand.New(rand.NewPCG(1, 2))
	for round := range rounds {
		a := gang{name: fmt.Sprintf("a%d", round), min: 4, runs: 200 * time.Millisecond}
		b := gang{name: fmt.Sprintf("b%d", round), min: 4, runs: 200 * time.Millisecond}
		c.group(t, a)
		c.group(t, b)
		order := []int{0, 0, 0, 0, 1, 1, 1, 1}
		random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		next := [2]int{}
		for _, which := range order {
			c.member(t, []gang{a, b}[which], next[which])
			next[which]++
		}
		seen := map[string]time.Time{}
		c.soon(t, 40*time.Second, fmt.Sprintf("round %d, order %v: both gangs done", round, order), func() bool {
			na, nb := c.bound(t, a.name), c.bound(t, b.name)
			for name, n := range map[string]int{a.name: na, b.name: nb} {
				// Bindings of one release reach the API one by one; a gang that stays half-bound is what must not be.
				if n > 0 && n < 4 {
					if at, ok := seen[name]; ok && time.Since(at) > 2*time.Second {
						t.Fatalf("round %d: %d of 4 members of %s have a node", round, n, name)
					} else if !ok {
						seen[name] = time.Now()
					}
				} else {
					delete(seen, name)
				}
			}
			return na == 4 && nb == 4
		})
	}
}

// TestTwoProfilesShareAGang: its members come through two profiles of one scheduler.
func TestTwoProfilesShareAGang(t *testing.T) {
	t.Parallel()
	c := take(t)
	c.nodes(t, 4, 1)
	c.scheduler(t, localcluster.SchedulerOptions{Plugin: plugin, Profiles: []localcluster.Profile{{Name: "default-scheduler"}, {Name: "other"}}})
	g := gang{name: "ga", min: 4}
	c.group(t, g)
	for i := range 4 {
		g.via = []string{"", "other"}[i%2]
		c.member(t, g, i)
	}
	c.soon(t, 10*time.Second, "all members bound", func() bool { return c.bound(t, "ga") == 4 })
}

// held makes a gang of which two members are held: the third fits by the counts, and finds no node because of its port.
func (c *testCluster) held(t *testing.T) {
	t.Helper()
	for i := range 3 {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("ga-%d", i), Namespace: "default",
				Labels: map[string]string{"gang": "ga"},
				Annotations: map[string]string{
					"gang.scheduling.koordinator.sh/name":          "ga",
					"gang.scheduling.koordinator.sh/min-available": "3",
					"gang.scheduling.koordinator.sh/mode":          "NonStrict",
				},
			},
			Spec: v1.PodSpec{
				TerminationGracePeriodSeconds: new(int64),
				Containers: []v1.Container{{
					Name: "main", Image: "registry.k8s.io/pause:3.10",
					Ports: []v1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}},
				}},
			},
		}
		if _, err := c.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// assumed is how many pods hold room in the scheduler's cache without being bound.
func assumed(t *testing.T, s *localcluster.Scheduler) float64 {
	t.Helper()
	metrics, err := s.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	n, ok := metrics[`scheduler_scheduler_cache_size{type="assumed_pods"}`]
	if !ok {
		t.Fatal("the scheduler doesn't tell how many pods it assumes")
	}
	return n
}

// successions are the ways in which a scheduler takes over from one that is killed: started after it, or as a standby that was
// there before and gets the lease.
var successions = map[string]func(*testing.T, *testCluster) (leader *localcluster.Scheduler, killed func() *localcluster.Scheduler){
	"restart": func(t *testing.T, c *testCluster) (*localcluster.Scheduler, func() *localcluster.Scheduler) {
		o := localcluster.SchedulerOptions{Plugin: plugin}
		first := c.scheduler(t, o)
		return first, func() *localcluster.Scheduler {
			first.Kill()
			o.Name = "again"
			return c.scheduler(t, o)
		}
	},
	"failover": func(t *testing.T, c *testCluster) (*localcluster.Scheduler, func() *localcluster.Scheduler) {
		o := localcluster.SchedulerOptions{Plugin: plugin, LeaderElect: true, Name: "first"}
		first := c.scheduler(t, o)
		c.soon(t, 10*time.Second, "the first scheduler leads", func() bool {
			_, err := c.Client.CoordinationV1().Leases("kube-system").Get(t.Context(), "kube-scheduler", metav1.GetOptions{})
			return err == nil
		})
		o.Name = "second"
		second := c.scheduler(t, o)
		return first, func() *localcluster.Scheduler {
			first.Kill()
			return second
		}
	},
}

// TestKilledWhileHeld: the scheduler is killed with half a gang held. Under the next one nothing is bound until the gang is
// whole, and then all of it is.
func TestKilledWhileHeld(t *testing.T) {
	t.Parallel()
	for name, succession := range successions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := take(t)
			c.nodes(t, 2, 1)
			leader, killed := succession(t, c)
			c.held(t)
			c.soon(t, 10*time.Second, "two members are held", func() bool { return assumed(t, leader) == 2 })
			next := killed()
			c.soon(t, 20*time.Second, "two members are held again", func() bool { return assumed(t, next) == 2 })
			if n := c.withNode(t, "gang=ga"); n != 0 {
				t.Fatalf("%d members are bound although the third has no node", n)
			}
			for _, node := range fakekubelet.Nodes(3, 1)[2:] {
				if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			c.soon(t, 60*time.Second, "all members bound", func() bool { return c.withNode(t, "gang=ga") == 3 })
		})
	}
}

// TestKilledWhileBinding: the scheduler is killed in the middle of a release. The next one completes the gang.
func TestKilledWhileBinding(t *testing.T) {
	t.Parallel()
	for name, succession := range successions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := take(t)
			const size = 60
			c.nodes(t, size, 1)
			_, killed := succession(t, c)
			g := gang{name: "ga", min: size}
			c.group(t, g)
			for i := range size {
				c.member(t, g, i)
			}
			c.soon(t, 30*time.Second, "the first binding", func() bool { return c.bound(t, "ga") > 0 })
			killed()
			c.soon(t, 30*time.Second, "all members bound", func() bool { return c.bound(t, "ga") == size })
		})
	}
}

// TestAPIServerAway: the API server is gone for ten seconds and more while a part of a gang is held. Nothing is bound until the
// gang is whole, and then all of it is. A third of the test's time is client-go's, which looks for a server that was away for
// long again only after about as long.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	c := take(t)
	c.nodes(t, 2, 1)
	s := c.scheduler(t, localcluster.SchedulerOptions{Plugin: plugin})
	c.held(t)
	c.soon(t, 10*time.Second, "two members are held", func() bool { return assumed(t, s) == 2 })
	c.StopAPIServer()
	time.Sleep(10 * time.Second)
	if err := c.StartAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Err(); err != nil {
		t.Fatalf("the scheduler ended while the API server was away: %v", err)
	}
	if n := c.withNode(t, "gang=ga"); n != 0 {
		t.Fatalf("%d members are bound although the third has no node", n)
	}
	for _, node := range fakekubelet.Nodes(3, 1)[2:] {
		if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.soon(t, 60*time.Second, "all members bound", func() bool { return c.withNode(t, "gang=ga") == 3 })
}

// TestNoLeak: the number of guest instances doesn't grow with the pods bound, nor does memory.
func TestNoLeak(t *testing.T) {
	t.Parallel()
	total := 1500
	if os.Getenv("E2E_FULL") != "" {
		total = 10_000
	}
	const gangs, size = 5, 20 // at once
	c := take(t)
	c.nodes(t, 10, gangs*size/10)
	s := c.scheduler(t, localcluster.SchedulerOptions{Plugin: plugin})
	var instances, rss []float64
	for done := 0; done < total; {
		round := done / (gangs * size)
		for g := range gangs {
			one := gang{name: fmt.Sprintf("g%d-%d", round, g), min: size}
			c.group(t, one)
			for i := range size {
				c.member(t, one, i)
			}
		}
		for g := range gangs {
			name := fmt.Sprintf("g%d-%d", round, g)
			c.soon(t, 60*time.Second, name+" bound", func() bool { return c.bound(t, name) == size })
		}
		done += gangs * size
		metrics, err := s.Metrics()
		if err != nil {
			t.Fatal(err)
		}
		instances = append(instances, metrics["tutti_bridge_guest_instances_total"])
		rss = append(rss, metrics["process_resident_memory_bytes"])
		zero := int64(0)
		if err := c.Client.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		c.soon(t, 60*time.Second, "pods gone", func() bool { return c.pods() == "" })
	}
	t.Logf("guest instances after each %d pods: %v", gangs*size, instances)
	t.Logf("resident MiB: %v", mib(rss))
	if last := instances[len(instances)-1]; last == 0 || last > gangs*size+2 {
		t.Errorf("%v guest instances were made, for at most %d pods held or binding at once", last, gangs*size)
	}
	half := rss[len(rss)/2]
	if last := rss[len(rss)-1]; last > 1.25*half {
		t.Errorf("resident memory grew from %.0f MiB to %.0f MiB in the second half", half/(1<<20), last/(1<<20))
	}
}

func mib(bytes []float64) (out []int) {
	for _, b := range bytes {
		out = append(out, int(b/(1<<20)))
	}
	return out
}

// TestUpgrade: the scheduler is stopped in order and started with another guest file while a gang waits.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	c := take(t)
	c.nodes(t, 4, 1)
	data, err := os.ReadFile(plugin)
	if err != nil {
		t.Fatal(err)
	}
	// The same policy in another file: a custom section is appended.
	other := t.TempDir() + "/plugin-next.wasm"
	if err := os.WriteFile(other, append(data, 0, 6, 4, 'n', 'e', 'x', 't', 1), 0o600); err != nil {
		t.Fatal(err)
	}
	s := c.scheduler(t, localcluster.SchedulerOptions{Plugin: plugin})
	g := gang{name: "ga", min: 4}
	c.group(t, g)
	for i := range 3 {
		c.member(t, g, i)
	}
	time.Sleep(time.Second)
	s.Stop(10 * time.Second)
	c.scheduler(t, localcluster.SchedulerOptions{Plugin: other, Name: "next"})
	c.member(t, g, 3)
	c.soon(t, 20*time.Second, "all members bound", func() bool { return c.bound(t, "ga") == 4 })
}
