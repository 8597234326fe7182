package bridge

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	pb "tutti/scheduler/bridge/bridgev1"
)

// protocolVersion is Request.version.
const protocolVersion = 1

// server answers the requests of one plugin of one profile.
type server struct {
	plugin, profile, kubernetes string

	host    host
	table   *Table
	metrics *guestMetrics
	beside  func() bool // whether the export that asks runs beside the scheduling cycle
}

func newServer(ctx context.Context, plugin string, handle framework.Handle, table *Table) *server {
	s := &server{plugin: plugin, kubernetes: version.Get().GitVersion, table: table, metrics: sharedMetrics, beside: besideCycle}
	s.host = &frameworkHost{
		Handle: handle, ctx: ctx, plugin: plugin,
		// DefaultPreemption asks for the same informer; asking here makes it run where that plugin is off.
		pdbs: handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister(),
	}
	if named, ok := handle.(interface{ ProfileName() string }); ok {
		s.profile = named.ProfileName()
	}
	return s
}

// serve answers an encoded Request with an encoded Response. It never fails: what goes wrong is a Response too.
func (s *server) serve(data []byte) (out []byte) {
	began := time.Now()
	call := "undecodable"
	var response *pb.Response
	defer func() {
		if r := recover(); r != nil { // the guest gets an error, the scheduler goes on
			klog.ErrorS(nil, "bridge: a request failed", "call", call, "panic", r)
			response = fail(pb.Error_INTERNAL, "%v", r)
		}
		observeCall(call, response, time.Since(began))
		var err error
		if out, err = proto.Marshal(response); err != nil {
			klog.ErrorS(err, "bridge: a reply can't be encoded", "call", call)
			out, _ = proto.Marshal(fail(pb.Error_INTERNAL, "the reply can't be encoded"))
		}
	}()
	request := &pb.Request{}
	if err := proto.Unmarshal(data, request); err != nil {
		response = fail(pb.Error_BAD_REQUEST, "the request can't be decoded: %v", err)
		return
	}
	if request.Version != protocolVersion {
		response = fail(pb.Error_UNSUPPORTED_VERSION, "this host speaks version %d, the guest %d", protocolVersion, request.Version)
		return
	}
	call = nameOf(request)
	response = s.answer(request, data)
	return
}

func fail(code pb.Error_Code, format string, args ...any) *pb.Response {
	return &pb.Response{Result: &pb.Response_Error{Error: &pb.Error{Code: code, Message: fmt.Sprintf(format, args...)}}}
}

// nameOf is the name of the call's field, or "none".
func nameOf(r *pb.Request) string {
	m := r.ProtoReflect()
	if f := m.WhichOneof(m.Descriptor().Oneofs().ByName("call")); f != nil {
		return string(f.Name())
	}
	return "none"
}

