package bridge

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	pb "tutti/scheduler/bridge/bridgev1"
)

// shared is the process' one table: waiting pods of all profiles are in one map too, and a gang may span profiles.
var shared = newTable(realClock{})

// clock is the time, for tests to turn.
type clock interface {
	Now() time.Time
	AfterFunc(time.Duration, func()) stopper
}

type realClock struct{}

func (realClock) Now() time.Time                              { return time.Now() }
func (realClock) AfterFunc(d time.Duration, f func()) stopper { return time.AfterFunc(d, f) }

// Table keeps the groups' state. Truth is the API server's: after a restart the table is filled from informers.
type Table struct {
	clock clock

	mu      sync.Mutex
	sources *sources
	groups  map[string]*group // only those with members
	members map[types.UID]*member
	holds   map[types.UID]*hold
	holders uint32   // groups with someone held
	heads   []*group // the blocked groups, first one first
	queue   host     // reaches the scheduling queue; any profile's does
	live    podStore // pods the scheduler sees: not finished
	ended   podStore // finished pods
	objects *objects

	endedSynced cache.InformerSynced // set at start, as live and ended are

	startOnce, endedOnce sync.Once
}

// podStore is what an informer holds now.
type podStore interface {
	get(namespace, name string) *v1.Pod
	byUID(types.UID) *v1.Pod
	list() []*v1.Pod
}

type informerStore struct{ cache.Indexer }

// uidIndex is the index of pods by uid.
const uidIndex = "tutti/uid"

func indexUID(obj any) ([]string, error) {
	if pod, ok := obj.(*v1.Pod); ok {
		return []string{string(pod.UID)}, nil
	}
	return nil, nil
}

func (s informerStore) byUID(uid types.UID) *v1.Pod {
	found, err := s.ByIndex(uidIndex, string(uid))
	if err != nil || len(found) == 0 {
		return nil
	}
	pod, _ := found[0].(*v1.Pod)
	return pod
}

func (s informerStore) get(namespace, name string) *v1.Pod {
	obj, ok, err := s.GetByKey(namespace + "/" + name)
	if err != nil || !ok {
		return nil
	}
	pod, _ := obj.(*v1.Pod)
	return pod
}

func (s informerStore) list() []*v1.Pod {
	var pods []*v1.Pod
	for _, obj := range s.List() {
		if pod, ok := obj.(*v1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

func newTable(c clock) *Table {
	return &Table{clock: c, groups: map[string]*group{}, members: map[types.UID]*member{}, holds: map[types.UID]*hold{}}
}

// start follows pods. The first factory call does it, while the informers are not yet started.
func (t *Table) start(ctx context.Context, handle framework.Handle) {
	t.startOnce.Do(func() {
		pods := handle.SharedInformerFactory().Core().V1().Pods().Informer()
		ended := newEndedInformer(handle.ClientSet())
		if err := pods.AddIndexers(cache.Indexers{uidIndex: indexUID}); err != nil {
			klog.ErrorS(err, "bridge: pods can't be found by uid")
		}
		t.live, t.ended, t.endedSynced = informerStore{pods.GetIndexer()}, informerStore{ended.GetIndexer()}, ended.HasSynced
		t.objects = newObjects(ctx, handle.KubeConfig(), t.objectChanged)
		for _, informer := range []cache.SharedIndexInformer{pods, ended} {
			if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
				AddFunc: func(obj any) { t.podChanged(obj) },
				UpdateFunc: func(old, obj any) {
					if o, n := old.(*v1.Pod), obj.(*v1.Pod); o.UID != n.UID {
						t.podChanged(o) // deleted and made again under one name, seen as an update
					}
					t.podChanged(obj)
				},
				DeleteFunc: func(obj any) { t.podChanged(obj) },
			}); err != nil {
				klog.ErrorS(err, "bridge: pods can't be followed")
			}
		}
		nodes := handle.SharedInformerFactory().Core().V1().Nodes().Informer()
		if _, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
				t.nodeGone(name)
			}
		}}); err != nil {
			klog.ErrorS(err, "bridge: nodes can't be followed")
		}
		go ended.Run(ctx.Done())
	})
}

// nodeGone rejects who is held on a node that went. The framework would bind them to it.
func (t *Table) nodeGone(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid, h := range t.holds {
		if h.GroupLeaveReply_Was == pb.GroupLeaveReply_WAITING && h.via.heldOn(uid) == name {
			h.via.reject(uid, "node "+name+" is gone")
			t.setHold(uid, &hold{GroupLeaveReply_Was: pb.GroupLeaveReply_REJECTED, via: h.via})
		}
	}
}

