package bridge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
	"github.com/tetratelabs/wazero/sys"
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
// The garbage collector waits for every goroutine, so its next run freezes such a process as a whole, this watch included.
// Therefore the watch also keeps putting off a timer of the kernel's, which ends the process when it no longer does.
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
	alone   bool          // it runs under the lock of the extension's pool
	cpu     time.Duration // the process', at the first look; see overdue
}

func newWatch(plugin string, limit time.Duration, fail func(string)) *watch {
	return &watch{plugin: plugin, limit: limit, fail: fail, calls: map[api.Module]call{}}
}

// besideOthers tells whether the extension calls the export without a lock.
func besideOthers(export string) bool {
	return export == "prebind" || export == "bind" || export == "postbind"
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
	c := call{exports: f.ExportNames(), since: time.Now(), alone: !slices.ContainsFunc(f.ExportNames(), besideOthers)}
	if c.alone { // so the ones before it have ended, whether the runtime said so or not
		maps.DeleteFunc(w.calls, func(_ api.Module, before call) bool { return before.alone })
	}
	w.calls[m] = c
}

// After is called as it returns.
func (w *watch) After(_ context.Context, m api.Module, _ api.FunctionDefinition, _ []uint64) {
	w.end(m)
}

// Abort is called as it traps. The extension turns that into an error of the pod's attempt and goes on with the instance.
func (w *watch) Abort(_ context.Context, m api.Module, f api.FunctionDefinition, err error) {
	w.end(m)
	export := strings.Join(f.ExportNames(), "/")
	guestTraps.WithLabelValues(export).Inc()
	if exit := (*sys.ExitError)(nil); errors.As(err, &exit) {
		klog.ErrorS(err, "bridge: the guest ended itself; calls of this instance fail until the scheduler is restarted", "plugin", w.plugin, "export", export)
	}
}

func (w *watch) end(m api.Module) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.calls, m)
}

func (w *watch) run(done <-chan struct{}) {
	tick := time.NewTicker(min(watchTick, w.limit/4))
	defer tick.Stop()
	dead, err := newDeadman()
	if err != nil {
		klog.InfoS("bridge: a process that a guest call froze isn't ended; let a liveness probe do it", "plugin", w.plugin, "err", err)
	} else {
		defer dead.close()
	}
	for {
		if dead != nil {
			if err := dead.putOff(w.limit); err != nil {
				klog.ErrorS(err, "bridge: the watch over guest calls lost its timer", "plugin", w.plugin)
				dead.close()
				dead = nil
			}
		}
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

// overdue names a call that computes for longer than the limit. That it computes is seen by the process' processor time, from
// when the call is first met: a call that waits for the API server uses little, nor does a process whose last call ended
// without a word (the runtime reports no end after a stack overflow). Not much is asked for, since the machine may be busy.
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
		if took > w.limit && cpu-c.cpu > took/5 {
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
