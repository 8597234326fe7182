//! YAML and JSON documents whose every value knows its line.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_saphyr::{Budget, Options, Spanned};

use super::quantity;

/// The largest file that is read, in bytes.
pub const MAX_FILE_BYTES: usize = 64 << 20;

/// A value and the line it stands on, counted from 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The line of the value, or of the alias that stands for it.
    pub line: u32,
    /// What it is.
    pub node: Node,
}

/// The kinds of values that YAML and JSON share.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number as written.
    Number(serde_json::Number),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<Value>),
    /// A mapping, in the order written.
    Map(Vec<(Key, Value)>),
}

/// A key of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The key's line, counted from 1.
    pub line: u32,
    /// The key.
    pub name: String,
}

/// What is wrong with a document, and on which line.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// Counted from 1; `None` where no line can be named.
    pub line: Option<u32>,
    /// One sentence without a full stop.
    pub message: String,
}

/// Reads all documents of a YAML stream, or a JSON text; empty documents are left out.
///
/// `metadata.managedFields` is dropped while reading: it is half of what `kubectl get -o yaml` prints and says nothing here.
///
/// # Errors
/// The text is neither YAML nor JSON, a key stands twice in a mapping, or the document goes beyond what a cluster dump
/// needs: depth, aliases, size.
pub fn parse(text: &str) -> Result<Vec<Value>, Error> {
    if text.len() > MAX_FILE_BYTES {
        let megabytes = text.len() >> 20;
        return Err(Error::new(None, format!("is {megabytes} MiB; at most {} MiB are read", MAX_FILE_BYTES >> 20)));
    }
    let documents: Vec<Spanned<Node>> =
        serde_saphyr::from_multiple_with_options(text, options()).map_err(|e| from_yaml(&e))?;
    Ok(documents.into_iter().map(Value::from).filter(|v| v.node != Node::Null).collect())
}

/// A dump of a large cluster is millions of nodes without one alias, so the budget is wide for size and tight for aliases.
fn options() -> Options {
    let mut budget = Budget::default();
    budget.max_events = 40_000_000;
    budget.max_nodes = 20_000_000;
    budget.max_documents = 1_000_000;
    budget.max_total_scalar_bytes = MAX_FILE_BYTES;
    budget.max_aliases = 10_000;
    let mut options = Options::default();
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = 100_000;
    options.with_snippet = false;
    options
}

fn from_yaml(e: &serde_saphyr::Error) -> Error {
    let line = e.location().map(|l| l.line()).filter(|&l| l > 0).and_then(|l| u32::try_from(l).ok());
    let text = e.without_snippet().to_string();
    // The parser's own "at line 3, column 5" stands at the end or the front; the line is reported on its own.
    let text = text.lines().next().unwrap_or_default();
    Error::new(line, text.trim_end_matches('.').to_owned())
}