// podChanged looks at what the informers hold now, not at what the event says: events of the two informers come in no
// order, and one of a pod that was made again under the same name may be of its predecessor.
func (t *Table) podChanged(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh(pod)
}

// refresh brings the member in line with the informers. pod names it; its content may be old.
func (t *Table) refresh(pod *v1.Pod) {
	now := t.live.get(pod.Namespace, pod.Name)
	if now == nil || now.UID != pod.UID {
		now = t.ended.get(pod.Namespace, pod.Name)
	}
	if now == nil || now.UID != pod.UID {
		t.remove(pod.UID)
		return
	}
	t.upsert(now)
}

// remarked is how long after labels or annotations of a member changed its group is woken. The scheduling queue hears of the
// change by an informer's handler of its own, and may be the later one.
const remarked = 100 * time.Millisecond

func (t *Table) upsert(pod *v1.Pod) {
	if h := t.holds[pod.UID]; h != nil && pod.Spec.NodeName != "" && h.GroupLeaveReply_Was == pb.GroupLeaveReply_RELEASED {
		delete(t.holds, pod.UID) // the binding is in the API: nothing is pending any more
	}
	src, key := t.sources.of(pod)
	m := t.members[pod.UID]
	if m != nil && key != "" && !slices.Equal(t.sources.marks(m.pod), t.sources.marks(pod)) {
		t.clock.AfterFunc(remarked, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			if g := t.groups[key]; g != nil {
				t.activateAll(g, "")
			}
		})
	}
	deadline := time.Time{} // a held member that changes its group takes it along
	if m != nil && m.group.key != key {
		deadline = m.group.deadline
		t.remove(pod.UID)
		m = nil
	}
	if key == "" {
		if h := t.holds[pod.UID]; h != nil && h.GroupLeaveReply_Was == pb.GroupLeaveReply_WAITING {
			// No group's deadline would ever end its wait. It is tried again as the pod that it is now.
			h.via.reject(pod.UID, "the pod left its group while it was held")
			t.setHold(pod.UID, &hold{GroupLeaveReply_Was: pb.GroupLeaveReply_REJECTED, via: h.via})
		}
		return
	}
	if m == nil {
		g := t.groups[key]
		if g == nil {
			g = &group{key: key, source: src, members: map[types.UID]*member{}, held: map[types.UID]*member{}, roles: map[string]*counts{}}
			t.groups[key] = g
		}
		m = &member{pod: pod, group: g, role: src.role(pod), state: stateOf(pod, t.was(pod.UID))}
		g.members[pod.UID], t.members[pod.UID] = m, m
		g.count(m.role, m.state, 1)
		t.setHeld(m)
		if g.held[pod.UID] != nil && !deadline.IsZero() && (g.deadline.IsZero() || deadline.Before(g.deadline)) {
			t.setDeadline(g, deadline)
		}
	} else {
		if role := src.role(pod); role != m.role {
			m.group.count(m.role, m.state, -1)
			m.role = role
			m.group.count(m.role, m.state, 1)
		}
		m.pod, m.shape = pod, nil
		t.update(m)
	}
	if g := m.group; g.oldest != nil && m.live() && byAge(m, g.oldest) < 0 {
		g.oldest = m
	}
	if pod.Spec.NodeName != "" {
		m.group.released = true
	}
}

func (t *Table) was(uid types.UID) pb.GroupLeaveReply_Was {
	if h := t.holds[uid]; h != nil {
		return h.GroupLeaveReply_Was
	}
	return pb.GroupLeaveReply_NOTHING
}

// setHold records what becomes of a pod at Permit; nil ends it.
func (t *Table) setHold(uid types.UID, h *hold) {
	if h == nil {
		delete(t.holds, uid)
	} else {
		t.holds[uid] = h
	}
	if m := t.members[uid]; m != nil {
		t.update(m)
	}
}

// update moves the member to the state it is in now, and the counts with it.
func (t *Table) update(m *member) {
	g := m.group
	t.setHeld(m)
	if state := stateOf(m.pod, t.was(m.pod.UID)); state != m.state {
		g.count(m.role, m.state, -1)
		m.state = state
		g.count(m.role, m.state, 1)
	}
	if g.oldest == m && !m.live() {
		g.oldest = nil
	}
	t.settle(g)
}

