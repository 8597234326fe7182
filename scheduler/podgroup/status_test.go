package podgroup

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type option func(*v1.Pod)

var (
	gated       option = func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}} }
	terminating option = func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }
	placed      option = func(p *v1.Pod) { p.Spec.NodeName = "n" }
)

func in(phase v1.PodPhase) option { return func(p *v1.Pod) { p.Status.Phase = phase } }

func why(message string) option {
	return func(p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: message}}
	}
}

// pods makes n pods, each a second older than the one before.
func pods(n int, options ...option) (all []*v1.Pod) {
	for i := range n {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			UID: types.UID(fmt.Sprint(i)), CreationTimestamp: metav1.Unix(int64(1000-i), 0),
		}}
		p.Status.Phase = v1.PodPending
		for _, o := range options {
			o(p)
		}
		all = append(all, p)
	}
	return all
}

func join(lists ...[]*v1.Pod) (all []*v1.Pod) {
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestPhaseAndCondition(t *testing.T) {
	running := []option{placed, in(v1.PodRunning)}
	succeeded := []option{placed, in(v1.PodSucceeded)}
	failed := []option{placed, in(v1.PodFailed)}
	for _, c := range []struct {
		name         string
		pods         []*v1.Pod
		least        int64
		sig, volcano string
		scheduled    int64
		reason       string
	}{
		{"no pods", nil, 3, "Pending", "Pending", 0, "Waiting"},
		{"too few", pods(2), 3, "Pending", "Pending", 0, "Waiting"},
		{"all there", pods(3), 3, "Scheduling", "Inqueue", 0, "Waiting"},
		{"all there, one says why not", join(pods(2), pods(1, why("no room"))), 3, "Scheduling", "Inqueue", 0, "Unschedulable"},
		{"gated ones aren't there", join(pods(2), pods(1, gated)), 3, "Pending", "Pending", 0, "Waiting"},
		{"terminating ones neither", join(pods(2), pods(1, terminating)), 3, "Pending", "Pending", 0, "Waiting"},
		{"placed, not running yet", pods(3, placed), 3, "Scheduling", "Running", 3, "Scheduled"},
		{"running", pods(3, running...), 3, "Running", "Running", 3, "Scheduled"},
		{"one more than the minimum waits", join(pods(3, running...), pods(1, why("full"))), 3, "Running", "Running", 3, "Scheduled"},
		{"some have ended", join(pods(1, running...), pods(2, succeeded...)), 3, "Running", "Running", 3, "Scheduled"},
		{"finished", pods(3, succeeded...), 3, "Finished", "Completed", 3, "Scheduled"},
		{"one failed", join(pods(2, running...), pods(1, failed...)), 3, "Failed", "Running", 2, "Waiting"},
		{"failed, not enough ever started", pods(1, failed...), 3, "Pending", "Pending", 0, "Waiting"},
		{"a part runs, the rest has no place", join(pods(1, running...), pods(2, why("full"))), 3, "Scheduling", "Unknown", 1, "Unschedulable"},
		{"no minimum, a pod waits", pods(1), 0, "Scheduling", "Inqueue", 0, "Waiting"},
		{"no minimum, a pod runs", pods(1, running...), 0, "Running", "Running", 1, "Scheduled"},
		{"a running one is deleted", join(pods(2, running...), pods(1, placed, in(v1.PodRunning), terminating)), 3, "Pending", "Unknown", 2, "Waiting"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := count(c.pods)
			if sig, volcano := sigPhase(got, c.least), volcanoPhase(got, c.least); sig != c.sig || volcano != c.volcano {
				t.Errorf("phases %s and %s, want %s and %s", sig, volcano, c.sig, c.volcano)
			}
			condition := scheduledCondition(got, c.least, 7)
			if got.scheduled != c.scheduled || condition.Reason != c.reason || condition.ObservedGeneration != 7 {
				t.Errorf("scheduled %d, condition %+v; want %d and %s", got.scheduled, condition, c.scheduled, c.reason)
			}
			if (condition.Status == metav1.ConditionTrue) != (c.reason == "Scheduled") {
				t.Errorf("condition %+v", condition)
			}
		})
	}
}

// Case S-45: the figures follow the pods both ways, whatever the order of events.
func TestCountsGoBothWays(t *testing.T) {
	running := pods(10, placed, in(v1.PodRunning))
	for i, want := range []int64{10, 5, 10} {
		now := running
		if want == 5 {
			now = join(running[:5], pods(5)) // evicted and made again
		}
		rand.Shuffle(len(now), func(i, j int) { now[i], now[j] = now[j], now[i] })
		if got := count(now).scheduled; got != want {
			t.Errorf("look %d: scheduled %d, want %d", i, got, want)
		}
	}
}

func TestTheOldestMemberSaysWhy(t *testing.T) {
	all := pods(3, why("young"))
	all[2].Status.Conditions[0].Message = "old"
	c := scheduledCondition(count(all), 3, 1)
	if c.Reason != "Unschedulable" || c.Message != "old" {
		t.Errorf("%+v", c)
	}
}
