package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	wasm "sigs.k8s.io/kube-scheduler-wasm-extension/scheduler/plugin"
)

// Factory registers the wasm plugin of that name with its handle wrapped.
func Factory(name string) frameworkruntime.PluginFactory { return factory(name, shared) }

func factory(name string, table *Table) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args kruntime.Object, handle framework.Handle) (framework.Plugin, error) {
		h := &Handle{Handle: handle, plugin: name, server: newServer(ctx, name, handle, table)}
		table.start(ctx, handle)
		return newGuestPlugin(ctx, name, args, h)
	}
}

// newGuestPlugin loads the guest, watches its calls, and refuses one that would crash the scheduler later. It turns the
// extension's panics at load into errors.
func newGuestPlugin(ctx context.Context, name string, args kruntime.Object, h framework.Handle) (p framework.Plugin, err error) {
	defer func() {
		if r := recover(); r != nil {
			p, err = nil, fmt.Errorf("%v", r)
		}
		if err != nil {
			err = fmt.Errorf("plugin %s can't be loaded: %w", name, err)
		}
	}()
	began := time.Now()
	w := newWatch(name, callLimit, exitOn)
	go w.run(ctx.Done())
	if p, err = wasm.PluginFactory(name)(offHeap(w.during(ctx)), args, h); err != nil {
		return nil, err
	}
	guest, ok := p.(interface{ Guest() wazero.CompiledModule })
	if !ok {
		return nil, errors.New("the extension's plugin doesn't show its guest")
	}
	warnings, err := checkExports(guest.Guest().ExportedFunctions())
	for _, warning := range warnings {
		klog.InfoS("bridge: the guest's exports are unfortunate", "plugin", name, "why", warning)
	}
	if err != nil {
		_ = p.(io.Closer).Close()
		return nil, err
	}
	points := slices.DeleteFunc(slices.Sorted(maps.Keys(guest.Guest().ExportedFunctions())), func(name string) bool { return !isEntry(name) })
	klog.InfoS("bridge: guest loaded", "plugin", name, "exports", points, "took", time.Since(began).Round(time.Millisecond))
	return withInstancesOffHeap(p), nil
}

// Handle is the framework's handle with the extension's gaps closed.
type Handle struct {
	framework.Handle
	plugin string
	server *server
}

// GetWaitingPod returns a plain nil when there is none: the extension compares with nil.
func (h *Handle) GetWaitingPod(uid types.UID) framework.WaitingPod {
	if w := h.Handle.GetWaitingPod(uid); w != nil {
		return w
	}
	return nil
}

// RejectWaitingPod rejects under the plugin's own name. The framework's own method uses an empty one, for which no event
// ever wakes the pod again.
func (h *Handle) RejectWaitingPod(uid types.UID) bool {
	w := h.Handle.GetWaitingPod(uid)
	if w == nil {
		return false
	}
	w.Reject(h.plugin, "rejected by plugin "+h.plugin)
	return true
}

// EventRecorder repairs the extension's eventf: it passes one argument too many, and takes the text for a format.
func (h *Handle) EventRecorder() events.EventRecorder {
	return recorder{h.Handle.EventRecorder()}
}

type recorder struct{ events.EventRecorder }

func (r recorder) Eventf(regarding, related kruntime.Object, eventtype, reason, action, note string, _ ...any) {
	if ref, ok := related.(*v1.ObjectReference); ok && *ref == (v1.ObjectReference{}) {
		related = nil // the extension makes an empty reference where the guest named none
	}
	r.EventRecorder.Eventf(regarding, related, eventtype, reason, action, "%s", note)
}

// SnapshotSharedLister answers requests and, for real names, the snapshot.
func (h *Handle) SnapshotSharedLister() framework.SharedLister {
	return lister{h.Handle.SnapshotSharedLister(), h.server}
}

type lister struct {
	framework.SharedLister
	server *server
}

func (l lister) NodeInfos() framework.NodeInfoLister {
	return nodeInfos{l.SharedLister.NodeInfos(), l.server}
}

type nodeInfos struct {
	framework.NodeInfoLister
	server *server
}

// mark starts a node name that is a request; no real name can.
const mark = "!"

func (n nodeInfos) Get(name string) (*framework.NodeInfo, error) {
	request, ok := strings.CutPrefix(name, mark)
	if !ok {
		if besideCycle() {
			return nil, errBesideCycle
		}
		return n.NodeInfoLister.Get(name)
	}
	info := framework.NewNodeInfo()
	info.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: string(n.server.serve([]byte(request)))}})
	return info, nil
}

// List is refused where Get is. The extension passes the error on to the guest as a trap.
func (n nodeInfos) List() ([]*framework.NodeInfo, error) {
	if besideCycle() {
		return nil, errBesideCycle
	}
	return n.NodeInfoLister.List()
}

var errBesideCycle = errors.New("the node snapshot can't be read in Unreserve, PreBind, Bind or PostBind: it is rewritten meanwhile")

// besideCycle tells whether the guest call that asks runs in Unreserve, PreBind, Bind or PostBind. Those run on binding
// goroutines, beside the next pod's cycle, and reading the snapshot's map there is a concurrent map access, which ends
// the process. The extension passes no context to the handle, so the caller is read off the stack: its methods are there,
// since wazero runs host functions on the goroutine of the call. Costs about a microsecond, for the calls that read the
// snapshot only.
func besideCycle() bool {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if method, ok := strings.CutPrefix(frame.Function, extensionPlugin); ok {
			switch method {
			case "Unreserve", "PreBind", "Bind", "PostBind":
				return true
			case "PreFilter", "AddPod", "RemovePod", "Filter", "PostFilter", "PreScore", "Score", "NormalizeScore", "Reserve", "Permit":
				return false
			}
		}
		if !more {
			return false
		}
	}
}

const extensionPlugin = "sigs.k8s.io/kube-scheduler-wasm-extension/scheduler/plugin.(*wasmPlugin)."
