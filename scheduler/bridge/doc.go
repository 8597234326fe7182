// Package bridge gives wasm guests what kube-scheduler-wasm-extension lacks, without touching it: the framework handle
// that a plugin's factory gets is wrapped, and a node lookup whose name starts with "!" is a request. The protocol is
// abi/proto/bridge/v1/bridge.proto; docs/bridge.md explains it.
//
// The package holds no gang policy. It counts members, holds, lets go and rejects what the guest names.
//
// # Locks
//
// Table.mu guards all group state. It is taken by guest calls (which run under the extension's pool lock), by informer
// handlers and by timers, and is never held while the plugin could be re-entered. Under it the waiting pods and the
// scheduling queue may be called: neither calls back.
package bridge

//go:generate protoc -I ../../abi/proto/bridge/v1 --go_out=bridgev1 --go_opt=paths=source_relative bridge.proto
