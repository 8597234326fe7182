package bridge

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	pb "tutti/scheduler/bridge/bridgev1"
)

// shape is what a member asks of a node. The node name is left out: before the binding it is empty, after it it is an
// answer and no demand.
type shape struct {
	key      string
	requests *framework.Resource
}

func (m *member) shapeNow() *shape {
	if m.shape == nil {
		r := requests(m.pod)
		var affinity *v1.NodeAffinity
		if m.pod.Spec.Affinity != nil {
			affinity = m.pod.Spec.Affinity.NodeAffinity
		}
		// Marshalling API types that came through the API can't fail, and sorts maps.
		key, _ := json.Marshal([]any{m.role, priorityOf(m.pod), r, m.pod.Spec.NodeSelector, affinity, m.pod.Spec.Tolerations})
		m.shape = &shape{string(key), r}
	}
	return m.shape
}

func (t *Table) shapes(req *pb.GroupShapes, beside func() bool) *pb.GroupShapesReply {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inCycle(req.Key, req.Uid, beside)
	g := t.groups[req.Key]
	if g == nil {
		return &pb.GroupShapesReply{}
	}
	type tally struct {
		*pb.Shape
		of     *shape
		oldest *member // unscheduled ones first
		first  *member // by age alone
	}
	by := map[string]*tally{}
	names := map[v1.ResourceName]bool{}
	for _, m := range g.members {
		unscheduled := m.state == pb.Member_UNSCHEDULED
		if !unscheduled && m.state != pb.Member_WAITING && m.state != pb.Member_BOUND && m.state != pb.Member_RUNNING {
			continue
		}
		of := m.shapeNow()
		s := by[of.key]
		if s == nil {
			s = &tally{Shape: &pb.Shape{Role: m.role, Priority: priorityOf(m.pod)}, of: of, oldest: m, first: m}
			by[of.key] = s
			for name := range asked(of.requests) {
				names[name] = true
			}
		}
		fresh := s.Unscheduled == 0
		if unscheduled {
			s.Unscheduled++
		} else {
			s.Placed++
		}
		if byAge(m, s.first) < 0 {
			s.first = m
		}
		if unscheduled && (fresh || byAge(m, s.oldest) < 0) || !unscheduled && s.Unscheduled == 0 && byAge(m, s.oldest) < 0 {
			s.oldest = m
		}
	}
	reply := &pb.GroupShapesReply{}
	for name := range names {
		reply.Resources = append(reply.Resources, string(name))
	}
	slices.Sort(reply.Resources)
	all := make([]*tally, 0, len(by))
	for _, s := range by {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *tally) int { return byAge(a.first, b.first) })
	for _, s := range all {
		s.Uid = string(s.oldest.pod.UID)
		for _, name := range reply.Resources {
			s.Requests = append(s.Requests, amount(s.of.requests, v1.ResourceName(name)))
		}
		reply.Shapes = append(reply.Shapes, s.Shape)
	}
	return reply
}

// alike are the unscheduled members of the pod's shape, the oldest first, as many as are asked for.
func (t *Table) alike(uid types.UID, most int) (pods []*v1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.members[uid]
	if of == nil {
		return nil
	}
	key := of.shapeNow().key
	all := sortedByAge(of.group.members, func(m *member) bool {
		return m.state == pb.Member_UNSCHEDULED && m.shapeNow().key == key
	})
	for _, m := range all[:min(most, len(all))] {
		pods = append(pods, m.pod)
	}
	return pods
}

// asked are the resources of which the pod wants some, its place among the pods included.
func asked(r *framework.Resource) map[v1.ResourceName]bool {
	names := map[v1.ResourceName]bool{v1.ResourcePods: true}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		if amount(r, name) > 0 {
			names[name] = true
		}
	}
	for name, n := range r.ScalarResources {
		if n > 0 {
			names[name] = true
		}
	}
	return names
}