// setHeld keeps the group's set of held members, and the number of groups that have one.
func (t *Table) setHeld(m *member) {
	g, uid := m.group, m.pod.UID
	before := len(g.held) > 0
	if t.was(uid) == pb.GroupLeaveReply_WAITING {
		g.held[uid] = m
	} else {
		delete(g.held, uid)
	}
	t.countHolder(before, len(g.held) > 0)
}

func (t *Table) countHolder(before, after bool) {
	switch {
	case before && !after:
		t.holders--
	case after && !before:
		t.holders++
	}
}

func (t *Table) remove(uid types.UID) {
	m := t.members[uid]
	if m == nil {
		return
	}
	g := m.group
	before := len(g.held) > 0
	delete(g.held, uid)
	t.countHolder(before, len(g.held) > 0)
	g.count(m.role, m.state, -1)
	delete(g.members, uid)
	delete(t.members, uid)
	if g.oldest == m {
		g.oldest = nil
	}
	t.settle(g)
}

// over is a deadline that has passed.
var over = time.UnixMilli(1)

// settle ends what a group without held, live or any members can't have.
func (t *Table) settle(g *group) {
	if len(g.held) == 0 {
		t.setDeadline(g, time.Time{})
	} else if !g.canMeet() {
		t.setDeadline(g, over)
	}
	if g.live() == 0 {
		t.calm(g)
	}
	if len(g.members) == 0 {
		delete(t.groups, g.key)
	}
}

// calm ends backoff and block.
func (t *Table) calm(g *group) {
	g.backoff = nil
	if g.backoffTimer != nil {
		g.backoffTimer.Stop()
		g.backoffTimer = nil
	}
	t.unblock(g)
}

func (t *Table) unblock(g *group) {
	if g.blocked != nil {
		g.blocked = nil
		t.heads = slices.DeleteFunc(t.heads, func(x *group) bool { return x == g })
	}
}

// setDeadline starts the group's timer anew; the zero time stops it.
func (t *Table) setDeadline(g *group, at time.Time) {
	if at.Equal(g.deadline) {
		return
	}
	if g.deadlineTimer != nil {
		g.deadlineTimer.Stop()
		g.deadlineTimer = nil
	}
	g.deadline = at
	if at.IsZero() {
		return
	}
	g.deadlineTimer = t.clock.AfterFunc(at.Sub(t.clock.Now()), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if g.deadline.Equal(at) {
			why := "its deadline passed"
			if !g.canMeet() {
				why = "too few members are left"
			}
			t.rejectAll(g, fmt.Sprintf("group %s: %s with %d waiting", g.key, why, len(g.held)))
		}
	})
}

// declare takes the guest's sources. It reports whether they are new.
func (t *Table) declare(hello *pb.Hello) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sources != nil {
		if proto.Equal(t.sources.hello, hello) {
			return false, nil
		}
		return false, fmt.Errorf("other sources were declared before; all guests of a process must declare the same")
	}
	s, err := newSources(hello)
	if err != nil {
		return false, err
	}
	t.sources = s
	for _, pod := range append(t.ended.list(), t.live.list()...) {
		t.upsert(pod)
	}
	return true, nil
}

// caller returns the asking member of the group. A pod can reach its cycle before its informer event reached the table:
// then the whole group may lag, and is read again.
func (t *Table) caller(key string, uid types.UID) *member {
	m := t.members[uid]
	if uid == "" || (m != nil && m.group.key == key && m.state != pb.Member_GATED) {
		return m
	}
	for _, pod := range t.live.list() {
		if _, k := t.sources.of(pod); k == key {
			t.upsert(pod)
		}
	}
	return t.members[uid]
}

// inCycle ends whatever held the pod before: it is in a scheduling cycle now.
func (t *Table) inCycle(key, uid string, beside func() bool) *member {
	m := t.caller(key, types.UID(uid))
	if t.holds[types.UID(uid)] != nil && !beside() {
		t.setHold(types.UID(uid), nil)
	}
	return m
}

