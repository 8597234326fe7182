package localcluster

import (
	"context"
	"embed"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

//go:embed crds/*.yaml
var crds embed.FS

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// InstallCRDs installs PodGroup of both APIs and Queue, and waits until they are served.
func (c *Cluster) InstallCRDs(ctx context.Context) error {
	client, err := dynamic.NewForConfig(c.Config)
	if err != nil {
		return err
	}
	files, err := crds.ReadDir("crds")
	if err != nil {
		return err
	}
	for _, file := range files {
		data, err := crds.ReadFile("crds/" + file.Name())
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(data, &crd.Object); err != nil {
			return fmt.Errorf("%s: %w", file.Name(), err)
		}
		if _, err := client.Resource(crdResource).Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("%s: %w", file.Name(), err)
		}
		if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			now, err := client.Resource(crdResource).Get(ctx, crd.GetName(), metav1.GetOptions{})
			if err != nil {
				return false, nil
			}
			conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
			for _, condition := range conditions {
				if m, ok := condition.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
					return true, nil
				}
			}
			return false, nil
		}); err != nil {
			return fmt.Errorf("%s is not served: %w", crd.GetName(), err)
		}
	}
	return nil
}