impl From<Spanned<Node>> for Value {
    fn from(spanned: Spanned<Node>) -> Self {
        Self { line: u32::try_from(spanned.referenced.line()).unwrap_or(u32::MAX), node: spanned.value }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<Node, D::Error> {
        Node::deserialize(d)
    }

    fn visit_bool<E>(self, v: bool) -> Result<Node, E> {
        Ok(Node::Bool(v))
    }

    fn visit_i64<E>(self, v: i64) -> Result<Node, E> {
        Ok(Node::Number(v.into()))
    }

    fn visit_u64<E>(self, v: u64) -> Result<Node, E> {
        Ok(Node::Number(v.into()))
    }

    fn visit_f64<E: de::Error>(self, v: f64) -> Result<Node, E> {
        serde_json::Number::from_f64(v).map(Node::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, v: &str) -> Result<Node, E> {
        Ok(Node::Text(v.to_owned()))
    }

    fn visit_string<E>(self, v: String) -> Result<Node, E> {
        Ok(Node::Text(v))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Node>>()? {
            list.push(item.into());
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if key.value == "managedFields" {
                map.next_value::<de::IgnoredAny>()?;
                continue;
            }
            let value = map.next_value::<Spanned<Node>>()?;
            let line = u32::try_from(key.referenced.line()).unwrap_or(u32::MAX);
            entries.push((Key { line, name: key.value }, value.into()));
        }
        Ok(Node::Map(entries))
    }
}

impl Value {
    /// The value under a key of a mapping.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.node {
            Node::Map(entries) => entries.iter().find(|(k, _)| k.name == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The value at a path of keys.
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |value, key| value.get(key))
    }

    /// The text, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match &self.node {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items, if it is a list.
    #[must_use]
    pub fn as_list(&self) -> Option<&[Self]> {
        match &self.node {
            Node::List(items) => Some(items),
            _ => None,
        }
    }

    /// The same value without lines.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.node {
            Node::Null => Json::Null,
            Node::Bool(b) => Json::Bool(*b),
            Node::Number(n) => Json::Number(n.clone()),
            Node::Text(s) => Json::String(s.clone()),
            Node::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Node::Map(entries) => Json::Object(entries.iter().map(|(k, v)| (k.name.clone(), v.to_json())).collect()),
        }
    }

    /// A value without an origin: line 0.
    #[must_use]
    pub fn from_json(json: &serde_json::Value, line: u32) -> Self {
        use serde_json::Value as Json;
        let node = match json {
            Json::Null => Node::Null,
            Json::Bool(b) => Node::Bool(*b),
            Json::Number(n) => Node::Number(n.clone()),
            Json::String(s) => Node::Text(s.clone()),
            Json::Array(items) => Node::List(items.iter().map(|i| Self::from_json(i, line)).collect()),
            Json::Object(map) => {
                Node::Map(map.iter().map(|(k, v)| (Key { line, name: k.clone() }, Self::from_json(v, line))).collect())
            }
        };
        Self { line, node }
    }

    /// Reads the value as a `T`.
    ///
    /// # Errors
    /// A type, a missing field or (where `T` denies them) an unknown field, with its line.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T, Error> {
        T::deserialize(self)
    }

    /// Reads the value as a `T` and reports the fields that `T` doesn't have, each with its path and line.
    ///
    /// # Errors
    /// As [`Value::read`].
    pub fn read_noting_unknown<'de, T: Deserialize<'de>>(
        &'de self,
        unknown: &mut Vec<(String, u32)>,
    ) -> Result<T, Error> {
        // One callback type for all `T`, so that what they share, a pod's spec above all, is compiled once.
        let note: &mut dyn FnMut(serde_ignored::Path<'_>) = &mut |path| {
            let path = path_keys(&path);
            let line = self.line_of(&path);
            unknown.push((path.join("."), line));
        };
        serde_ignored::deserialize(self, note)
    }

    /// The line of the deepest part of the path that exists.
    fn line_of(&self, path: &[String]) -> u32 {
        let Some((first, rest)) = path.split_first() else { return self.line };
        match &self.node {
            Node::Map(entries) => match entries.iter().find(|(k, _)| k.name == *first) {
                Some((key, _)) if rest.is_empty() => key.line,
                Some((_, value)) => value.line_of(rest),
                None => self.line,
            },
            Node::List(items) => {
                first.parse::<usize>().ok().and_then(|i| items.get(i)).map_or(self.line, |item| item.line_of(rest))
            }
            _ => self.line,
        }
    }
}

fn path_keys(path: &serde_ignored::Path<'_>) -> Vec<String> {
    use serde_ignored::Path;
    let (parent, key) = match path {
        Path::Root => return Vec::new(),
        Path::Seq { parent, index } => (parent, Some(index.to_string())),
        Path::Map { parent, key } => (parent, Some(key.clone())),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => (parent, None),
    };
    let mut keys = path_keys(parent);
    keys.extend(key);
    keys
}

impl Error {
    /// A fault on a line.
    #[must_use]
    pub fn new(line: impl Into<Option<u32>>, message: impl Into<String>) -> Self {
        Self { line: line.into(), message: message.into() }
    }

    /// Gives an error without a line that of the innermost value around it.
    fn at(mut self, line: u32) -> Self {
        if self.line.is_none() && line > 0 {
            self.line = Some(line);
        }
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Error {}

impl de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(None, message.to_string())
    }
}

