// Only nodes whose name ends as the pod's does, in AssemblyScript. See README.md.

@external("k8s.io/scheduler", "currentPod") declare function currentPod(buf: usize, limit: u32): u32;
@external("k8s.io/scheduler", "currentNodeName") declare function currentNodeName(buf: usize, limit: u32): u32;
@external("k8s.io/scheduler", "result.status_reason") declare function statusReason(buf: usize, len: u32): void;
@external("k8s.io/klog", "logs") declare function logs(severity: i32, msg: usize, msgLen: u32, kvs: usize, kvsLen: u32): void;

const SUCCESS: i32 = 0, ERROR: i32 = 1, UNSCHEDULABLE: i32 = 2;

let lastOfPod: u8 = 0;

/** Without this the module imports env.abort, which no scheduler offers. */
export function onAbort(message: usize, file: usize, line: u32, column: u32): void {
  unreachable();
}

/** The last character of metadata.name: field 1 of field 1, each the first of its message. */
function lastOfName(pod: Uint8Array): u8 {
  let at = 0, size = 0;
  for (let depth = 0; depth < 2; depth++) {
    if (at >= pod.length || pod[at++] != 0x0a) return 0;
    size = 0;
    for (let shift = 0; at < pod.length; shift += 7) {
      const byte = pod[at++];
      size |= (<i32>(byte & 0x7f)) << shift;
      if (!(byte & 0x80)) break;
    }
  }
  return size > 0 && at + size <= pod.length ? pod[at + size - 1] : 0;
}

export function prefilter(): i32 {
  const pod = new Uint8Array(currentPod(0, 0));
  currentPod(pod.dataStart, pod.length);
  lastOfPod = lastOfName(pod);
  const message = String.UTF8.encode("prefilter");
  const pair = String.UTF8.encode("last\0" + String.fromCharCode(lastOfPod) + "\0");
  logs(0, changetype<usize>(message), message.byteLength, changetype<usize>(pair), pair.byteLength);
  return lastOfPod == 0 ? ERROR : SUCCESS;
}

export function filter(): i32 {
  const name = new Uint8Array(currentNodeName(0, 0));
  currentNodeName(name.dataStart, name.length);
  if (name.length > 0 && name[name.length - 1] == lastOfPod) return SUCCESS;
  const node = String.UTF8.decode(name.buffer);
  const reason = String.UTF8.encode(`${node} doesn't end in ${String.fromCharCode(lastOfPod)}`);
  statusReason(changetype<usize>(reason), reason.byteLength);
  return UNSCHEDULABLE;
}

export function postfilter(): i64 {
  return UNSCHEDULABLE;
}
