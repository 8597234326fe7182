//! The host functions, one by one as the extension's `host.go` has them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use kube_scheduler_abi::{Import, Severity, bridge, event, klog, names};
use serde_json::{Map, Value, json};
use wasmtime::{Caller, Error, Linker, Result};

use super::instance::{FRAME, Frame, State, memory};
use super::{Host, LogLine, eventf};

type Guest<'a> = Caller<'a, State>;

/// Defines every import of the ABI.
pub(super) fn define(linker: &mut Linker<State>) -> Result<()> {
    for &import in Import::ALL {
        let (module, name) = (import.module(), import.name());
        match import {
            Import::Node => linker.func_wrap(module, name, node),
            Import::NodeList => linker.func_wrap(module, name, node_list),
            Import::Log => linker.func_wrap(module, name, log),
            Import::Logs => linker.func_wrap(module, name, logs),
            Import::Severity => linker.func_wrap(module, name, |guest: Guest<'_>| guest.data().options.log_severity),
            Import::GetConfig => linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, limit: u32| {
                let options = std::sync::Arc::clone(&guest.data().options);
                lenient(&mut guest, options.config.as_bytes(), buf, limit)
            }),
            Import::FilteredNodeList => linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, limit: u32| {
                let json = in_frame(|frame| Ok(json!(frame.context.filtered).to_string()))?;
                lenient(&mut guest, json.as_bytes(), buf, limit)
            }),
            Import::TargetPod => linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, limit: u32| {
                in_frame(|frame| strict(&mut guest, frame.context.target, buf, limit))
            }),
            Import::CurrentNodeName => linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, limit: u32| {
                in_frame(|frame| lenient(&mut guest, frame.context.node.as_bytes(), buf, limit))
            }),
            Import::NodeImageStates => linker.func_wrap(module, name, node_image_states),
            Import::CurrentPod => linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, limit: u32| {
                in_frame(|frame| strict(&mut guest, frame.context.pod, buf, limit))
            }),
            Import::ResultClusterEvents => {
                linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, len: u32| {
                    let bytes = read(&mut guest, buf, len, "clusterEvents")?;
                    in_frame(|frame| {
                        frame.results.cluster_events = event::decode(bytes).collect();
                        Ok(())
                    })
                })
            }
            Import::ResultNodeNames => linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, len: u32| {
                let bytes = read(&mut guest, buf, len, "nodeNames")?;
                in_frame(|frame| {
                    frame.results.node_names = names::iter(bytes).map(|n| lossy(n).into_owned()).collect();
                    Ok(())
                })
            }),
            Import::ResultNominatedNodeName => {
                linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, len: u32| {
                    let bytes = read(&mut guest, buf, len, "nominatedNodeName")?;
                    in_frame(|frame| {
                        frame.results.nominated = lossy(bytes).into_owned();
                        Ok(())
                    })
                })
            }
            Import::ResultStatusReason => linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, len: u32| {
                let reason = read(&mut guest, buf, len, "").map_or_else(
                    |_| "BUG: out of memory reading message".to_owned(),
                    |bytes| lossy(bytes).into_owned(),
                );
                in_frame(|frame| {
                    frame.results.reason = reason;
                    Ok(())
                })
            }),
            Import::NodeToStatusMap => linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, limit: u32| {
                let empty = BTreeMap::new();
                let json = in_frame(|frame| Ok(json!(frame.context.statuses.unwrap_or(&empty)).to_string()))?;
                lenient(&mut guest, json.as_bytes(), buf, limit)
            }),
            Import::ResultNormalizedScoreList => {
                linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, len: u32| {
                    let bytes = read(&mut guest, buf, len, "normalized score list")?;
                    let scores: Option<BTreeMap<String, i64>> = serde_json::from_str(&lossy(bytes))
                        .map_err(|e| Error::msg(format!("the scores are no JSON map of integers: {e}")))?;
                    in_frame(|frame| {
                        frame.results.scores = scores.unwrap_or_default();
                        Ok(())
                    })
                })
            }
            Import::NodeScoreList => linker.func_wrap(module, name, |mut guest: Guest<'_>, buf: u32, limit: u32| {
                let json = in_frame(|frame| {
                    let scores: BTreeMap<&str, i64> =
                        frame.context.scores.iter().map(|(node, score)| (node.as_str(), *score)).collect();
                    Ok(json!(scores).to_string())
                })?;
                lenient(&mut guest, json.as_bytes(), buf, limit)
            }),
            Import::Eventf => linker.func_wrap(module, name, record_event),
            Import::RejectWaitingPod => linker.func_wrap(module, name, reject_waiting_pod),
            Import::GetWaitingPod => linker.func_wrap(module, name, get_waiting_pod),
        }?;
    }
    Ok(())
}

