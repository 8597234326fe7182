package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"tutti/scheduler/localcluster"
	"tutti/scheduler/scenario"
)

const (
	tick   = 50 * time.Millisecond
	grace  = 5 * time.Second         // of at and by
	settle = 4 * time.Second         // of quiet after which a run may end before its time
	oneGo  = 1500 * time.Millisecond // of together: an API server takes bindings one by one
)

// TestScenarios runs the files that the harness runs too, on the real scheduler.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob(*samples + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s (%v)", *samples, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			s, err := scenario.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			if s.HarnessOnly != "" {
				t.Skip("only for the harness: " + s.HarnessOnly)
			}
			t.Parallel()
			(&run{t: t, Scenario: s, cluster: take(t)}).play()
		})
	}
}

// run is one scenario under way.
type run struct {
	*scenario.Scenario
	t         *testing.T
	cluster   *testCluster
	scheduler *localcluster.Scheduler
	options   localcluster.SchedulerOptions
	begin     time.Time
	link      *link // of a scheduler whose API server goes away

	mu       sync.Mutex
	pods     map[types.UID]*v1.Pod // that exist
	boundAt  map[types.UID]time.Time
	evicted  []ended
	warnings []warning
	events   map[types.UID]*v1.Event
	view     *view
	left     int           // steps not done
	upTo     time.Duration // all steps before this are done
	doneAt   time.Time     // the last of them

	pending sync.WaitGroup // steps under way
}

type ended struct {
	pod *v1.Pod
	at  time.Duration
}

type warning struct {
	about v1.ObjectReference
	at    time.Duration
}

func (r *run) play() {
	t := r.t
	ctx, cancel := context.WithCancel(context.Background())
	defer func() {
		cancel()
		r.pending.Wait()
	}()
	r.pods, r.boundAt, r.events = map[types.UID]*v1.Pod{}, map[types.UID]time.Time{}, map[types.UID]*v1.Event{}
	r.options = localcluster.SchedulerOptions{Plugin: plugin, GuestConfig: string(r.Config)}
	r.options.Flags = []string{verbose}
	for _, s := range r.Steps {
		if s.APIAway != nil && r.link == nil {
			link, err := r.cluster.link()
			if err != nil {
				t.Fatal(err)
			}
			defer link.stop()
			r.link, r.options.Kubeconfig = link, link.kubeconfig
		}
	}
	r.scheduler = r.cluster.scheduler(t, r.options)
	view, err := openView(r.scheduler)
	if err != nil {
		t.Fatal(err)
	}
	defer view.file.Close()
	r.view = view
	if err := r.follow(ctx); err != nil {
		t.Fatal(err)
	}
	r.begin = time.Now()
	r.left = len(r.Steps)
	steps := make(chan error, len(r.Steps))
	r.pending.Add(1)
	go func() {
		defer r.pending.Done()
		r.steps(ctx, steps)
	}()

	verdicts := make([]verdict, len(r.Expect))
	lastOpen := time.Duration(0)
	for {
		now := time.Since(r.begin)
		select {
		case err := <-steps:
			t.Fatalf("a step failed after %v: %v", now.Round(time.Millisecond), err)
		default:
		}
		open := false
		for i := range r.Expect {
			open = r.look(&r.Expect[i], &verdicts[i], now, false) || open
		}
		r.mu.Lock()
		open = open || r.left > 0
		r.mu.Unlock()
		if open {
			lastOpen = now
		}
		if now >= r.Until.Duration || now >= lastOpen+settle {
			break
		}
		time.Sleep(tick)
	}
	// The end has the same grace as other moments.
	for deadline := time.Now().Add(grace); ; time.Sleep(tick) {
		good := true
		for i := range r.Expect {
			r.look(&r.Expect[i], &verdicts[i], time.Since(r.begin), true)
			good = good && verdicts[i].held
		}
		if good || time.Now().After(deadline) {
			break
		}
	}
	for i := range r.Expect {
		if !verdicts[i].held {
			text, _ := json.Marshal(r.Expect[i])
			t.Errorf("expect[%d] does not hold: %s\n  %s", i, verdicts[i].why, compact(text))
		}
	}
	if t.Failed() {
		t.Log(r.describe())
	}
}

// compact drops the empty fields of an expectation.
func compact(text []byte) string {
	m := map[string]any{}
	_ = json.Unmarshal(text, &m)
	for k, v := range m {
		if v == nil || v == "" || v == "0s" {
			delete(m, k)
		}
	}
	out, _ := json.Marshal(m)
	return string(out)
}

// verdict is what is known of an expectation.
type verdict struct {
	held, broken bool
	why          string
}

