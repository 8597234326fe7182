package bridge

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/legacyregistry"

	pb "tutti/scheduler/bridge/bridgev1"
)

// What the extension's own handle gets wrong.
func TestRepairs(t *testing.T) {
	inner := newFakeHandle(benchNodes(1))
	inner.waiting["u"] = &fakeWaiting{pod: somePod}
	h := &Handle{Handle: inner, plugin: "Tutti"}

	if w := h.GetWaitingPod("other"); w != nil {
		t.Errorf("a pod that doesn't wait is %#v, not nil", w)
	}
	if w := h.GetWaitingPod("u"); w == nil || w.GetPod() != somePod {
		t.Errorf("the pod that waits is %v", w)
	}
	if h.RejectWaitingPod("other") || !h.RejectWaitingPod("u") {
		t.Error("RejectWaitingPod doesn't tell who waited")
	}
	if want := "rejected by Tutti: rejected by plugin Tutti"; inner.waiting["u"].decision != want {
		t.Errorf("%q, want %q", inner.waiting["u"].decision, want)
	}
	// As the extension calls it: an empty reference, the note as the format, one argument too many.
	h.EventRecorder().Eventf(somePod, &v1.ObjectReference{}, "Normal", "Reason", "Action", "100% of %d", nil)
	if want := []string{"false Normal Reason Action 100% of %d"}; !slices.Equal(inner.recorder.recorded, want) {
		t.Errorf("events %q, want %q", inner.recorder.recorded, want)
	}

	list := h.SnapshotSharedLister().NodeInfos()
	if info, err := list.Get("node-0"); err != nil || info.Node().Name != "node-0" {
		t.Errorf("a real node: %v, %v", info, err)
	}
	if _, err := list.Get("none"); err == nil {
		t.Error("no error for a node that isn't")
	}
	if all, err := list.List(); err != nil || len(all) != 1 {
		t.Errorf("list: %v, %v", all, err)
	}
}

// Requests that can't be served are answered with an error, and count as such.
func TestErrorReplies(t *testing.T) {
	h := newScriptHost()
	h.server.beside = func() bool { return false }
	encode := func(r *pb.Request) []byte {
		data, err := proto.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for _, c := range []struct {
		name   string
		data   []byte
		beside bool
		code   pb.Error_Code
		says   string
	}{
		{"no protobuf", []byte{0xff}, false, pb.Error_BAD_REQUEST, "can't be decoded"},
		{"other version", encode(&pb.Request{Version: 99}), false, pb.Error_UNSUPPORTED_VERSION, "this host speaks version 1, the guest 99"},
		{"no call", encode(&pb.Request{Version: 1}), false, pb.Error_BAD_REQUEST, "no call that this host knows"},
		{"no quorum", encode(&pb.Request{Version: 1, Call: &pb.Request_GroupAllow{GroupAllow: &pb.GroupAllow{Uid: "u"}}}), false, pb.Error_BAD_REQUEST, "names no quorum"},
		{"no pod", encode(&pb.Request{Version: 1, Call: &pb.Request_GroupAllow{GroupAllow: &pb.GroupAllow{Quorums: []*pb.Quorum{{Key: "a"}}}}}), false, pb.Error_BAD_REQUEST, "names no pod"},
		{"no resource", encode(&pb.Request{Version: 1, Call: &pb.Request_ObjectGet{ObjectGet: &pb.ObjectGet{}}}), false, pb.Error_BAD_REQUEST, "names no resource"},
		{"unknown pod", encode(&pb.Request{Version: 1, Call: &pb.Request_NodesFree{NodesFree: &pb.NodesFree{Uid: "nobody"}}}), false, pb.Error_BAD_REQUEST, "no pod with uid nobody"},
		{"beside the cycle", encode(&pb.Request{Version: 1, Call: &pb.Request_NodesFree{NodesFree: &pb.NodesFree{}}}), true, pb.Error_NOT_ALLOWED_HERE, "can't be read"},
		{"victims beside the cycle", encode(&pb.Request{Version: 1, Call: &pb.Request_NodesVictims{NodesVictims: &pb.NodesVictims{}}}), true, pb.Error_NOT_ALLOWED_HERE, "can't be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h.server.beside = func() bool { return c.beside }
			var response pb.Response
			if err := proto.Unmarshal(h.server.serve(c.data), &response); err != nil {
				t.Fatal(err)
			}
			if e := response.GetError(); e.GetCode() != c.code || !strings.Contains(e.GetMessage(), c.says) {
				t.Errorf("%v, want %v %q", &response, c.code, c.says)
			}
		})
	}
	t.Run("a panic inside", func(t *testing.T) {
		h.server.table = nil
		var response pb.Response
		if err := proto.Unmarshal(h.server.serve(encode(&pb.Request{Version: 1, Call: &pb.Request_Now{Now: &pb.Now{}}})), &response); err != nil {
			t.Fatal(err)
		}
		if response.GetError().GetCode() != pb.Error_INTERNAL {
			t.Errorf("%v", &response)
		}
	})
}