var calls = func() (names []string) {
	fields := (&pb.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("call").Fields()
	for i := range fields.Len() {
		names = append(names, string(fields.Get(i).Name()))
	}
	return names
}()

func (s *server) answer(request *pb.Request, data []byte) *pb.Response {
	done := &pb.Response{Result: &pb.Response_Done{Done: &pb.Done{}}}
	switch call := request.Call.(type) {
	case *pb.Request_Hello:
		return s.hello(call.Hello)
	case *pb.Request_Now:
		return &pb.Response{Result: &pb.Response_Now{Now: &pb.NowReply{UnixMs: s.table.clock.Now().UnixMilli()}}}
	case *pb.Request_GroupGet:
		return &pb.Response{Result: &pb.Response_GroupGet{GroupGet: s.table.get(call.GroupGet, s.beside)}}
	case *pb.Request_GroupAllow:
		reply, err := s.table.allow(call.GroupAllow, data, s.host)
		if err != nil {
			return fail(pb.Error_BAD_REQUEST, "%v", err)
		}
		return &pb.Response{Result: &pb.Response_GroupAllow{GroupAllow: reply}}
	case *pb.Request_GroupLeave:
		return &pb.Response{Result: &pb.Response_GroupLeave{GroupLeave: s.table.leave(call.GroupLeave)}}
	case *pb.Request_GroupReject:
		return &pb.Response{Result: &pb.Response_GroupReject{GroupReject: &pb.CountReply{Count: s.table.reject(call.GroupReject)}}}
	case *pb.Request_GroupActivate:
		return &pb.Response{Result: &pb.Response_GroupActivate{GroupActivate: &pb.CountReply{Count: s.table.activate(call.GroupActivate)}}}
	case *pb.Request_GroupBackoff:
		s.table.setBackoff(call.GroupBackoff)
		return done
	case *pb.Request_GroupBlock:
		s.table.block(call.GroupBlock)
		return done
	case *pb.Request_GroupMembers:
		return &pb.Response{Result: &pb.Response_GroupMembers{GroupMembers: s.table.listMembers(call.GroupMembers)}}
	case *pb.Request_GroupShapes:
		return &pb.Response{Result: &pb.Response_GroupShapes{GroupShapes: s.table.shapes(call.GroupShapes, s.beside)}}
	case *pb.Request_ObjectGet:
		o := call.ObjectGet
		if o.Resource == nil {
			return fail(pb.Error_BAD_REQUEST, "object_get names no resource")
		}
		return &pb.Response{Result: &pb.Response_ObjectGet{ObjectGet: s.table.objects.get(gvr(o.Resource), o.Namespace, o.Name)}}
	case *pb.Request_NodesFree:
		nodes, pod, refusal := s.snapshot(call.NodesFree.Uid)
		if refusal != nil {
			return refusal
		}
		return &pb.Response{Result: &pb.Response_NodesFree{NodesFree: nodesFree(nodes, pod, call.NodesFree)}}
	case *pb.Request_NodesVictims:
		nodes, pod, refusal := s.snapshot(call.NodesVictims.Uid)
		if refusal != nil {
			return refusal
		}
		return &pb.Response{Result: &pb.Response_NodesVictims{NodesVictims: s.nodesVictims(nodes, pod, call.NodesVictims)}}
	case *pb.Request_PodsEvict:
		return &pb.Response{Result: &pb.Response_PodsEvict{PodsEvict: s.evict(call.PodsEvict)}}
	case *pb.Request_EventRecord:
		s.host.event(call.EventRecord)
		return done
	case *pb.Request_MetricAdd:
		m := call.MetricAdd
		s.metrics.add(m.Name, m.Help, m.Labels, m.Value)
		return done
	case *pb.Request_MetricObserve:
		m := call.MetricObserve
		s.metrics.observe(m.Name, m.Help, m.Labels, m.Value)
		return done
	}
	return fail(pb.Error_BAD_REQUEST, "no call that this host knows; it serves %v", calls)
}

func (s *server) hello(req *pb.Hello) *pb.Response {
	guestInstances.Inc()
	s.table.reach(s.host)
	s.table.waitEnded()
	fresh, err := s.table.declare(req)
	if err != nil {
		return fail(pb.Error_BAD_REQUEST, "hello: %v", err)
	}
	if fresh {
		var kinds []*kind
		for _, source := range req.Sources {
			if source.Object != nil {
				kinds = append(kinds, s.table.objects.follow(source.Object))
			}
		}
		s.table.objects.waitKnown(kinds)
	}
	return &pb.Response{Result: &pb.Response_Hello{Hello: &pb.HelloReply{
		Version: protocolVersion, Plugin: s.plugin, Profile: s.profile, Kubernetes: s.kubernetes, Calls: calls,
	}}}
}

// snapshot returns the nodes of the cycle and the pod whose constraints apply, or why it can't.
func (s *server) snapshot(uid string) ([]*framework.NodeInfo, *v1.Pod, *pb.Response) {
	if s.beside() {
		return nil, nil, fail(pb.Error_NOT_ALLOWED_HERE, "%v", errBesideCycle)
	}
	nodes, err := s.host.snapshot()
	if err != nil {
		return nil, nil, fail(pb.Error_INTERNAL, "the node snapshot can't be listed: %v", err)
	}
	if uid == "" {
		return nodes, nil, nil
	}
	pod := s.table.podByUID(types.UID(uid))
	if pod == nil {
		return nil, nil, fail(pb.Error_BAD_REQUEST, "there is no pod with uid %s", uid)
	}
	return nodes, pod, nil
}

// evict nominates who is to have the room, then deletes running pods, after a DisruptionTarget condition, and rejects
// waiting ones.
func (s *server) evict(req *pb.PodsEvict) *pb.PodsEvictReply {
	reply := &pb.PodsEvictReply{}
	places := map[*v1.Pod]string{}
	for _, of := range req.Places {
		for i, pod := range s.table.alike(types.UID(of.Uid), len(of.Nodes)) {
			if string(pod.UID) == req.PreemptorUid {
				reply.Node = of.Nodes[i]
			} else {
				places[pod] = of.Nodes[i]
			}
		}
	}
	s.host.nominate(places)
	failed := map[string]string{}
	for _, uid := range s.table.evict(req.Uids, req.Reason) {
		pod := s.table.podByUID(types.UID(uid))
		if pod == nil {
			failed[uid] = "not found"
		} else if err := s.host.evict(pod, types.UID(req.PreemptorUid), req.Reason); err != nil {
			failed[uid] = err.Error()
		}
	}
	for _, uid := range req.Uids {
		if why, bad := failed[uid]; bad {
			reply.Failed = append(reply.Failed, &pb.Lost{Uid: uid, Why: why})
		} else {
			reply.Evicted = append(reply.Evicted, uid)
		}
	}
	return reply
}
