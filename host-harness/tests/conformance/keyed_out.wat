;; Calls an import that writes at a pointer and returns nothing; the reason is what stands there then.
(module
  (import "k8s.io/scheduler" "{name}" (func $call (param i32 i32 i32 i32)))
  (import "k8s.io/scheduler" "result.status_reason" (func $reason (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "{key}")
  (data (i32.const 1024) "................")
  (func (export "prefilter") (result i32)
    (call $call (i32.const {at}) (i32.const {key_length}) (i32.const {buf}) (i32.const {limit}))
    (call $reason (i32.const 1024) (i32.const 16))
    (i32.const 0)))