func (t *Table) get(req *pb.GroupGet, beside func() bool) *pb.GroupState {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inCycle(req.Key, req.Uid, beside)
	state := &pb.GroupState{Total: &pb.Counts{}, NowMs: t.clock.Now().UnixMilli(), OtherHolders: t.holders}
	if len(t.heads) > 0 {
		state.Head = t.heads[0].blocked
	}
	if src, namespace, name := t.sources.parse(req.Key); req.WithObject && src != nil && src.Object != nil {
		state.Object = t.objects.get(gvr(src.Object), namespace, name)
	}
	g := t.groups[req.Key]
	if g == nil {
		return state
	}
	state.Total = g.total.proto()
	state.Roles = make(map[string]*pb.Counts, len(g.roles))
	for role, c := range g.roles {
		state.Roles[role] = c.proto()
	}
	if m := g.oldestMember(); m != nil {
		state.OldestMemberMs = unixMilli(m.pod.CreationTimestamp.Time)
		state.Facts = g.source.facts(m.pod)
	}
	state.BackoffUntilMs, state.Attempt, state.Note = g.backoff.GetUntilMs(), g.backoff.GetAttempt(), g.backoff.GetNote()
	state.DeadlineMs = unixMilli(g.deadline)
	state.Released = g.released
	state.BlockedSinceMs = g.blocked.GetSinceMs()
	if len(g.held) > 0 {
		state.OtherHolders--
	}
	return state
}

// allow lets the quorums' waiting members go, or joins the caller; see GroupAllow in the protocol. asked is the encoded
// request.
func (t *Table) allow(req *pb.GroupAllow, asked []byte, via host) (*pb.GroupAllowReply, error) {
	if len(req.Quorums) == 0 {
		return nil, errors.New("group_allow names no quorum")
	}
	if req.Uid == "" {
		return nil, errors.New("group_allow names no pod")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	uid := types.UID(req.Uid)
	if h := t.holds[uid]; h != nil && h.answer != nil && bytes.Equal(h.asked, asked) {
		return h.answer, nil
	}
	self := t.caller(req.Quorums[0].Key, uid)
	reply := &pb.GroupAllowReply{}
	// By the counters first: only when they say yes is each held member looked at.
	reply.Allowed, reply.Quorums = t.measure(req, self, nil)
	var sound map[types.UID]*member
	if reply.Allowed {
		sound, reply.Lost = t.sound(req, uid)
		if len(reply.Lost) > 0 {
			reply.Allowed, reply.Quorums = t.measure(req, self, sound)
		}
	}
	if reply.Allowed {
		for id := range sound {
			h := t.holds[id]
			h.via.allow(id)
			t.setHold(id, &hold{GroupLeaveReply_Was: pb.GroupLeaveReply_RELEASED, via: h.via})
		}
		reply.Released = uint32(len(sound))
		t.setHold(uid, &hold{GroupLeaveReply_Was: pb.GroupLeaveReply_RELEASED, via: via, asked: asked, answer: reply})
		for _, q := range req.Quorums {
			if g := t.groups[q.Key]; g != nil {
				g.released = true
				t.calm(g)
			}
		}
		return reply, nil
	}
	if req.JoinUntilMs > 0 {
		h := &hold{GroupLeaveReply_Was: pb.GroupLeaveReply_WAITING, via: via}
		t.setHold(uid, h)
		at := fromMilli(req.JoinUntilMs)
		if m := t.members[uid]; m == nil {
			t.rejectAt(at, uid, h)
		} else {
			g := m.group
			g.joined = req.Quorums[0]
			if g.deadline.IsZero() || at.Before(g.deadline) {
				t.setDeadline(g, at)
			}
			t.settle(g)
		}
	}
	return reply, nil
}

// rejectAt ends a hold of a pod that is in no group: it lost its label between its cycle's start and Permit.
func (t *Table) rejectAt(at time.Time, uid types.UID, h *hold) {
	t.clock.AfterFunc(at.Sub(t.clock.Now()), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.holds[uid] == h {
			h.via.reject(uid, "held in no group until its deadline")
			t.setHold(uid, &hold{GroupLeaveReply_Was: pb.GroupLeaveReply_REJECTED, via: h.via})
		}
	})
}

// measure tells whether all quorums are met, and by how many. sound are the held members that count; nil: all that wait.
func (t *Table) measure(req *pb.GroupAllow, self *member, sound map[types.UID]*member) (bool, []*pb.QuorumState) {
	all := true
	var measured []*pb.QuorumState
	for _, q := range req.Quorums {
		have, roles := t.have(q, self, types.UID(req.Uid), q.Key == req.Quorums[0].Key, sound)
		measured = append(measured, &pb.QuorumState{Have: have, Roles: roles})
		all = all && have >= q.AtLeast
		for role, least := range q.Roles {
			all = all && roles[role] >= least
		}
	}
	return all, measured
}

