package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"tutti/scheduler/fakekubelet"
	"tutti/scheduler/localcluster"
)

const (
	binary      = "../bin/tutti-local"
	stockBinary = "../bin/stock-scheduler" // of the wasm extension, as it is
	plugin      = "../../out/guest/plugin.wasm"
)

var samples = flag.String("scenarios", "../../testdata/scenarios", "directory of the scenarios")

// clusters is how many tests run at once, each on a cluster of its own. They mostly wait.
var clusters = flag.Int("clusters", 8, "clusters that run side by side")

func TestMain(m *testing.M) {
	flag.Parse()
	for _, file := range []string{binary, stockBinary, plugin} {
		if _, err := os.Stat(file); err != nil {
			fmt.Fprintf(os.Stderr, "e2e: %v; run `make e2e`, which builds it\n", err)
			os.Exit(1)
		}
	}
	if !testing.Verbose() {
		klog.SetLogger(klog.Logger{})
	}
	// The tests wait most of the time; go test would run as many at once as there are processors.
	if err := flag.Set("test.parallel", strconv.Itoa(*clusters)); err != nil {
		panic(err)
	}
	pool = make(chan *testCluster, *clusters)
	for range *clusters {
		pool <- nil // made when first needed
	}
	code := m.Run()
	for range *clusters {
		if c := <-pool; c != nil {
			c.stop()
		}
	}
	os.Exit(code)
}

var (
	pool  chan *testCluster
	start sync.Mutex // one cluster starts at a time: it is the one thing that needs the processor
)

// testCluster is a cluster with a fake kubelet.
type testCluster struct {
	*localcluster.Cluster
	binary  string
	stop    func()
	refuser *refuser // once a test has wanted it
}

// take gives the test an empty cluster, which goes back when the test ends.
func take(t *testing.T) *testCluster {
	t.Helper()
	c := <-pool
	if c == nil {
		var err error
		if c, err = newCluster(); err != nil {
			pool <- nil
			t.Fatalf("the cluster doesn't start: %v", err)
		}
	}
	t.Cleanup(func() {
		if c.refuser != nil {
			c.refuser.forget()
		}
		if err := c.wipe(); err != nil {
			t.Errorf("the cluster can't be emptied: %v", err)
			c.stop()
			c = nil
		}
		pool <- c
	})
	return c
}

func newCluster() (*testCluster, error) {
	start.Lock()
	defer start.Unlock()
	path, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c, err := localcluster.Start(ctx, localcluster.Options{Binary: path})
	if err != nil {
		cancel()
		return nil, err
	}
	stop := func() {
		cancel()
		c.Stop()
	}
	if err := c.InstallCRDs(ctx); err != nil {
		stop()
		return nil, err
	}
	go func() { _ = fakekubelet.Run(ctx, c.Client, fakekubelet.Options{}) }()
	return &testCluster{Cluster: c, binary: path, stop: stop}, nil
}

// scheduler starts a scheduler with the plugin, waits until it is healthy, and stops it at the end of the test.
func (c *testCluster) scheduler(t *testing.T, o localcluster.SchedulerOptions) *localcluster.Scheduler {
	t.Helper()
	if o.Binary == "" {
		o.Binary, o.Args = c.binary, []string{"kube-scheduler"}
	}
	o.PodGroupStatus = true
	s, err := c.StartScheduler(o)
	if err != nil {
		t.Fatalf("the scheduler doesn't start: %v", err)
	}
	t.Cleanup(func() {
		s.Kill()
		log, err := os.ReadFile(s.Log)
		if err != nil {
			t.Error(err)
		}
		for _, race := range races(log) {
			t.Errorf("the scheduler has a data race:\n%s", race)
		}
		if t.Failed() {
			t.Logf("end of the scheduler's log:\n%s", log[max(0, len(log)-4000):])
		}
		_ = os.Remove(s.Log)
	})
	if err := s.WaitHealthy(20 * time.Second); err != nil {
		t.Fatal(err)
	}
	return s
}

// races are the race detector's reports in the log of a scheduler that was built with it. kube-scheduler 1.32 has races of its
// own, so only those count in which the bridge, the status controller or the guests' runtime take part.
func races(log []byte) (reports [][]byte) {
	const border = "=================="
	for _, report := range bytes.Split(log, []byte(border)) {
		for _, part := range []string{"tutti/scheduler/bridge", "tutti/scheduler/podgroup", "wazero", "wasm-extension"} {
			if bytes.Contains(report, []byte("WARNING: DATA RACE")) && bytes.Contains(report, []byte(part)) {
				reports = append(reports, report)
				break
			}
		}
	}
	return reports
}
