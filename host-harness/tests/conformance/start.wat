;; What an instance may do while it starts.
(module
  (import "k8s.io/klog" "log" (func $log (param i32 i32 i32)))
  (import "k8s.io/api" "node" (func $node (param i32 i32 i32 i32) (result i32)))
  (import "k8s.io/api" "nodeList" (func $nodes (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "currentPod" (func $pod (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "starting")
  (data (i32.const 16) "n1")
  (global $answer (mut i32) (i32.const 0))
  (func $start {body})
  (start $start)
  (func (export "prefilter") (result i32) (global.get $answer)))
