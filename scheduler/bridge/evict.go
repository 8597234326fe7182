package bridge

import (
	"context"
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "tutti/scheduler/bridge/bridgev1"
)

// evictTimeout bounds the API calls of one victim: they run in the scheduling cycle, as the framework's own do.
const evictTimeout = 5 * time.Second

// evict deletes running pods, after a DisruptionTarget condition, and rejects waiting ones. A pod that is gone already
// counts as evicted.
func (s *server) evict(req *pb.PodsEvict) *pb.PodsEvictReply {
	wanted := map[types.UID]*v1.Pod{}
	for _, uid := range req.Uids {
		wanted[types.UID(uid)] = nil
	}
	for _, pod := range s.table.live.list() {
		if _, ok := wanted[pod.UID]; ok {
			wanted[pod.UID] = pod
		}
	}
	results := make([]string, len(req.Uids))
	s.handle.Parallelizer().Until(s.ctx, len(req.Uids), func(i int) {
		uid := types.UID(req.Uids[i])
		if w := s.handle.GetWaitingPod(uid); w != nil {
			w.Reject(s.plugin, req.Reason)
			return
		}
		if pod := wanted[uid]; pod != nil && pod.DeletionTimestamp == nil {
			results[i] = s.evictOne(pod, req)
		}
	}, "bridge.evict")
	reply := &pb.PodsEvictReply{}
	for i, why := range results {
		if why == "" {
			reply.Evicted = append(reply.Evicted, req.Uids[i])
		} else {
			reply.Failed = append(reply.Failed, &pb.Lost{Uid: req.Uids[i], Why: why})
		}
	}
	return reply
}

// evictOne returns why it failed, or "".
func (s *server) evictOne(pod *v1.Pod, req *pb.PodsEvict) string {
	ctx, cancel := context.WithTimeout(s.ctx, evictTimeout)
	defer cancel()
	pods := s.handle.ClientSet().CoreV1().Pods(pod.Namespace)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID}, // not another pod of that name
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
			Message: req.Reason, LastTransitionTime: metav1.NewTime(s.table.clock.Now()),
		}}},
	})
	if err == nil {
		_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	if err == nil {
		err = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err.Error()
	}
	s.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeNormal, "Preempted", "Preempting", "%s", req.Reason)
	return ""
}
