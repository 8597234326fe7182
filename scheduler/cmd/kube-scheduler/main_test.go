package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/yaml"

	"tutti/scheduler/bridge"
)

const deploy = "../../../scheduler-config/"

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(deploy + pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file %s (%v)", pattern, err)
	}
	return files
}

// Each profile of scheduler-config makes a scheduler whose plugins are in the order that docs/operations.md demands.
func TestProfiles(t *testing.T) {
	const guest = "../../../out/guest/plugin.wasm"
	path, err := filepath.Abs(guest)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%v; run: make guests", err)
	}
	app.NewSchedulerCommand() // registers the feature gates
	for _, file := range glob(t, "profiles/*.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "file:///etc/tutti/plugin.wasm") {
				t.Fatal("the guest is somewhere else than the others say")
			}
			local := filepath.Join(t.TempDir(), "config.yaml")
			text = []byte(strings.ReplaceAll(string(text), "/etc/tutti/plugin.wasm", path))
			if err := os.WriteFile(local, text, 0o600); err != nil {
				t.Fatal(err)
			}
			plugins, err := bridge.PluginsOf([]string{"--config", local})
			if err != nil || len(plugins) != 1 || plugins[0] != (bridge.Plugin{Name: "Tutti", PodGroupStatus: true}) {
				t.Fatalf("plugins %v, error %v", plugins, err)
			}
			o := options.NewOptions()
			o.ConfigFile, o.Master, o.SecureServing.BindPort = local, "http://127.0.0.1:1", 0
			o.Authentication.SkipInClusterLookup, o.Authentication.RemoteKubeConfigFileOptional = true, true
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			_, scheduler, err := app.Setup(ctx, o, app.WithPlugin("Tutti", bridge.Factory("Tutti")))
			if err != nil {
				t.Fatal(err)
			}
			used := 0
			for name, profile := range scheduler.Profiles {
				lists := profile.ListPlugins()
				if !slices.ContainsFunc(lists.MultiPoint.Enabled, isTutti) && !slices.ContainsFunc(lists.Permit.Enabled, isTutti) {
					continue
				}
				used++
				check := func(point string, set config.PluginSet, before, after string) {
					var names []string
					for _, p := range set.Enabled {
						names = append(names, p.Name)
					}
					at := slices.Index(names, "Tutti")
					switch {
					case at < 0,
						before != "" && slices.Index(names, before) < at,
						after != "" && (slices.Index(names, after) < 0 || slices.Index(names, after) > at):
						t.Errorf("%s: %s is %v", name, point, names)
					}
					if point == "permit" && at != len(names)-1 {
						t.Errorf("%s: permit is %v; Tutti must be last", name, names)
					}
				}
				check("preFilter", lists.PreFilter, "NodeResourcesFit", "")
				check("postFilter", lists.PostFilter, "DefaultPreemption", "")
				check("reserve", lists.Reserve, "", "")
				check("permit", lists.Permit, "", "")
				check("bind", lists.Bind, "", "DefaultBinder")
				check("postBind", lists.PostBind, "", "")
			}
			if used != 1 {
				t.Errorf("%d profiles have the plugin", used)
			}
		})
	}
}

func isTutti(p config.Plugin) bool { return p.Name == "Tutti" }

// schemas are the structural schemas of scheduler-config/crds by kind and version.
func schemas(t *testing.T) map[string]*apiextensions.JSONSchemaProps {
	t.Helper()
	all := map[string]*apiextensions.JSONSchemaProps{}
	for _, file := range glob(t, "crds/*.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, version := range crd.Spec.Versions {
			var internal apiextensions.JSONSchemaProps
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, &internal, nil); err != nil {
				t.Fatal(err)
			}
			all[crd.Spec.Group+"/"+version.Name+" "+crd.Spec.Names.Kind] = &internal
		}
	}
	return all
}

// Each manifest is what an API server takes: known fields only, and custom resources as their CRD has them.
func TestManifests(t *testing.T) {
	crds := schemas(t)
	conventions := map[string]bool{}
	for _, file := range append(glob(t, "examples/*.yaml"), glob(t, "*.yaml")...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i, doc := range strings.Split(string(text), "\n---\n") {
				var object unstructured.Unstructured
				if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil {
					t.Fatalf("document %d: %v", i, err)
				}
				kind := object.GetAPIVersion() + " " + object.GetKind()
				var into any
				switch kind {
				case "batch/v1 Job":
					into = &batch.Job{}
				case "rbac.authorization.k8s.io/v1 ClusterRole":
					into = &rbac.ClusterRole{}
				case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
					into = &rbac.ClusterRoleBinding{}
				default:
					crd := crds[kind]
					if crd == nil {
						t.Fatalf("document %d: %s is of no kind that this test knows", i, kind)
					}
					structural, err := schema.NewStructural(crd)
					if err != nil {
						t.Fatal(err)
					}
					validator, _, err := validation.NewSchemaValidator(crd)
					if err != nil {
						t.Fatal(err)
					}
					if errs := validation.ValidateCustomResource(nil, object.Object, validator); len(errs) > 0 {
						t.Errorf("document %d: %v", i, errs)
					}
					pruned := pruning.PruneWithOptions(object.Object, structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
					if len(pruned) > 0 {
						t.Errorf("document %d: unknown fields %v", i, pruned)
					}
					continue
				}
				if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
					t.Errorf("document %d: %v", i, err)
				}
				if job, ok := into.(*batch.Job); ok {
					conventions[convention(job.Spec.Template)] = true
				}
			}
		})
	}
	for _, want := range []string{
		"scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name",
		"pod-group.scheduling.sigs.k8s.io/name", "gang.scheduling.koordinator.sh/name",
	} {
		if !conventions[want] {
			t.Errorf("no example names its gang by %s", want)
		}
	}
}

// convention is the label or annotation by which the pods name their gang.
func convention(pod v1.PodTemplateSpec) string {
	for _, names := range []map[string]string{pod.Labels, pod.Annotations} {
		for name := range names {
			switch name {
			case "scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name",
				"pod-group.scheduling.sigs.k8s.io/name", "gang.scheduling.koordinator.sh/name":
				return name
			}
		}
	}
	return ""
}
