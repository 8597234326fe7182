package bridge

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "tutti/scheduler/bridge/bridgev1"
)

// Counters kept by increments are what a count of the pods from scratch gives, after whatever events (the trouble of
// scheduler-plugins' issues 446, 707 and 361).
func TestCountersEqualARecount(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, rand.New(rand.NewPCG(seed, 1)))
			for step := range 400 {
				what := w.step()
				if err := w.check(); err != nil {
					t.Fatalf("step %d, %s: %v", step, what, err)
				}
			}
			w.clear()
			w.clock.now = w.clock.now.Add(remarked)
			w.clock.fire()
			if err := w.check(); err != nil {
				t.Fatal(err)
			}
			if n := len(w.table.groups) + len(w.table.members) + len(w.table.heads) + len(w.clock.timers); n != 0 || w.table.holders != 0 {
				t.Errorf("without pods: groups %v, members %v, heads %v, %d timers, %d holders",
					w.table.groups, w.table.members, w.table.heads, len(w.clock.timers), w.table.holders)
			}
			if n := len(w.table.holds); n != 0 {
				t.Errorf("without pods and after their Unreserve %d holds are left", n)
			}
		})
	}
}

// world makes random events, some of them late, twice, or in the wrong order.
type world struct {
	*scriptHost
	t    *testing.T
	rand *rand.Rand
	next int
	past []*v1.Pod // whose events may come again
}

func newWorld(t *testing.T, r *rand.Rand) *world {
	w := &world{scriptHost: newScriptHost(), t: t, rand: r}
	w.server.beside = func() bool { return false }
	w.clock.now = time.Unix(1000, 0)
	w.ask(&pb.Request{Call: &pb.Request_Hello{Hello: &pb.Hello{Sources: []*pb.GroupSource{{
		Prefix: "x", ValueFrom: &pb.GroupSource_Label{Label: "gang"}, RoleFrom: &pb.GroupSource_RoleLabel{RoleLabel: "role"},
	}}}}})
	return w
}

func (w *world) ask(r *pb.Request) *pb.Response {
	w.t.Helper()
	r.Version = protocolVersion
	data, err := proto.Marshal(r)
	if err != nil {
		w.t.Fatal(err)
	}
	var response pb.Response
	if err := proto.Unmarshal(w.server.serve(data), &response); err != nil {
		w.t.Fatal(err)
	}
	if response.GetError() != nil {
		w.t.Fatal(response.GetError())
	}
	return &response
}

func (w *world) any() *v1.Pod {
	n := w.rand.IntN(max(len(w.pods), 1))
	for i := range w.next { // in order of creation, so that a seed means something
		if p := w.pods[types.UID(fmt.Sprint("u", i))]; p != nil {
			if n == 0 {
				return p
			}
			n--
		}
	}
	return nil
}

func (w *world) step() string {
	groups := []string{"", "a", "b", "c"}
	p := w.any()
	if p == nil || len(w.pods) < 12 && w.rand.IntN(3) == 0 {
		name := fmt.Sprint("p", w.rand.IntN(15))
		if w.get("ns", name) != nil || (endedPods{w.scriptHost}).get("ns", name) != nil {
			return "no name is free"
		}
		p = &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(fmt.Sprint("u", w.next)), CreationTimestamp: metav1.Unix(int64(w.rand.IntN(5)), 0),
			Labels: map[string]string{"gang": groups[w.rand.IntN(4)], "role": []string{"", "w"}[w.rand.IntN(2)]},
		}}
		p.Status.Phase = v1.PodPending
		if w.rand.IntN(5) == 0 {
			p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}}
		}
		w.next++
		return w.put(p, "add")
	}
	key := "x/ns/" + p.Labels["gang"]
	changed := p.DeepCopy()
	switch w.rand.IntN(12) {
	case 0:
		changed.Labels["gang"] = groups[w.rand.IntN(4)]
		return w.put(changed, "change of group")
	case 1:
		changed.Labels["role"] = fmt.Sprint(w.rand.IntN(2))
		return w.put(changed, "change of role")
	case 2:
		changed.Spec.NodeName = "n"
		return w.put(changed, "bind")
	case 3:
		changed.Spec.NodeName, changed.Status.Phase = "n", []v1.PodPhase{v1.PodRunning, v1.PodSucceeded, v1.PodFailed}[w.rand.IntN(3)]
		return w.put(changed, "phase")
	case 4:
		changed.DeletionTimestamp = &metav1.Time{Time: w.clock.now}
		return w.put(changed, "terminating")
	case 5:
		changed.Spec.SchedulingGates = nil
		return w.put(changed, "gates open")
	case 6:
		w.remove(p)
		return "deletion"
	case 7: // an event that comes again, or of a pod that is gone
		if len(w.past) > 0 {
			w.table.podChanged(w.past[w.rand.IntN(len(w.past))])
		}
		return "old event"
	case 8:
		w.ask(&pb.Request{Call: &pb.Request_GroupLeave{GroupLeave: &pb.GroupLeave{Key: key, Uid: string(p.UID)}}})
		return "unreserve"
	case 9:
		w.clock.now = w.clock.now.Add(time.Duration(w.rand.IntN(20)) * time.Second)
		w.clock.fire()
		return "time"
	case 10:
		w.ask(&pb.Request{Call: &pb.Request_GroupBackoff{GroupBackoff: &pb.GroupBackoff{Key: key, UntilMs: w.clock.now.Add(time.Second).UnixMilli()}}})
		w.ask(&pb.Request{Call: &pb.Request_GroupBlock{GroupBlock: &pb.GroupBlock{Key: key, Clear: w.rand.IntN(2) == 0}}})
		return "backoff and block"
	}
	if p.Labels["gang"] == "" || p.Spec.NodeName != "" || len(p.Spec.SchedulingGates) > 0 || isEnded(p) {
		return "not for Permit"
	}
	w.ask(&pb.Request{Call: &pb.Request_GroupGet{GroupGet: &pb.GroupGet{Key: key, Uid: string(p.UID)}}})
	if err := w.check(); err != nil {
		return "in cycle: " + err.Error()
	}
	w.ask(&pb.Request{Call: &pb.Request_GroupAllow{GroupAllow: &pb.GroupAllow{
		Uid: string(p.UID), Quorums: []*pb.Quorum{{Key: key, AtLeast: uint32(1 + w.rand.IntN(5))}},
		JoinUntilMs: w.clock.now.Add(10 * time.Second).UnixMilli(),
	}}})
	return "permit"
}

