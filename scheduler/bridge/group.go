package bridge

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"

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

// toward is how many members count toward a quorum without any that wait.
func (c *counts) toward(q *pb.Quorum) uint32 {
	if q.OnlyWaiting {
		return 0
	}
	n := c[pb.Member_BOUND] + c[pb.Member_RUNNING]
	if q.CountSucceeded {
		n += c[pb.Member_SUCCEEDED]
	}
	return n
}

// decision is what became of a member that reached Permit.
type decision int

const (
	undecided decision = iota
	joined             // waits
	allowed            // let go, by itself or with the others
	rejected           // by GroupReject or the deadline
)

// member is a pod of a group.
type member struct {
	pod      *v1.Pod // read-only, as the informer holds it
	group    *group
	role     string
	state    pb.Member_State
	decision decision
	via      waitingPods // of the profile it joined through
	shape    *shape      // nil: not worked out yet
}

// waitingPods is the part of a handle that reaches pods held at Permit, under the plugin's name.
type waitingPods interface {
	allow(types.UID) bool
	reject(types.UID, string) bool
	waits(types.UID) bool
	activate(map[string]*v1.Pod)
}

func (h *Handle) waits(uid types.UID) bool { return h.Handle.GetWaitingPod(uid) != nil }

func (h *Handle) allow(uid types.UID) bool {
	w := h.Handle.GetWaitingPod(uid)
	if w != nil {
		w.Allow(h.plugin)
	}
	return w != nil
}

func (h *Handle) reject(uid types.UID, reason string) bool {
	w := h.Handle.GetWaitingPod(uid)
	if w != nil {
		w.Reject(h.plugin, reason)
	}
	return w != nil
}

func (h *Handle) activate(pods map[string]*v1.Pod) {
	h.Handle.Activate(logger(h.plugin), pods)
}

var _ waitingPods = (*Handle)(nil)
var _ framework.Handle = (*Handle)(nil)

func stateOf(pod *v1.Pod, d decision) pb.Member_State {
	switch {
	case pod.DeletionTimestamp != nil:
		return pb.Member_TERMINATING
	case pod.Status.Phase == v1.PodSucceeded:
		return pb.Member_SUCCEEDED
	case pod.Status.Phase == v1.PodFailed:
		return pb.Member_FAILED
	case pod.Spec.NodeName != "" && pod.Status.Phase == v1.PodRunning:
		return pb.Member_RUNNING
	case pod.Spec.NodeName != "" || d == allowed:
		return pb.Member_BOUND
	case d == joined:
		return pb.Member_WAITING
	case len(pod.Spec.SchedulingGates) > 0:
		return pb.Member_GATED
	}
	return pb.Member_UNSCHEDULED
}

// group is the state of one key.
type group struct {
	key     string
	source  *source
	members map[types.UID]*member
	total   counts
	roles   map[string]*counts
	waiting map[types.UID]*member // those in state WAITING

	oldest *member // among live ones; nil: not known, see oldestMember

	deadline      time.Time
	deadlineTimer stopper
	released      bool

	backoffUntil time.Time
	backoffTimer stopper
	attempt      uint32
	note         string

	blocked *blocked
}

type stopper interface{ Stop() bool }

type blocked struct {
	rank  int64
	since time.Time
	note  []byte
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

// oldestMember is the oldest live member: not finished, not terminating.
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

func (m *member) live() bool {
	switch m.state {
	case pb.Member_SUCCEEDED, pb.Member_FAILED, pb.Member_TERMINATING:
		return false
	}
	return true
}

// byAge orders by creation, then uid.
func byAge(a, b *member) int {
	return cmp.Or(a.pod.CreationTimestamp.Time.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.pod.UID, b.pod.UID))
}

func (g *group) byAge() []*member {
	all := make([]*member, 0, len(g.members))
	for _, m := range g.members {
		all = append(all, m)
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
