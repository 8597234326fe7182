package bridge

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// newEndedInformer follows finished pods, which the scheduler's own informer leaves out (newPodInformer in
// pkg/scheduler/scheduler.go), so that members that succeeded can count. What it keeps of a pod is what groups read.
func newEndedInformer(client clientset.Interface) cache.SharedIndexInformer {
	const selector = "status.phase!=" + string(v1.PodPending) + ",status.phase!=" + string(v1.PodRunning) +
		",status.phase!=" + string(v1.PodUnknown)
	informer := coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{uidIndex: indexUID},
		func(o *metav1.ListOptions) { o.FieldSelector = selector })
	// Fails only after the start.
	_ = informer.SetTransform(func(obj any) (any, error) {
		pod, ok := obj.(*v1.Pod)
		if !ok {
			return obj, nil
		}
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
				Labels: pod.Labels, Annotations: pod.Annotations,
				CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp,
			},
			Spec:   v1.PodSpec{NodeName: pod.Spec.NodeName, Priority: pod.Spec.Priority},
			Status: v1.PodStatus{Phase: pod.Status.Phase},
		}, nil
	})
	return informer
}

// waitEnded waits until the finished pods are known, once and at most firstSync, so that a scheduler that starts doesn't take
// a gang with members that succeeded for an incomplete one. The scheduler itself waits for the other pods.
func (t *Table) waitEnded() {
	t.endedOnce.Do(func() {
		if t.endedSynced == nil || t.endedSynced() {
			return
		}
		stop := make(chan struct{})
		timer := time.AfterFunc(firstSync, func() { close(stop) })
		defer timer.Stop()
		if !cache.WaitForCacheSync(stop, t.endedSynced) {
			klog.InfoS("bridge: finished pods are not known yet, going on without", "waited", firstSync)
		}
	})
}
