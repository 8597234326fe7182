package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"tutti/scheduler/localcluster"
)

// verbose makes kube-scheduler log what a view reads.
const verbose = "--v=4"

// view is what a scheduler knows and the API server does not, read from the scheduler's own log and dumps.
type view struct {
	file     *os.File
	rest     []byte          // of a line that isn't whole yet
	waiting  map[string]bool // pods at Permit, by namespace/name
	attempts []attempt
	dumps    int
	nodes    map[string]map[string]int64 // of the last dump: free by node and resource, in milli-units for cpu
}

// attempt is one scheduling cycle.
type attempt struct {
	pod string // namespace/name
	at  time.Time
}

func openView(s *localcluster.Scheduler) (*view, error) {
	file, err := os.Open(s.Log)
	if err != nil {
		return nil, err
	}
	return &view{file: file, waiting: map[string]bool{}, nodes: map[string]map[string]int64{}}, nil
}

var (
	logged = regexp.MustCompile(`^[IWE]\d{4} [^"]*\] "([^"]+)"(?:.*? pod="([^"]+)")?`)
	dumped = regexp.MustCompile(`^\s*(Node name: |Requested Resources: &|Allocatable Resources:&)(.*)$`)
)

// update reads what the scheduler has logged since the last time.
func (v *view) update() error {
	more, err := io.ReadAll(v.file)
	if err != nil {
		return err
	}
	lines := bytes.Split(append(v.rest, more...), []byte("\n"))
	v.rest = lines[len(lines)-1]
	node := ""
	for _, line := range lines[:len(lines)-1] {
		if m := logged.FindSubmatch(line); m != nil {
			v.message(string(m[1]), string(m[2]))
		} else if m := dumped.FindSubmatch(line); m != nil {
			switch m[1][0] {
			case 'N':
				node = string(m[2])
				v.nodes[node] = map[string]int64{}
			case 'A':
				v.count(node, string(m[2]), 1)
			case 'R':
				v.count(node, string(m[2]), -1)
			}
		}
	}
	return nil
}

func (v *view) message(text, pod string) {
	switch text {
	case "Attempting to schedule pod":
		v.attempts = append(v.attempts, attempt{pod, time.Now()})
		delete(v.waiting, pod)
	case "Pod waiting on permit":
		v.waiting[pod] = true
	case "Pod rejected while waiting on permit", "Attempting to bind pod to node":
		delete(v.waiting, pod)
	case "Starting Kubernetes Scheduler": // again, with nothing in memory
		clear(v.waiting)
	case "Dump of cached NodeInfo":
		clear(v.nodes)
	case "Dump of scheduling queue":
		v.dumps++
	}
}

var amount = regexp.MustCompile(`(\w[\w./-]*):(\d+)`)

// count adds a framework.Resource as Go prints it, {MilliCPU:4000 … ScalarResources:map[example.com/gpu:1]}.
func (v *view) count(node, resources string, sign int64) {
	names := map[string]string{"MilliCPU": "cpu", "Memory": "memory", "EphemeralStorage": "ephemeral-storage", "AllowedPodNumber": "pods"}
	for _, m := range amount.FindAllStringSubmatch(strings.ReplaceAll(resources, "map[", " "), -1) {
		n, _ := strconv.ParseInt(m[2], 10, 64)
		name, ok := names[m[1]]
		if !ok {
			name = m[1]
		}
		v.nodes[node][name] += sign * n
	}
}

// free makes the scheduler dump its cache and tells why a node has not that much room, or "".
func (v *view) free(s *localcluster.Scheduler, want map[string]map[string]any) (string, error) {
	before := v.dumps
	if err := syscall.Kill(s.PID(), syscall.SIGUSR2); err != nil {
		return "", err
	}
	for deadline := time.Now().Add(2 * time.Second); v.dumps == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return "", fmt.Errorf("the scheduler dumps nothing on SIGUSR2")
		}
		if err := v.update(); err != nil {
			return "", err
		}
	}
	for node, resources := range want {
		have, ok := v.nodes[node]
		if !ok {
			return "the scheduler knows no node " + node, nil
		}
		for name, quantity := range resources {
			q, err := resource.ParseQuantity(fmt.Sprint(quantity))
			if err != nil {
				return "", err
			}
			n := q.Value()
			if name == "cpu" {
				n = q.MilliValue()
			}
			if have[name] != n {
				return fmt.Sprintf("%s of %s is %d free, not %d", name, node, have[name], n), nil
			}
		}
	}
	return "", nil
}

// TestView reads a log as kube-scheduler writes it.
func TestView(t *testing.T) {
	const log = `I1201 16:15:40.008275   17109 schedule_one.go:99] "Attempting to schedule pod" pod="default/ga-0"
I1201 16:15:40.008914   17109 framework.go:1522] "Pod waiting on permit" pod="default/ga-0"
I1201 16:15:40.009012   17109 schedule_one.go:99] "Attempting to schedule pod" pod="default/ga-1"
I1201 16:15:40.009082   17109 framework.go:1522] "Pod waiting on permit" pod="default/ga-1"
I1201 16:15:40.009225   17109 default_binder.go:53] "Attempting to bind pod to node" logger="Bind.DefaultBinder" pod="default/ga-1" node="n1"
I1201 16:15:41.000000   17109 dumper.go:47] "Dump of cached NodeInfo" nodes=<
	Node name: n1
	Deleted: false
	Requested Resources: &{MilliCPU:3000 Memory:1024 EphemeralStorage:0 AllowedPodNumber:0 ScalarResources:map[example.com/gpu:2]}
	Allocatable Resources:&{MilliCPU:8000 Memory:4096 EphemeralStorage:0 AllowedPodNumber:110 ScalarResources:map[example.com/gpu:4]}
	Scheduled Pods(number: 0):
 >
I1201 16:15:41.000001   17109 dumper.go:56] "Dump of scheduling queue" summary="activeQ:0; backoffQ:0; unschedulablePods:0" pods=""
`
	file := t.TempDir() + "/log"
	if err := os.WriteFile(file, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := openView(&localcluster.Scheduler{Process: &localcluster.Process{Log: file}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.file.Close()
	if err := v.update(); err != nil {
		t.Fatal(err)
	}
	if len(v.waiting) != 1 || !v.waiting["default/ga-0"] || len(v.attempts) != 2 || v.dumps != 1 {
		t.Errorf("waiting %v, attempts %v, %d dumps", v.waiting, v.attempts, v.dumps)
	}
	if n := v.nodes["n1"]; n["cpu"] != 5000 || n["memory"] != 3072 || n["example.com/gpu"] != 2 {
		t.Errorf("free on n1: %v", n)
	}
}
