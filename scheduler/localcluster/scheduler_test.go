package localcluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	kubeschedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
)

// TestSchedulerConfig reads what is written with kube-scheduler's own strict decoder.
func TestSchedulerConfig(t *testing.T) {
	cluster := &Cluster{Dir: t.TempDir(), Kubeconfig: "/somewhere/kubeconfig"}
	for name, c := range map[string]struct {
		options SchedulerOptions
		check   func(*kubeschedulerconfig.KubeSchedulerConfiguration) bool
	}{
		"no plugin": {SchedulerOptions{}, func(k *kubeschedulerconfig.KubeSchedulerConfiguration) bool {
			return len(k.Profiles) == 1 && k.Profiles[0].SchedulerName == "default-scheduler" && !strings.Contains(plugins(k, 0), PluginName) &&
				k.ClientConnection.Kubeconfig == "/somewhere/kubeconfig" && k.PodMaxBackoffSeconds == 10 && !k.LeaderElection.LeaderElect
		}},
		"the gang plugin": {SchedulerOptions{Plugin: "p.wasm", PodGroupStatus: true, Profiles: []Profile{{Name: "a"}, {Name: "b"}}},
			func(k *kubeschedulerconfig.KubeSchedulerConfiguration) bool {
				post := k.Profiles[1].Plugins.PostFilter.Enabled
				return len(k.Profiles) == 2 && k.Profiles[1].SchedulerName == "b" && len(post) == 2 && post[0].Name == PluginName &&
					strings.Contains(plugins(k, 1), PluginName) && keepsStatus(k)
			}},
		"another guest": {SchedulerOptions{Profiles: []Profile{{Name: "a", Guest: "g.wasm", Disabled: []string{"ImageLocality"}}}},
			func(k *kubeschedulerconfig.KubeSchedulerConfiguration) bool {
				return !keepsStatus(k) && len(k.Profiles[0].Plugins.PostFilter.Enabled) == 0 && k.Profiles[0].Plugins.MultiPoint.Disabled[0].Name == "ImageLocality"
			}},
		"Coscheduling": {SchedulerOptions{Coscheduling: true}, func(k *kubeschedulerconfig.KubeSchedulerConfiguration) bool {
			return k.Profiles[0].Plugins.QueueSort.Enabled[0].Name == "Coscheduling"
		}},
		"times and links": {SchedulerOptions{MaxBackoff: 1500 * time.Millisecond, Kubeconfig: "/other", LeaderElect: true},
			func(k *kubeschedulerconfig.KubeSchedulerConfiguration) bool {
				return k.PodMaxBackoffSeconds == 1 && k.ClientConnection.Kubeconfig == "/other" && k.LeaderElection.LeaderElect
			}},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := cluster.schedulerConfig(c.options)
			if err != nil {
				t.Fatal(err)
			}
			object, _, err := scheme.Codecs.UniversalDecoder().Decode(data, nil, nil)
			if err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
			if k := object.(*kubeschedulerconfig.KubeSchedulerConfiguration); !c.check(k) {
				t.Errorf("the configuration is not as wanted:\n%s", data)
			}
		})
	}
}

// keepsStatus tells whether the plugin of the first profile has podGroupStatus.
func keepsStatus(k *kubeschedulerconfig.KubeSchedulerConfiguration) bool {
	for _, config := range k.Profiles[0].PluginConfig {
		if config.Name == PluginName {
			return strings.Contains(string(config.Args.(*runtime.Unknown).Raw), `"podGroupStatus": true`)
		}
	}
	return false
}

func plugins(k *kubeschedulerconfig.KubeSchedulerConfiguration, profile int) string {
	var names []string
	for _, p := range k.Profiles[profile].Plugins.MultiPoint.Enabled {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

func TestProcess(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		stop   func(*Process)
		why    string // in Err
	}{
		"ends by itself":        {script: "echo the last word; exit 3", why: "exit status 3; its log "},
		"says its last words":   {script: "echo the last word; exit 3", why: "the last word"},
		"ends without an error": {script: "exit 0", why: "it ended"},
		"stops when asked":      {script: "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done", stop: func(p *Process) { p.Stop(10 * time.Second) }, why: "it ended"},
		"is killed when deaf":   {script: "trap '' TERM; echo ready; while :; do sleep 0.01; done", stop: func(p *Process) { p.Stop(50 * time.Millisecond) }, why: "killed"},
		"is killed":             {script: "echo ready; sleep 100", stop: (*Process).Kill, why: "killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "log")
			p, err := StartProcess(log, "/bin/sh", "-c", c.script)
			if err != nil {
				t.Fatal(err)
			}
			if c.stop != nil {
				for text := ""; text == ""; time.Sleep(time.Millisecond) {
					data, _ := os.ReadFile(log)
					text = string(data)
				}
				if err := p.Err(); err != nil {
					t.Fatalf("it runs, and has the error %v", err)
				}
				c.stop(p)
			}
			<-p.Done()
			if err := p.Err(); err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("the error is %v, without %q", err, c.why)
			}
		})
	}
	if _, err := StartProcess(filepath.Join(t.TempDir(), "log"), "/no/such/binary"); err == nil {
		t.Error("a binary that isn't there starts")
	}
}