// put makes the pod so.
func (w *world) put(p *v1.Pod, what string) string {
	old := w.pods[p.UID]
	w.pods[p.UID] = p
	w.past = append(w.past, p)
	if old != nil {
		w.table.podChanged(old)
	}
	w.table.podChanged(p)
	return what
}

func (w *world) remove(p *v1.Pod) {
	delete(w.pods, p.UID)
	w.past = append(w.past, p)
	w.table.podChanged(p)
}

// clear deletes all pods; each one's Unreserve follows, as the scheduler has it.
func (w *world) clear() {
	for _, p := range w.pods {
		w.remove(p)
	}
	for i := range w.next {
		w.ask(&pb.Request{Call: &pb.Request_GroupLeave{GroupLeave: &pb.GroupLeave{Uid: fmt.Sprint("u", i)}}})
	}
}

// check counts anew and compares.
func (w *world) check() error {
	total, roles, held := map[string]counts{}, map[string]map[string]counts{}, map[string]int{}
	for _, p := range w.pods {
		_, key := w.table.sources.of(p)
		if key == "" {
			continue
		}
		state, role := stateOf(p, w.table.was(p.UID)), p.Labels["role"]
		c := total[key]
		c[state]++
		total[key] = c
		if roles[key] == nil {
			roles[key] = map[string]counts{}
		}
		c = roles[key][role]
		c[state]++
		roles[key][role] = c
		if w.table.was(p.UID) == pb.GroupLeaveReply_WAITING {
			held[key]++
		}
	}
	if len(w.table.groups) != len(total) {
		return fmt.Errorf("%d groups, want %d", len(w.table.groups), len(total))
	}
	if int(w.table.holders) != len(held) {
		return fmt.Errorf("%d holders, want %d", w.table.holders, len(held))
	}
	for key, want := range total {
		g := w.table.groups[key]
		if g == nil || g.total != want || len(g.held) != held[key] || len(g.roles) != len(roles[key]) {
			return fmt.Errorf("group %s is %+v, want total %v, %d held, roles %v", key, g, want, held[key], roles[key])
		}
		for role, c := range roles[key] {
			if *g.roles[role] != c {
				return fmt.Errorf("group %s, role %q: %v, want %v", key, role, *g.roles[role], c)
			}
		}
		if (len(g.held) > 0) != (g.deadlineTimer != nil) {
			return fmt.Errorf("group %s holds %d and its deadline is %v", key, len(g.held), g.deadline)
		}
		var oldest *member
		for _, m := range g.members {
			if m.live() && (oldest == nil || byAge(m, oldest) < 0) {
				oldest = m
			}
		}
		if got := g.oldestMember(); got != oldest {
			return fmt.Errorf("group %s: the oldest is %+v, want %+v", key, got, oldest)
		}
		if g.live() == 0 && (g.backoff != nil || g.blocked != nil) {
			return fmt.Errorf("group %s has nobody alive, and backoff %v, block %v", key, g.backoff, g.blocked)
		}
	}
	return nil
}

// A pod that leaves its group around Permit isn't held without an end.
func TestHeldPodLeavesItsGroup(t *testing.T) {
	for _, when := range []string{"before Permit", "while held"} {
		t.Run(when, func(t *testing.T) {
			w := newWorld(t, nil)
			p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Labels: map[string]string{"gang": "a"}}}
			w.put(p, "")
			leave := func() {
				alone := p.DeepCopy()
				alone.Labels = nil
				w.put(alone, "")
			}
			if when == "before Permit" {
				leave()
			}
			w.ask(&pb.Request{Call: &pb.Request_GroupAllow{GroupAllow: &pb.GroupAllow{
				Uid: "u", Quorums: []*pb.Quorum{{Key: "x/ns/a", AtLeast: 2}}, JoinUntilMs: w.clock.now.Add(time.Minute).UnixMilli(),
			}}})
			w.effects = nil
			if when == "while held" {
				leave()
			} else {
				w.clock.now = w.clock.now.Add(time.Minute)
				w.clock.fire()
			}
			if len(w.effects) != 1 || !strings.HasPrefix(w.effects[0], "reject u: ") || w.table.was("u") != pb.GroupLeaveReply_REJECTED {
				t.Errorf("effects %q, was %v", w.effects, w.table.was("u"))
			}
		})
	}
}
