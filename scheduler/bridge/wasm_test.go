package bridge

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	wasm "sigs.k8s.io/kube-scheduler-wasm-extension/scheduler/plugin"
)

// export is a function of a guest made by hand.
type export struct {
	name string
	code []byte
}

var (
	ok       = []byte{}                          // returns 0
	trap     = []byte{0x00}                      // unreachable
	endless  = []byte{0x03, 0x40, 0x0c, 0, 0x0b} // loop br 0 end
	recurses = []byte{0x10, 0, 0x1a}             // call function 0; drop
	results  = map[string]byte{                  // i32 where nothing is said; 0: none
		"_start": 0, "unreserve": 0, "postbind": 0,
		"postfilter": 0x7e, "permit": 0x7e, "score": 0x7e,
	}
)

// guestFile writes a module with the exports, and a memory.
func guestFile(t testing.TB, exports ...export) string {
	t.Helper()
	section := func(id byte, items ...[]byte) []byte {
		body := binary.AppendUvarint(nil, uint64(len(items)))
		for _, i := range items {
			body = append(body, i...)
		}
		return append(binary.AppendUvarint([]byte{id}, uint64(len(body))), body...)
	}
	var functions, names, codes [][]byte
	kinds := [][]byte{{0x60, 0, 0}, {0x60, 0, 1, 0x7f}, {0x60, 0, 1, 0x7e}}
	names = append(names, append([]byte("\x06memory"), 2, 0))
	for i, e := range exports {
		result, special := results[e.name]
		kind, zero := byte(1), []byte{0x41, 0}
		if special && result == 0 {
			kind, zero = 0, nil
		} else if special {
			kind, zero = 2, []byte{0x42, 0}
		}
		functions = append(functions, []byte{kind})
		names = append(names, append(append([]byte{byte(len(e.name))}, e.name...), 0, byte(i)))
		code := append(append(append([]byte{0}, e.code...), zero...), 0x0b)
		codes = append(codes, append(binary.AppendUvarint(nil, uint64(len(code))), code...))
	}
	module := []byte("\x00asm\x01\x00\x00\x00")
	for _, s := range [][]byte{section(1, kinds...), section(3, functions...), section(5, []byte{0, 1}), section(7, names...), section(10, codes...)} {
		module = append(module, s...)
	}
	file := filepath.Join(t.TempDir(), "guest.wasm")
	if err := os.WriteFile(file, module, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func loadGuest(ctx context.Context, file string, h framework.Handle) (framework.Plugin, error) {
	args, err := json.Marshal(map[string]string{"guestURL": "file://" + file})
	if err != nil {
		return nil, err
	}
	return newGuestPlugin(ctx, "Guest", &kruntime.Unknown{Raw: args, ContentType: kruntime.ContentTypeJSON}, h)
}

// A guest that can't serve is a start error that says why.
func TestGuestsRefusedAtLoad(t *testing.T) {
	for _, c := range []struct {
		name    string
		exports []export
		want    string // "": it loads
	}{
		{"sound", []export{{"filter", ok}, {"postfilter", ok}}, ""},
		{"full", []export{{"prefilter", ok}, {"filter", ok}, {"postfilter", ok}, {"score", ok}, {"reserve", ok}, {"unreserve", ok}, {"permit", ok}, {"bind", ok}, {"postbind", ok}}, ""},
		{"leaks, which is warned of", []export{{"permit", ok}}, ""},
		{"traps at start", []export{{"_start", trap}, {"filter", ok}}, "unreachable"},
		{"no plugin functions", []export{{"other", ok}}, "does not export any plugin functions"},
		{"reserve alone", []export{{"reserve", ok}}, "reserve without unreserve"},
		{"unreserve alone", []export{{"unreserve", ok}}, "unreserve without reserve"},
		{"addpod alone", []export{{"filter", ok}, {"addpod", ok}}, "addpod without removepod"},
		{"removepod alone", []export{{"filter", ok}, {"removepod", ok}}, "removepod without addpod"},
		{"bind without permit", []export{{"bind", ok}}, "bind without permit"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			p, err := loadGuest(ctx, guestFile(t, c.exports...), nil)
			switch {
			case c.want == "" && (err != nil || p == nil):
				t.Errorf("error %v", err)
			case c.want != "" && (err == nil || p != nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "plugin Guest can't be loaded: ")):
				t.Errorf("plugin %v, error %v; want %q", p, err, c.want)
			}
		})
	}
	t.Run("not a module", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "x.wasm")
		if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := loadGuest(t.Context(), file, nil); err == nil || p != nil {
			t.Errorf("plugin %v, error %v", p, err)
		}
	})
}

