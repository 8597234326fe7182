//! Only nodes whose name ends as the pod's does, in Zig without a libc. See README.md.

extern "k8s.io/scheduler" fn currentPod(buf: [*]u8, limit: u32) u32;
extern "k8s.io/scheduler" fn currentNodeName(buf: [*]u8, limit: u32) u32;
extern "k8s.io/scheduler" fn @"result.status_reason"(buf: [*]const u8, len: u32) void;
extern "k8s.io/klog" fn logs(severity: i32, msg: [*]const u8, msg_len: u32, kvs: [*]const u8, kvs_len: u32) void;

const success = 0;
const failure = 1;
const unschedulable = 2;

var last_of_pod: u8 = 0;
var pod: [1 << 16]u8 = undefined;

/// The last character of metadata.name: field 1 of field 1, each the first of its message.
fn lastOfName(bytes: []const u8) u8 {
    var rest = bytes;
    for (0..2) |_| {
        if (rest.len == 0 or rest[0] != 0x0a) return 0;
        var size: usize = 0;
        var shift: u5 = 0;
        var at: usize = 1;
        while (at < rest.len) : (at += 1) {
            size |= @as(usize, rest[at] & 0x7f) << shift;
            if (rest[at] & 0x80 == 0) break;
            shift += 7;
        }
        if (at + 1 + size > rest.len) return 0;
        rest = rest[at + 1 ..][0..size];
    }
    return if (rest.len > 0) rest[rest.len - 1] else 0;
}

export fn prefilter() i32 {
    const len = currentPod(&pod, pod.len);
    if (len > pod.len) return failure;
    last_of_pod = lastOfName(pod[0..len]);
    const pair = "last\x00".* ++ [_]u8{ last_of_pod, 0 };
    logs(0, "prefilter", 9, &pair, pair.len);
    return if (last_of_pod == 0) failure else success;
}

export fn filter() i32 {
    var reason: [320]u8 = undefined;
    const len = currentNodeName(&reason, 256);
    if (len > 0 and len <= 256 and reason[len - 1] == last_of_pod) return success;
    const tail = " doesn't end in ";
    for (tail, 0..) |c, i| reason[len + i] = c;
    reason[len + tail.len] = last_of_pod;
    @"result.status_reason"(&reason, len + tail.len + 1);
    return unschedulable;
}

export fn postfilter() i64 {
    return unschedulable;
}
