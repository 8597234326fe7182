;; As read.wat, by an import that takes a key.
(module
  (import "{module}" "{name}" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result.status_reason" (func $reason (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "{key}")
  (func (export "prefilter") (result i32)
    (local $length i32)
    (local.set $length (call $read (i32.const {at}) (i32.const {key_length}) (i32.const {buf}) (i32.const {limit})))
    (call $reason (i32.const {buf}) (i32.const {shown}))
    (local.get $length)))