// look evaluates an expectation at now, and tells whether it is still to be looked at.
func (r *run) look(e *scenario.Expectation, v *verdict, now time.Duration, end bool) bool {
	from, to, err := e.Window(r.Until.Duration)
	if err != nil {
		r.t.Fatal(err)
	}
	why := func() string { return r.check(&e.Conditions, e.Since.Duration) }
	switch {
	case e.At == "end":
		if end {
			v.why = why()
			v.held = v.why == ""
		}
		return false
	case e.At != "" || e.By.Duration != 0:
		if v.held || now < from {
			return !v.held
		}
		if e.At == "" || now >= from {
			v.why = why()
			v.held = v.why == ""
			if !v.held {
				v.why += fmt.Sprintf(" (last seen after %v)", now.Round(time.Millisecond))
			}
		}
		return !v.held && now < to+grace
	default:
		if now < from || !r.caughtUp(from) {
			v.held = true // unless something is seen
			return true
		}
		if v.broken || now >= to {
			return false
		}
		text := why()
		holds := text == ""
		if e.Never != "" {
			holds, text = text != "", "all of it held"
		}
		v.held = holds
		if !holds {
			v.broken, v.why = true, fmt.Sprintf("%s after %v", text, now.Round(time.Millisecond))
		}
		return !v.broken && to < r.Until.Duration
	}
}

// lag is how far the watch may be behind what a step did.
const lag = 300 * time.Millisecond

// caughtUp tells whether all steps up to this time are done and to be seen. On a cluster they take a moment.
func (r *run) caughtUp(to time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.upTo > to && time.Since(r.doneAt) > lag
}

// check returns why the conditions don't hold, or "".
func (r *run) check(c *scenario.Conditions, since time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.checkLocked(c, since)
}

func (r *run) checkLocked(c *scenario.Conditions, since time.Duration) string {
	for _, of := range []struct {
		what   string
		want   map[string]scenario.Number
		counts func(*v1.Pod) bool
	}{
		{"bound", c.Bound, func(p *v1.Pod) bool { return p.Spec.NodeName != "" }},
		{"running", c.Running, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning }},
		{"exists", c.Exists, func(*v1.Pod) bool { return true }},
	} {
		for pattern, want := range of.want {
			have := 0
			for _, p := range r.pods {
				if scenario.Matches(pattern, p.Namespace, p.Name) && of.counts(p) {
					have++
				}
			}
			if !want.Holds(have) {
				return fmt.Sprintf("%s %s is %d, not %v", of.what, pattern, have, want)
			}
		}
	}
	if err := r.view.update(); err != nil {
		return err.Error()
	}
	for pattern, want := range c.Waiting {
		have := 0
		for pod := range r.view.waiting {
			if namespace, name, _ := strings.Cut(pod, "/"); scenario.Matches(pattern, namespace, name) {
				have++
			}
		}
		if !want.Holds(have) {
			return fmt.Sprintf("waiting %s is %d, not %v", pattern, have, want)
		}
	}
	for pattern, want := range c.Attempts {
		have := 0
		for _, a := range r.view.attempts {
			namespace, name, _ := strings.Cut(a.pod, "/")
			if a.at.Sub(r.begin) >= since && scenario.Matches(pattern, namespace, name) {
				have++
			}
		}
		if !want.Holds(have) {
			return fmt.Sprintf("attempts %s is %d, not %v", pattern, have, want)
		}
	}
	if len(c.Free) > 0 {
		why, err := r.view.free(r.scheduler, c.Free)
		if err != nil {
			return err.Error()
		}
		if why != "" {
			return why
		}
	}
	for pattern, want := range c.Evicted {
		have := 0
		for _, e := range r.evicted {
			if e.at >= since && scenario.Matches(pattern, e.pod.Namespace, e.pod.Name) {
				have++
			}
		}
		if !want.Holds(have) {
			return fmt.Sprintf("evicted %s is %d, not %v", pattern, have, want)
		}
	}
	for pattern, text := range c.Reason {
		found := false
		for _, p := range r.pods {
			if scenario.Matches(pattern, p.Namespace, p.Name) {
				found = true
				if reason := reasonOf(p); !strings.Contains(reason, text) {
					return fmt.Sprintf("the reason of %s is %q, without %q", p.Name, reason, text)
				}
			}
		}
		if !found {
			return "no pod is called " + pattern
		}
	}
	for _, pattern := range c.Together {
		var first, last time.Time
		for uid, at := range r.boundAt {
			p := r.pods[uid]
			if p == nil || !scenario.Matches(pattern, p.Namespace, p.Name) {
				continue
			}
			if first.IsZero() || at.Before(first) {
				first = at
			}
			if at.After(last) {
				last = at
			}
		}
		if last.Sub(first) > oneGo {
			return fmt.Sprintf("%s was bound over %v", pattern, last.Sub(first))
		}
	}
	for ref, text := range c.Event {
		found := false
		for _, e := range r.events {
			found = found || refers(ref, &e.InvolvedObject) && (strings.Contains(e.Reason, text) || strings.Contains(e.Message, text))
		}
		if !found {
			return fmt.Sprintf("no event about %s holds %q", ref, text)
		}
	}
	for ref, want := range c.Warnings {
		have := 0
		for _, w := range r.warnings {
			if w.at >= since && refers(ref, &w.about) {
				have++
			}
		}
		if !want.Holds(have) {
			return fmt.Sprintf("%d warnings are about %s, not %v", have, ref, want)
		}
	}
	for ref, want := range c.Object {
		u, err := r.cluster.find(ref)
		if err != nil {
			return err.Error()
		}
		if why := within(want, u.Object, ""); why != "" {
			return ref + why
		}
	}
	if len(c.AnyOf) > 0 {
		var all []string
		for i := range c.AnyOf {
			why := r.checkLocked(&c.AnyOf[i], since)
			if why == "" {
				return ""
			}
			all = append(all, why)
		}
		return "none of: " + strings.Join(all, "; ")
	}
	return ""
}

