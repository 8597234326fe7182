package bridge

import (
	"cmp"
	"context"
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
	"k8s.io/utils/clock"

	pb "tutti/scheduler/bridge/bridgev1"
)

// shared is the process' one table: waiting pods of all profiles are in one map too, and a gang may span profiles.
var shared = newTable(clock.RealClock{})

// Table keeps the groups' state. Truth is the API server's: after a restart the table is filled from informers.
type Table struct {
	clock clock.WithDelayedExecution

	mu      sync.Mutex
	sources *sources
	groups  map[string]*group
	members map[types.UID]*member
	holders int      // groups with a waiting member
	heads   []*group // the blocked groups, first one first
	any     waitingPods
	live    podStore // pods the scheduler sees: not finished
	ended   podStore // finished pods that some source matches
	objects *objects

	startOnce sync.Once
}

// podStore is what an informer holds now.
type podStore interface {
	get(namespace, name string) *v1.Pod
	list() []*v1.Pod
}

type informerStore struct{ cache.Store }

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

func newTable(c clock.WithDelayedExecution) *Table {
	return &Table{clock: c, groups: map[string]*group{}, members: map[types.UID]*member{}}
}

// start follows pods. The first factory call does it, while the informers are not yet started.
func (t *Table) start(ctx context.Context, handle framework.Handle) {
	t.startOnce.Do(func() {
		pods := handle.SharedInformerFactory().Core().V1().Pods().Informer()
		ended := newEndedInformer(handle.ClientSet())
		t.live, t.ended = informerStore{pods.GetStore()}, informerStore{ended.GetStore()}
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
		go ended.Run(ctx.Done())
	})
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

func (t *Table) upsert(pod *v1.Pod) {
	src, key := t.sources.of(pod)
	m := t.members[pod.UID]
	if m != nil && m.group.key != key {
		t.remove(pod.UID)
		m = nil
	}
	if key == "" {
		return
	}
	if m == nil {
		g := t.groups[key]
		if g == nil {
			g = &group{key: key, source: src, members: map[types.UID]*member{}, roles: map[string]*counts{}, waiting: map[types.UID]*member{}}
			t.groups[key] = g
		}
		m = &member{pod: pod, group: g, role: src.role(pod), state: stateOf(pod, undecided)}
		g.members[pod.UID], t.members[pod.UID] = m, m
		g.count(m.role, m.state, 1)
		if g.oldest != nil && m.live() && byAge(m, g.oldest) < 0 {
			g.oldest = m
		}
		t.placed(m)
		return
	}
	if role := src.role(pod); role != m.role {
		m.group.count(m.role, m.state, -1)
		m.role = role
		m.group.count(m.role, m.state, 1)
	}
	m.pod, m.shape = pod, nil
	if pod.Spec.NodeName != "" {
		m.decision = undecided // the binding is in the API; nothing is pending any more
	}
	t.setState(m)
}

// decide records what becomes of a member at Permit.
func (t *Table) decide(m *member, d decision) {
	m.decision = d
	t.setState(m)
}

// setState moves the member to the state it is in now, and the counts with it.
func (t *Table) setState(m *member) {
	state := stateOf(m.pod, m.decision)
	if state == m.state {
		return
	}
	g := m.group
	if m.state == pb.Member_WAITING {
		delete(g.waiting, m.pod.UID)
		if len(g.waiting) == 0 {
			t.holders--
			t.endHold(g)
		}
	}
	g.count(m.role, m.state, -1)
	m.state = state
	g.count(m.role, m.state, 1)
	if state == pb.Member_WAITING {
		if len(g.waiting) == 0 {
			t.holders++
		}
		g.waiting[m.pod.UID] = m
	}
	if g.oldest == m && !m.live() {
		g.oldest = nil
	}
	t.placed(m)
}

// placed notes that the group has a member with a node.
func (t *Table) placed(m *member) {
	if m.state == pb.Member_BOUND || m.state == pb.Member_RUNNING {
		m.group.released = true
	}
}

func (t *Table) remove(uid types.UID) {
	m := t.members[uid]
	if m == nil {
		return
	}
	g := m.group
	if m.state == pb.Member_WAITING {
		delete(g.waiting, uid)
		if len(g.waiting) == 0 {
			t.holders--
			t.endHold(g)
		}
	}
	g.count(m.role, m.state, -1)
	delete(g.members, uid)
	delete(t.members, uid)
	if g.oldest == m {
		g.oldest = nil
	}
	if len(g.members) == 0 {
		t.forgetPast(g)
		delete(t.groups, g.key)
	}
}

// endHold forgets the deadline: nobody waits.
func (t *Table) endHold(g *group) {
	g.deadline = time.Time{}
	if g.deadlineTimer != nil {
		g.deadlineTimer.Stop()
		g.deadlineTimer = nil
	}
}

// forgetPast ends backoff and block, as a release and the last member's end do.
func (t *Table) forgetPast(g *group) {
	g.backoffUntil, g.attempt, g.note = time.Time{}, 0, ""
	if g.backoffTimer != nil {
		g.backoffTimer.Stop()
		g.backoffTimer = nil
	}
	t.unblock(g)
}

func (t *Table) unblock(g *group) {
	if g.blocked == nil {
		return
	}
	g.blocked = nil
	t.heads = slices.DeleteFunc(t.heads, func(x *group) bool { return x == g })
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

func (t *Table) get(req *pb.GroupGet) *pb.GroupState {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.caller(req.Key, types.UID(req.Uid))
	now := t.clock.Now()
	state := &pb.GroupState{Total: &pb.Counts{}, NowMs: now.UnixMilli(), OtherHolders: uint32(t.holders)}
	if len(t.heads) > 0 {
		h := t.heads[0]
		state.Head = &pb.Blocked{Key: h.key, Rank: h.blocked.rank, SinceMs: unixMilli(h.blocked.since), Note: h.blocked.note}
	}
	g := t.groups[req.Key]
	if g == nil {
		return state
	}
	state.Total = g.total.proto()
	if len(g.roles) > 1 || g.roles[""] == nil {
		state.Roles = make(map[string]*pb.Counts, len(g.roles))
		for role, c := range g.roles {
			state.Roles[role] = c.proto()
		}
	} else {
		state.Roles = map[string]*pb.Counts{"": state.Total}
	}
	if m := g.oldestMember(); m != nil {
		state.OldestMemberMs = unixMilli(m.pod.CreationTimestamp.Time)
		state.Facts = g.source.facts(m.pod)
	}
	state.BackoffUntilMs, state.Attempt, state.Note = unixMilli(g.backoffUntil), g.attempt, g.note
	state.DeadlineMs = unixMilli(g.deadline)
	state.Released = g.released
	if g.blocked != nil {
		state.BlockedSinceMs = unixMilli(g.blocked.since)
	}
	if len(g.waiting) > 0 {
		state.OtherHolders--
	}
	if req.WithObject && g.source.Object != nil {
		_, namespace, name := splitKey(g.key)
		state.Object = t.objects.get(gvr(g.source.Object), namespace, name)
	}
	return state
}

// allow lets the quorums' waiting members go, or joins the caller; see GroupAllow in the protocol.
func (t *Table) allow(req *pb.GroupAllow, via waitingPods) (*pb.GroupAllowReply, error) {
	if len(req.Quorums) == 0 {
		return nil, fmt.Errorf("no quorum was named")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	uid := types.UID(req.Uid)
	self := t.caller(req.Quorums[0].Key, uid)
	if self == nil || self.group.key != req.Quorums[0].Key {
		return nil, fmt.Errorf("pod %s is not a member of %s", req.Uid, req.Quorums[0].Key)
	}
	reply := &pb.GroupAllowReply{}
	if self.decision == allowed { // asked again
		t.met(req, self, reply, nil)
		reply.Allowed = true
		return reply, nil
	}
	if t.met(req, self, reply, nil) {
		// The counts say yes: now make sure of each member that would be let go.
		sound := map[types.UID]bool{}
		for _, q := range req.Quorums {
			if g := t.groups[q.Key]; g != nil {
				for id, m := range g.waiting {
					if why := t.unsound(m); why != "" {
						reply.Lost = append(reply.Lost, &pb.Lost{Uid: string(id), Why: why})
					} else {
						sound[id] = true
					}
				}
			}
		}
		slices.SortFunc(reply.Lost, func(a, b *pb.Lost) int { return cmp.Compare(a.Uid, b.Uid) })
		if len(reply.Lost) == 0 || t.met(req, self, reply, sound) {
			t.release(req, self, sound, reply)
			return reply, nil
		}
	}
	if req.JoinUntilMs > 0 {
		t.join(self, time.UnixMilli(req.JoinUntilMs), via)
	}
	return reply, nil
}

// met tells whether all quorums are met and fills reply.Quorums. sound limits which waiting members count; nil: all do,
// and the counters tell how many they are.
func (t *Table) met(req *pb.GroupAllow, self *member, reply *pb.GroupAllowReply, sound map[types.UID]bool) bool {
	reply.Quorums = reply.Quorums[:0]
	all := true
	for _, q := range req.Quorums {
		have, roles := t.have(q, self, sound)
		reply.Quorums = append(reply.Quorums, &pb.QuorumState{Have: have, Roles: roles})
		all = all && have >= q.AtLeast
		for role, least := range q.Roles {
			all = all && roles[role] >= least
		}
	}
	return all
}

// have counts one quorum, and the roles that it asks for.
func (t *Table) have(q *pb.Quorum, self *member, sound map[types.UID]bool) (uint32, map[string]uint32) {
	roles := make(map[string]uint32, len(q.Roles))
	g := t.groups[q.Key]
	if g == nil {
		return 0, roles
	}
	have := g.total.toward(q)
	for role := range q.Roles {
		if c := g.roles[role]; c != nil {
			roles[role] = c.toward(q)
		}
	}
	add := func(role string, n uint32) {
		have += n
		if _, asked := q.Roles[role]; asked {
			roles[role] += n
		}
	}
	if sound == nil {
		have += g.total[pb.Member_WAITING]
		for role := range q.Roles {
			if c := g.roles[role]; c != nil {
				roles[role] += c[pb.Member_WAITING]
			}
		}
	} else {
		for id, m := range g.waiting {
			if sound[id] && m != self {
				add(m.role, 1)
			}
		}
	}
	if self.group == g {
		counted := self.state == pb.Member_WAITING && sound == nil
		if self.state == pb.Member_BOUND || self.state == pb.Member_RUNNING {
			counted = !q.OnlyWaiting
		}
		if !counted {
			add(self.role, 1)
		}
	}
	return have, roles
}

// unsound tells why a member that waits can't be let go any more, or "".
func (t *Table) unsound(m *member) string {
	pod := t.live.get(m.pod.Namespace, m.pod.Name)
	switch {
	case pod == nil || pod.UID != m.pod.UID:
		return "deleted"
	case pod.DeletionTimestamp != nil:
		return "terminating"
	case pod.Spec.NodeName != "":
		return "bound by somebody else"
	case m.via == nil || !m.via.waits(m.pod.UID):
		return "no longer held"
	}
	return ""
}

func (t *Table) release(req *pb.GroupAllow, self *member, sound map[types.UID]bool, reply *pb.GroupAllowReply) {
	reply.Allowed = true
	for _, q := range req.Quorums {
		g := t.groups[q.Key]
		if g == nil {
			continue
		}
		for id, m := range g.waiting {
			if sound[id] && m != self && m.via.allow(id) {
				t.decide(m, allowed)
				reply.Released++
			}
		}
		t.forgetPast(g)
	}
	t.decide(self, allowed)
}

func (t *Table) join(m *member, until time.Time, via waitingPods) {
	m.via = via
	t.decide(m, joined)
	g := m.group
	if m.state != pb.Member_WAITING || (!g.deadline.IsZero() && !until.Before(g.deadline)) {
		return
	}
	t.endHold(g)
	g.deadline = until
	started := t.clock.Now()
	g.deadlineTimer = t.clock.AfterFunc(until.Sub(started), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if g.deadline.Equal(until) {
			waited := until.Sub(started).Round(time.Millisecond)
			t.rejectAll(g, fmt.Sprintf("group %s was not complete at its deadline, after %v", g.key, waited))
		}
	})
}

func (t *Table) leave(req *pb.GroupLeave) *pb.GroupLeaveReply {
	t.mu.Lock()
	defer t.mu.Unlock()
	reply := &pb.GroupLeaveReply{}
	m := t.members[types.UID(req.Uid)]
	if m == nil || m.group.key != req.Key {
		// Deleted meanwhile: what it was is gone with it, what is left of the group is not.
		if g := t.groups[req.Key]; g != nil {
			reply.StillWaiting = uint32(len(g.waiting))
			if reply.StillWaiting > 0 {
				reply.Was = pb.GroupLeaveReply_WAITING
			}
		}
		return reply
	}
	switch m.decision {
	case joined:
		reply.Was = pb.GroupLeaveReply_WAITING
	case allowed:
		reply.Was = pb.GroupLeaveReply_RELEASED
	case rejected:
		reply.Was = pb.GroupLeaveReply_REJECTED
	}
	t.decide(m, undecided)
	reply.StillWaiting = uint32(len(m.group.waiting))
	return reply
}

func (t *Table) reject(req *pb.GroupReject) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[req.Key]
	if g == nil {
		return 0
	}
	return t.rejectAll(g, req.Reason)
}

func (t *Table) rejectAll(g *group, reason string) (n uint32) {
	for id, m := range g.waiting {
		if m.via.reject(id, reason) {
			n++
		}
		t.decide(m, rejected)
	}
	return n
}

func (t *Table) activate(req *pb.GroupActivate) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[req.Key]
	if g == nil {
		return 0
	}
	return t.activateAll(g, types.UID(req.ExceptUid))
}

