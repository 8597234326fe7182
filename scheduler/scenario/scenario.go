// Package scenario reads the files of testdata/scenarios, which docs/scenarios.md describes. The harness' reader is the one
// that explains faults; this one only refuses what it doesn't know.
package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"sigs.k8s.io/yaml"
)

// Scenario is a file.
type Scenario struct {
	APIVersion  string          `json:"apiVersion"`
	Kind        string          `json:"kind"`
	About       string          `json:"about"`
	Case        string          `json:"case"`
	HarnessOnly string          `json:"harnessOnly"`
	Config      json.RawMessage `json:"config"`
	Until       Duration        `json:"until"`
	Steps       []Step          `json:"steps"`
	Expect      []Expectation   `json:"expect"`
}

// Duration is written as in Go, 1m30s.
type Duration struct{ time.Duration }

func (d *Duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	v, err := time.ParseDuration(text)
	d.Duration = v
	return err
}

// MarshalJSON writes it as it is read.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// Step is what happens at a time.
type Step struct {
	At       Duration    `json:"at"`
	Every    Duration    `json:"every"`
	When     *Conditions `json:"when"`
	AnyOrder bool        `json:"anyOrder"`

	Create []Item   `json:"create"`
	Delete []string `json:"delete"`
	Patch  []struct {
		Object string         `json:"object"`
		With   map[string]any `json:"with"`
	} `json:"patch"`
	Finish           map[string]string `json:"finish"`
	FailBinds        map[string]int    `json:"failBinds"`
	APIAway          *Duration         `json:"apiAway"`
	RestartScheduler *Duration         `json:"restartScheduler"`
}

// Names is one name, a list, or a range a-{0..3}.
type Names []string

func (n *Names) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*n = expand(one)
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil {
		return err
	}
	for _, m := range many {
		*n = append(*n, expand(m)...)
	}
	return nil
}

var ranged = regexp.MustCompile(`^(.*)\{(\d+)\.\.(\d+)\}(.*)$`)

func expand(name string) []string {
	m := ranged.FindStringSubmatch(name)
	if m == nil {
		return []string{name}
	}
	from, _ := strconv.Atoi(m[2])
	to, _ := strconv.Atoi(m[3])
	var all []string
	for i := from; i <= to; i++ {
		all = append(all, m[1]+strconv.Itoa(i)+m[4])
	}
	return all
}

// Item is an element of create.
type Item struct {
	Node         Names             `json:"node"`
	Allocatable  map[string]any    `json:"allocatable"`
	Labels       map[string]string `json:"labels"`
	Taints       []any             `json:"taints"`
	Pod          Names             `json:"pod"`
	Group        string            `json:"group"`
	Requests     map[string]any    `json:"requests"`
	Runs         *Duration         `json:"runs"`
	Collective   bool              `json:"collective"`
	StartTimeout *Duration         `json:"startTimeout"`
	Priority     *int32            `json:"priority"`
	NodeName     string            `json:"nodeName"`
	PodGroup     Names             `json:"podGroup"`
	MinMember    *int32            `json:"minMember"`
	Manifest     map[string]any    `json:"manifest"`
	With         map[string]any    `json:"with"`
}

// Objects are the manifests that the item stands for.
func (it *Item) Objects() ([]map[string]any, error) {
	var out []map[string]any
	add := func(apiVersion, kind, name string, rest map[string]any) {
		meta := map[string]any{"name": name}
		if namespace, bare, ok := strings.Cut(name, "/"); ok {
			meta = map[string]any{"namespace": namespace, "name": bare}
		} else if kind != "Node" {
			meta["namespace"] = "default"
		}
		rest["apiVersion"], rest["kind"], rest["metadata"] = apiVersion, kind, meta
		out = append(out, rest)
	}
	for _, name := range it.Node {
		capacity := map[string]any{"pods": "110"}
		for k, v := range it.Allocatable {
			capacity[k] = fmt.Sprint(v)
		}
		spec := map[string]any{}
		if it.Taints != nil {
			spec["taints"] = it.Taints
		}
		add("v1", "Node", name, map[string]any{"spec": spec, "status": map[string]any{
			"capacity": capacity, "allocatable": capacity,
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
		}})
		labels := map[string]any{"kubernetes.io/hostname": name}
		for k, v := range it.Labels {
			labels[k] = v
		}
		out[len(out)-1]["metadata"].(map[string]any)["labels"] = labels
	}
	for _, name := range it.Pod {
		requests := map[string]any{}
		for k, v := range it.Requests {
			requests[k] = fmt.Sprint(v)
		}
		resources := map[string]any{"requests": requests}
		limits := map[string]any{}
		for k, v := range requests {
			if strings.Contains(k, "/") { // the API server wants extended resources limited too
				limits[k] = v
			}
		}
		if len(limits) > 0 {
			resources["limits"] = limits
		}
		spec := map[string]any{
			"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
			"containers": []any{map[string]any{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}},
		}
		if it.NodeName != "" {
			spec["nodeName"] = it.NodeName
		}
		if it.Priority != nil {
			spec["priority"] = *it.Priority
		}
		add("v1", "Pod", name, map[string]any{"spec": spec})
		meta := out[len(out)-1]["metadata"].(map[string]any)
		labels := map[string]any{}
		for k, v := range it.Labels {
			labels[k] = v
		}
		if it.Group != "" {
			labels["scheduling.x-k8s.io/pod-group"] = it.Group
		}
		meta["labels"] = labels
		annotations := map[string]any{}
		if it.Runs != nil {
			annotations["tutti.dev/duration"] = it.Runs.String()
		}
		if it.Collective {
			annotations["tutti.dev/collective"] = it.Group
		}
		if it.StartTimeout != nil {
			annotations["tutti.dev/start-timeout"] = it.StartTimeout.String()
		}
		meta["annotations"] = annotations
	}
	for _, name := range it.PodGroup {
		spec := map[string]any{}
		if it.MinMember != nil {
			spec["minMember"] = *it.MinMember
		}
		add("scheduling.x-k8s.io/v1alpha1", "PodGroup", name, map[string]any{"spec": spec})
	}
	if it.Manifest != nil {
		out = append(out, it.Manifest)
	}
	for i, object := range out {
		if it.With != nil {
			merged, err := merge(object, it.With)
			if err != nil {
				return nil, err
			}
			out[i] = merged
		}
	}
	return out, nil
}

