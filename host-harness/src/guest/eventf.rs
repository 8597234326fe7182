//! `handle.eventrecorder.eventf`: an event in JSON.

use serde_json::{Map, Value};

use super::{Event, ObjectRef};

/// Reads an event as Go's `encoding/json` does: names in any case, unknown names ignored, null and missing are empty.
pub(super) fn decode(bytes: &[u8]) -> Result<Event, String> {
    let text = String::from_utf8_lossy(bytes);
    let value: Value = serde_json::from_str(&text).map_err(|e| format!("the event is not JSON: {e}"))?;
    let empty = Map::new();
    let fields = object(&value, "the event", &empty)?;
    Ok(Event {
        regarding: reference(fields, "RegardingReference")?,
        related: reference(fields, "RelatedReference")?,
        r#type: string(fields, "Eventtype")?,
        reason: string(fields, "Reason")?,
        action: string(fields, "Action")?,
        note: string(fields, "Note")?,
    })
}

fn reference(fields: &Map<String, Value>, name: &str) -> Result<ObjectRef, String> {
    let empty = Map::new();
    let fields = match field(fields, name) {
        Some(value) => object(value, name, &empty)?,
        None => &empty,
    };
    Ok(ObjectRef {
        kind: string(fields, "Kind")?,
        api_version: string(fields, "APIVersion")?,
        name: string(fields, "Name")?,
        namespace: string(fields, "Namespace")?,
        uid: string(fields, "UID")?,
        resource_version: string(fields, "ResourceVersion")?,
    })
}

fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn object<'a>(value: &'a Value, name: &str, empty: &'a Map<String, Value>) -> Result<&'a Map<String, Value>, String> {
    match value {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(empty),
        _ => Err(format!("{name} is not a JSON object")),
    }
}

fn string(fields: &Map<String, Value>, name: &str) -> Result<String, String> {
    match field(fields, name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("the event's {name} is not a string")),
    }
}

/// Go's `fmt.Sprintf(note, nil)`, as the extension formats every note: the one argument goes to the first verb, or shows as
/// an extra one.
pub(super) fn sprintf_nil(note: &str) -> String {
    let mut out = String::with_capacity(note.len());
    let mut used = false;
    let mut rest = note.chars().peekable();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        while rest.next_if(|c| matches!(c, ' ' | '+' | '-' | '#' | '.') || c.is_ascii_digit()).is_some() {}
        match rest.next() {
            None => out.push_str("%!(NOVERB)"),
            Some('%') => out.push('%'),
            Some(verb) if used => {
                out.push_str("%!");
                out.push(verb);
                out.push_str("(MISSING)");
            }
            Some(verb) => {
                used = true;
                if matches!(verb, 'v' | 'T') {
                    out.push_str("<nil>");
                } else {
                    out.push_str("%!");
                    out.push(verb);
                    out.push_str("(<nil>)");
                }
            }
        }
    }
    if !used {
        out.push_str("%!(EXTRA <nil>)");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_formatted_as_go_does() {
        for (note, want) in [
            ("plain", "plain%!(EXTRA <nil>)"),
            ("100% done", "100%!d(<nil>)one"),
            ("100%", "100%!(NOVERB)%!(EXTRA <nil>)"),
            ("100%%", "100%%!(EXTRA <nil>)"),
            ("%v and %s", "<nil> and %!s(MISSING)"),
            ("", "%!(EXTRA <nil>)"),
        ] {
            assert_eq!(sprintf_nil(note), want, "{note:?}");
        }
    }

    #[test]
    fn events_are_read_as_go_does() {
        let event =
            decode(br#"{"note":"n","REASON":"r","x":1,"RelatedReference":null,"regardingReference":{"uid":"u"}}"#);
        let regarding = ObjectRef { uid: "u".into(), ..Default::default() };
        let want = Event { note: "n".into(), reason: "r".into(), regarding, ..Default::default() };
        assert_eq!(event, Ok(want));
        for bad in [&b"x"[..], b"[]", br#"{"note":1}"#, br#"{"RegardingReference":"x"}"#] {
            assert!(decode(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