// What a guest exports is what the framework sees of the plugin, also where the bridge stands between.
func TestPointsOfGuests(t *testing.T) {
	holds := []export{{"reserve", ok}, {"unreserve", ok}, {"permit", ok}, {"bind", ok}, {"postbind", ok}}
	for _, c := range []struct {
		exports        []export
		filters, holds bool
	}{
		{[]export{{"filter", ok}, {"postfilter", ok}}, true, false},
		{holds, false, true},
		{append([]export{{"prefilter", ok}, {"filter", ok}, {"postfilter", ok}, {"score", ok}}, holds...), true, true},
	} {
		p, err := loadGuest(t.Context(), guestFile(t, c.exports...), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, filter := p.(framework.FilterPlugin)
		_, post := p.(framework.PostFilterPlugin)
		_, score := p.(framework.ScorePlugin)
		_, permit := p.(framework.PermitPlugin)
		_, bind := p.(framework.BindPlugin)
		if filter != c.filters || post != c.filters || score != (c.filters && c.holds) || permit != c.holds || bind != c.holds {
			t.Errorf("%v: filter %v, postFilter %v, score %v, permit %v, bind %v", c.exports, filter, post, score, permit, bind)
		}
		_, enqueue := p.(framework.EnqueueExtensions)
		_, prefilter := p.(framework.PreFilterPlugin)
		_, closer := p.(io.Closer)
		if !enqueue || !prefilter || !closer {
			t.Errorf("%v: enqueue %v, preFilter %v, closer %v", c.exports, enqueue, prefilter, closer)
		}
	}
}

func TestLinearMemory(t *testing.T) {
	for _, m := range []experimental.LinearMemory{newLinearMemory(0, 4<<30), &heapMemory{}} {
		defer m.Free()
		small := m.Reallocate(64 << 10)
		small[0], small[len(small)-1] = 1, 2
		large := m.Reallocate(memoryLimit)
		if len(large) != memoryLimit || large[0] != 1 || large[len(small)-1] != 2 || large[len(large)-1] != 0 {
			t.Errorf("%T: the grown memory is another one, or not clean", m)
		}
		if m.Reallocate(memoryLimit+1) != nil {
			t.Errorf("%T: it grows above the limit", m)
		}
	}
}

// The memory of a waiting pod's instance is not the garbage collector's.
func TestInstancesAreOffTheHeap(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("on Linux only")
	}
	const instances, pages = 40, 50                                               // 125 MiB
	file := guestFile(t, export{"prefilter", []byte{0x41, pages, 0x40, 0, 0x1a}}, // memory.grow; drop
		export{"reserve", ok}, export{"unreserve", ok}, export{"permit", ok}, export{"bind", ok}, export{"postbind", ok})
	p, err := loadGuest(t.Context(), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range instances {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: types.UID(rune('a' + i))}}
		if _, status := p.(framework.PreFilterPlugin).PreFilter(t.Context(), nil, pod); !status.IsSuccess() {
			t.Fatal(status)
		}
		p.(framework.PermitPlugin).Permit(t.Context(), nil, pod, "n") // the instance stays with the pod
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > instances*pages<<16/4 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	runtime.KeepAlive(p)
}

func TestExportWarnings(t *testing.T) {
	for _, c := range []struct {
		exports []export
		want    string
	}{
		{[]export{{"filter", ok}}, "switches preemption off"},
		{[]export{{"permit", ok}, {"bind", ok}, {"postbind", ok}}, "permit without reserve"},
		{[]export{{"permit", ok}, {"reserve", ok}, {"unreserve", ok}, {"bind", ok}}, "permit without postbind"},
		{[]export{{"score", ok}, {"normalizescore", ok}}, "wrong nodes"},
		{[]export{{"filter", ok}, {"postfilter", ok}}, ""},
	} {
		binary, err := os.ReadFile(guestFile(t, c.exports...))
		if err != nil {
			t.Fatal(err)
		}
		r := wazero.NewRuntime(t.Context())
		module, err := r.CompileModule(t.Context(), binary)
		if err != nil {
			t.Fatal(err)
		}
		warnings, err := checkExports(module.ExportedFunctions())
		if err != nil || (c.want == "") != (len(warnings) == 0) || !strings.Contains(strings.Join(warnings, ";"), c.want) {
			t.Errorf("warnings %q, error %v; want %q", warnings, err, c.want)
		}
		_ = r.Close(t.Context())
	}
}

var somePod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "p"}}

