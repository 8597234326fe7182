//go:build wasip1

// Only nodes whose name ends as the pod's does, in Go. The extension doesn't run the _initialize of such a module, so its
// first call fails. See README.md.
package main

import "unsafe"

//go:wasmimport k8s.io/scheduler currentPod
func currentPod(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/scheduler currentNodeName
func currentNodeName(buf unsafe.Pointer, limit uint32) uint32

//go:wasmimport k8s.io/scheduler result.status_reason
func statusReason(buf unsafe.Pointer, length uint32)

const (
	success       = 0
	unschedulable = 2
)

var last byte

//go:wasmexport prefilter
func prefilter() int32 {
	pod := make([]byte, currentPod(nil, 0))
	currentPod(unsafe.Pointer(unsafe.SliceData(pod)), uint32(len(pod)))
	last = pod[len(pod)-1]
	return success
}

//go:wasmexport filter
func filter() int32 {
	name := make([]byte, currentNodeName(nil, 0))
	currentNodeName(unsafe.Pointer(unsafe.SliceData(name)), uint32(len(name)))
	if len(name) > 0 && name[len(name)-1] == last {
		return success
	}
	reason := string(name) + " doesn't end in " + string(last)
	statusReason(unsafe.Pointer(unsafe.StringData(reason)), uint32(len(reason)))
	return unschedulable
}

//go:wasmexport postfilter
func postfilter() int64 { return unschedulable }

func main() {}