/// Runs with the call that is going on. While the first instance starts there is none, which the extension answers with a
/// panic.
fn in_frame<T>(run: impl FnOnce(Frame<'_>) -> Result<T>) -> Result<T> {
    if FRAME.is_set() { FRAME.with(run) } else { Err(Error::msg("asked for the call's values outside of a call")) }
}

/// Runs with the host, or answers as a scheduler does that has just started.
fn with_host<T>(nothing: T, run: impl FnOnce(&mut dyn Host) -> T) -> T {
    if FRAME.is_set() { FRAME.with(|frame| run(frame.host)) } else { nothing }
}

fn range(at: u32, len: usize) -> Range<usize> {
    at as usize..at as usize + len
}

/// Bytes of the guest's memory.
fn read<'a>(guest: &'a mut Guest<'_>, at: u32, len: u32, what: &str) -> Result<&'a [u8]> {
    let memory = memory(guest)?;
    let bytes = memory.data(guest).get(range(at, len as usize));
    bytes.ok_or_else(|| Error::msg(format!("out of memory reading {what}")))
}

/// The two-phase read: the length always, the bytes only when they are within the limit. A buffer outside of the memory is
/// the guest's end.
fn strict(guest: &mut Guest<'_>, bytes: &[u8], buf: u32, limit: u32) -> Result<u32> {
    write(guest, bytes, buf, limit)?.ok_or_else(|| Error::msg("out of memory"))
}

/// As [`strict`], but a buffer outside of the memory is passed over.
fn lenient(guest: &mut Guest<'_>, bytes: &[u8], buf: u32, limit: u32) -> Result<u32> {
    Ok(write(guest, bytes, buf, limit)?.unwrap_or(bytes.len() as u32))
}

fn write(guest: &mut Guest<'_>, bytes: &[u8], buf: u32, limit: u32) -> Result<Option<u32>> {
    let len = bytes.len() as u32;
    if len == 0 || len > limit {
        return Ok(Some(len));
    }
    let memory = memory(guest)?;
    let slot = memory.data_mut(guest).get_mut(range(buf, bytes.len()));
    Ok(slot.map(|slot| {
        slot.copy_from_slice(bytes);
        len
    }))
}

fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn node(mut guest: Guest<'_>, name: u32, name_len: u32, buf: u32, limit: u32) -> Result<u32> {
    let name = read(&mut guest, name, name_len, "nodeName")?.to_vec();
    if let Some((&bridge::MARK, request)) = name.split_first() {
        let reply = if FRAME.is_set() {
            FRAME.with(|frame| frame.host.bridge(request, frame.context.in_scheduling))
        } else {
            None
        };
        let node = reply.map(|reply| node_named(&reply)).unwrap_or_default();
        return strict(&mut guest, &node, buf, limit);
    }
    let name = lossy(&name);
    with_host(Ok(0), |host| strict(&mut guest, &host.node(&name).unwrap_or_default(), buf, limit))
}

/// A `v1.Node` with this name, byte for byte as Go encodes it, empty fields and all. The name need not be text: Go's encoder
/// doesn't ask for it.
fn node_named(name: &[u8]) -> Vec<u8> {
    const OTHER_METADATA: &[u8] = b"\x12\0\x1a\0\x22\0\x2a\0\x32\0\x38\0\x42\0";
    const SPEC: &[u8] = b"\x0a\0\x12\0\x1a\0\x20\0";
    const STATUS: &[u8] =
        b"\x1a\0\x32\x04\x0a\x02\x08\0\x3a\x14\x0a\0\x12\0\x1a\0\x22\0\x2a\0\x32\0\x3a\0\x42\0\x4a\0\x52\0";
    let mut metadata = Vec::with_capacity(name.len() + 32);
    field(&mut metadata, 1, name);
    metadata.extend_from_slice(OTHER_METADATA);
    let mut node = Vec::with_capacity(metadata.len() + 64);
    field(&mut node, 1, &metadata);
    field(&mut node, 2, SPEC);
    field(&mut node, 3, STATUS);
    node
}

/// Appends a length-delimited protobuf field with a number below 16.
fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    prost::encoding::encode_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

fn node_list(mut guest: Guest<'_>, buf: u32, limit: u32) -> Result<u32> {
    let mut list = Vec::new();
    // The list's own metadata, whose three strings Go writes though they are empty.
    field(&mut list, 1, &[0x0a, 0, 0x12, 0, 0x1a, 0]);
    with_host((), |host| host.nodes().iter().for_each(|node| field(&mut list, 2, node)));
    strict(&mut guest, &list, buf, limit)
}

fn node_image_states(mut guest: Guest<'_>, name: u32, name_len: u32, buf: u32, limit: u32) -> Result<u32> {
    let name = lossy(read(&mut guest, name, name_len, "nodeName")?).into_owned();
    let states = with_host(None, |host| host.image_states(&name));
    let json = states.map_or(Value::Null, |states| {
        let image = |(name, state): (String, super::ImageState)| {
            (name, json!({"Size": state.size, "NumNodes": state.nodes.len(), "Nodes": set(&state.nodes)}))
        };
        Value::Object(states.into_iter().map(image).collect())
    });
    lenient(&mut guest, json.to_string().as_bytes(), buf, limit)
}

/// A Go set in JSON.
fn set(names: &[String]) -> Value {
    Value::Object(names.iter().map(|name| (name.clone(), json!({}))).collect::<Map<_, _>>())
}

fn log(mut guest: Guest<'_>, severity: i32, message: u32, message_len: u32) {
    if klog::log_passes(severity, guest.data().options.log_severity) {
        print(&mut guest, severity, (message, message_len), (0, 0));
    }
}

fn logs(mut guest: Guest<'_>, severity: i32, message: u32, message_len: u32, pairs: u32, pairs_len: u32) {
    let threshold = guest.data().options.log_severity;
    let passes =
        if pairs_len == 0 { klog::log_passes(severity, threshold) } else { klog::logs_passes(severity, threshold) };
    if passes {
        print(&mut guest, severity, (message, message_len), (pairs, pairs_len));
    }
}

/// Prints a line, unless it is a warning or fatal, or can't be read.
fn print(guest: &mut Guest<'_>, severity: i32, message: (u32, u32), pairs: (u32, u32)) {
    let error = match severity {
        s if s == Severity::Info as i32 => false,
        s if s == Severity::Error as i32 => true,
        _ => return,
    };
    let Ok(message) = read(guest, message.0, message.1, "").map(|m| lossy(m).into_owned()) else { return };
    let Ok(words) = read(guest, pairs.0, pairs.1, "") else { return };
    let words: Vec<String> = names::iter(words).map(|w| lossy(w).into_owned()).collect();
    let pair = |pair: &[String]| (pair[0].clone(), pair.get(1).map_or("(MISSING)", String::as_str).to_owned());
    let line = LogLine { error, message, pairs: words.chunks(2).map(pair).collect() };
    if FRAME.is_set() {
        FRAME.with(|frame| frame.host.log(line));
    } else {
        guest.data_mut().early.push(line);
    }
}

fn record_event(mut guest: Guest<'_>, buf: u32, len: u32) -> Result<()> {
    let mut event = eventf::decode(read(&mut guest, buf, len, "eventrecorder event")?).map_err(Error::msg)?;
    if guest.data().options.eventf_extra_nil {
        event.note = eventf::sprintf_nil(&event.note);
    }
    with_host((), |host| host.event(event));
    Ok(())
}

/// Writes a u64 whatever the limit, or nothing where there is no memory.
fn write_u64(guest: &mut Guest<'_>, value: u64, out: u32) -> Result<()> {
    write(guest, &value.to_le_bytes(), out, u32::MAX).map(|_| ())
}

fn reject_waiting_pod(mut guest: Guest<'_>, uid: u32, uid_len: u32, out: u32, _: u32) -> Result<()> {
    let uid = lossy(read(&mut guest, uid, uid_len, "rejectWaitingPod")?).into_owned();
    let rejected = with_host(false, |host| host.reject_waiting_pod(&uid));
    write_u64(&mut guest, u64::from(rejected), out)
}

/// The extension wants to tell whether there is such a pod, but the function has no result: the guest sees only what is in
/// its buffer.
fn get_waiting_pod(mut guest: Guest<'_>, uid: u32, uid_len: u32, out: u32, limit: u32) -> Result<()> {
    let uid = lossy(read(&mut guest, uid, uid_len, "getWaitingPod")?).into_owned();
    with_host(Ok(0), |host| match host.waiting_pod(&uid) {
        None => write_u64(&mut guest, 0, out).map(|()| 0),
        Some(pod) if pod.is_empty() => Err(Error::msg("out of memory writing getWaitingPod result")),
        Some(pod) => strict(&mut guest, &pod, out, limit),
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_reply_is_encoded_as_go_does() {
        let node: String = super::node_named(b"x").iter().map(|b| format!("{b:02x}")).collect();
        // (&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}).Marshal() of k8s.io/api v0.32.5.
        let go = "0a110a017812001a0022002a0032003800420012080a0012001a0020001a1e1a0032040a0208003a140a0012001a002200\
                  2a0032003a0042004a005200";
        assert_eq!(node, go);
    }
}
