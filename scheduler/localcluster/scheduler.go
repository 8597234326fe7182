package localcluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// SchedulerOptions say how a scheduler is started.
type SchedulerOptions struct {
	Binary      string   // started as "Binary Args… --config=…"
	Args        []string // before --config; {"kube-scheduler"} for tutti-local
	Plugin      string   // file of the gang plugin's guest; "": no plugin
	GuestConfig string   // JSON; "" is {}
	// PodGroupStatus has the scheduler keep the status of PodGroups. Plugin must be set.
	PodGroupStatus bool
	Profiles       []Profile // none: default-scheduler with Plugin
	// Coscheduling enables that plugin of kubernetes-sigs/scheduler-plugins instead, as its documentation does, for
	// comparisons. Binary must have it.
	Coscheduling bool
	LeaderElect  bool
	Kubeconfig   string // "": the cluster's
	Port         int    // of /metrics and /healthz; 0: a free one
	Name         string
	// MaxBackoff bounds the scheduler's own backoff of a pod; 0: its default of 10 s. At least 1 s.
	MaxBackoff time.Duration
	Flags      []string // more flags
}

// Profile is a scheduler name with its plugin.
type Profile struct {
	Name        string
	Guest       string // file of another guest than Plugin, enabled at the points it has in their default order
	GuestConfig string
	Disabled    []string // plugins that are off in this profile
}

// Scheduler is a running scheduler process.
type Scheduler struct {
	*Process
	Port int

	token  string
	client *http.Client
}

// PluginName is the name that local configurations give the plugin.
const PluginName = "Tutti"

// StartScheduler writes a configuration and starts a scheduler with it.
func (c *Cluster) StartScheduler(o SchedulerOptions) (*Scheduler, error) {
	if o.Name == "" {
		o.Name = "kube-scheduler"
	}
	if o.Port == 0 {
		var err error
		if o.Port, err = freePort(); err != nil {
			return nil, err
		}
	}
	config, err := c.schedulerConfig(o)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(c.Dir, o.Name+".yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	args := append(append([]string{}, o.Args...),
		"--config="+file, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", o.Port),
		"--cert-dir="+filepath.Join(c.Dir, o.Name+"-certs"),
		"--authentication-kubeconfig="+c.Kubeconfig, "--authorization-kubeconfig="+c.Kubeconfig,
		"--authentication-skip-lookup=true", // nobody publishes the cluster's authentication config map here
		"--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics", "--v=1")
	p, err := StartProcess(filepath.Join(c.Dir, o.Name+".log"), o.Binary, append(args, o.Flags...)...)
	if err != nil {
		return nil, err
	}
	// The scheduler's certificate is one it makes for itself.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	return &Scheduler{Process: p, Port: o.Port, token: c.Config.BearerToken, client: &http.Client{Transport: transport}}, nil
}

// schedulerConfig is a KubeSchedulerConfiguration as in scheduler-config/profiles.
func (c *Cluster) schedulerConfig(o SchedulerOptions) ([]byte, error) {
	of := o.Profiles
	if len(of) == 0 {
		of = []Profile{{Name: "default-scheduler"}}
	}
	type list []map[string]any
	named := func(names ...string) list {
		l := list{}
		for _, n := range names {
			l = append(l, map[string]any{"name": n})
		}
		return l
	}
	enabled := func(names ...string) map[string]any { return map[string]any{"enabled": named(names...)} }
	var profiles list
	for _, p := range of {
		profile := map[string]any{"schedulerName": p.Name}
		guest, config, status := p.Guest, p.GuestConfig, false
		points := map[string]any{"multiPoint": map[string]any{"enabled": named(PluginName), "disabled": named(p.Disabled...)}}
		if guest == "" && o.Plugin != "" {
			guest, config, status = o.Plugin, o.GuestConfig, o.PodGroupStatus
			points["preFilter"] = enabled(PluginName)
			points["postFilter"] = enabled(PluginName, "DefaultPreemption")
		}
		if guest != "" {
			file, err := filepath.Abs(guest)
			if err != nil {
				return nil, err
			}
			profile["plugins"] = points
			profile["pluginConfig"] = list{{"name": PluginName, "args": map[string]any{
				"guestURL": "file://" + file, "guestConfig": cmp.Or(config, "{}"), "podGroupStatus": status,
			}}}
		}
		if o.Coscheduling {
			off := list{{"name": "*"}}
			profile["plugins"] = map[string]any{
				"multiPoint": enabled("Coscheduling"),
				"queueSort":  map[string]any{"enabled": list{{"name": "Coscheduling"}}, "disabled": off},
			}
			profile["pluginConfig"] = list{{"name": "Coscheduling", "args": map[string]any{"permitWaitingTimeSeconds": 60}}}
		}
		profiles = append(profiles, profile)
	}
	config := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1",
		"kind":       "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{
			"kubeconfig": cmp.Or(o.Kubeconfig, c.Kubeconfig), "qps": 5000, "burst": 5000,
		},
		"leaderElection": map[string]any{
			"leaderElect": o.LeaderElect, "leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms",
			"resourceNamespace": "kube-system", "resourceName": "kube-scheduler", "resourceLock": "leases",
		},
		"profiles": profiles,
	}
	if o.MaxBackoff > 0 {
		config["podMaxBackoffSeconds"] = max(1, int(o.MaxBackoff.Seconds()))
	}
	return json.MarshalIndent(config, "", "  ")
}

const getTimeout = 5 * time.Second

// WaitHealthy waits until the scheduler answers on /healthz.
func (s *Scheduler) WaitHealthy(timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	for {
		if _, err := s.get("/healthz", getTimeout); err == nil {
			return nil
		} else if exit := s.Err(); exit != nil {
			return fmt.Errorf("the scheduler ended: %w", exit)
		} else if time.Now().After(deadline) {
			return fmt.Errorf("the scheduler is not healthy after %v: %w; %s", timeout, err, s.logEnd())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Metrics returns the scheduler's /metrics by sample, e.g. `process_resident_memory_bytes`.
func (s *Scheduler) Metrics() (map[string]float64, error) {
	body, err := s.get("/metrics", getTimeout)
	if err != nil {
		return nil, err
	}
	samples := map[string]float64{}
	for line := range strings.Lines(string(body)) {
		at := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || at < 0 {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64); err == nil {
			samples[line[:at]] = value
		}
	}
	return samples, nil
}

// CPUProfile returns a profile (pprof) of the time from now on.
func (s *Scheduler) CPUProfile(length time.Duration) ([]byte, error) {
	return s.get(fmt.Sprintf("/debug/pprof/profile?seconds=%.0f", length.Seconds()), length+10*time.Second)
}

// HeapProfile returns what is in memory now, as a profile (pprof).
func (s *Scheduler) HeapProfile() ([]byte, error) { return s.get("/debug/pprof/heap", getTimeout) }

func (s *Scheduler) get(path string, timeout time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("https://127.0.0.1:%d%s", s.Port, path), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return body, err
}
