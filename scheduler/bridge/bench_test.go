package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	pb "tutti/scheduler/bridge/bridgev1"
)

// fakeHandle is a scheduler around a plugin: an API server of memory, a snapshot, and pods that wait.
type fakeHandle struct {
	framework.Handle
	client      clientset.Interface
	factory     informers.SharedInformerFactory
	snapshot    framework.SharedLister
	waiting     map[types.UID]*fakeWaiting
	activated   [][]string
	recorder    *fakeEvents
	nominations map[types.UID]string
}

func (h *fakeHandle) AddNominatedPod(_ klog.Logger, pod *framework.PodInfo, to *framework.NominatingInfo) {
	h.nominations[pod.Pod.UID] = to.NominatedNodeName
}

func (h *fakeHandle) NominatedPodsForNode(string) []*framework.PodInfo { return nil }

func newFakeHandle(nodes []*v1.Node, pods ...*v1.Pod) *fakeHandle {
	var objects []kruntime.Object
	for _, p := range pods {
		objects = append(objects, p)
	}
	client := fake.NewSimpleClientset(objects...)
	return &fakeHandle{
		client: client, factory: informers.NewSharedInformerFactory(client, 0), recorder: &fakeEvents{},
		snapshot: cache.NewSnapshot(pods, nodes), waiting: map[types.UID]*fakeWaiting{}, nominations: map[types.UID]string{},
	}
}

func (h *fakeHandle) ClientSet() clientset.Interface                         { return h.client }
func (h *fakeHandle) KubeConfig() *rest.Config                               { return nil }
func (h *fakeHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *fakeHandle) SnapshotSharedLister() framework.SharedLister           { return h.snapshot }
func (h *fakeHandle) EventRecorder() events.EventRecorder                    { return h.recorder }
func (h *fakeHandle) ProfileName() string                                    { return "default-scheduler" }

func (h *fakeHandle) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	var names []string
	for name := range pods {
		names = append(names, name)
	}
	h.activated = append(h.activated, names)
}

// GetWaitingPod returns what the framework never does, a typed nil, as a trap for who compares with nil.
func (h *fakeHandle) GetWaitingPod(uid types.UID) framework.WaitingPod {
	if w := h.waiting[uid]; w != nil {
		return w
	}
	return nil
}

type fakeWaiting struct {
	framework.WaitingPod
	pod      *v1.Pod
	decision string
}

func (w *fakeWaiting) GetPod() *v1.Pod            { return w.pod }
func (w *fakeWaiting) Allow(plugin string)        { w.decision = "allowed by " + plugin }
func (w *fakeWaiting) Reject(plugin, text string) { w.decision = "rejected by " + plugin + ": " + text }

type fakeEvents struct{ recorded []string }

func (e *fakeEvents) Eventf(regarding, related kruntime.Object, kind, reason, action, note string, args ...any) {
	e.recorded = append(e.recorded, fmt.Sprint(related != nil, " ", kind, " ", reason, " ", action, " ", fmt.Sprintf(note, args...)))
}

// load makes the plugin of a guest that `make guests` built, in a table of its own, with the informers filled.
func (h *fakeHandle) load(t testing.TB, guest string) (framework.Plugin, *Table) {
	t.Helper()
	path := "../../out/guest/" + guest + ".wasm"
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run: make guests", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	args, err := json.Marshal(map[string]string{"guestURL": "file://" + path, "guestConfig": "{}"})
	if err != nil {
		t.Fatal(err)
	}
	table := newTable(realClock{})
	p, err := factory("Tutti", table)(ctx, &kruntime.Unknown{Raw: args, ContentType: kruntime.ContentTypeJSON}, h)
	if err != nil {
		t.Fatal(err)
	}
	h.factory.Start(ctx.Done())
	h.factory.WaitForCacheSync(ctx.Done())
	return p, table
}

