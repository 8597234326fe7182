// Package contract holds the extension to what the Rust side takes for its facts: the calls of testdata/contract/probe.json,
// the export sets of exports.json and the imports of imports.json beside it. sdk/tests renders them from the SDK and the
// ABI's tables.
package contract

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	wasm "sigs.k8s.io/kube-scheduler-wasm-extension/scheduler/plugin"
)

// message is protobuf, in hex.
type message []byte

func (m *message) UnmarshalText(text []byte) (err error) {
	*m, err = hex.DecodeString(string(text))
	return
}

func (m message) pod(t *testing.T) *v1.Pod {
	t.Helper()
	var pod v1.Pod
	if err := pod.Unmarshal(m); err != nil {
		t.Fatal(err)
	}
	return &pod
}

type list struct {
	Config          string
	Nodes           []message
	Target, Waiting message
	Node            string
	Statuses        map[string]framework.Code
	Filtered        []string
	Steps           []step
}

type step struct {
	Export         string
	Pod            message
	Code           framework.Code
	Reason, Result string
	Log            [][2]string
}

// outcome is what came of a step's call.
type outcome struct {
	code           framework.Code
	reason, result string
	log            [][2]string
}

// handle is the scheduler behind the extension: a snapshot and one waiting pod.
type handle struct {
	framework.Handle
	snapshot framework.SharedLister
	waiting  *v1.Pod
	events   int
}

func (h *handle) SnapshotSharedLister() framework.SharedLister { return h.snapshot }

func (h *handle) GetWaitingPod(uid types.UID) framework.WaitingPod {
	if h.waiting == nil || h.waiting.UID != uid {
		return nil
	}
	return waitingPod{pod: h.waiting}
}

func (h *handle) RejectWaitingPod(uid types.UID) bool {
	waits := h.GetWaitingPod(uid) != nil
	if waits {
		h.waiting = nil
	}
	return waits
}

func (h *handle) EventRecorder() events.EventRecorder { return h }

func (h *handle) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {
	h.events++
}

type waitingPod struct {
	framework.WaitingPod
	pod *v1.Pod
}

func (w waitingPod) GetPod() *v1.Pod { return w.pod }

// lines collects what klog prints with message "probe".
type lines struct{ pairs [][2]string }

func (*lines) Init(logr.RuntimeInfo)                 {}
func (*lines) Enabled(int) bool                      { return true }
func (l *lines) WithValues(...any) logr.LogSink      { return l }
func (l *lines) WithName(string) logr.LogSink        { return l }
func (*lines) Error(err error, msg string, _ ...any) {}
func (l *lines) Info(_ int, msg string, kvs ...any) {
	if msg != "probe" {
		return
	}
	for pair := range slices.Chunk(kvs, 2) {
		l.pairs = append(l.pairs, [2]string{fmt.Sprint(pair[0]), fmt.Sprint(pair[1])})
	}
}

func load(t *testing.T, guest string, config string, h framework.Handle) (framework.Plugin, error) {
	t.Helper()
	plugin, err := wasm.NewFromConfig(context.Background(), "probe", wasm.PluginConfig{GuestURL: "file://" + guest, GuestConfig: config}, h)
	if closer, ok := plugin.(interface{ Close() error }); ok && err == nil {
		t.Cleanup(func() { _ = closer.Close() })
	}
	return plugin, err
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../testdata/contract", file))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheExtensionKeepsIt(t *testing.T) {
	var l list
	read(t, "probe.json", &l)
	const guest = "../../out/guest/probe.wasm"
	if _, err := os.Stat(guest); err != nil {
		t.Fatalf("%v; run: make guests", err)
	}

	var nodes []*v1.Node
	for _, m := range l.Nodes {
		var node v1.Node
		if err := node.Unmarshal(m); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, &node)
	}
	h := &handle{snapshot: cache.NewSnapshot(nil, nodes), waiting: l.Waiting.pod(t)}
	logged := &lines{}
	klog.SetLogger(logr.New(logged))
	t.Cleanup(klog.ClearLogger)
	plugin, err := load(t, guest, l.Config, h)
	if err != nil {
		t.Fatal(err)
	}

	for i, s := range l.Steps {
		logged.pairs = nil
		status, result := call(t, plugin, h, &l, &s)
		want := outcome{s.Code, s.Reason, s.Result, append([][2]string{{"point", s.Export}}, s.Log...)}
		got := outcome{status.Code(), status.Message(), result, logged.pairs}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("step %d, %s:\n got %+v\nwant %+v", i, s.Export, got, want)
		}
	}
	if h.events != 1 {
		t.Errorf("%d events were recorded, want 1", h.events)
	}
}

