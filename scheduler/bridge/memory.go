package bridge

import (
	"context"
	"io"

	"github.com/tetratelabs/wazero/experimental"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	wasm "sigs.k8s.io/kube-scheduler-wasm-extension/scheduler/plugin"
)

// memoryLimit bounds the linear memory of one instance, as it does offline.
const memoryLimit = 256 << 20

// heapMemory is an instance's memory on Go's heap, where there is no other.
type heapMemory struct{ bytes []byte }

// Reallocate keeps what the memory holds. With nil the guest's request for more fails.
func (m *heapMemory) Reallocate(size uint64) []byte {
	if size > memoryLimit {
		return nil
	}
	grown := make([]byte, size)
	copy(grown, m.bytes)
	m.bytes = grown
	return grown
}

func (m *heapMemory) Free() { m.bytes = nil }

// offHeap returns the context to make instances with.
func offHeap(ctx context.Context) context.Context {
	return experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(newLinearMemory))
}

// The extension makes an instance in the first call of a pod's cycle, with that call's context. It tells the framework by the
// plugin's type which points a guest has, and there are two types of those that hold pods.
type (
	holder interface {
		framework.EnqueueExtensions
		framework.PreFilterPlugin
		framework.ReservePlugin
		framework.PermitPlugin
		framework.PreBindPlugin
		framework.BindPlugin
		framework.PostBindPlugin
		io.Closer
		wasm.ProfilerSupport
	}
	fullHolder interface {
		holder
		framework.FilterPlugin
		framework.PostFilterPlugin
		framework.PreScorePlugin
		framework.ScorePlugin
	}

	holderOffHeap     struct{ holder }
	fullHolderOffHeap struct{ fullHolder }
)

// withInstancesOffHeap returns the plugin with the memory of its instances outside of Go's heap, if it holds pods.
func withInstancesOffHeap(p framework.Plugin) framework.Plugin {
	switch p := p.(type) {
	case fullHolder:
		return fullHolderOffHeap{p}
	case holder:
		return holderOffHeap{p}
	}
	return p
}

// PreFilter is the first call of a cycle.
func (p holderOffHeap) PreFilter(ctx context.Context, state *framework.CycleState, pod *v1.Pod) (*framework.PreFilterResult, *framework.Status) {
	return p.holder.PreFilter(offHeap(ctx), state, pod)
}

// Reserve is the first call where the guest has no PreFilter.
func (p holderOffHeap) Reserve(ctx context.Context, state *framework.CycleState, pod *v1.Pod, node string) *framework.Status {
	return p.holder.Reserve(offHeap(ctx), state, pod, node)
}

// PreFilter is the first call of a cycle.
func (p fullHolderOffHeap) PreFilter(ctx context.Context, state *framework.CycleState, pod *v1.Pod) (*framework.PreFilterResult, *framework.Status) {
	return p.fullHolder.PreFilter(offHeap(ctx), state, pod)
}
