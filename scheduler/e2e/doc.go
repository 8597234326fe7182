// Package e2e tests the real kube-scheduler with plugin.wasm against a real API server and etcd. It has tests only:
// the scenarios of testdata/scenarios, which the offline harness runs too, and what a scenario can't say.
//
// The tests need scheduler/bin and out/guest/plugin.wasm; `make e2e` builds both first.
package e2e
