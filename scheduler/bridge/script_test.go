package bridge

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"sigs.k8s.io/yaml"

	pb "tutti/scheduler/bridge/bridgev1"
)

// TestScripts plays testdata/bridge, which the Rust bridge of the offline harness plays too: both must answer the same.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("../../testdata/bridge/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts (%v)", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var script struct {
				About string                       `json:"about"`
				Steps []map[string]json.RawMessage `json:"steps"`
			}
			if err := json.Unmarshal(data, &script); err != nil {
				t.Fatal(err)
			}
			h := newScriptHost()
			for i, step := range script.Steps {
				if err := h.play(step); err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
			}
		})
	}
}

// scriptHost is a scheduler of which only what the bridge touches is there.
type scriptHost struct {
	clock   *fakeClock
	table   *Table
	server  *server
	pods    map[types.UID]*v1.Pod
	nodes   []*v1.Node
	decided map[types.UID]bool
	guarded map[types.UID]bool
	stuck   map[types.UID]bool
	places  map[types.UID]string
	effects []string
}

func (h *scriptHost) get(namespace, name string) *v1.Pod {
	for _, p := range h.pods {
		if p.Namespace == namespace && p.Name == name && !isEnded(p) {
			return p
		}
	}
	return nil
}

func (h *scriptHost) byUID(uid types.UID) *v1.Pod {
	if p := h.pods[uid]; p != nil && !isEnded(p) {
		return p
	}
	return nil
}

