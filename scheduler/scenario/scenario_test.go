package scenario

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestReadsAll: every scenario of the repository is understood.
func TestReadsAll(t *testing.T) {
	files, err := filepath.Glob("../../testdata/scenarios/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios (%v)", err)
	}
	for _, file := range files {
		s, err := Read(file)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		for i := range s.Expect {
			if _, _, err := s.Expect[i].Window(s.Until.Duration); err != nil {
				t.Errorf("%s: expect[%d]: %v", file, i, err)
			}
		}
		for _, step := range s.Steps {
			for i := range step.Create {
				if objects, err := step.Create[i].Objects(); err != nil || len(objects) == 0 {
					t.Errorf("%s: an item makes %d objects (%v)", file, len(objects), err)
				}
			}
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for text, why := range map[string]string{
		"apiVersion: tutti.dev/v1\nkind: Scenario\nstep: []":                         "step",
		"apiVersion: tutti.dev/v1\nkind: Scenarios":                                  "not a tutti.dev/v1 Scenario",
		"apiVersion: tutti.dev/v1\nkind: Scenario\nuntil: soon":                      "soon",
		"apiVersion: tutti.dev/v1\nkind: Scenario\nexpect: [{bound: {a: \"=> 1\"}}]": "=> 1",
	} {
		file := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(file); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s\nthe error is %v, without %q", text, err, why)
		}
	}
}

func TestNames(t *testing.T) {
	for text, want := range map[string]Names{
		`"a"`:                  {"a"},
		`"a-{1..3}"`:           {"a-1", "a-2", "a-3"},
		`"a-{2..2}-b"`:         {"a-2-b"},
		`["x", "ns/y-{0..1}"]`: {"x", "ns/y-0", "ns/y-1"},
	} {
		var n Names
		if err := json.Unmarshal([]byte(text), &n); err != nil || !reflect.DeepEqual(n, want) {
			t.Errorf("%s is %v (%v), not %v", text, n, err, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for text, c := range map[string]struct{ holds, fails int }{
		`3`: {3, 4}, `"3"`: {3, 2}, `"<= 3"`: {3, 4}, `">= 3"`: {3, 2}, `"< 3"`: {2, 3}, `"> 3"`: {4, 3}, `">3"`: {4, 3},
	} {
		var n Number
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			t.Errorf("%s: %v", text, err)
		} else if !n.Holds(c.holds) || n.Holds(c.fails) {
			t.Errorf("%s: Holds(%d) is %v, Holds(%d) is %v", text, c.holds, n.Holds(c.holds), c.fails, n.Holds(c.fails))
		}
	}
}

func TestWindow(t *testing.T) {
	const end = time.Minute
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for name, c := range map[string]struct {
		of       Expectation
		from, to time.Duration
	}{
		"at":     {Expectation{At: "5s"}, second(5), second(5)},
		"end":    {Expectation{At: "end"}, end, end},
		"by":     {Expectation{By: Duration{second(7)}}, 0, second(7)},
		"always": {Expectation{Always: "5s..20s"}, second(5), second(20)},
		"never":  {Expectation{Never: "5s..end"}, second(5), end},
	} {
		if from, to, err := c.of.Window(end); err != nil || from != c.from || to != c.to {
			t.Errorf("%s: %v to %v (%v)", name, from, to, err)
		}
	}
	for _, bad := range []Expectation{{At: "soon"}, {Always: "5s"}, {Never: "a..b"}, {}} {
		if _, _, err := bad.Window(end); err == nil {
			t.Errorf("%+v has a window", bad)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, namespace, name string
		want                     bool
	}{
		{"ga-0", "default", "ga-0", true},
		{"ga-*", "default", "ga-12", true},
		{"ga-*", "live", "ga-1", false},
		{"live/ga-*", "live", "ga-1", true},
		{"*", "default", "anything", true},
		{"ga-1", "default", "ga-10", false},
	} {
		if Matches(c.pattern, c.namespace, c.name) != c.want {
			t.Errorf("%s on %s/%s: not %v", c.pattern, c.namespace, c.name, c.want)
		}
	}
}