// A call that traps fails its pod's attempt, counts, and is no reason to end the process; the next call goes on.
func TestTraps(t *testing.T) {
	for _, c := range []struct {
		name string
		code []byte
	}{{"unreachable", trap}, {"stack overflow", recurses}} {
		t.Run(c.name, func(t *testing.T) {
			guestTraps.Reset()
			w := newWatch("Guest", time.Nanosecond, nil)
			p, err := loadWatched(w.during(t.Context()), guestFile(t, export{"prefilter", c.code}, export{"filter", ok}, export{"postfilter", ok}))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				_, status := p.(framework.PreFilterPlugin).PreFilter(t.Context(), framework.NewCycleState(), somePod)
				if status.Code() != framework.Error {
					t.Fatalf("status %v", status)
				}
				if _, status = p.(framework.PostFilterPlugin).PostFilter(t.Context(), framework.NewCycleState(), somePod, nil); status.Code() != framework.Success {
					t.Fatalf("the call after the trap: %v", status)
				}
			}
			w.overdue(time.Now(), 1)
			if message := w.overdue(time.Now().Add(time.Hour), 2*time.Hour); message != "" {
				t.Errorf("a call that has ended counts: %s", message)
			}
			if c.name == "unreachable" { // the runtime tells nobody of an overflow
				if n, err := testutil.GetCounterMetricValue(guestTraps.WithLabelValues("prefilter")); err != nil || n != 3 {
					t.Errorf("%v traps counted (%v), want 3", n, err)
				}
			}
		})
	}
}

// Only a call that computes is overdue.
func TestOverdue(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name     string
		beside   bool
		age, cpu time.Duration // at the second look
		want     bool
	}{
		{"young", false, time.Second, time.Second, false},
		{"computes for long", false, 11 * time.Second, 10 * time.Second, true},
		{"computes for long, beside others", true, 11 * time.Second, 10 * time.Second, true},
		{"on a busy machine", false, 11 * time.Second, 3 * time.Second, true},
		{"waits for the API server", false, time.Minute, time.Second, false},
	} {
		w := newWatch("Guest", 10*time.Second, nil)
		if c.beside {
			w.beside[nil] = &look{export: "filter"}
		} else {
			(&listener{watch: w, export: "filter"}).Before(t.Context(), nil, nil, nil, nil)
		}
		if message := w.overdue(now, time.Hour); message != "" {
			t.Errorf("%s: at the first look: %s", c.name, message)
		}
		message := w.overdue(now.Add(c.age), time.Hour+c.cpu)
		if (message != "") != c.want || c.want && !strings.Contains(message, "plugin Guest: the guest's filter has not returned for 11s") {
			t.Errorf("%s: %q", c.name, message)
		}
	}
}

// A process with a call that doesn't end is ended: by the watch, or, where the garbage collector has frozen it, by the kernel.
func TestEndlessCall(t *testing.T) {
	if mode := os.Getenv("TUTTI_ENDLESS"); mode != "" {
		endlessCall(t, mode)
		return
	}
	for _, c := range []struct {
		mode, says string
		signal     syscall.Signal
	}{
		{"idle", "the guest's prefilter has not returned for", 0},
		{"collecting", "", syscall.SIGKILL},
	} {
		t.Run(c.mode, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			command := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestEndlessCall$")
			command.Env = append(os.Environ(), "TUTTI_ENDLESS="+c.mode, "GOGC=off")
			out, err := command.CombinedOutput()
			exit := (*exec.ExitError)(nil)
			if ctx.Err() != nil || !errors.As(err, &exit) || !strings.Contains(string(out), c.says) {
				t.Fatalf("%v; want an exit that says %q\n%.2000s", err, c.says, out)
			}
			if status := exit.Sys().(syscall.WaitStatus); status.Signaled() != (c.signal != 0) || status.Signaled() && status.Signal() != c.signal {
				t.Errorf("%v, want signal %v\n%.2000s", err, c.signal, out)
			}
		})
	}
}

func endlessCall(t *testing.T, mode string) {
	w := newWatch("Guest", 2*time.Second, exitOn)
	go w.run(nil)
	p, err := loadWatched(w.during(t.Context()), guestFile(t, export{"prefilter", endless}, export{"filter", ok}))
	if err != nil {
		t.Fatal(err)
	}
	if mode == "collecting" {
		time.AfterFunc(200*time.Millisecond, runtime.GC)
	}
	p.(framework.PreFilterPlugin).PreFilter(t.Context(), framework.NewCycleState(), somePod)
	t.Fatal("it returned")
}

// loadWatched loads a guest without more than the context asks for.
func loadWatched(ctx context.Context, file string) (framework.Plugin, error) {
	return wasm.NewFromConfig(ctx, "Guest", wasm.PluginConfig{GuestURL: "file://" + file}, nil)
}
