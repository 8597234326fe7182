package bridge

import (
	"syscall"

	"github.com/tetratelabs/wazero/experimental"
)

// linearMemory is an instance's memory outside of Go's heap. Each pod that waits has an instance, and the heap grows to twice
// of what is live before it is collected; here only the pages that the guest has touched take room, and growing copies
// nothing.
type linearMemory struct{ reserved []byte }

// newLinearMemory takes the heap where the kernel has no mapping left: an instance that can't be made ends the extension's
// runtime, and with it every other instance.
func newLinearMemory(_, most uint64) experimental.LinearMemory {
	flags := syscall.MAP_ANON | syscall.MAP_PRIVATE | syscall.MAP_NORESERVE
	reserved, err := syscall.Mmap(-1, 0, int(min(most, memoryLimit)), syscall.PROT_NONE, flags)
	if err != nil {
		return &heapMemory{}
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