func TestEvict(t *testing.T) {
	pod := somePod.DeepCopy()
	for _, c := range []struct {
		name    string
		refuse  string // verb
		deleted bool   // before
		want    []string
		fails   bool
	}{
		{"condition, then deletion, then an event", "", false, []string{"patch", "delete"}, false},
		{"the condition is refused", "patch", false, []string{"patch"}, true},
		{"the deletion is refused", "delete", false, []string{"patch", "delete"}, true},
		{"it is going already", "", true, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inner := newFakeHandle(nil)
			client := fake.NewSimpleClientset(pod)
			inner.client = client
			if c.refuse != "" {
				client.PrependReactor(c.refuse, "pods", func(clienttesting.Action) (bool, kruntime.Object, error) { return true, nil, os.ErrPermission })
			}
			victim := pod.DeepCopy()
			if c.deleted {
				victim.DeletionTimestamp = &metav1.Time{}
			}
			err := (&frameworkHost{Handle: inner, ctx: t.Context(), plugin: "Tutti"}).evict(victim, "p", "why")
			var verbs []string
			for _, a := range client.Actions() {
				verbs = append(verbs, a.GetVerb())
			}
			if (err != nil) != c.fails || !slices.Equal(verbs, c.want) {
				t.Errorf("error %v, calls %v", err, verbs)
			}
			if evented := len(inner.recorder.recorded) > 0; evented == (c.fails || c.deleted) {
				t.Errorf("events %q", inner.recorder.recorded)
			}
		})
	}
}

func TestNominate(t *testing.T) {
	inner := newFakeHandle(nil)
	there := somePod.DeepCopy()
	there.Name, there.UID, there.Status.NominatedNodeName = "there", "there", "n2"
	inner.client = fake.NewSimpleClientset(somePod, there)
	(&frameworkHost{Handle: inner, ctx: t.Context(), plugin: "Tutti"}).nominate(map[*v1.Pod]string{somePod: "n1", there: "n2"})
	if got := inner.nominations; got[somePod.UID] != "n1" || got["there"] != "n2" {
		t.Errorf("in the scheduler's memory: %v", got)
	}
	var patches []string
	for _, a := range inner.client.(*fake.Clientset).Actions() {
		p := a.(clienttesting.PatchAction)
		patches = append(patches, p.GetName()+"/"+p.GetSubresource()+" "+string(p.GetPatch()))
	}
	want := []string{fmt.Sprintf(`%s/status {"metadata":{"uid":%q},"status":{"nominatedNodeName":"n1"}}`, somePod.Name, somePod.UID)}
	if !slices.Equal(patches, want) {
		t.Errorf("the API was asked %q, want %q", patches, want)
	}
}

