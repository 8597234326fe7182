package bridge

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	pb "tutti/scheduler/bridge/bridgev1"
)

// The bridge's own metrics.
var (
	guestInstances = metrics.NewCounter(&metrics.CounterOpts{
		Name: "tutti_bridge_guest_instances_total", StabilityLevel: metrics.ALPHA,
		Help: "Guest instances made so far. The extension makes one for each pod that waits or binds at the same time, and reuses them; a figure that keeps growing with bound pods is a leak.",
	})
	guestTraps = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "tutti_bridge_guest_traps_total", StabilityLevel: metrics.ALPHA,
		Help: "Calls of a guest that ended in a trap, by export. Each failed one attempt of one pod.",
	}, []string{"export"})
	callSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "tutti_bridge_call_seconds", StabilityLevel: metrics.ALPHA,
		Help:    "Time of one request of a guest, by call and whether it was answered with an error.",
		Buckets: metrics.ExponentialBuckets(0.000002, 4, 10),
	}, []string{"call", "error"})
)

func init() {
	legacyregistry.MustRegister(guestInstances, guestTraps, callSeconds)
}

func observeCall(call string, response *pb.Response, took time.Duration) {
	failed := "false"
	if response.GetError() != nil {
		failed = "true"
	}
	callSeconds.WithLabelValues(call, failed).Observe(took.Seconds())
}

// sharedMetrics are one set for the process, as the registry is.
var sharedMetrics = newGuestMetrics()

// guestMetrics are the guests' own. Names and labels are the guest's to choose, the labels of a name once for all.
type guestMetrics struct {
	mu         sync.Mutex
	counters   map[string]*family[*metrics.CounterVec]
	histograms map[string]*family[*metrics.HistogramVec]
	dropped    map[string]bool
}

func newGuestMetrics() *guestMetrics {
	return &guestMetrics{
		counters: map[string]*family[*metrics.CounterVec]{}, histograms: map[string]*family[*metrics.HistogramVec]{}, dropped: map[string]bool{},
	}
}

type family[V any] struct {
	labels []string
	series map[string]bool // values of the labels so far
	vec    V
}

// What guests can make the scheduler keep: metrics, and combinations of label values of each.
const (
	maxFamilies = 200
	maxSeries   = 1000
)

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

func (g *guestMetrics) add(name, help string, labels map[string]string, value float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !(value >= 0 && value <= math.MaxFloat64) || !strings.HasSuffix(name, "_total") {
		g.drop(name, "a counter's name ends in _total and its value is a finite number, not negative")
		return
	}
	f := lookup(g, g.counters, name, labels, func(names []string) (*metrics.CounterVec, metrics.Registerable) {
		v := metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, names)
		return v, v
	})
	if f != nil {
		f.vec.With(labels).Add(value)
	}
}

func (g *guestMetrics) observe(name, help string, labels map[string]string, value float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !strings.HasSuffix(name, "_seconds") || math.IsNaN(value) || math.IsInf(value, 0) {
		g.drop(name, "a histogram's name ends in _seconds and its value is a finite number")
		return
	}
	f := lookup(g, g.histograms, name, labels, func(names []string) (*metrics.HistogramVec, metrics.Registerable) {
		v := metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: name, Help: help, StabilityLevel: metrics.ALPHA, Buckets: metrics.ExponentialBuckets(0.001, 2, 20),
		}, names)
		return v, v
	})
	if f != nil {
		f.vec.With(labels).Observe(value)
	}
}

func lookup[V any](g *guestMetrics, families map[string]*family[V], name string, labels map[string]string,
	make func([]string) (V, metrics.Registerable)) *family[V] {
	names := slices.Sorted(maps.Keys(labels))
	f := families[name]
	if f == nil {
		if !metricName.MatchString(name) || slices.ContainsFunc(names, func(l string) bool { return !labelName.MatchString(l) }) {
			g.drop(name, "not a Prometheus name")
			return nil
		}
		if len(g.counters)+len(g.histograms) >= maxFamilies {
			g.drop(name, "too many metrics")
			return nil
		}
		vec, registerable := make(names)
		if err := legacyregistry.Register(registerable); err != nil {
			g.drop(name, err.Error())
			return nil
		}
		f = &family[V]{names, map[string]bool{}, vec}
		families[name] = f
	}
	if !slices.Equal(f.labels, names) {
		g.drop(name, "its labels differ from those it was first used with")
		return nil
	}
	var values strings.Builder
	for _, label := range names {
		values.WriteString(labels[label])
		values.WriteByte(0)
	}
	if !f.series[values.String()] {
		if len(f.series) >= maxSeries {
			g.drop(name, "it has too many combinations of label values; the new ones are dropped")
			return nil
		}
		f.series[values.String()] = true
	}
	return f
}

// drop says once for each name why it isn't served.
func (g *guestMetrics) drop(name, why string) {
	if !g.dropped[name] && len(g.dropped) < maxFamilies {
		g.dropped[name] = true
		klog.InfoS("bridge: a guest's metric is dropped", "metric", name, "why", why)
	}
}
