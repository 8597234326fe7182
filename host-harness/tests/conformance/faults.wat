;; Every way a call can end early.
(module
  (import "k8s.io/scheduler" "currentPod" (func $pod (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result.node_names" (func $names (param i32 i32)))
  (import "k8s.io/klog" "log" (func $log (param i32 i32 i32)))
  (memory (export "memory") 1)
  (table 1 funcref)
  (func $deep (call $deep))
  (func (export "prefilter") (result i32) (i32.const 0))
  (func (export "filter") (result i32)
    (local $n i32)
    (block $done {body})
    (i32.const 0))
  (func (export "postfilter") (result i64) (i64.const 2)))
