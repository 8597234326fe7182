package podgroup

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tally is what a group's pods come to. Every field is a count of pods that exist now, so the order of events can't matter.
type tally struct {
	members   int64 // neither terminating nor gated
	scheduled int64 // have a node, finished ones included
	running   int64
	succeeded int64
	failed    int64
	waiting   *v1.Pod // the oldest member without a node that says why
}

func count(pods []*v1.Pod) (t tally) {
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	for _, p := range pods {
		switch p.Status.Phase {
		case v1.PodSucceeded:
			t.succeeded++
		case v1.PodFailed:
			t.failed++
			continue // it helps nobody to a quorum
		case v1.PodRunning:
			if p.DeletionTimestamp == nil {
				t.running++
			}
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		if p.Spec.NodeName != "" {
			t.scheduled++
		}
		if len(p.Spec.SchedulingGates) == 0 {
			t.members++
		}
		if p.Spec.NodeName == "" && t.waiting == nil && reasonOf(p) != "" {
			t.waiting = p
		}
	}
	return t
}

// reasonOf is why the scheduler left the pod without a node.
func reasonOf(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// phases of scheduling.x-k8s.io/v1alpha1 (apis/scheduling/v1alpha1/types.go in kubernetes-sigs/scheduler-plugins).
func sigPhase(t tally, least int64) string {
	switch {
	case least > 0 && t.succeeded >= least:
		return "Finished"
	case t.failed > 0 && t.running+t.succeeded+t.failed >= least:
		return "Failed"
	case t.running+t.succeeded >= max(least, 1):
		return "Running"
	case t.members >= max(least, 1):
		return "Scheduling"
	}
	return "Pending"
}

// phases of scheduling.volcano.sh/v1beta1 (staging/src/volcano.sh/apis/pkg/apis/scheduling/v1beta1/types.go in
// volcano-sh/volcano). Volcano's own Inqueue means admitted to its queue; here it means that the members are there.
func volcanoPhase(t tally, least int64) string {
	placed := t.scheduled + t.failed
	switch {
	case placed > 0 && t.succeeded+t.failed == placed && placed >= least:
		return "Completed"
	case placed >= max(least, 1):
		return "Running"
	case t.running > 0:
		return "Unknown" // a part runs and the rest has no place
	case t.members >= max(least, 1):
		return "Inqueue"
	}
	return "Pending"
}

// scheduledCondition says whether the minimum has a node, and if not, the scheduler's reason.
func scheduledCondition(t tally, least int64, generation int64) metav1.Condition {
	c := metav1.Condition{Type: "Scheduled", Status: metav1.ConditionTrue, Reason: "Scheduled", ObservedGeneration: generation}
	if t.scheduled < max(least, 1) {
		c.Status, c.Reason = metav1.ConditionFalse, "Waiting"
		if t.waiting != nil {
			c.Reason, c.Message = "Unschedulable", reasonOf(t.waiting)
		}
	}
	return c
}