// have counts one quorum, and the roles that it asks for.
func (t *Table) have(q *pb.Quorum, self *member, uid types.UID, own bool, sound map[types.UID]*member) (uint32, map[string]uint32) {
	g := t.groups[q.Key]
	if g == nil {
		g = &group{} // a key that no pod carries
	}
	have := g.total.toward(q)
	roles := make(map[string]uint32, len(q.Roles))
	for role := range q.Roles {
		roles[role] = g.roles[role].toward(q)
	}
	add := func(role string, n uint32) {
		have += n
		if _, asked := q.Roles[role]; asked {
			roles[role] += n
		}
	}
	if sound != nil {
		for _, m := range sound {
			if m.group == g {
				add(m.role, 1)
			}
		}
	} else {
		have += g.total[pb.Member_WAITING]
		for role := range q.Roles {
			if c := g.roles[role]; c != nil {
				roles[role] += c[pb.Member_WAITING]
			}
		}
	}
	if !own {
		return have, roles
	}
	role, counted := "", false
	if self != nil && self.group == g {
		role = self.role
		switch self.state {
		case pb.Member_BOUND, pb.Member_RUNNING:
			counted = !q.OnlyWaiting
		case pb.Member_WAITING:
			counted = sound == nil
		}
	}
	if !counted {
		add(role, 1)
	}
	return have, roles
}

// sound are the held members of the quorums that can be let go, the caller apart, and lost are the others.
func (t *Table) sound(req *pb.GroupAllow, caller types.UID) (sound map[types.UID]*member, lost []*pb.Lost) {
	sound = map[types.UID]*member{}
	seen := map[string]bool{}
	for _, q := range req.Quorums {
		g := t.groups[q.Key]
		if g == nil || seen[q.Key] {
			continue
		}
		seen[q.Key] = true
		for _, m := range sortedByAge(g.held, func(m *member) bool { return m.pod.UID != caller }) {
			if why := t.unsound(m); why != "" {
				lost = append(lost, &pb.Lost{Uid: string(m.pod.UID), Why: why})
			} else {
				sound[m.pod.UID] = m
			}
		}
	}
	return sound, lost
}

// unsound tells why a held member can't be let go any more, or "".
func (t *Table) unsound(m *member) string {
	pod := t.live.get(m.pod.Namespace, m.pod.Name)
	switch {
	case pod == nil || pod.UID != m.pod.UID:
		return "deleted"
	case pod.DeletionTimestamp != nil:
		return "terminating"
	case pod.Spec.NodeName != "":
		return "bound by somebody else"
	case !t.holds[m.pod.UID].via.waits(m.pod.UID):
		return "no longer held"
	}
	return ""
}

func (t *Table) leave(req *pb.GroupLeave) *pb.GroupLeaveReply {
	t.mu.Lock()
	defer t.mu.Unlock()
	reply := &pb.GroupLeaveReply{Was: t.was(types.UID(req.Uid))}
	t.setHold(types.UID(req.Uid), nil)
	if g := t.groups[req.Key]; g != nil {
		reply.StillWaiting = g.total[pb.Member_WAITING]
	}
	return reply
}

func (t *Table) reject(req *pb.GroupReject) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.groups[req.Key]; g != nil {
		return t.rejectAll(g, req.Reason)
	}
	return 0
}

func (t *Table) rejectAll(g *group, reason string) uint32 {
	held := sortedByAge(g.held, func(*member) bool { return true })
	for _, m := range held {
		via := t.holds[m.pod.UID].via
		via.reject(m.pod.UID, reason)
		t.setHold(m.pod.UID, &hold{GroupLeaveReply_Was: pb.GroupLeaveReply_REJECTED, via: via})
	}
	return uint32(len(held))
}

func (t *Table) activate(req *pb.GroupActivate) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.groups[req.Key]; g != nil {
		return t.activateAll(g, types.UID(req.ExceptUid))
	}
	return 0
}

func (t *Table) activateAll(g *group, except types.UID) uint32 {
	var pods []*v1.Pod
	for _, m := range sortedByAge(g.members, func(m *member) bool {
		return m.state == pb.Member_UNSCHEDULED && m.pod.UID != except
	}) {
		pods = append(pods, m.pod)
	}
	if len(pods) > 0 && t.queue != nil {
		t.queue.activate(pods)
	}
	return uint32(len(pods))
}

