package bridge

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "tutti/scheduler/bridge/bridgev1"
)

// states are the members' states, numbered as pb.Member_State.
const states = int(pb.Member_TERMINATING) + 1

// counts holds how many members are in each state.
type counts [states]uint32

func (c *counts) proto() *pb.Counts {
	return &pb.Counts{
		Gated:       c[pb.Member_GATED],
		Unscheduled: c[pb.Member_UNSCHEDULED],
		Waiting:     c[pb.Member_WAITING],
		Bound:       c[pb.Member_BOUND],
		Running:     c[pb.Member_RUNNING],
		Succeeded:   c[pb.Member_SUCCEEDED],
		Failed:      c[pb.Member_FAILED],
		Terminating: c[pb.Member_TERMINATING],
	}
}

// toward is how many members count toward a quorum without any that wait. nil counts none.
func (c *counts) toward(q *pb.Quorum) (n uint32) {
	if c == nil {
		return 0
	}
	if !q.OnlyWaiting {
		n = c[pb.Member_BOUND] + c[pb.Member_RUNNING]
	}
	if q.CountSucceeded {
		n += c[pb.Member_SUCCEEDED]
	}
	return n
}

// hold is what became of a pod that reached Permit. It is kept by pod, beside the members: Unreserve may come after the
// pod's deletion.
type hold struct {
	pb.GroupLeaveReply_Was
	via host // of the profile it is held through
	// The request that let the pod pass and its answer: the same request again gets the same answer.
	asked  []byte
	answer *pb.GroupAllowReply
}

// member is a pod of a group.
type member struct {
	pod   *v1.Pod // read-only, as the informer holds it
	group *group
	role  string
	state pb.Member_State
	shape *shape // nil: not worked out yet
}

// stateOf is the first state that holds.
func stateOf(pod *v1.Pod, was pb.GroupLeaveReply_Was) pb.Member_State {
	switch {
	case pod.DeletionTimestamp != nil:
		return pb.Member_TERMINATING
	case pod.Status.Phase == v1.PodSucceeded:
		return pb.Member_SUCCEEDED
	case pod.Status.Phase == v1.PodFailed:
		return pb.Member_FAILED
	case pod.Status.Phase == v1.PodRunning:
		return pb.Member_RUNNING
	case pod.Spec.NodeName != "" || was == pb.GroupLeaveReply_RELEASED:
		return pb.Member_BOUND
	case was == pb.GroupLeaveReply_WAITING:
		return pb.Member_WAITING
	case len(pod.Spec.SchedulingGates) > 0:
		return pb.Member_GATED
	}
	return pb.Member_UNSCHEDULED
}

// live members have their end before them.
func (m *member) live() bool {
	switch m.state {
	case pb.Member_SUCCEEDED, pb.Member_FAILED, pb.Member_TERMINATING:
		return false
	}
	return true
}

// group is the state of one key.
type group struct {
	key     string
	source  *source
	members map[types.UID]*member
	held    map[types.UID]*member // with an undecided hold, terminating or not
	total   counts
	roles   map[string]*counts
	oldest  *member // among live ones; nil: not known, see oldestMember

	deadline      time.Time
	deadlineTimer stopper
	joined        *pb.Quorum // what the last one held has joined for; nil: nobody has
	released      bool

	backoff      *pb.GroupBackoff
	backoffTimer stopper

	blocked *pb.Blocked
}

type stopper interface{ Stop() bool }

// live is how many members are.
func (g *group) live() uint32 {
	return uint32(len(g.members)) - g.total[pb.Member_SUCCEEDED] - g.total[pb.Member_FAILED] - g.total[pb.Member_TERMINATING]
}

func (g *group) count(role string, state pb.Member_State, d int) {
	g.total[state] = uint32(int(g.total[state]) + d)
	c := g.roles[role]
	if c == nil {
		c = &counts{}
		g.roles[role] = c
	}
	c[state] = uint32(int(c[state]) + d)
	if *c == (counts{}) {
		delete(g.roles, role)
	}
}

// canMeet tells whether those who are left could still be what the held ones wait for.
func (g *group) canMeet() bool {
	left := func(c *counts) uint32 {
		if c == nil {
			return 0
		}
		return c.toward(g.joined) + c[pb.Member_UNSCHEDULED] + c[pb.Member_WAITING]
	}
	if g.joined == nil {
		return true
	}
	for role, least := range g.joined.Roles {
		if left(g.roles[role]) < least {
			return false
		}
	}
	return left(&g.total) >= g.joined.AtLeast
}

// oldestMember is the oldest live member. It is looked for only after the last one's end.
func (g *group) oldestMember() *member {
	if g.oldest == nil {
		for _, m := range g.members {
			if m.live() && (g.oldest == nil || byAge(m, g.oldest) < 0) {
				g.oldest = m
			}
		}
	}
	return g.oldest
}

// byAge orders by creation, then uid.
func byAge(a, b *member) int {
	return cmp.Or(a.pod.CreationTimestamp.Time.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.pod.UID, b.pod.UID))
}

func sortedByAge(members map[types.UID]*member, take func(*member) bool) []*member {
	all := make([]*member, 0, len(members))
	for _, m := range members {
		if take(m) {
			all = append(all, m)
		}
	}
	slices.SortFunc(all, byAge)
	return all
}

func unixMilli(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