// within tells why have lacks something of want, or "".
func within(want, have any, at string) string {
	if m, ok := want.(map[string]any); ok {
		h, ok := have.(map[string]any)
		if !ok {
			return at + " is no object"
		}
		for k, v := range m {
			if why := within(v, h[k], at+"."+k); why != "" {
				return why
			}
		}
		return ""
	}
	if fmt.Sprint(want) != fmt.Sprint(have) {
		return fmt.Sprintf("%s is %v, not %v", at, have, want)
	}
	return ""
}

func reasonOf(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return c.Message
		}
	}
	return ""
}

// split reads kind/name or kind/namespace/name; kind may carry its API group, podgroup.scheduling.volcano.sh.
func split(ref string) (kind, group, namespace, name string) {
	kind, rest, _ := strings.Cut(ref, "/")
	kind, group, _ = strings.Cut(kind, ".")
	namespace, name = "default", rest
	if a, b, ok := strings.Cut(rest, "/"); ok {
		namespace, name = a, b
	}
	return kind, group, namespace, name
}

func refers(ref string, o *v1.ObjectReference) bool {
	kind, group, namespace, name := split(ref)
	if !strings.EqualFold(kind, o.Kind) || group != "" && !strings.HasPrefix(o.APIVersion, group+"/") {
		return false
	}
	if o.Kind == "Node" {
		namespace = o.Namespace
	}
	return scenario.Matches(namespace+"/"+name, o.Namespace, o.Name)
}

func (c *testCluster) find(ref string) (*unstructured.Unstructured, error) {
	kind, group, namespace, name := split(ref)
	for _, r := range resources {
		if strings.EqualFold(r.kind, kind) && (group == "" || group == r.Group) {
			if !r.namespaced {
				namespace = ""
			}
			return c.dynamic().Resource(r.GroupVersionResource).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
		}
	}
	return nil, fmt.Errorf("%s is of a kind that these tests don't know", ref)
}

// follow records what the API server shows.
func (r *run) follow(ctx context.Context) error {
	pods, err := r.cluster.Client.CoreV1().Pods("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	events, err := r.cluster.Client.CoreV1().Events("").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	r.pending.Add(2)
	go func() {
		defer r.pending.Done()
		for e := range pods.ResultChan() {
			if p, ok := e.Object.(*v1.Pod); ok {
				r.pod(e.Type, p)
			}
		}
	}()
	go func() {
		defer r.pending.Done()
		for e := range events.ResultChan() {
			if x, ok := e.Object.(*v1.Event); ok && e.Type != watch.Deleted {
				r.mu.Lock()
				r.events[x.UID] = x
				if x.Type == v1.EventTypeWarning {
					r.warnings = append(r.warnings, warning{x.InvolvedObject, time.Since(r.begin)})
				}
				r.mu.Unlock()
			}
		}
	}()
	return nil
}

func (r *run) pod(what watch.EventType, p *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if what == watch.Deleted {
		delete(r.pods, p.UID)
		for _, c := range p.Status.Conditions {
			if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
				r.evicted = append(r.evicted, ended{p, time.Since(r.begin)})
			}
		}
		return
	}
	if _, known := r.boundAt[p.UID]; !known && p.Spec.NodeName != "" {
		r.boundAt[p.UID] = time.Now()
	}
	r.pods[p.UID] = p
}