func (t *Table) setBackoff(req *pb.GroupBackoff) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[req.Key]
	if g == nil || g.live() == 0 {
		return
	}
	same := g.backoff.GetUntilMs() == req.UntilMs
	g.backoff = req
	if same {
		return
	}
	if g.backoffTimer != nil {
		g.backoffTimer.Stop()
		g.backoffTimer = nil
	}
	if req.UntilMs <= 0 {
		return
	}
	g.backoffTimer = t.clock.AfterFunc(time.UnixMilli(req.UntilMs).Sub(t.clock.Now()), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if g.backoff.GetUntilMs() == req.UntilMs {
			t.activateAll(g, "")
		}
	})
}

func (t *Table) block(req *pb.GroupBlock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[req.Key]
	if g == nil || g.live() == 0 {
		return
	}
	since := t.clock.Now().UnixMilli()
	if g.blocked != nil {
		since = g.blocked.SinceMs
		t.unblock(g)
	}
	if req.Clear {
		return
	}
	g.blocked = &pb.Blocked{Key: req.Key, Rank: req.Rank, SinceMs: since, Note: req.Note}
	at, _ := slices.BinarySearchFunc(t.heads, g, func(a, b *group) int {
		return cmp.Or(-cmp.Compare(a.blocked.Rank, b.blocked.Rank), cmp.Compare(a.blocked.SinceMs, b.blocked.SinceMs), cmp.Compare(a.key, b.key))
	})
	t.heads = slices.Insert(t.heads, at, g)
}

// evict tells which of the pods are rejected or gone already, rejects those that are held, and leaves the others to
// the caller, who asks the API server without the lock.
func (t *Table) evict(uids []string, reason string) (running []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, uid := range uids {
		switch id := types.UID(uid); t.was(id) {
		case pb.GroupLeaveReply_WAITING:
			via := t.holds[id].via
			via.reject(id, reason)
			t.setHold(id, &hold{GroupLeaveReply_Was: pb.GroupLeaveReply_REJECTED, via: via})
		case pb.GroupLeaveReply_REJECTED:
		default:
			running = append(running, uid)
		}
	}
	return running
}

// listMembers pages through the members by age. Pages are cut at 500 unless the guest wants fewer.
func (t *Table) listMembers(req *pb.GroupMembers) *pb.GroupMembersReply {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[req.Key]
	if g == nil {
		return &pb.GroupMembersReply{}
	}
	all := sortedByAge(g.members, func(*member) bool { return true })
	reply := &pb.GroupMembersReply{Total: uint32(len(all))}
	for _, m := range page(all, req.Offset, req.Limit) {
		reply.Members = append(reply.Members, &pb.Member{
			Uid: string(m.pod.UID), Name: m.pod.Name, Role: m.role, State: m.state,
			Node: m.pod.Spec.NodeName, Priority: priorityOf(m.pod),
		})
	}
	return reply
}

const pageSize = 500

func page[T any](all []T, offset, limit uint32) []T {
	if limit == 0 || limit > pageSize {
		limit = pageSize
	}
	from := min(int(offset), len(all))
	return all[from:min(from+int(limit), len(all))]
}

// objectChanged activates the groups that the object describes.
func (t *Table) objectChanged(r *pb.Resource, namespace, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sources == nil {
		return
	}
	for _, s := range t.sources.list {
		if s.Object == nil || !proto.Equal(s.Object, r) {
			continue
		}
		if name == "" { // the resource itself came or went
			for _, g := range t.groups {
				if g.source == s {
					t.activateAll(g, "")
				}
			}
		} else if g := t.groups[s.key(namespace, name)]; g != nil {
			t.activateAll(g, "")
		}
	}
}

// podByUID is the pod that the scheduler sees under this uid, or nil.
func (t *Table) podByUID(uid types.UID) *v1.Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[uid]; m != nil {
		return m.pod
	}
	return t.live.byUID(uid) // of no group
}

func priorityOf(pod *v1.Pod) int32 {
	if pod.Spec.Priority != nil {
		return *pod.Spec.Priority
	}
	return 0
}

// reach gives the table a way to the scheduling queue; any profile's does.
func (t *Table) reach(queue host) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queue = queue
}

// groupOf is the key of the pod's group, or "", and whether the pod is held.
func (t *Table) groupOf(pod *v1.Pod) (key string, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, key = t.sources.of(pod)
	return key, t.was(pod.UID) == pb.GroupLeaveReply_WAITING
}
