package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
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

	// Of the calls under the extension's lock, of which there is one at a time: how many there were, and the one that runs.
	// A call whose end the runtime doesn't tell (after a stack overflow) is forgotten with the next one's start.
	count   atomic.Uint64
	current atomic.Pointer[listener]

	mu     sync.Mutex
	beside map[api.Module]*look // the others, by instance

	last look   // at current
	seen uint64 // count at that look
}

// look is what the watch knows of a call.
type look struct {
	export string
	since  time.Time // zero: not looked at yet
	cpu    time.Duration
}

func newWatch(plugin string, limit time.Duration, fail func(string)) *watch {
	return &watch{plugin: plugin, limit: limit, fail: fail, beside: map[api.Module]*look{}}
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
			at := slices.IndexFunc(f.ExportNames(), isEntry)
			if at < 0 {
				return nil
			}
			export := f.ExportNames()[at]
			return &listener{watch: w, export: export, beside: besideOthers(export)}
		}))
}

// listener is told of the calls of one export. It is in the way of every call, so it does next to nothing.
type listener struct {
	*watch
	export string
	beside bool
}

// Before is called as the export starts.
func (l *listener) Before(_ context.Context, m api.Module, _ api.FunctionDefinition, _ []uint64, _ experimental.StackIterator) {
	if l.beside {
		l.mu.Lock()
		l.watch.beside[m] = &look{export: l.export}
		l.mu.Unlock()
		return
	}
	l.count.Add(1)
	l.current.Store(l)
}

// After is called as it returns.
func (l *listener) After(_ context.Context, m api.Module, _ api.FunctionDefinition, _ []uint64) {
	if l.beside {
		l.mu.Lock()
		delete(l.watch.beside, m)
		l.mu.Unlock()
		return
	}
	l.current.Store(nil)
}

// Abort is called as it traps. The extension turns that into an error of the pod's attempt and goes on with the instance.
func (l *listener) Abort(ctx context.Context, m api.Module, f api.FunctionDefinition, err error) {
	l.After(ctx, m, f, nil)
	guestTraps.WithLabelValues(l.export).Inc()
	if exit := (*sys.ExitError)(nil); errors.As(err, &exit) {
		klog.ErrorS(err, "bridge: the guest ended itself; calls of this instance fail until the scheduler is restarted", "plugin", l.plugin, "export", l.export)
	}
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
	message := ""
	judge := func(l *look) {
		if l.since.IsZero() {
			l.since, l.cpu = now, cpu
		}
		if took := now.Sub(l.since); took > w.limit && cpu-l.cpu > took/5 {
			message = fmt.Sprintf("plugin %s: the guest's %s has not returned for %v. It can't be interrupted, so the scheduler ends; "+
				"replay the pod with tutti to find out why", w.plugin, l.export, took.Round(time.Second))
		}
	}
	if l, n := w.current.Load(), w.count.Load(); l == nil || n != w.seen {
		w.last, w.seen = look{}, n
	}
	if l := w.current.Load(); l != nil {
		w.last.export = l.export
		judge(&w.last)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.beside {
		judge(l)
	}
	return message
}

// cpuTime is the processor time of the process so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fmt.Fprintln(os.Stderr, "bridge: getrusage:", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