impl<'de> Deserializer<'de> for &'de Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let result = match &self.node {
            Node::Null => visitor.visit_unit(),
            Node::Bool(b) => visitor.visit_bool(*b),
            Node::Number(n) => match (n.as_u64(), n.as_i64(), n.as_f64()) {
                (Some(n), ..) => visitor.visit_u64(n),
                (_, Some(n), _) => visitor.visit_i64(n),
                (.., Some(n)) => visitor.visit_f64(n),
                _ => Err(Error::new(None, "a number out of range")),
            },
            Node::Text(s) => visitor.visit_borrowed_str(s),
            Node::List(items) => visitor.visit_seq(Items(items.iter())),
            Node::Map(entries) => visitor.visit_map(Entries { entries: entries.iter(), value: None }),
        };
        result.map_err(|e| e.at(self.line))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.node {
            Node::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        // The API server takes numbers for quantities, the typed form is a string; this is also the one place that sees
        // every quantity of every kind.
        if name == "Quantity" {
            let text = match &self.node {
                Node::Text(text) => text.clone(),
                Node::Number(n) => n.to_string(),
                _ => return Err(Error::new(self.line, "a quantity is a number or a string such as 500m or 2Gi")),
            };
            quantity(&text).map_err(|message| Error::new(self.line, message))?;
            return visitor
                .visit_newtype_struct(IntoDeserializer::<Error>::into_deserializer(text))
                .map_err(|e| e.at(self.line));
        }
        visitor.visit_newtype_struct(self).map_err(|e: Error| e.at(self.line))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node {
            Node::Text(text) => visitor.visit_enum(IntoDeserializer::<Error>::into_deserializer(text.as_str())),
            _ => Err(Error::new(None, "expected one of the names allowed here")),
        }
        .map_err(|e| e.at(self.line))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

struct Items<'de>(std::slice::Iter<'de, Value>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|item| seed.deserialize(item).map_err(|e| e.at(item.line))).transpose()
    }
}

struct Entries<'de> {
    entries: std::slice::Iter<'de, (Key, Value)>,
    value: Option<&'de Value>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.entries.next() else { return Ok(None) };
        self.value = Some(value);
        seed.deserialize(StrDeserializer::<Error>::new(&key.name)).map(Some).map_err(|e| e.at(key.line))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let value = self.value.take().ok_or_else(|| Error::new(None, "a value was read before its key"))?;
        seed.deserialize(value).map_err(|e| e.at(value.line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_know_their_lines() {
        let docs = parse("a: 1\nb:\n- x\n- {c: 'y'}\n---\n{\"d\": [true,\n null, \"\\u003c\"]}\n").unwrap();
        assert_eq!(docs.len(), 2);
        assert_eq!(docs[0].get("b").unwrap().as_list().unwrap()[1].get("c").unwrap().line, 4);
        assert_eq!(docs[1].get("d").unwrap().as_list().unwrap()[1].line, 7);
        assert_eq!(docs[1].to_json().to_string(), r#"{"d":[true,null,"<"]}"#);
    }

    #[test]
    fn reads_what_json_may_escape() {
        let docs = parse("{\"a\": \"\\ud83d\\ude00\\/\",\n\t\"b\": 1.5}").unwrap();
        assert_eq!(docs[0].get("a").unwrap().as_str(), Some("😀/"));
    }

    #[test]
    fn refuses_bombs_cycles_and_duplicate_keys() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let refs = vec![format!("*a{}", i - 1); 10].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
        }
        for (text, line) in [
            (bomb.as_str(), None),
            ("a: &a\n  b: *a\n", Some(2)),
            ("a: 1\nb: 2\na: 3\n", Some(3)),
            ("a: [1\nb: 2\n", None),
        ] {
            let error = parse(text).unwrap_err();
            assert!(!error.message.is_empty());
            if line.is_some() {
                assert_eq!(error.line, line, "{error}");
            }
        }
    }

    #[test]
    fn managed_fields_are_dropped() {
        let docs = parse("metadata:\n  name: a\n  managedFields:\n  - manager: kubectl\n").unwrap();
        assert_eq!(docs[0].to_json().to_string(), r#"{"metadata":{"name":"a"}}"#);
    }
}
