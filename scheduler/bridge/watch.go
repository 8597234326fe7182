package bridge

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"k8s.io/klog/v2"
)

const (
	// callLimit is how long a guest call may compute. The slowest sound ones, over thousands of nodes, take milliseconds.
	callLimit = 30 * time.Second
	watchTick = time.Second
)

// watch ends the process when a guest call doesn't end. The runtime compiles guests to code that can't be interrupted, and
// the call runs under the extension's lock, so nothing is scheduled any more; but leader election goes on, so no standby
// takes over either. An exit is safe: a scheduler that restarts has lost nothing but time.
//
// The collector's first stop of the world freezes such a process as a whole, this watch included. /healthz doesn't answer
// then, and the lease runs out: the liveness probe is the other half of this watch.
type watch struct {
	plugin string
	limit  time.Duration
	fail   func(string)

	mu    sync.Mutex
	calls map[api.Module]call // by instance: one call at a time
}

type call struct {
	exports []string // names of the function that was called
	since   time.Time
	cpu     time.Duration // the process', at the first look; see overdue
}

func newWatch(plugin string, limit time.Duration, fail func(string)) *watch {
	return &watch{plugin: plugin, limit: limit, fail: fail, calls: map[api.Module]call{}}
}

// exitOn ends the process with the message.
func exitOn(message string) {
	klog.ErrorS(nil, message)
	klog.FlushAndExit(klog.ExitFlushTimeout, 1)
}

// during returns the context to compile the guest with.
func (w *watch) during(ctx context.Context) context.Context {
	return experimental.WithFunctionListenerFactory(ctx, experimental.FunctionListenerFactoryFunc(
		func(f api.FunctionDefinition) experimental.FunctionListener {
			// Not a guest's helpers: TinyGo exports malloc, which a call calls.
			if slices.ContainsFunc(f.ExportNames(), isEntry) {
				return w
			}
			return nil
		}))
}

// Before is called as the guest's export starts.
func (w *watch) Before(_ context.Context, m api.Module, f api.FunctionDefinition, _ []uint64, _ experimental.StackIterator) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[m] = call{exports: f.ExportNames(), since: time.Now()}
}

// After is called as it returns.
func (w *watch) After(_ context.Context, m api.Module, _ api.FunctionDefinition, _ []uint64) {
	w.end(m)
}

// Abort is called as it traps.
func (w *watch) Abort(_ context.Context, m api.Module, _ api.FunctionDefinition, _ error) { w.end(m) }

func (w *watch) end(m api.Module) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, m)
}

func (w *watch) run(done <-chan struct{}) {
	tick := time.NewTicker(min(watchTick, w.limit/4))
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			if message := w.overdue(time.Now(), cpuTime()); message != "" {
				w.fail(message)
				return
			}
		}
	}
}

// overdue names a call that computes for longer than the limit. That it computes is seen by the process' processor time,
// taken when the call is first met: a call that waits for the API server uses none, nor does one whose end was missed (the
// runtime reports no end after a stack overflow; the instance's next call does).
func (w *watch) overdue(now time.Time, cpu time.Duration) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for m, c := range w.calls {
		if c.cpu == 0 {
			c.cpu = cpu
			w.calls[m] = c
			continue
		}
		took := now.Sub(c.since)
		if took > w.limit && (cpu-c.cpu) > took/2 {
			return fmt.Sprintf("plugin %s: the guest's %s has not returned for %v. It can't be interrupted, so the scheduler ends; "+
				"replay the pod with tutti to find out why", w.plugin, strings.Join(c.exports, "/"), took.Round(time.Second))
		}
	}
	return ""
}

// cpuTime is the processor time of the process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fmt.Fprintln(os.Stderr, "bridge: getrusage:", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
