package bridge

import (
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

// PluginsOf returns the names of the wasm plugins in the file that --config names: those whose args have a guestURL, in
// any profile, each once. Without --config there are none. It fails when the file can't be read or parsed, or when a
// guestURL can't be loaded.
func PluginsOf(args []string) ([]string, error) {
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
	var names []string
	for _, profile := range file.Profiles {
		for _, plugin := range profile.PluginConfig {
			var guest struct {
				GuestURL *string `json:"guestURL"`
			}
			if json.Unmarshal(plugin.Args, &guest) != nil || guest.GuestURL == nil {
				continue // an in-tree plugin's args
			}
			if err := checkGuestURL(*guest.GuestURL); err != nil {
				return nil, fmt.Errorf("--config %s: pluginConfig %s: %w", *path, plugin.Name, err)
			}
			if !slices.Contains(names, plugin.Name) {
				names = append(names, plugin.Name)
			}
		}
	}
	return names, nil
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
