//! What a gang asks for, from its PodGroup or from its pods.

use core::fmt;
use core::marker::PhantomData;
use std::collections::BTreeMap;

use kube_scheduler_sdk::{Quantity, json};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::membership::{
    GROUPS, GangId, KOORDINATOR, MATCH_POLICY, MIN_AVAILABLE, MODE, SIGS_MIN_AVAILABLE, VOLCANO, WAITING_TIME,
};

/// Which members count towards the minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MatchPolicy {
    /// Members held, bound, running or succeeded.
    #[default]
    WaitingAndRunning,
    /// As [`Self::OnlyWaiting`] for the first start; after it the gang's pods are ordinary pods.
    OnceSatisfied,
    /// Members held at the same time; bound ones don't help.
    OnlyWaiting,
}

impl MatchPolicy {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "waiting-and-running" => Self::WaitingAndRunning,
            "once-satisfied" => Self::OnceSatisfied,
            "only-waiting" => Self::OnlyWaiting,
            _ => return None,
        })
    }
}

/// What a gang asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// So many members start together. 0: the pods ask for no gang.
    pub min: u32,
    /// Of which so many per role.
    pub roles: BTreeMap<String, u32>,
    /// Room the whole gang must find, in the bridge's units.
    pub min_resources: Vec<(String, i64)>,
    /// How long members are held, where the gang says so.
    pub timeout_ms: Option<u64>,
    /// Which members count.
    pub policy: MatchPolicy,
    /// Whether a member without a node makes all held members give way.
    pub strict: bool,
    /// Gangs that start only together with this one.
    pub links: Vec<GangId>,
}

/// A statement about a gang that can't be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Field, label or annotation.
    pub place: String,
    /// What it says and what it should.
    pub problem: String,
}

impl Invalid {
    fn new(place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { place: place.into(), problem: problem.into() }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodGroup {
    metadata: Metadata,
    spec: PodGroupSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Metadata {
    annotations: Option<Pairs<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PodGroupSpec {
    min_member: Option<i64>,
    min_task_member: Option<Pairs<i64>>,
    min_resources: Option<Pairs<Amount>>,
    schedule_timeout_seconds: Option<i64>,
}

/// A JSON object, in its order.
#[derive(Default)]
pub(crate) struct Pairs<T>(pub(crate) Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
            type Value = Pairs<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Object(PhantomData))
    }
}

/// A quantity as the API server may write it: a text, or a bare number.
struct Amount(String);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;
        impl Visitor<'_> for TextOrNumber {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }

            fn visit_str<E>(self, text: &str) -> Result<Amount, E> {
                Ok(Amount(text.into()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }
        }
        deserializer.deserialize_any(TextOrNumber)
    }
}

impl Amount {
    fn in_bridge_units(&self, resource: &str) -> Result<i64, String> {
        let quantity = self.0.parse::<Quantity>().map_err(|e| e.to_string())?;
        Ok(if resource == "cpu" { quantity.milli_value() } else { quantity.value() })
    }
}

impl Spec {
    /// A gang that asks for nothing but its minimum.
    #[must_use]
    pub fn of_min(min: u32, policy: MatchPolicy) -> Self {
        Self {
            min,
            roles: BTreeMap::new(),
            min_resources: Vec::new(),
            timeout_ms: None,
            policy,
            strict: true,
            links: Vec::new(),
        }
    }

    /// Reads a PodGroup of either API (JSON, as the bridge gives it).
    ///
    /// # Errors
    /// The object isn't JSON of a PodGroup, or states something that can't be.
    pub fn from_object(id: &GangId, bytes: &[u8], default_policy: MatchPolicy) -> Result<Self, Invalid> {
        let object: PodGroup =
            json::from_slice(bytes).map_err(|e| Invalid::new("PodGroup", format!("can't be read: {}", e.reason())))?;
        let spec = object.spec;
        let mut out = Self::of_min(count("spec.minMember", spec.min_member.unwrap_or(0))?, default_policy);
        if let Some(tasks) = spec.min_task_member {
            for (role, min) in tasks.0 {
                let min = count("spec.minTaskMember", min)?;
                if min > 0 {
                    out.roles.insert(role, min);
                }
            }
            // Volcano's own rule: a minimum below the sum of the tasks' minimums replaces them.
            let sum = out.roles.values().fold(0u32, |sum, &min| sum.saturating_add(min));
            if id.convention == &VOLCANO && out.min < sum {
                out.roles.clear();
            }
        }
        for (resource, amount) in spec.min_resources.map(|pairs| pairs.0).unwrap_or_default() {
            let place = || format!("spec.minResources[{resource}]");
            match amount.in_bridge_units(&resource) {
                Ok(figure) if figure >= 0 => out.min_resources.push((resource, figure)),
                Ok(_) => return Err(Invalid::new(place(), "is negative")),
                Err(problem) => return Err(Invalid::new(place(), problem)),
            }
        }
        // 0 and less mean "the plugin's default", as in the API's own plugin.
        out.timeout_ms =
            spec.schedule_timeout_seconds.filter(|&s| s > 0).map(|s| s.unsigned_abs().saturating_mul(1000));
        let annotations = object.metadata.annotations.unwrap_or_default().0;
        out.read_annotations(id, &|name| annotations.iter().find(|(key, _)| key == name).map(|(_, v)| v.as_str()))?;
        Ok(out)
    }