func isEnded(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

func (h *scriptHost) list() (all []*v1.Pod) {
	for _, p := range h.pods {
		if !isEnded(p) {
			all = append(all, p)
		}
	}
	return all
}

// endedPods is the other informer's view.
type endedPods struct{ h *scriptHost }

func (e endedPods) get(namespace, name string) *v1.Pod {
	for _, p := range e.h.pods {
		if p.Namespace == namespace && p.Name == name && isEnded(p) {
			return p
		}
	}
	return nil
}

func (e endedPods) byUID(uid types.UID) *v1.Pod {
	if p := e.h.pods[uid]; p != nil && isEnded(p) {
		return p
	}
	return nil
}

func (e endedPods) list() (all []*v1.Pod) {
	for _, p := range e.h.pods {
		if isEnded(p) {
			all = append(all, p)
		}
	}
	return all
}

func newScriptHost() *scriptHost {
	h := &scriptHost{
		clock: &fakeClock{}, pods: map[types.UID]*v1.Pod{},
		decided: map[types.UID]bool{}, guarded: map[types.UID]bool{}, stuck: map[types.UID]bool{},
	}
	h.table = newTable(h.clock)
	h.table.live, h.table.ended = h, endedPods{h}
	h.table.objects = newObjects(context.Background(), nil, h.table.objectChanged)
	h.server = &server{
		plugin: "Tutti", profile: "default-scheduler", kubernetes: "v1.32.5",
		table: h.table, metrics: sharedMetrics, host: h,
	}
	return h
}

// The host's side of the bridge.

func (h *scriptHost) heldOn(uid types.UID) string { return h.places[uid] }

func (h *scriptHost) waits(uid types.UID) bool { return !h.decided[uid] }

func (h *scriptHost) allow(uid types.UID) {
	h.effects = append(h.effects, "allow "+string(uid))
}

func (h *scriptHost) reject(uid types.UID, reason string) {
	h.effects = append(h.effects, "reject "+string(uid)+": "+reason)
}

func (h *scriptHost) activate(pods []*v1.Pod) {
	var uids []string
	for _, p := range pods {
		uids = append(uids, string(p.UID))
	}
	h.effects = append(h.effects, "activate "+strings.Join(uids, " "))
}

func (h *scriptHost) snapshot() ([]*framework.NodeInfo, error) {
	var infos []*framework.NodeInfo
	for _, n := range h.nodes {
		info := framework.NewNodeInfo()
		info.SetNode(n)
		for _, p := range h.pods {
			if p.Spec.NodeName == n.Name && !isEnded(p) {
				info.AddPod(p)
			}
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func (h *scriptHost) protected(p *v1.Pod) bool { return h.guarded[p.UID] }

func (h *scriptHost) nominated(node string) (pods []*v1.Pod) {
	for _, p := range h.pods {
		if p.Status.NominatedNodeName == node {
			pods = append(pods, p)
		}
	}
	return pods
}

func (h *scriptHost) nominate(places map[*v1.Pod]string) {
	for p, node := range places {
		h.effects = append(h.effects, fmt.Sprintf("nominate %s for %s", p.UID, node))
	}
}

func (h *scriptHost) evict(p *v1.Pod, preemptor types.UID, reason string) error {
	if h.stuck[p.UID] {
		return fmt.Errorf("the API server refuses")
	}
	h.effects = append(h.effects, fmt.Sprintf("evict %s for %s: %s", p.UID, preemptor, reason))
	return nil
}

func (h *scriptHost) event(e *pb.EventRecord) {
	kind := "Normal"
	if e.Warning {
		kind = "Warning"
	}
	h.effects = append(h.effects, fmt.Sprintf("event %s/%s/%s %s %s: %s", e.Kind, e.Namespace, e.Name, kind, e.Reason, e.Note))
}

func (h *scriptHost) play(step map[string]json.RawMessage) error {
	read := func(key string, into any) (bool, error) {
		raw, ok := step[key]
		if !ok {
			return false, nil
		}
		return true, yaml.Unmarshal(raw, into)
	}
	h.effects = nil
	var ms int64
	if ok, err := read("now_ms", &ms); ok || err != nil {
		h.clock.now = time.UnixMilli(ms)
		return err
	}
	var pod v1.Pod
	if ok, err := read("pod", &pod); ok || err != nil {
		old := h.pods[pod.UID]
		h.pods[pod.UID] = &pod
		if old != nil {
			h.table.podChanged(old)
		}
		h.table.podChanged(&pod)
		return errors.Join(err, h.compare(step, read, false))
	}
	for key, set := range map[string]map[types.UID]bool{"decided": h.decided, "protected": h.guarded, "unevictable": h.stuck} {
		var uid types.UID
		if ok, err := read(key, &uid); ok || err != nil {
			set[uid] = true
			return err
		}
	}
	var uid types.UID
	if ok, err := read("gone", &uid); ok || err != nil {
		old := h.pods[uid]
		delete(h.pods, uid)
		h.table.podChanged(old)
		return err
	}
	if ok, err := read("held_on", &h.places); ok || err != nil {
		return err
	}
	var node string
	if ok, err := read("node_gone", &node); ok || err != nil {
		h.table.nodeGone(node)
		return errors.Join(err, h.compare(step, read, false))
	}
	var nodes []*v1.Node
	if ok, err := read("nodes", &nodes); ok || err != nil {
		h.nodes = nodes
		return err
	}
	return h.playMore(step, read)
}

func (h *scriptHost) playMore(step map[string]json.RawMessage, read func(string, any) (bool, error)) error {
	var object struct {
		Resource  *pb.Resource    `json:"resource"`
		Namespace string          `json:"namespace"`
		Name      string          `json:"name"`
		JSON      json.RawMessage `json:"json"`
	}
	if ok, err := read("served", &object.Resource); ok || err != nil {
		h.serveResource(object.Resource)
		return err
	}
	if raw, ok := step["object"]; ok {
		if err := json.Unmarshal(raw, &object); err != nil {
			return err
		}
		return h.putObject(object.Resource, object.JSON)
	}
	if ok, err := read("object_changed", &object); ok || err != nil {
		h.table.objectChanged(object.Resource, object.Namespace, object.Name)
	}
	var fire bool
	if ok, err := read("fire", &fire); ok || err != nil {
		h.clock.fire()
		var next *int64
		if raw, has := step["next_timer_ms"]; has {
			if err := json.Unmarshal(raw, &next); err != nil {
				return err
			}
			if got := h.clock.next(); (got == nil) != (next == nil) || got != nil && *got != *next {
				return fmt.Errorf("the next timer differs: %v", cmp.Diff(next, got))
			}
		}
	}
	data, ok, err := requestOf(step)
	if err != nil {
		return err
	}
	if ok {
		beside := false
		if raw, has := step["in_scheduling"]; has {
			beside = string(raw) == "false"
		}
		h.server.beside = func() bool { return beside }
		got, want := &pb.Response{}, &pb.Response{}
		if err := proto.Unmarshal(h.server.serve(data), got); err != nil {
			return err
		}
		var text string
		if err := json.Unmarshal(step["response"], &text); err != nil {
			return err
		}
		if err := prototext.Unmarshal([]byte(text), want); err != nil {
			return err
		}
		if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&pb.Error{}, "message"),
			protocmp.IgnoreFields(&pb.Lost{}, "why"), protocmp.IgnoreFields(&pb.NodesFreeReply{}, "generation"),
			protocmp.IgnoreFields(&pb.NodesVictimsReply{}, "generation")); diff != "" {
			return fmt.Errorf("%s\nreply (-want +got):\n%s", step["request"], diff)
		}
	}
	return h.compare(step, read, fire)
}

// compare holds what the bridge did to what the script says.
func (h *scriptHost) compare(step map[string]json.RawMessage, read func(string, any) (bool, error), fire bool) error {
	var effects []string
	if has, err := read("effects", &effects); !has || err != nil {
		return err
	}
	// The reason of a passed deadline is each host's own.
	if fire {
		trim(effects)
		trim(h.effects)
	}
	// Members are let go in no order.
	slices.Sort(effects)
	slices.Sort(h.effects)
	if !slices.Equal(effects, h.effects) {
		return fmt.Errorf("%s\neffects (-want +got):\n%s", step["request"], cmp.Diff(effects, h.effects))
	}
	return nil
}

func requestOf(step map[string]json.RawMessage) ([]byte, bool, error) {
	for _, key := range []string{"request_hex", "request_bytes"} {
		if raw, ok := step[key]; ok {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				return nil, false, err
			}
			data, err := hex.DecodeString(text)
			return data, true, err
		}
	}
	return nil, false, nil
}

func trim(effects []string) {
	for i, e := range effects {
		if strings.HasPrefix(e, "reject ") {
			effects[i], _, _ = strings.Cut(e, ":")
		}
	}
}

func (h *scriptHost) serveResource(r *pb.Resource) *kind {
	k := h.table.objects.follow(r)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.served {
		k.served, k.store = true, cache.NewStore(cache.MetaNamespaceKeyFunc)
	}
	return k
}

// putObject keeps the object's bytes as the script has them: a host is free in how it encodes.
func (h *scriptHost) putObject(r *pb.Resource, text json.RawMessage) error {
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal(text, &u.Object); err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return err
	}
	k := h.serveResource(r)
	k.encode[u.GetNamespace()+"/"+u.GetName()] = encoded{u, compact.Bytes()}
	return k.store.Add(u)
}