// A guest's buffer grows with the host's replies, and stays right. wazero before 1.9 compiled the filling of a grown buffer
// wrong, so that a reply above 2 KiB ended in a trap.
func TestRepliesOfAllSizes(t *testing.T) {
	h := &handle{}
	logged := &lines{}
	klog.SetLogger(logr.New(logged))
	t.Cleanup(klog.ClearLogger)
	plugin, err := load(t, "../../out/guest/probe.wasm", "", h)
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}}
	for _, size := range []int{1 << 10, 2 << 10, 5_000, 20_000, 200_000, 2_000_000, 5_000} {
		var nodes []*v1.Node
		for sum := 0; sum < size; {
			node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", len(nodes)), Labels: map[string]string{"l": strings.Repeat("x", 200)}}}
			sum += node.Size()
			nodes = append(nodes, node)
		}
		h.snapshot, logged.pairs = cache.NewSnapshot(nil, nodes), nil
		_, status := plugin.(framework.PreFilterPlugin).PreFilter(context.Background(), nil, pod)
		if seen := [2]string{"nodes", strconv.Itoa(len(nodes))}; !status.IsSuccess() || !slices.Contains(logged.pairs, seen) {
			t.Errorf("%d bytes: %v, the guest logs %v, want %v", size, status, logged.pairs, seen)
		}
	}
}