func (t *Table) activateAll(g *group, except types.UID) uint32 {
	pods := map[string]*v1.Pod{}
	for id, m := range g.members {
		if m.state == pb.Member_UNSCHEDULED && id != except {
			pods[m.pod.Namespace+"/"+m.pod.Name] = m.pod
		}
	}
	if len(pods) > 0 && t.any != nil {
		t.any.activate(pods)
	}
	return uint32(len(pods))
}

func (t *Table) backoff(req *pb.GroupBackoff) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[req.Key]
	if g == nil {
		return
	}
	g.attempt, g.note = req.Attempt, req.Note
	until := time.Time{}
	if req.UntilMs > 0 {
		until = time.UnixMilli(req.UntilMs)
	}
	if until.Equal(g.backoffUntil) {
		return
	}
	g.backoffUntil = until
	if g.backoffTimer != nil {
		g.backoffTimer.Stop()
		g.backoffTimer = nil
	}
	if until.IsZero() {
		return
	}
	g.backoffTimer = t.clock.AfterFunc(until.Sub(t.clock.Now()), func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if g.backoffUntil.Equal(until) {
			t.activateAll(g, "")
		}
	})
}

func (t *Table) block(req *pb.GroupBlock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[req.Key]
	if g == nil {
		return
	}
	since := t.clock.Now()
	if g.blocked != nil {
		since = g.blocked.since
		t.unblock(g)
	}
	if req.Clear {
		return
	}
	g.blocked = &blocked{rank: req.Rank, since: since, note: req.Note}
	at, _ := slices.BinarySearchFunc(t.heads, g, func(a, b *group) int {
		return cmp.Or(-cmp.Compare(a.blocked.rank, b.blocked.rank), a.blocked.since.Compare(b.blocked.since), cmp.Compare(a.key, b.key))
	})
	t.heads = slices.Insert(t.heads, at, g)
}

// listMembers pages through the members by age. Pages are cut at 500 unless the guest wants fewer.
func (t *Table) listMembers(req *pb.GroupMembers) *pb.GroupMembersReply {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.groups[req.Key]
	if g == nil {
		return &pb.GroupMembersReply{}
	}
	all := g.byAge()
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

func (t *Table) sourcesNow() *sources {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sources
}

// podByUID is the pod that the scheduler sees under this uid, or nil.
func (t *Table) podByUID(uid types.UID) *v1.Pod {
	t.mu.Lock()
	defer t.mu.Unlock()
	if m := t.members[uid]; m != nil {
		return m.pod
	}
	for _, pod := range t.live.list() { // of no group
		if pod.UID == uid {
			return pod
		}
	}
	return nil
}

func priorityOf(pod *v1.Pod) int32 {
	if pod.Spec.Priority != nil {
		return *pod.Spec.Priority
	}
	return 0
}

// reach gives the table a way to the scheduling queue; any profile's does.
func (t *Table) reach(via waitingPods) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.any = via
}
