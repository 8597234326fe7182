package bridge

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	pb "tutti/scheduler/bridge/bridgev1"
)

// source is one way for a pod to name its group.
type source struct{ *pb.GroupSource }

// sources is the declared set.
type sources struct {
	hello *pb.Hello
	list  []*source
}

func newSources(hello *pb.Hello) (*sources, error) {
	s := &sources{hello: proto.Clone(hello).(*pb.Hello)}
	prefixes := map[string]bool{}
	for i, x := range s.hello.Sources {
		if x.GetLabel() == "" && x.GetAnnotation() == "" {
			return nil, fmt.Errorf("sources[%d]: neither label nor annotation is set", i)
		}
		if x.Prefix == "" || strings.Contains(x.Prefix, "/") || prefixes[x.Prefix] {
			return nil, fmt.Errorf("sources[%d]: prefix %q is empty, has a slash or was used before", i, x.Prefix)
		}
		prefixes[x.Prefix] = true
		s.list = append(s.list, &source{x})
	}
	return s, nil
}

// of returns the first source that matches, the group's name by it, and the group's key; key "" means no group.
func (s *sources) of(pod *v1.Pod) (src *source, key string) {
	if s == nil {
		return nil, ""
	}
	for _, src := range s.list {
		value := ""
		if label := src.GetLabel(); label != "" {
			value = pod.Labels[label]
		} else {
			value = pod.Annotations[src.GetAnnotation()]
		}
		if value != "" {
			return src, src.key(pod.Namespace, value)
		}
	}
	return nil, ""
}

func (s *source) key(namespace, name string) string {
	return s.Prefix + "/" + namespace + "/" + name
}

// parse takes a key apart: its source, namespace and the group's name.
func (s *sources) parse(key string) (src *source, namespace, name string) {
	if s == nil {
		return nil, "", ""
	}
	prefix, rest, _ := strings.Cut(key, "/")
	namespace, name, _ = strings.Cut(rest, "/")
	for _, src := range s.list {
		if src.Prefix == prefix {
			return src, namespace, name
		}
	}
	return nil, namespace, name
}

func (s *source) role(pod *v1.Pod) string {
	if label := s.GetRoleLabel(); label != "" {
		return pod.Labels[label]
	}
	if annotation := s.GetRoleAnnotation(); annotation != "" {
		return pod.Annotations[annotation]
	}
	return ""
}

// facts are the values of the pod's labels, else annotations, of the source's names.
func (s *source) facts(pod *v1.Pod) map[string]string {
	var facts map[string]string
	for _, name := range s.Facts {
		value, ok := pod.Labels[name]
		if !ok {
			value, ok = pod.Annotations[name]
		}
		if ok {
			if facts == nil {
				facts = map[string]string{}
			}
			facts[name] = value
		}
	}
	return facts
}

// marks are the values of all labels and annotations that the sources name.
func (s *sources) marks(pod *v1.Pod) (all []string) {
	if s == nil {
		return nil
	}
	for _, src := range s.list {
		all = append(all, pod.Labels[src.GetLabel()], pod.Annotations[src.GetAnnotation()], src.role(pod))
		for _, name := range src.Facts {
			value, ok := pod.Labels[name]
			if !ok {
				value = pod.Annotations[name]
			}
			all = append(all, value)
		}
	}
	return all
}

func gvr(r *pb.Resource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.GetGroup(), Version: r.GetVersion(), Resource: r.GetResource()}
}