// call makes one call, and gives its status and what it answers beside it, written as the list has it.
func call(t *testing.T, plugin framework.Plugin, h *handle, l *list, s *step) (status *framework.Status, result string) {
	t.Helper()
	ctx, state, pod := context.Background(), framework.NewCycleState(), s.Pod.pod(t)
	info := func(name string) *framework.NodeInfo {
		info, err := h.snapshot.NodeInfos().Get(name)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = l.Node
	switch s.Export {
	case "enqueue":
		registered, err := plugin.(framework.EnqueueExtensions).EventsToRegister(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, e := range registered {
			all = append(all, fmt.Sprintf("%s/%d", e.Event.Resource, e.Event.ActionType))
		}
		return nil, strings.Join(all, " ")
	case "prefilter":
		kept, status := plugin.(framework.PreFilterPlugin).PreFilter(ctx, state, pod)
		if kept == nil {
			return status, "all"
		}
		names := kept.NodeNames.UnsortedList()
		slices.Sort(names)
		return status, strings.Join(names, ",")
	case "addpod", "removepod":
		extensions := plugin.(framework.PreFilterPlugin).PreFilterExtensions()
		target, err := framework.NewPodInfo(l.Target.pod(t))
		if err != nil {
			t.Fatal(err)
		}
		if s.Export == "addpod" {
			return extensions.AddPod(ctx, state, pod, target, info(l.Node)), ""
		}
		return extensions.RemovePod(ctx, state, pod, target, info(l.Node)), ""
	case "filter":
		return plugin.(framework.FilterPlugin).Filter(ctx, state, pod, info(l.Node)), ""
	case "postfilter":
		statuses := framework.NewDefaultNodeToStatus()
		for node, code := range l.Statuses {
			statuses.Set(node, framework.NewStatus(code))
		}
		made, status := plugin.(framework.PostFilterPlugin).PostFilter(ctx, state, pod, statuses)
		switch {
		case made.Mode() == framework.ModeNoop:
			return status, "keep"
		case made.NominatedNodeName == "":
			return status, "clear"
		}
		return status, made.NominatedNodeName
	case "prescore":
		var filtered []*framework.NodeInfo
		for _, name := range l.Filtered {
			filtered = append(filtered, info(name))
		}
		return plugin.(framework.PreScorePlugin).PreScore(ctx, state, pod, filtered), ""
	case "score":
		score, status := plugin.(framework.ScorePlugin).Score(ctx, state, pod, l.Node)
		return status, strconv.FormatInt(score, 10)
	case "reserve":
		return plugin.(framework.ReservePlugin).Reserve(ctx, state, assumed, l.Node), ""
	case "unreserve":
		plugin.(framework.ReservePlugin).Unreserve(ctx, state, assumed, l.Node)
		return nil, ""
	case "permit":
		status, wait := plugin.(framework.PermitPlugin).Permit(ctx, state, assumed, l.Node)
		return status, strconv.FormatInt(wait.Milliseconds(), 10)
	case "prebind":
		return plugin.(framework.PreBindPlugin).PreBind(ctx, state, assumed, l.Node), ""
	case "bind":
		return plugin.(framework.BindPlugin).Bind(ctx, state, assumed, l.Node), ""
	case "postbind":
		plugin.(framework.PostBindPlugin).PostBind(ctx, state, assumed, l.Node)
		return nil, ""
	}
	t.Fatalf("no such export: %s", s.Export)
	return nil, ""
}

// Guests of other toolchains answer here as in the harness (host-harness/tests/conformance/foreign.rs).
func TestGuestsInOtherLanguagesRun(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job-7", UID: "u"}}
	for _, file := range []string{"digit_as.wasm", "digit_c.wasm", "digit_zig.wasm"} {
		plugin, err := load(t, filepath.Join("../../testdata/guests", file), "", &handle{})
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		filter := plugin.(interface {
			framework.PreFilterPlugin
			framework.FilterPlugin
		})
		if _, status := filter.PreFilter(context.Background(), nil, pod); !status.IsSuccess() {
			t.Errorf("%s: prefilter: %v", file, status)
		}
		for name, want := range map[string]*framework.Status{
			"node-27": nil,
			"node-13": framework.NewStatus(framework.Unschedulable, "node-13 doesn't end in 7"),
		} {
			info := framework.NewNodeInfo()
			info.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
			if got := filter.Filter(context.Background(), nil, pod, info); got.Code() != want.Code() || got.Message() != want.Message() {
				t.Errorf("%s: %s: got %v, want %v", file, name, got, want)
			}
		}
	}
}

func TestGoGuestIsNotSetUp(t *testing.T) {
	guest := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", guest, "digit.go")
	build.Dir = "../../testdata/guests/go"
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	plugin, err := load(t, guest, "", &handle{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "wasmexport function called before runtime initialization"
	_, status := plugin.(framework.PreFilterPlugin).PreFilter(context.Background(), nil, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}})
	if !strings.Contains(status.Message(), want) {
		t.Errorf("got %v, want: %s", status, want)
	}
}

func TestTheExtensionTakesTheseExportSets(t *testing.T) {
	var sets []struct {
		Exports  string
		Accepted bool
	}
	read(t, "exports.json", &sets)
	guest := filepath.Join(t.TempDir(), "guest.wasm")
	for _, set := range sets {
		if err := os.WriteFile(guest, module(strings.Fields(set.Exports)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := load(t, guest, "", &handle{}); (err == nil) != set.Accepted {
			t.Errorf("%s: the ABI's table says accepted: %v, the extension: %v", set.Exports, set.Accepted, err)
		}
	}
}

func TestTheExtensionOffersTheseImports(t *testing.T) {
	var imports []function
	read(t, "imports.json", &imports)
	guest := filepath.Join(t.TempDir(), "guest.wasm")
	loads := func(imports []function) error {
		if err := os.WriteFile(guest, module([]string{"filter"}, imports...), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := load(t, guest, "", &handle{})
		return err
	}
	if err := loads(imports); err != nil {
		t.Error(err)
	}
	for _, f := range imports {
		f.Params = append(f.Params, "i64")
		if err := loads([]function{f}); err == nil {
			t.Errorf("%s.%s is taken with another signature too: the check above finds nothing", f.Module, f.Name)
		}
	}
}

// function is one that a guest imports.
type function struct {
	Module, Name    string
	Params, Results []string
}

// module encodes a module with a memory, these exports, each of which answers 0, and these imports.
func module(exports []string, imports ...function) []byte {
	const (
		i32, i64                                                 = 0x7f, 0x7e
		typeID, importID, functionID, memoryID, exportID, codeID = 1, 2, 3, 5, 7, 10
	)
	// Types and bodies by what is returned: nothing, an i32, an i64.
	kinds := [][]byte{{}, {i32}, {i64}}
	bodies := [][]byte{{0x0b}, {0x41, 0, 0x0b}, {0x42, 0, 0x0b}}
	kind := func(export string) byte {
		switch export {
		case "enqueue", "unreserve", "postbind":
			return 0
		case "postfilter", "score", "permit":
			return 2
		}
		return 1
	}
	vector := func(items ...[]byte) []byte { return append([]byte{byte(len(items))}, slices.Concat(items...)...) }
	bytes := func(content []byte) []byte { // sizes of two bytes, as LEB128
		return append([]byte{byte(len(content))&0x7f | 0x80, byte(len(content) >> 7)}, content...)
	}
	values := func(names []string) (values [][]byte) {
		for _, name := range names {
			values = append(values, []byte{map[string]byte{"i32": i32, "i64": i64}[name]})
		}
		return
	}
	var types, imported, functions, names, code [][]byte
	for _, result := range kinds {
		types = append(types, slices.Concat([]byte{0x60, 0, byte(len(result))}, result))
	}
	for _, f := range imports {
		imported = append(imported, slices.Concat(bytes([]byte(f.Module)), bytes([]byte(f.Name)), []byte{0, byte(len(types))}))
		types = append(types, slices.Concat([]byte{0x60}, vector(values(f.Params)...), vector(values(f.Results)...)))
	}
	names = append(names, append(bytes([]byte("memory")), 2, 0))
	for i, export := range exports {
		functions = append(functions, []byte{kind(export)})
		names = append(names, append(bytes([]byte(export)), 0, byte(len(imports)+i)))
		code = append(code, bytes(append([]byte{0}, bodies[kind(export)]...)))
	}
	section := func(id byte, items ...[]byte) []byte { return append([]byte{id}, bytes(vector(items...))...) }
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), section(typeID, types...), section(importID, imported...),
		section(functionID, functions...), section(memoryID, []byte{0, 1}), section(exportID, names...), section(codeID, code...))
}
