package bridge

import (
	"fmt"

	"github.com/tetratelabs/wazero/api"
)

// isEntry tells whether the extension calls a guest's export of that name.
func isEntry(name string) bool {
	switch name {
	case "_start", "enqueue", "prefilter", "addpod", "removepod", "filter", "postfilter", "prescore", "score", "normalizescore",
		"reserve", "unreserve", "permit", "prebind", "bind", "postbind":
		return true
	}
	return false
}

// checkExports judges a guest that the extension has loaded by what it exports: an error where the extension would crash the
// scheduler sooner or later, warnings where it would misbehave. abi/src/export.rs has the same rules for guest authors.
func checkExports(exports map[string]api.FunctionDefinition) (warnings []string, err error) {
	has := func(name string) bool { return exports[name] != nil }
	for _, pair := range [][2]string{{"reserve", "unreserve"}, {"unreserve", "reserve"}, {"addpod", "removepod"}, {"removepod", "addpod"}} {
		if has(pair[0]) && !has(pair[1]) {
			return nil, fmt.Errorf("the guest exports %s without %s, which would be called and crash the scheduler; export both", pair[0], pair[1])
		}
	}
	if has("bind") && !has("permit") {
		return nil, fmt.Errorf("the guest exports bind without permit; its calls would take another pod's instance or crash the scheduler; export permit too")
	}
	if has("permit") {
		for _, name := range []string{"reserve", "unreserve", "bind", "postbind"} {
			if !has(name) {
				warnings = append(warnings, "permit without "+name+" leaks a guest instance with each pod; export reserve, unreserve, bind and postbind too")
				break
			}
		}
	}
	if has("filter") && !has("postfilter") {
		warnings = append(warnings, "filter without postfilter counts as a PostFilter that succeeded, which switches preemption off; export postfilter and answer Unschedulable")
	}
	if has("normalizescore") {
		warnings = append(warnings, "the extension gives normalizescore's scores back in random order, so that they land on wrong nodes; answer 0 to 100 from score")
	}
	return warnings, nil
}
