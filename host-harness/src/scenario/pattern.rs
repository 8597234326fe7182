//! How a scenario names things: patterns for pods, refs for objects, names with ranges.

use std::fmt;

/// Names pods: `ga-0`, `ga-*`, `live/shared-*`. Without a namespace it is `default`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pattern {
    namespace: String,
    name: String,
}

impl Pattern {
    /// Reads `name` or `namespace/name`, each with any number of `*`.
    ///
    /// # Errors
    /// A part is empty, or there are more than two.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
        if namespace.is_empty() || name.is_empty() || name.contains('/') {
            return Err(format!("`{text}` is not a pattern; write name or namespace/name, with * for any characters"));
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }

    /// The namespace and name, where the pattern means one object.
    #[must_use]
    pub fn exact(&self) -> Option<(&str, &str)> {
        (!self.namespace.contains('*') && !self.name.contains('*')).then_some((&self.namespace, &self.name))
    }

    /// Whether an object of this namespace and name is meant.
    #[must_use]
    pub fn matches(&self, namespace: &str, name: &str) -> bool {
        glob(&self.namespace, namespace) && glob(&self.name, name)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "default" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// Whether `text` matches `pattern`, where `*` stands for any run of characters.
fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Names one object, or with `*` several: `pod/ga-0`, `node/n1`, `podgroup.scheduling.volcano.sh/live/ga`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ref {
    /// Lower case, as `kubectl` takes it: `pod`, `podgroup`.
    pub kind: String,
    /// The API group after the kind's first dot, where one is given.
    pub group: Option<String>,
    /// The object.
    pub object: Pattern,
}

impl Ref {
    /// Reads `kind/name` or `kind/namespace/name`.
    ///
    /// # Errors
    /// The text has another form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (kind, object) = text
            .split_once('/')
            .ok_or_else(|| format!("`{text}` is not a reference; write kind/name, such as pod/ga-0"))?;
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group.to_owned())),
            None => (kind, None),
        };
        if kind.is_empty() || kind.chars().any(|c| !c.is_ascii_lowercase()) {
            return Err(format!(
                "`{kind}` in `{text}` is not a kind; write it in lower case and singular, as in pod/ga-0"
            ));
        }
        Ok(Self { kind: kind.to_owned(), group, object: Pattern::parse(object)? })
    }

    /// Whether an object of this kind, API group, namespace (empty for cluster-wide ones) and name is meant.
    #[must_use]
    pub fn matches(&self, kind: &str, group: &str, namespace: &str, name: &str) -> bool {
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        kind.eq_ignore_ascii_case(&self.kind)
            && self.group.as_deref().is_none_or(|g| g == group)
            && self.object.matches(namespace, name)
    }
}

impl fmt::Display for Ref {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Some(group) => write!(f, "{}.{group}/{}", self.kind, self.object),
            None => write!(f, "{}/{}", self.kind, self.object),
        }
    }
}

/// The names that `ga-{0..2}` stands for.
///
/// # Errors
/// The range is malformed, empty or has more than 100 000 names.
pub(super) fn expand_range(text: &str) -> Result<Vec<String>, String> {
    let Some((before, rest)) = text.split_once('{') else { return Ok(vec![text.to_owned()]) };
    let bad = || format!("`{text}` is not a name; a range is written ga-{{0..7}}");
    let (range, after) = rest.split_once('}').ok_or_else(bad)?;
    let (low, high) = range.split_once("..").ok_or_else(bad)?;
    let (low, high): (u32, u32) = (low.parse().map_err(|_| bad())?, high.parse().map_err(|_| bad())?);
    if low > high || high - low >= 100_000 || after.contains('{') {
        return Err(bad());
    }
    Ok((low..=high).map(|i| format!("{before}{i}{after}")).collect())
}

/// A count that must be met: `3`, or `<= 3`, `>= 3`, `< 3`, `> 3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    least: u64,
    most: u64,
}

impl Count {
    /// Exactly so many.
    #[must_use]
    pub const fn exactly(n: u64) -> Self {
        Self { least: n, most: n }
    }

    /// Reads a comparison.
    ///
    /// # Errors
    /// The text has another form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a count; write a number, or one after <=, >=, < or >");
        let split = text.find(|c: char| c.is_ascii_digit()).ok_or_else(bad)?;
        let n: u64 = text[split..].trim().parse().map_err(|_| bad())?;
        match text[..split].trim() {
            "" => Ok(Self::exactly(n)),
            "<=" => Ok(Self { least: 0, most: n }),
            ">=" => Ok(Self { least: n, most: u64::MAX }),
            "<" if n > 0 => Ok(Self { least: 0, most: n - 1 }),
            ">" => Ok(Self { least: n.saturating_add(1), most: u64::MAX }),
            _ => Err(bad()),
        }
    }

    /// Whether the number is one of those meant.
    #[must_use]
    pub const fn holds(self, n: u64) -> bool {
        self.least <= n && n <= self.most
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.least, self.most) {
            (least, most) if least == most => write!(f, "{least}"),
            (least, u64::MAX) => write!(f, ">= {least}"),
            (_, most) => write!(f, "<= {most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match() {
        for (pattern, namespace, name, want) in [
            ("ga-0", "default", "ga-0", true),
            ("ga-0", "default", "ga-01", false),
            ("ga-*", "default", "ga-", true),
            ("ga-*", "live", "ga-0", false),
            ("live/*", "live", "x", true),
            ("*/x", "any", "x", true),
            ("a*b*c", "default", "aXbYc", true),
            ("a*b*c", "default", "aXc", false),
            ("a*a", "default", "a", false),
        ] {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(namespace, name), want, "{pattern} {namespace}/{name}");
        }
        for bad in ["", "/x", "a/", "a/b/c"] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn refs_match() {
        let any = Ref::parse("podgroup/ga").unwrap();
        assert!(any.matches("PodGroup", "scheduling.x-k8s.io", "default", "ga"));
        let volcano = Ref::parse("podgroup.scheduling.volcano.sh/live/ga").unwrap();
        assert!(!volcano.matches("PodGroup", "scheduling.x-k8s.io", "live", "ga"));
        assert!(volcano.matches("PodGroup", "scheduling.volcano.sh", "live", "ga"));
        assert!(Ref::parse("node/n1").unwrap().matches("Node", "", "", "n1"));
        for bad in ["ga", "Pod/ga", "/ga", "pod/"] {
            assert!(Ref::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_expand() {
        assert_eq!(expand_range("n{1..3}").unwrap(), ["n1", "n2", "n3"]);
        assert_eq!(expand_range("x").unwrap(), ["x"]);
        for bad in ["a{", "a{1}", "a{2..1}", "a{x..y}", "a{0..100000}", "a{0..1}{0..1}"] {
            assert!(expand_range(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn counts_compare() {
        for (text, holds, fails) in [("3", 3, 4), ("<= 3", 3, 4), (">=2", 2, 1), ("< 3", 2, 3), ("> 0", 1, 0)] {
            let count = Count::parse(text).unwrap();
            assert!(count.holds(holds) && !count.holds(fails), "{text}");
        }
        for bad in ["", "x", "== 3", "3 or 4", "-1", "< 0"] {
            assert!(Count::parse(bad).is_err(), "{bad}");
        }
    }
}
