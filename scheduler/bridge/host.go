package bridge

import (
	"context"
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	pb "tutti/scheduler/bridge/bridgev1"
)

// host is what the bridge asks of the scheduler around it. The first five are called under the table's lock, and call
// nothing back.
type host interface {
	// waits tells whether the pod is held at Permit and no signal took it out of there yet.
	waits(types.UID) bool
	// heldOn is the node where the pod that is held at Permit has its place.
	heldOn(types.UID) string
	allow(types.UID)
	reject(uid types.UID, reason string)
	activate([]*v1.Pod)

	snapshot() ([]*framework.NodeInfo, error)
	protected(*v1.Pod) bool
	nominated(node string) []*v1.Pod
	nominate(pods map[*v1.Pod]string)
	evict(pod *v1.Pod, preemptor types.UID, reason string) error
	event(*pb.EventRecord)
}

// frameworkHost is the scheduler, reached as one plugin of one profile.
type frameworkHost struct {
	framework.Handle
	ctx    context.Context
	plugin string
	pdbs   policylisters.PodDisruptionBudgetLister
}

var _ host = (*frameworkHost)(nil)

func (h *frameworkHost) waits(uid types.UID) bool { return h.GetWaitingPod(uid) != nil }

func (h *frameworkHost) heldOn(uid types.UID) string {
	if w := h.GetWaitingPod(uid); w != nil {
		return w.GetPod().Spec.NodeName
	}
	return ""
}

func (h *frameworkHost) allow(uid types.UID) {
	if w := h.GetWaitingPod(uid); w != nil {
		w.Allow(h.plugin)
	}
}

func (h *frameworkHost) reject(uid types.UID, reason string) {
	if w := h.GetWaitingPod(uid); w != nil {
		w.Reject(h.plugin, reason)
	}
}

func (h *frameworkHost) activate(pods []*v1.Pod) {
	byName := make(map[string]*v1.Pod, len(pods))
	for _, p := range pods {
		byName[p.Namespace+"/"+p.Name] = p
	}
	h.Activate(klog.Background().WithValues("plugin", h.plugin), byName)
}

func (h *frameworkHost) snapshot() ([]*framework.NodeInfo, error) {
	return h.SnapshotSharedLister().NodeInfos().List()
}

// protected tells whether a PodDisruptionBudget leaves the pod no disruption now.
func (h *frameworkHost) protected(pod *v1.Pod) bool {
	budgets, err := h.pdbs.PodDisruptionBudgets(pod.Namespace).List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "bridge: PodDisruptionBudgets can't be listed; the pod counts as unprotected", "pod", klog.KObj(pod))
	}
	for _, b := range budgets {
		if b.Status.DisruptionsAllowed <= 0 && selects(b, pod) {
			return true
		}
	}
	return false
}

func selects(b *policy.PodDisruptionBudget, pod *v1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(pod.Labels))
}

func (h *frameworkHost) nominated(node string) (pods []*v1.Pod) {
	for _, p := range h.NominatedPodsForNode(node) {
		pods = append(pods, p.Pod)
	}
	return pods
}

// nominate reserves nodes for pods: at once in the scheduler's memory, and in their status, from where a cycle of theirs
// reads it and a restarted scheduler too. A pod whose status can't be written has its room until its next cycle.
func (h *frameworkHost) nominate(places map[*v1.Pod]string) {
	logger := klog.Background().WithValues("plugin", h.plugin)
	var fresh []*v1.Pod
	for pod, node := range places {
		info, err := framework.NewPodInfo(pod)
		if err != nil {
			logger.Error(err, "bridge: a pod can't be nominated", "pod", klog.KObj(pod))
			continue
		}
		h.AddNominatedPod(logger, info, &framework.NominatingInfo{NominatingMode: framework.ModeOverride, NominatedNodeName: node})
		if pod.Status.NominatedNodeName != node {
			fresh = append(fresh, pod)
		}
	}
	workqueue.ParallelizeUntil(h.ctx, parallelWrites, len(fresh), func(i int) {
		ctx, cancel := context.WithTimeout(h.ctx, evictTimeout)
		defer cancel()
		pod := fresh[i]
		err := h.patchStatus(ctx, pod, map[string]any{"nominatedNodeName": places[pod]})
		if err != nil && !apierrors.IsNotFound(err) {
			logger.Error(err, "bridge: a nomination can't be written", "pod", klog.KObj(pod))
		}
	})
}

// parallelWrites is as many as the framework has threads of its own by default.
const parallelWrites = 16

func (h *frameworkHost) patchStatus(ctx context.Context, pod *v1.Pod, status map[string]any) error {
	// The uid: not another pod of that name.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err == nil {
		_, err = h.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	}
	return err
}

// evictTimeout bounds the API calls of one victim: they run in the scheduling cycle, as the framework's own do.
const evictTimeout = 5 * time.Second

func (h *frameworkHost) evict(pod *v1.Pod, _ types.UID, reason string) error {
	if pod.DeletionTimestamp != nil {
		return nil // going already
	}
	ctx, cancel := context.WithTimeout(h.ctx, evictTimeout)
	defer cancel()
	err := h.patchStatus(ctx, pod, map[string]any{"conditions": []v1.PodCondition{{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
		Message: reason, LastTransitionTime: metav1.Now(),
	}}})
	if err == nil {
		err = h.ClientSet().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	h.EventRecorder().Eventf(pod, nil, v1.EventTypeNormal, "Preempted", "Preempting", "%s", reason)
	return nil
}

func (h *frameworkHost) event(e *pb.EventRecord) {
	kind := v1.EventTypeNormal
	if e.Warning {
		kind = v1.EventTypeWarning
	}
	h.EventRecorder().Eventf(&v1.ObjectReference{
		APIVersion: gvr(e.Resource).GroupVersion().String(), Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, UID: types.UID(e.Uid),
	}, nil, kind, e.Reason, "Scheduling", "%s", e.Note)
}
