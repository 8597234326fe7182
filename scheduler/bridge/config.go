package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// configFile is what is read of a KubeSchedulerConfiguration before the scheduler itself parses it; that parse is the
// strict one.
type configFile struct {
	Profiles []struct {
		PluginConfig []struct {
			Name string          `json:"name"`
			Args json.RawMessage `json:"args"`
		} `json:"pluginConfig"`
	} `json:"profiles"`
}

// Plugin is a wasm plugin that a configuration lists.
type Plugin struct {
	Name string
	// PodGroupStatus asks this scheduler to keep the status of PodGroups, see package podgroup.
	PodGroupStatus bool
}

// guestArgs are the args of a wasm plugin: the extension's, and ours, which the extension passes over.
type guestArgs struct {
	GuestURL       *string  `json:"guestURL"`
	GuestConfig    string   `json:"guestConfig"`
	LogSeverity    int32    `json:"logSeverity"`
	Args           []string `json:"args"`
	PodGroupStatus bool     `json:"podGroupStatus"`
}

// PluginsOf returns the wasm plugins in the file that --config names: those whose args have a guestURL, in any profile, each
// once. Without --config there are none. It fails when the file can't be read or parsed, when the args of such a plugin
// aren't what they should be, which the extension doesn't check, or when a guestURL can't be loaded.
func PluginsOf(args []string) ([]Plugin, error) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsWhitelist.UnknownFlags = true
	flags.Usage = func() {}
	path := flags.String("config", "", "")
	// An error here is about another flag (--help among them); the scheduler's own parse reports it.
	if err := flags.Parse(args); err != nil && *path == "" {
		return nil, nil
	}
	if *path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(*path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	var file configFile
	if err := yaml.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("--config %s: %w", *path, err)
	}
	var plugins []Plugin
	for i, profile := range file.Profiles {
		for _, config := range profile.PluginConfig {
			var marked map[string]json.RawMessage
			if json.Unmarshal(config.Args, &marked) != nil || !hasKey(marked, "guestURL") {
				continue // an in-tree plugin's args
			}
			plugin, err := readPlugin(config.Name, config.Args)
			if err != nil {
				return nil, fmt.Errorf("--config %s: profiles[%d]: pluginConfig %s: %w", *path, i, config.Name, err)
			}
			if at := slices.IndexFunc(plugins, func(p Plugin) bool { return p.Name == plugin.Name }); at >= 0 {
				plugins[at].PodGroupStatus = plugins[at].PodGroupStatus || plugin.PodGroupStatus
			} else {
				plugins = append(plugins, plugin)
			}
		}
	}
	return plugins, nil
}

// hasKey looks without regard to case, as JSON is decoded.
func hasKey(object map[string]json.RawMessage, name string) bool {
	for key := range object {
		if strings.EqualFold(key, name) {
			return true
		}
	}
	return false
}

func readPlugin(name string, raw []byte) (Plugin, error) {
	var args guestArgs
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&args); err != nil {
		return Plugin{}, fmt.Errorf("args: %w; guestURL, guestConfig (a string of JSON), logSeverity and podGroupStatus are known", err)
	}
	if args.GuestURL == nil {
		return Plugin{}, errors.New("args: guestURL is null")
	}
	if args.LogSeverity < 0 || args.LogSeverity > 3 {
		return Plugin{}, fmt.Errorf("args: logSeverity %d is not 0 (info) to 3 (fatal)", args.LogSeverity)
	}
	if err := checkGuestURL(*args.GuestURL); err != nil {
		return Plugin{}, fmt.Errorf("args: %w", err)
	}
	return Plugin{name, args.PodGroupStatus}, nil
}

func checkGuestURL(raw string) error {
	const want = "want file:///absolute/path/plugin.wasm, http:// or https://"
	if raw == "" {
		return errors.New("guestURL is empty; " + want)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return fmt.Errorf("guestURL: %w; %s", err, want)
	}
	switch u.Scheme {
	case "http", "https":
		return nil
	case "file":
		path, ok := strings.CutPrefix(raw, "file://") // as the extension reads it: what follows is a path, relative or not
		if !ok {
			return fmt.Errorf("guestURL %q lacks the two slashes; %s", raw, want)
		}
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("guestURL: %w", err)
		}
		if info.IsDir() {
			return fmt.Errorf("guestURL: %s is a directory", path)
		}
		return nil
	}
	if strings.HasPrefix(raw, "/") || u.Scheme == "" {
		return fmt.Errorf("guestURL %q is a bare path; write file://%s", raw, raw)
	}
	return fmt.Errorf("guestURL %q has an unknown scheme; %s", raw, want)
}