    /// Reads what a gang's pods say about it.
    ///
    /// # Errors
    /// The minimum lacks, or a value can't be followed.
    pub fn from_facts<'a>(
        id: &GangId,
        facts: &dyn Fn(&str) -> Option<&'a str>,
        default_policy: MatchPolicy,
    ) -> Result<Self, Invalid> {
        let place = if id.convention == &KOORDINATOR { MIN_AVAILABLE } else { SIGS_MIN_AVAILABLE };
        let Some(text) = facts(place) else {
            return Err(Invalid::new(place, "lacks; it says how many members start together"));
        };
        let min =
            text.trim().parse::<i64>().map_err(|_| Invalid::new(place, format!("is {text:?}, not a whole number")))?;
        let mut out = Self::of_min(count(place, min)?, default_policy);
        if id.convention == &KOORDINATOR {
            out.read_annotations(id, facts)?;
        }
        Ok(out)
    }

    fn read_annotations<'a>(&mut self, id: &GangId, get: &dyn Fn(&str) -> Option<&'a str>) -> Result<(), Invalid> {
        if let Some(text) = get(MATCH_POLICY) {
            self.policy = MatchPolicy::parse(text).ok_or_else(|| {
                Invalid::new(
                    MATCH_POLICY,
                    format!("is {text:?}, not one of waiting-and-running, once-satisfied, only-waiting"),
                )
            })?;
        }
        if let Some(text) = get(MODE) {
            self.strict = match text {
                "Strict" => true,
                "NonStrict" => false,
                _ => return Err(Invalid::new(MODE, format!("is {text:?}, not Strict or NonStrict"))),
            };
        }
        if let Some(text) = get(WAITING_TIME) {
            let duration = go_duration_ms(text)
                .ok_or_else(|| Invalid::new(WAITING_TIME, format!("is {text:?}, not a duration such as 90s or 5m")))?;
            self.timeout_ms = Some(duration).filter(|&ms| ms > 0);
        }
        if let Some(text) = get(GROUPS) {
            let names: Vec<String> = json::from_slice(text.as_bytes())
                .map_err(|_| Invalid::new(GROUPS, format!("is {text:?}, not a JSON array of \"namespace/name\"")))?;
            for name in &names {
                let link = match name.split_once('/') {
                    Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => id.sibling(namespace, name),
                    _ => return Err(Invalid::new(GROUPS, format!("names {name:?}, not \"namespace/name\""))),
                };
                if link != *id && !self.links.contains(&link) {
                    self.links.push(link);
                }
            }
        }
        Ok(())
    }
}

fn count(place: &str, figure: i64) -> Result<u32, Invalid> {
    if figure < 0 {
        return Err(Invalid::new(place, format!("is {figure}; it must not be negative")));
    }
    Ok(u32::try_from(figure).unwrap_or(u32::MAX))
}