// fakeClock stands still until a script moves it.
type fakeClock struct {
	now    time.Time
	timers []*fakeTimer
}

type fakeTimer struct {
	clock *fakeClock
	at    time.Time
	run   func()
}

func (c *fakeClock) Now() time.Time { return c.now }

func (c *fakeClock) AfterFunc(d time.Duration, f func()) stopper {
	t := &fakeTimer{c, c.now.Add(d), f}
	c.timers = append(c.timers, t)
	return t
}

func (t *fakeTimer) Stop() bool {
	n := len(t.clock.timers)
	t.clock.timers = slices.DeleteFunc(t.clock.timers, func(x *fakeTimer) bool { return x == t })
	return len(t.clock.timers) < n
}

func (c *fakeClock) next() *int64 {
	if len(c.timers) == 0 {
		return nil
	}
	first := slices.MinFunc(c.timers, func(a, b *fakeTimer) int { return a.at.Compare(b.at) }).at.UnixMilli()
	return &first
}

// fire runs what is due, in order.
func (c *fakeClock) fire() {
	for {
		i := slices.IndexFunc(c.timers, func(t *fakeTimer) bool {
			return !t.at.After(c.now) && t.at.UnixMilli() == *c.next()
		})
		if i < 0 {
			return
		}
		t := c.timers[i]
		t.Stop()
		t.run()
	}
}