// bigPod has about 3 KB.
func bigPod(name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID("uid-" + name), Labels: map[string]string{}, Annotations: map[string]string{}}}
	for i := range 44 {
		p.Annotations[fmt.Sprintf("example.com/annotation-%02d", i)] = strings.Repeat("v", 20)
	}
	for i := range 2 {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: fmt.Sprint("c", i), Image: "registry.example.com/team/image:v1.2.3",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("1Gi")}},
		})
	}
	return p
}

func benchNodes(n int) (nodes []*v1.Node) {
	for i := range n {
		room := v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("256Gi"), v1.ResourcePods: resource.MustParse("110")}
		nodes = append(nodes, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), Labels: map[string]string{v1.LabelHostname: fmt.Sprint("node-", i)}},
			Status:     v1.NodeStatus{Allocatable: room, Capacity: room},
		})
	}
	return nodes
}

func gang(n int) (pods []*v1.Pod) {
	for i := range n {
		p := bigPod(fmt.Sprint("member-", i))
		p.Labels["pod-group.scheduling.sigs.k8s.io/name"] = "gang"
		p.Labels["pod-group.scheduling.sigs.k8s.io/min-available"] = fmt.Sprint(n)
		pods = append(pods, p)
	}
	return pods
}

// An empty call, and what of it is the watch over endless ones.
func BenchmarkEmptyCall(b *testing.B) {
	file := guestFile(b, export{"filter", ok}, export{"postfilter", ok})
	for name, load := range map[string]func() (framework.Plugin, error){
		"watched":   func() (framework.Plugin, error) { return loadGuest(b.Context(), file, nil) },
		"unwatched": func() (framework.Plugin, error) { return loadWatched(b.Context(), file) },
	} {
		b.Run(name, func(b *testing.B) {
			p, err := load()
			if err != nil {
				b.Fatal(err)
			}
			info := framework.NewNodeInfo()
			info.SetNode(&v1.Node{})
			filter := p.(framework.FilterPlugin)
			for b.Loop() {
				filter.Filter(b.Context(), nil, somePod, info)
			}
		})
	}
}

// PreScore of node-number reads the name of a pod of 3 KB; the host encodes the whole pod for it.
func BenchmarkPodRead(b *testing.B) {
	p, _ := newFakeHandle(nil).load(b, "node_number")
	pod, score := bigPod("job-7"), p.(framework.PreScorePlugin)
	for b.Loop() {
		if status := score.PreScore(b.Context(), nil, pod, nil); !status.IsSuccess() {
			b.Fatal(status)
		}
	}
}

// What of BenchmarkPodRead is the extension's own: it encodes the pod right into the guest's memory.
func BenchmarkPodEncode(b *testing.B) {
	pod, memory := bigPod("job-7"), make([]byte, 4096)
	size := 0
	for b.Loop() {
		size = pod.Size()
		if _, err := pod.MarshalToSizedBuffer(memory[:size]); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(size), "bytes")
}

// One cycle of node-number on one node: PreFilter, PreScore, Score.
func BenchmarkNodeNumberCycle(b *testing.B) {
	for _, size := range []string{"small", "3KB"} {
		b.Run(size, func(b *testing.B) {
			p, _ := newFakeHandle(nil).load(b, "node_number")
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "job-7", UID: "u"}}
			if size == "3KB" {
				pod = bigPod("job-7")
			}
			all := p.(interface {
				framework.PreFilterPlugin
				framework.PreScorePlugin
				framework.ScorePlugin
			})
			for b.Loop() {
				all.PreFilter(b.Context(), nil, pod)
				all.PreScore(b.Context(), nil, pod, nil)
				if score, status := all.Score(b.Context(), nil, pod, "node-17"); score != 10 || !status.IsSuccess() {
					b.Fatal(score, status)
				}
			}
		})
	}
}