/// A Go duration in milliseconds: `1h30m`, `90s`, `1.5s`, `250ms`. Too large a one is the largest.
fn go_duration_ms(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 7] = [
        ("ms", 1_000_000),
        ("us", 1_000),
        ("µs", 1_000),
        ("ns", 1),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
    ];
    let text = text.trim();
    if text == "0" {
        return Some(0);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut nanos = 0u128;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (figure, after) = rest.split_at(digits);
        let (unit, factor) = UNITS.into_iter().find(|(unit, _)| after.starts_with(unit))?;
        let (whole, part) = figure.split_once('.').unwrap_or((figure, ""));
        if whole.is_empty() && part.is_empty() || part.contains('.') {
            return None;
        }
        let digit = |b: u8| u128::from(b - b'0');
        let whole = whole.bytes().fold(0u128, |n, b| n.saturating_mul(10).saturating_add(digit(b)));
        let mut nano = whole.saturating_mul(factor.into());
        let mut scale = u128::from(factor);
        for b in part.bytes() {
            scale /= 10;
            nano = nano.saturating_add(digit(b) * scale);
        }
        nanos = nanos.saturating_add(nano);
        rest = &after[unit.len()..];
    }
    Some(u64::try_from(nanos / 1_000_000).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::membership::{SIGS, X_K8S};
    use super::*;

    fn id(convention: &'static super::super::membership::Convention) -> GangId {
        GangId { convention, namespace: "ns".into(), name: "ga".into() }
    }

    fn object(convention: &'static super::super::membership::Convention, json: &str) -> Result<Spec, Invalid> {
        Spec::from_object(&id(convention), json.as_bytes(), MatchPolicy::default())
    }

    #[test]
    fn minimum_of_a_pod_group() {
        for (json, want) in [
            (r#"{"spec":{"minMember":3}}"#, Ok(3)),
            (r#"{"spec":{"minMember":0}}"#, Ok(0)),
            (r#"{"spec":{}}"#, Ok(0)),
            (r"{}", Ok(0)),
            (r#"{"spec":{"minMember":2147483647}}"#, Ok(i32::MAX.unsigned_abs())),
            (r#"{"spec":{"minMember":99999999999}}"#, Ok(u32::MAX)),
            (r#"{"spec":{"minMember":-1}}"#, Err("spec.minMember")),
            (r#"{"spec":{"minMember":"3"}}"#, Err("PodGroup")),
            (r#"{"spec":{"minMember":null,"minResources":null},"metadata":{"annotations":null}}"#, Ok(0)),
            (r#"{"spec":{"minMember":2,"minResources":{"cpu":3}},"status":{"phase":"Pending"}}"#, Ok(2)),
            (r"no JSON", Err("PodGroup")),
            (r#"{"spec":{"minMember":1,"minResources":{"cpu":"much"}}}"#, Err("spec.minResources[cpu]")),
            (r#"{"spec":{"minMember":1,"minResources":{"cpu":"-1"}}}"#, Err("spec.minResources[cpu]")),
        ] {
            let got = object(&X_K8S, json);
            assert_eq!(got.as_ref().map(|s| s.min).map_err(|e| e.place.as_str()), want, "{json}");
        }
    }

    #[test]
    fn resources_are_in_the_bridge_units() {
        let spec = object(
            &X_K8S,
            r#"{"spec":{"minMember":1,"minResources":{"cpu":"1500m","memory":"1Gi","example.com/gpu":4}}}"#,
        );
        assert_eq!(
            spec.unwrap().min_resources,
            [("cpu".into(), 1500), ("memory".into(), 1 << 30), ("example.com/gpu".into(), 4)]
        );
    }

    #[test]
    fn tasks_hold_unless_volcano_lowers_the_minimum() {
        let json = |min| format!(r#"{{"spec":{{"minMember":{min},"minTaskMember":{{"head":1,"worker":2}}}}}}"#);
        assert_eq!(object(&VOLCANO, &json(3)).unwrap().roles.len(), 2);
        assert_eq!(object(&VOLCANO, &json(2)).unwrap().roles.len(), 0);
        assert_eq!(object(&X_K8S, &json(2)).unwrap().roles.len(), 2);
    }

    #[test]
    fn facts_of_pods() {
        type Case = (
            &'static super::super::membership::Convention,
            &'static [(&'static str, &'static str)],
            Result<u32, &'static str>,
        );
        let cases: [Case; 7] = [
            (&SIGS, &[(SIGS_MIN_AVAILABLE, "3")], Ok(3)),
            (&SIGS, &[], Err(SIGS_MIN_AVAILABLE)),
            (&SIGS, &[(SIGS_MIN_AVAILABLE, "all")], Err(SIGS_MIN_AVAILABLE)),
            (&KOORDINATOR, &[(MIN_AVAILABLE, "2"), (MODE, "NonStrict"), (WAITING_TIME, "1m30s")], Ok(2)),
            (&KOORDINATOR, &[(MIN_AVAILABLE, "2"), (MODE, "strict")], Err(MODE)),
            (&KOORDINATOR, &[(MIN_AVAILABLE, "2"), (MATCH_POLICY, "some")], Err(MATCH_POLICY)),
            (&KOORDINATOR, &[(MIN_AVAILABLE, "2"), (GROUPS, "ns/b")], Err(GROUPS)),
        ];
        for (convention, facts, want) in cases {
            let got = Spec::from_facts(
                &id(convention),
                &|name| facts.iter().find(|(key, _)| *key == name).map(|&(_, value)| value),
                MatchPolicy::default(),
            );
            assert_eq!(got.as_ref().map(|s| s.min).map_err(|e| e.place.as_str()), want, "{facts:?}");
            if let Some((_, time)) = facts.iter().find(|(key, _)| *key == WAITING_TIME) {
                assert_eq!(got.unwrap().timeout_ms, go_duration_ms(time));
            }
        }
    }

    #[test]
    fn links_leave_the_gang_itself_out() {
        let facts = [(MIN_AVAILABLE, "1"), (GROUPS, r#"["ns/ga","ns/gb","other/ga","ns/gb"]"#)];
        let spec = Spec::from_facts(
            &id(&KOORDINATOR),
            &|name| facts.iter().find(|(key, _)| *key == name).map(|&(_, value)| value),
            MatchPolicy::default(),
        );
        let keys: Vec<_> = spec.unwrap().links.iter().map(GangId::key).collect();
        assert_eq!(keys, ["koordinator.sh/ns/gb", "koordinator.sh/other/ga"]);
    }

    #[test]
    fn durations() {
        for (text, want) in [
            ("90s", Some(90_000)),
            ("1h2m3s", Some(3_723_000)),
            ("1.5s", Some(1500)),
            ("250ms", Some(250)),
            (".5s", Some(500)),
            ("1.5.2s", None),
            ("1..s", None),
            (".s", None),
            ("0", Some(0)),
            ("", None),
            ("5", None),
            ("-5s", None),
            ("5 s", None),
            ("99999999999999999999999999999999999999999999h", Some(u64::MAX)),
        ] {
            assert_eq!(go_duration_ms(text), want, "{text}");
        }
    }
}