func TestBudgetsProtect(t *testing.T) {
	labelled := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for _, c := range []struct {
		name     string
		selector *metav1.LabelSelector
		want     bool
	}{
		{"selects", selector, true},
		{"selects others", &metav1.LabelSelector{MatchLabels: map[string]string{"a": "c"}}, false},
		{"selects nobody", nil, false},
		{"empty", &metav1.LabelSelector{}, false},
		{"invalid", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Operator: "x"}}}, false},
	} {
		if got := selects(&policy.PodDisruptionBudget{Spec: policy.PodDisruptionBudgetSpec{Selector: c.selector}}, labelled); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// What guests count is served under their names; what Prometheus can't serve is dropped, and can't grow without bound.
func TestGuestMetrics(t *testing.T) {
	g := newGuestMetrics()
	g.add("tutti_test_a_total", "help", map[string]string{"x": "1"}, 2)
	g.add("tutti_test_a_total", "help", map[string]string{"x": "1"}, 1)
	g.add("tutti_test_a_total", "help", map[string]string{"y": "1"}, 1) // other labels
	g.add("tutti_test_a_total", "help", map[string]string{"x": "1"}, -1)
	g.add("tutti_test_no_suffix", "help", nil, 1)
	g.add("tutti-test_total", "help", nil, 1)
	g.add("tutti_test_b_total", "help", map[string]string{"bad-label": ""}, 1)
	g.add("tutti_test_a_total", "help", map[string]string{"x": "1"}, math.Inf(1))
	for i := range 2 * maxSeries {
		g.add("tutti_test_many_total", "help", map[string]string{"gang": strconv.Itoa(i)}, 1)
	}
	g.observe("tutti_test_seconds", "help", nil, 0.5)
	g.observe("tutti_test_seconds", "help", nil, math.NaN())
	g.observe("tutti_bridge_call_seconds", "help", nil, 0.5) // taken by the bridge itself
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "tutti_test") {
			if f.GetName() == "tutti_test_many_total" {
				found[f.GetName()] = float64(len(f.Metric))
			} else if h := f.Metric[0].GetHistogram(); h != nil {
				found[f.GetName()] = float64(h.GetSampleCount())
			} else {
				found[f.GetName()] = f.Metric[0].GetCounter().GetValue()
			}
		}
	}
	if len(found) != 3 || found["tutti_test_a_total"] != 3 || found["tutti_test_many_total"] != maxSeries || found["tutti_test_seconds"] != 1 {
		t.Errorf("%v", found)
	}
}

func TestPluginsOf(t *testing.T) {
	dir := t.TempDir()
	guest := filepath.Join(dir, "guest.wasm")
	if err := os.WriteFile(guest, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	profile := func(args string) string {
		return "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n    args: {kind: NodeResourcesFitArgs}\n  - name: Tutti\n    args: " + args + "\n"
	}
	for _, c := range []struct {
		name, config string
		want         []Plugin
		says         string
	}{
		{"none", "profiles: []", nil, ""},
		{"one", profile("{guestURL: 'file://" + guest + "', guestConfig: '{}', logSeverity: 2}"), []Plugin{{"Tutti", false}}, ""},
		{"two profiles, one with statuses", profile("{guestURL: 'file://"+guest+"'}") + "- pluginConfig: [{name: Tutti, args: {guestURL: 'file://" + guest + "', podGroupStatus: true}}]", []Plugin{{"Tutti", true}}, ""},
		{"http", profile("{guestURL: 'https://example.com/p.wasm'}"), []Plugin{{"Tutti", false}}, ""},
		{"other args", profile("{something: 1}"), nil, ""},
		{"no YAML", "\t", nil, "--config"},
		{"not an object", "[1]", nil, "--config"},
		{"misspelt", profile("{guestURL: 'file://" + guest + "', guestconfig2: ''}"), nil, `unknown field "guestconfig2"`},
		{"config is no string", profile("{guestURL: 'file://" + guest + "', guestConfig: {a: 1}}"), nil, "guestConfig (a string of JSON)"},
		{"severity", profile("{guestURL: 'file://" + guest + "', logSeverity: 9}"), nil, "logSeverity 9"},
		{"null", profile("{guestURL: null}"), nil, "guestURL is null"},
		{"empty", profile("{guestURL: ''}"), nil, "guestURL is empty"},
		{"bare path", profile("{guestURL: " + guest + "}"), nil, "write file://" + guest},
		{"one slash", profile("{guestURL: 'file:" + guest + "'}"), nil, "lacks the two slashes"},
		{"no such file", profile("{guestURL: 'file:///nowhere.wasm'}"), nil, "no such file"},
		{"a directory", profile("{guestURL: 'file://" + dir + "'}"), nil, "is a directory"},
		{"scheme", profile("{guestURL: 'oci://x/y'}"), nil, "unknown scheme"},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(c.config), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"--v=2", "--config", file, "--leader-elect=false"}, {"--config=" + file}} {
				got, err := PluginsOf(args)
				if !slices.Equal(got, c.want) || (err != nil) != (c.says != "") || err != nil && !(strings.Contains(err.Error(), c.says) && strings.Contains(err.Error(), file)) {
					t.Errorf("%v: %v, error %v; want %v, %q", args, got, err, c.want, c.says)
				}
			}
		})
	}
	for _, args := range [][]string{nil, {"--help"}, {"--version"}} {
		if got, err := PluginsOf(args); got != nil || err != nil {
			t.Errorf("%v: %v, %v", args, got, err)
		}
	}
	if _, err := PluginsOf([]string{"--config", filepath.Join(dir, "none.yaml")}); err == nil {
		t.Error("no error for a configuration that isn't there")
	}
}