// steps does the steps, each at its time. Steps that wait for a condition run beside the others.
func (r *run) steps(ctx context.Context, failed chan<- error) {
	var beside sync.WaitGroup
	defer beside.Wait()
	done := func(err error) {
		r.mu.Lock()
		r.left--
		r.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			failed <- err
		}
	}
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.When == nil && s.Every.Duration == 0 {
			r.before(s.At.Duration)
			sleepUntil(ctx, r.begin.Add(s.At.Duration))
			done(r.do(ctx, s, r.begin.Add(s.At.Duration)))
			continue
		}
		beside.Add(1)
		go func() {
			defer beside.Done()
			from := r.begin
			if s.When != nil {
				for r.check(s.When, 0) != "" {
					if ctx.Err() != nil {
						return // never held, so it never happens
					}
					time.Sleep(tick)
				}
				from = time.Now()
			}
			sleepUntil(ctx, from.Add(s.At.Duration))
			done(r.do(ctx, s, from.Add(s.At.Duration)))
		}()
	}
	r.before(math.MaxInt64)
}

// before notes that all steps before this time are done, those aside that wait for a condition or repeat.
func (r *run) before(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at > r.upTo {
		r.upTo, r.doneAt = at, time.Now()
	}
}

func sleepUntil(ctx context.Context, until time.Time) {
	select {
	case <-time.After(time.Until(until)):
	case <-ctx.Done():
	}
}

func (r *run) do(ctx context.Context, s *scenario.Step, at time.Time) error {
	for i := range s.Create {
		objects, err := s.Create[i].Objects()
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := r.create(ctx, object); err != nil {
				return err
			}
			if s.Every.Duration > 0 {
				at = at.Add(s.Every.Duration)
				sleepUntil(ctx, at)
			}
		}
	}
	for _, ref := range s.Delete {
		u, err := r.cluster.find(ref)
		if err == nil {
			gvr, e := resourceOf(u)
			if err = e; err == nil {
				err = r.cluster.dynamic().Resource(gvr).Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{})
			}
		}
		if err != nil {
			return err
		}
	}
	for _, p := range s.Patch {
		if err := r.patch(ctx, p.Object, p.With); err != nil {
			return err
		}
	}
	for pattern, phase := range s.Finish {
		r.mu.Lock()
		var refs []string
		for _, p := range r.pods {
			if scenario.Matches(pattern, p.Namespace, p.Name) {
				refs = append(refs, "pod/"+p.Namespace+"/"+p.Name)
			}
		}
		r.mu.Unlock()
		for _, ref := range refs {
			if err := r.patch(ctx, ref, map[string]any{"status": map[string]any{"phase": phase}}); err != nil {
				return err
			}
		}
	}
	for pattern, n := range s.FailBinds {
		if err := r.cluster.refuseBindings(ctx, pattern, n); err != nil {
			return err
		}
	}
	if s.APIAway != nil {
		r.link.away(ctx, s.APIAway.Duration)
	}
	if s.RestartScheduler != nil {
		r.scheduler.Kill()
		r.mu.Lock()
		clear(r.view.waiting)
		r.mu.Unlock()
		sleepUntil(ctx, time.Now().Add(s.RestartScheduler.Duration))
		scheduler, err := r.cluster.StartScheduler(r.again())
		if err != nil {
			return err
		}
		r.scheduler.Process = scheduler.Process // the test's cleanup ends this one
	}
	return nil
}

func (r *run) again() localcluster.SchedulerOptions {
	o := r.options
	o.Binary, o.Args, o.Port = r.cluster.binary, []string{"kube-scheduler"}, r.scheduler.Port
	return o
}

func (r *run) create(ctx context.Context, object map[string]any) error {
	if spec, _ := object["spec"].(map[string]any); object["kind"] == "Pod" {
		if err := r.cluster.classes(ctx, spec); err != nil {
			return err
		}
	}
	return r.cluster.create(ctx, object)
}

func (r *run) patch(ctx context.Context, ref string, with map[string]any) error {
	u, err := r.cluster.find(ref)
	if err != nil {
		return err
	}
	gvr, err := resourceOf(u)
	if err != nil {
		return err
	}
	one := r.cluster.dynamic().Resource(gvr).Namespace(u.GetNamespace())
	for _, part := range []string{"", "status"} {
		body := map[string]any{}
		for k, v := range with {
			if (k == "status") == (part == "status") {
				body[k] = v
			}
		}
		if len(body) == 0 {
			continue
		}
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		var sub []string
		if part != "" {
			sub = []string{part}
		}
		if _, err := one.Patch(ctx, u.GetName(), types.MergePatchType, data, metav1.PatchOptions{}, sub...); err != nil {
			return err
		}
	}
	return nil
}

// describe lists the pods for a failed test's log.
func (r *run) describe() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, p := range r.pods {
		fmt.Fprintf(&b, "%s/%s %s on %q: %s\n", p.Namespace, p.Name, p.Status.Phase, p.Spec.NodeName, reasonOf(p))
	}
	return b.String()
}
