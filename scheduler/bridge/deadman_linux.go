package bridge

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"
)

// deadman is a timer of the kernel's that kills the process unless it is put off in time. It needs no goroutine to run: see
// watch. It can't say why: Go's own report on SIGQUIT or SIGABRT crashes where the guest's code is on the stack.
type deadman struct{ id int32 }

// sigevent is struct sigevent of <signal.h>; zero notify is SIGEV_SIGNAL.
type sigevent struct {
	value  uintptr
	signal int32
	notify int32
	_      [64]byte // the union
}

const clockMonotonic = 1

func newDeadman() (*deadman, error) {
	d := &deadman{}
	event := sigevent{signal: int32(syscall.SIGKILL)}
	if _, _, err := syscall.Syscall(syscall.SYS_TIMER_CREATE, clockMonotonic, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&d.id))); err != 0 {
		return nil, fmt.Errorf("timer_create: %w", err)
	}
	return d, nil
}

// putOff sets the process' end to so long from now; 0 calls it off.
func (d *deadman) putOff(by time.Duration) error {
	spec := struct{ interval, value syscall.Timespec }{value: syscall.NsecToTimespec(int64(by))}
	if _, _, err := syscall.Syscall6(syscall.SYS_TIMER_SETTIME, uintptr(d.id), 0, uintptr(unsafe.Pointer(&spec)), 0, 0, 0); err != 0 {
		return fmt.Errorf("timer_settime: %w", err)
	}
	return nil
}

func (d *deadman) close() {
	_, _, _ = syscall.Syscall(syscall.SYS_TIMER_DELETE, uintptr(d.id), 0, 0)
}
