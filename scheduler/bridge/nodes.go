package bridge

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	pb "tutti/scheduler/bridge/bridgev1"
)

// admits tells which nodes take a pod by what does not change with load. nil pod: all nodes.
type admits struct {
	pod      *v1.Pod
	affinity nodeaffinity.RequiredNodeAffinity
}

func newAdmits(pod *v1.Pod) *admits {
	if pod == nil {
		return nil
	}
	return &admits{pod, nodeaffinity.GetRequiredNodeAffinity(pod)}
}

func (a *admits) node(n *v1.Node) bool {
	if a == nil {
		return true
	}
	if want := a.pod.Spec.NodeName; want != "" && want != n.Name {
		return false
	}
	unschedulable := v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}
	if n.Spec.Unschedulable && !corev1.TolerationsTolerateTaint(a.pod.Spec.Tolerations, &unschedulable) {
		return false
	}
	if _, bad := corev1.FindMatchingUntoleratedTaint(n.Spec.Taints, a.pod.Spec.Tolerations, func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	}); bad {
		return false
	}
	ok, err := a.affinity.Match(n)
	return ok && err == nil
}

// amount is the figure of one resource, in the unit the protocol states.
func amount(r *framework.Resource, name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return r.MilliCPU
	case v1.ResourceMemory:
		return r.Memory
	case v1.ResourceEphemeralStorage:
		return r.EphemeralStorage
	case v1.ResourcePods:
		return int64(r.AllowedPodNumber)
	}
	return r.ScalarResources[name]
}

func free(n *framework.NodeInfo, name v1.ResourceName) int64 {
	if name == v1.ResourcePods {
		return int64(n.Allocatable.AllowedPodNumber) - int64(len(n.Pods))
	}
	return amount(n.Allocatable, name) - amount(n.Requested, name)
}

// requests is what the scheduler counts for the pod (NodeInfo.update in pkg/scheduler/framework/types.go).
func requests(pod *v1.Pod) *framework.Resource {
	r := framework.NewResource(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	r.AllowedPodNumber = 1
	return r
}

func resourceNames(names []string) []v1.ResourceName {
	out := make([]v1.ResourceName, len(names))
	for i, n := range names {
		out[i] = v1.ResourceName(n)
	}
	return out
}

// generation is the newest of the nodes': any change of the snapshot raises it.
func generation(nodes []*framework.NodeInfo) uint64 {
	var g int64
	for _, n := range nodes {
		g = max(g, n.Generation)
	}
	return uint64(g)
}

// walk visits the admitting nodes from offset on until limit were taken, and returns the next offset, 0 at the end.
func walk(nodes []*framework.NodeInfo, offset, limit uint32, a *admits, take func(*framework.NodeInfo)) uint32 {
	if limit == 0 || limit > pageSize {
		limit = pageSize
	}
	for i := int(offset); i < len(nodes); i++ {
		if limit == 0 {
			return uint32(i)
		}
		n := nodes[i]
		if n.Node() == nil || !a.node(n.Node()) {
			continue
		}
		take(n)
		limit--
	}
	return 0
}

func nodesFree(nodes []*framework.NodeInfo, pod *v1.Pod, req *pb.NodesFree) *pb.NodesFreeReply {
	names := resourceNames(req.Resources)
	reply := &pb.NodesFreeReply{Generation: generation(nodes), Nodes: uint32(len(nodes))}
	reply.NextOffset = walk(nodes, req.Offset, req.Limit, newAdmits(pod), func(n *framework.NodeInfo) {
		at := len(reply.Free)
		for _, name := range names {
			reply.Free = append(reply.Free, free(n, name))
		}
		if req.EvictLower {
			for _, p := range n.Pods {
				if priorityOf(p.Pod) >= req.Priority {
					continue
				}
				r := requests(p.Pod)
				for i, name := range names {
					reply.Free[at+i] += amount(r, name)
				}
			}
		}
		if req.WithNames {
			reply.Names = append(reply.Names, n.Node().Name)
		}
		if req.TopologyKey != "" {
			reply.Domains = append(reply.Domains, n.Node().Labels[req.TopologyKey])
		}
		reply.Admitted++
	})
	return reply
}

func (s *server) nodesVictims(nodes []*framework.NodeInfo, pod *v1.Pod, req *pb.NodesVictims) *pb.NodesVictimsReply {
	names := resourceNames(req.Resources)
	reply := &pb.NodesVictimsReply{Generation: generation(nodes), Nodes: uint32(len(nodes))}
	reply.NextOffset = walk(nodes, req.Offset, req.Limit, newAdmits(pod), func(n *framework.NodeInfo) {
		item := &pb.NodeVictims{Name: n.Node().Name}
		for _, name := range names {
			item.Free = append(item.Free, free(n, name))
		}
		for _, p := range s.host.nominated(n.Node().Name) {
			key, _ := s.table.groupOf(p)
			if priorityOf(p) < req.Priority || string(p.UID) == req.Uid || key != "" && slices.Contains(req.Groups, key) {
				continue
			}
			r := requests(p)
			for i, name := range names {
				item.Free[i] -= amount(r, name)
			}
		}
		for _, p := range n.Pods {
			if priorityOf(p.Pod) >= req.Priority {
				continue
			}
			key, held := s.table.groupOf(p.Pod)
			v := &pb.Victim{
				Uid: string(p.Pod.UID), Priority: priorityOf(p.Pod), Group: key,
				Waiting: held, Terminating: p.Pod.DeletionTimestamp != nil,
				Protected: s.host.protected(p.Pod),
			}
			if p.Pod.Status.StartTime != nil {
				v.StartMs = p.Pod.Status.StartTime.UnixMilli()
			}
			r := requests(p.Pod)
			for _, name := range names {
				v.Requests = append(v.Requests, amount(r, name))
			}
			item.Victims = append(item.Victims, v)
		}
		slices.SortFunc(item.Victims, func(a, b *pb.Victim) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), -cmp.Compare(a.StartMs, b.StartMs), cmp.Compare(a.Uid, b.Uid))
		})
		reply.Items = append(reply.Items, item)
	})
	return reply
}