func BenchmarkPreFilter(b *testing.B) {
	for _, c := range []struct {
		name  string
		gang  int
		nodes int
	}{{"ordinary", 0, 500}, {"gang-8", 8, 500}, {"gang-200", 200, 500}, {"gang-8-of-5000-nodes", 8, 5000}} {
		b.Run(c.name, func(b *testing.B) {
			pods := gang(c.gang)
			h := newFakeHandle(benchNodes(c.nodes), pods...)
			p, _ := h.load(b, "plugin")
			pod := bigPod("job-7")
			if c.gang > 0 {
				pod = pods[c.gang/2]
			}
			filter := p.(framework.PreFilterPlugin)
			filter.PreFilter(b.Context(), nil, pod) // says hello, which waits for the informers
			for b.Loop() {
				if _, status := filter.PreFilter(b.Context(), nil, pod); !status.IsSuccess() && status.Code() != framework.Skip {
					b.Fatal(status)
				}
			}
		})
	}
}

// All calls for a pod, from PreFilter to PostBind: one of no gang, and a member whose siblings are held.
func BenchmarkPod(b *testing.B) {
	for _, c := range []struct {
		name string
		gang int
	}{{"ordinary", 0}, {"member", 8}} {
		b.Run(c.name, func(b *testing.B) {
			pods := append(gang(c.gang), bigPod("job-7"), bigPod("job-8"))
			loaded, _ := newFakeHandle(benchNodes(500), pods...).load(b, "plugin")
			p := loaded.(fullHolder)
			cycle := func(pod *v1.Pod) {
				p.PreFilter(b.Context(), nil, pod)
				p.PreScore(b.Context(), nil, pod, nil)
				p.Reserve(b.Context(), nil, pod, "node-1")
				if status, _ := p.Permit(b.Context(), nil, pod, "node-1"); status.IsSuccess() != (c.gang == 0) {
					b.Fatal(status)
				}
				p.Bind(b.Context(), nil, pod, "node-1")
				p.PostBind(b.Context(), nil, pod, "node-1")
			}
			cycle(pods[0])
			for b.Loop() {
				cycle(pods[1])
			}
		})
	}
}

func BenchmarkNodesFree5000(b *testing.B) {
	h := newFakeHandle(benchNodes(5000))
	s := newServer(b.Context(), "Tutti", h, newTable(realClock{}))
	s.beside = func() bool { return false }
	for b.Loop() {
		var offset uint32
		for page := 0; ; page++ {
			request, err := proto.Marshal(&pb.Request{Version: protocolVersion, Call: &pb.Request_NodesFree{NodesFree: &pb.NodesFree{
				Resources: []string{"cpu", "memory", "pods"}, Offset: offset,
			}}})
			if err != nil {
				b.Fatal(err)
			}
			var response pb.Response
			if err := proto.Unmarshal(s.serve(request), &response); err != nil || response.GetNodesFree() == nil {
				b.Fatal(err, response.GetError())
			}
			if offset = response.GetNodesFree().NextOffset; offset == 0 {
				if page != 9 {
					b.Fatalf("%d pages", page+1)
				}
				break
			}
		}
	}
}

// An instance's linear memory, and the time that one more takes.
func BenchmarkInstance(b *testing.B) {
	before := time.Now()
	p, _ := newFakeHandle(nil).load(b, "plugin")
	loaded := time.Since(before)
	permit := p.(interface {
		framework.PreFilterPlugin
		framework.PermitPlugin
	})
	for i := 0; b.Loop(); i++ {
		// Permit takes the pod's instance away; the pod waits for ever.
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: types.UID(fmt.Sprint(i))}}
		permit.PreFilter(b.Context(), nil, pod)
		permit.Permit(b.Context(), nil, pod, "node-0")
	}
	b.ReportMetric(float64(loaded.Milliseconds()), "ms/load")
	memory := p.(interface{ Guest() wazero.CompiledModule }).Guest().ExportedMemories()["memory"]
	b.ReportMetric(float64(memory.Min()*64), "KiB/instance")
}
