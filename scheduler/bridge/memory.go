package bridge

import (
	"context"
	"fmt"
	"io"
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	wasm "sigs.k8s.io/kube-scheduler-wasm-extension/scheduler/plugin"
)

// memoryLimit bounds the linear memory of one instance, as it does offline.
const memoryLimit = 256 << 20

// linearMemory is an instance's memory outside of Go's heap. Each pod that waits has an instance, and the heap grows to twice
// of what is live before it is collected; here only the pages that the guest has touched take room, and growing copies
// nothing.
type linearMemory struct{ reserved []byte }

func newLinearMemory(_, most uint64) experimental.LinearMemory {
	reserved, err := syscall.Mmap(-1, 0, int(min(most, memoryLimit)), syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		panic(fmt.Sprintf("no address space for a guest instance: %v", err)) // at load an error, later as any lack of memory
	}
	return linearMemory{reserved}
}

// Reallocate makes the first bytes accessible. With nil the guest's request for more fails.
func (m linearMemory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.reserved)) || syscall.Mprotect(m.reserved[:size], syscall.PROT_READ|syscall.PROT_WRITE) != nil {
		return nil
	}
	return m.reserved[:size:size]
}

func (m linearMemory) Free() { _ = syscall.Munmap(m.reserved) }

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