func merge(object, with map[string]any) (map[string]any, error) {
	a, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(with)
	if err != nil {
		return nil, err
	}
	merged, err := jsonpatch.MergePatch(a, b)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	return out, json.Unmarshal(merged, &out)
}

// Number is a count of a condition: "3", or ">= 2".
type Number struct {
	op   string
	than int
}

func (n *Number) UnmarshalJSON(data []byte) error {
	text := string(data)
	if data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	n.op = "=="
	for _, op := range []string{"<=", ">=", "<", ">"} {
		if rest, ok := strings.CutPrefix(text, op); ok {
			n.op, text = op, rest
			break
		}
	}
	v, err := strconv.Atoi(strings.TrimSpace(text))
	n.than = v
	return err
}

// Holds tells whether v is as counted on.
func (n Number) Holds(v int) bool {
	switch n.op {
	case "<=":
		return v <= n.than
	case ">=":
		return v >= n.than
	case "<":
		return v < n.than
	case ">":
		return v > n.than
	}
	return v == n.than
}

// MarshalJSON writes it as it is read.
func (n Number) MarshalJSON() ([]byte, error) { return json.Marshal(n.String()) }

func (n Number) String() string { return n.op + " " + strconv.Itoa(n.than) }

// Conditions must all hold.
type Conditions struct {
	Bound    map[string]Number         `json:"bound"`
	Running  map[string]Number         `json:"running"`
	Exists   map[string]Number         `json:"exists"`
	Reason   map[string]string         `json:"reason"`
	Event    map[string]string         `json:"event"`
	Object   map[string]map[string]any `json:"object"`
	Together []string                  `json:"together"`
	Evicted  map[string]Number         `json:"evicted"`
	Warnings map[string]Number         `json:"warnings"`
	AnyOf    []Conditions              `json:"anyOf"`
	Waiting  map[string]Number         `json:"waiting"`
	Attempts map[string]Number         `json:"attempts"`
	Free     map[string]map[string]any `json:"free"`
}

// Expectation is conditions and their time.
type Expectation struct {
	At     string   `json:"at"`
	By     Duration `json:"by"`
	Always string   `json:"always"`
	Never  string   `json:"never"`
	Since  Duration `json:"since"`
	Conditions
}

// Window is when an expectation is looked at: [from, to).
func (e *Expectation) Window(end time.Duration) (from, to time.Duration, err error) {
	switch {
	case e.At == "end":
		return end, end, nil
	case e.At != "":
		from, err = time.ParseDuration(e.At)
		return from, from, err
	case e.By.Duration != 0:
		return 0, e.By.Duration, nil
	}
	span := e.Always + e.Never
	a, b, ok := strings.Cut(span, "..")
	if !ok {
		return 0, 0, fmt.Errorf("%q is no span", span)
	}
	if from, err = time.ParseDuration(a); err != nil {
		return 0, 0, err
	}
	if b == "end" {
		return from, end, nil
	}
	to, err = time.ParseDuration(b)
	return from, to, err
}

// Read reads a file.
func Read(file string) (*Scenario, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &Scenario{Until: Duration{time.Minute}}
	if err := yaml.UnmarshalStrict(data, s); err != nil {
		return nil, err
	}
	if s.APIVersion != "tutti.dev/v1" || s.Kind != "Scenario" {
		return nil, errors.New("not a tutti.dev/v1 Scenario")
	}
	return s, nil
}

// Matches tells whether namespace/name fits a pattern, which means the namespace default unless it names one.
func Matches(pattern, namespace, name string) bool {
	if !strings.Contains(pattern, "/") {
		pattern = "default/" + pattern
	}
	ok, err := path.Match(pattern, namespace+"/"+name)
	return err == nil && ok
}
