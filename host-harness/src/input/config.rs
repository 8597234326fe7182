//! KubeSchedulerConfiguration: which wasm plugin it loads, with which arguments, and whether the scheduler would register it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value as Json;

use super::document::{Error, Value};

/// What a scheduler configuration says about its wasm plugin, and of the rest what the harness heeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The scheduler name of the first profile that runs the plugin.
    pub scheduler: String,
    /// All profiles by scheduler name, and whether each runs the plugin.
    pub profiles: BTreeMap<String, bool>,
    /// Weights of score plugins in that first profile.
    pub weights: BTreeMap<String, i64>,
    /// `percentageOfNodesToScore`, 0 for the default.
    pub percentage_of_nodes_to_score: u32,
    /// `podInitialBackoffSeconds`.
    pub initial_backoff: Option<i64>,
    /// `podMaxBackoffSeconds`.
    pub max_backoff: Option<i64>,
    /// What it sets and the harness doesn't heed.
    pub notes: Vec<String>,
    /// The plugin's name.
    pub plugin: String,
    /// The file that `guestURL: file://…` names.
    pub guest_file: String,
    /// `guestConfig`, JSON.
    pub guest_config: Option<String>,
}

/// All fields of `kubescheduler.config.k8s.io/v1`, since the scheduler stops at others.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "some fields are only the schema")]
struct ConfigurationText {
    api_version: String,
    kind: String,
    parallelism: Option<i32>,
    leader_election: Option<LeaderElection>,
    client_connection: Option<ClientConnection>,
    enable_profiling: Option<bool>,
    enable_contention_profiling: Option<bool>,
    delay_cache_until_active: Option<bool>,
    #[serde(default)]
    profiles: Vec<Profile>,
    percentage_of_nodes_to_score: Option<i64>,
    pod_initial_backoff_seconds: Option<i64>,
    pod_max_backoff_seconds: Option<i64>,
    #[serde(default)]
    extenders: Vec<Json>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "the fields are the schema")]
struct LeaderElection {
    leader_elect: Option<bool>,
    lease_duration: Option<String>,
    renew_deadline: Option<String>,
    retry_period: Option<String>,
    resource_lock: Option<String>,
    resource_name: Option<String>,
    resource_namespace: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "the fields are the schema")]
struct ClientConnection {
    kubeconfig: Option<String>,
    accept_content_types: Option<String>,
    content_type: Option<String>,
    qps: Option<f32>,
    burst: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Profile {
    scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<i64>,
    plugins: Option<BTreeMap<String, PluginSet>>,
    #[serde(default)]
    plugin_config: Vec<PluginConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginSet {
    #[serde(default)]
    enabled: Vec<Plugin>,
    #[serde(default)]
    disabled: Vec<Plugin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plugin {
    name: String,
    weight: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginConfig {
    name: String,
    #[serde(default)]
    args: Json,
}

/// Whether the document is a scheduler configuration.
#[must_use]
pub fn is_configuration(document: &Value) -> bool {
    document.get("kind").and_then(Value::as_str) == Some("KubeSchedulerConfiguration")
}

impl Configuration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// A fault that would keep the scheduler from loading the plugin, or make it load it wrongly, with its line.
    pub fn read(document: &Value) -> Result<Self, Error> {
        let version = document.get("apiVersion");
        if version.and_then(Value::as_str) != Some("kubescheduler.config.k8s.io/v1") {
            let line = version.map_or(document.line, |v| v.line);
            return Err(Error::new(line, "apiVersion of a scheduler configuration is kubescheduler.config.k8s.io/v1"));
        }
        let text: ConfigurationText = document.read()?;
        text.validate(document)?;
        let mut found: Option<Self> = None;
        let (mut profiles, mut notes) = (BTreeMap::new(), Vec::new());
        for (i, profile) in text.profiles.iter().enumerate() {
            let place = document.get("profiles").and_then(Value::as_list).and_then(|l| l.get(i)).unwrap_or(document);
            let mut runs_it = false;
            for (j, config) in profile.plugin_config.iter().enumerate() {
                let place = place.get("pluginConfig").and_then(Value::as_list).and_then(|l| l.get(j)).unwrap_or(place);
                if config.args.get("guestURL").is_none() {
                    notes.push(format!("pluginConfig of {}: not simulated, its defaults hold", config.name));
                    continue;
                }
                let this = Self::of_plugin(profile, config, place)?;
                let same = |first: &Self| {
                    (&first.plugin, &first.guest_file, &first.guest_config)
                        == (&this.plugin, &this.guest_file, &this.guest_config)
                };
                if !found.as_ref().is_none_or(same) {
                    return Err(Error::new(
                        place.line,
                        "a second wasm plugin, or other arguments; the harness runs one",
                    ));
                }
                found.get_or_insert(this);
                runs_it = true;
            }
            if profiles.insert(profile.name(), runs_it).is_some() {
                return Err(Error::new(place.line, format!("a second profile of schedulerName {}", profile.name())));
            }
            for (point, set) in profile.plugins.iter().flatten() {
                let disabled: Vec<_> =
                    set.disabled.iter().map(|p| p.name.as_str()).filter(|name| *name != "*").collect();
                if !disabled.is_empty() {
                    let disabled = disabled.join(", ");
                    notes.push(format!("{disabled} disabled at {point}: not simulated, they run all the same"));
                }
            }
        }
        if !text.extenders.is_empty() {
            notes.push("extenders: not simulated".to_owned());
        }
        let message = "no pluginConfig has args.guestURL, so no wasm plugin is loaded";
        let found = found.ok_or_else(|| Error::new(document.line, message))?;
        let percentage = match found.percentage_of_nodes_to_score {
            0 => percentage(text.percentage_of_nodes_to_score),
            of_profile => of_profile,
        };
        Ok(Self {
            profiles,
            notes,
            percentage_of_nodes_to_score: percentage,
            initial_backoff: text.pod_initial_backoff_seconds,
            max_backoff: text.pod_max_backoff_seconds,
            ..found
        })
    }

    fn of_plugin(profile: &Profile, config: &PluginConfig, place: &Value) -> Result<Self, Error> {
        let name = &config.name;
        let args = place.get("args").unwrap_or(place);
        let line = |key: &str| args.get(key).map_or(args.line, |v| v.line);
        let points = || profile.plugins.iter().flatten();
        let enabled = |set: &PluginSet| set.enabled.iter().any(|p| p.name == *name);
        if !points().any(|(point, set)| point == "multiPoint" && enabled(set)) {
            let listed: Vec<_> = points().filter(|(_, set)| enabled(set)).map(|(point, _)| point.as_str()).collect();
            let message = if listed.is_empty() {
                format!("{name} has arguments but is enabled nowhere; add it to plugins.multiPoint.enabled")
            } else {
                format!(
                    "{name} is enabled at {} only; the wasm extension registers what is in plugins.multiPoint.enabled, and the \
                     scheduler would stop with an unknown plugin",
                    listed.join(", ")
                )
            };
            return Err(Error::new(place.line, message));
        }
        let url = config.args["guestURL"].as_str().unwrap_or_default();
        let guest_file = match url.split_once("://") {
            Some(("file", path)) if !path.is_empty() => path.to_owned(),
            Some(("http" | "https", _)) => {
                let message = format!("guestURL {url} is on the network; download it and name it with --plugin");
                return Err(Error::new(line("guestURL"), message));
            }
            Some((scheme, _)) if scheme != "file" => {
                return Err(Error::new(
                    line("guestURL"),
                    format!("guestURL has the scheme {scheme}; use file, http or https"),
                ));
            }
            _ => {
                let message = format!("guestURL `{url}` is a bare path; write file:// before an absolute path");
                return Err(Error::new(line("guestURL"), message));
            }
        };
        let guest_config = match &config.args["guestConfig"] {
            Json::Null => None,
            Json::String(text) if text.trim().is_empty() => {
                return Err(Error::new(line("guestConfig"), "guestConfig is empty; leave it out to use the defaults"));
            }
            Json::String(text) => {
                if let Err(e) = serde_json::from_str::<Json>(text) {
                    return Err(Error::new(line("guestConfig"), format!("guestConfig is not JSON: {e}")));
                }
                Some(text.clone())
            }
            _ => {
                let message = "guestConfig is one string that holds JSON; write it as a block: guestConfig: |";
                return Err(Error::new(line("guestConfig"), message));
            }
        };
        let known = ["guestURL", "guestConfig", "logSeverity", "args", "apiVersion", "kind"];
        if let Some(unknown) = config.args.as_object().and_then(|a| a.keys().find(|k| !known.contains(&k.as_str()))) {
            return Err(Error::new(
                line(unknown),
                format!("unknown argument {unknown}; the extension reads {}", known[..4].join(", ")),
            ));
        }
        let weights = points().filter(|(point, _)| matches!(point.as_str(), "score" | "multiPoint"));
        let weights = weights.flat_map(|(_, set)| &set.enabled).filter_map(|p| Some((p.name.clone(), p.weight?)));
        Ok(Self {
            scheduler: profile.name(),
            profiles: BTreeMap::new(),
            weights: weights.filter(|(_, weight)| *weight != 0).collect(),
            percentage_of_nodes_to_score: percentage(profile.percentage_of_nodes_to_score),
            initial_backoff: None,
            max_backoff: None,
            notes: Vec::new(),
            plugin: name.clone(),
            guest_file,
            guest_config,
        })
    }
}

/// Checked to be from 0 to 100 when it was read.
fn percentage(figure: Option<i64>) -> u32 {
    figure.and_then(|n| u32::try_from(n).ok()).unwrap_or(0)
}

impl ConfigurationText {
    /// What kube-scheduler's own validation refuses (pkg/scheduler/apis/config/validation).
    fn validate(&self, document: &Value) -> Result<(), Error> {
        let line = |place: &Value, key: &str| place.get(key).map_or(place.line, |v| v.line);
        let fault = |key: &str, message: String| Err(Error::new(line(document, key), format!("{key}: {message}")));
        if self.parallelism.is_some_and(|n| n <= 0) {
            return fault("parallelism", "must be greater than 0".to_owned());
        }
        let (initial, max) = (self.pod_initial_backoff_seconds, self.pod_max_backoff_seconds);
        if initial.is_some_and(|n| n <= 0) {
            return fault("podInitialBackoffSeconds", "must be greater than 0".to_owned());
        }
        let (initial, max) = (initial.unwrap_or(1), max.unwrap_or(10));
        if max < initial {
            let key = if self.pod_max_backoff_seconds.is_some() {
                "podMaxBackoffSeconds"
            } else {
                "podInitialBackoffSeconds"
            };
            return fault(key, format!("the longest backoff of {max} s is shorter than the first of {initial} s"));
        }
        let range = |percentage: Option<i64>| percentage.is_none_or(|n| (0..=100).contains(&n));
        if !range(self.percentage_of_nodes_to_score) {
            return fault("percentageOfNodesToScore", "must be from 0 to 100".to_owned());
        }
        let places = document.get("profiles").and_then(Value::as_list).unwrap_or_default();
        let queue_sort = |profile: &Profile| {
            let set = profile.plugins.as_ref().and_then(|points| points.get("queueSort"));
            set.map_or_else(Vec::new, |set| set.enabled.iter().map(|p| p.name.clone()).collect())
        };
        for (profile, place) in self.profiles.iter().zip(places) {
            if !range(profile.percentage_of_nodes_to_score) {
                let line = line(place, "percentageOfNodesToScore");
                return Err(Error::new(line, "percentageOfNodesToScore: must be from 0 to 100"));
            }
            if queue_sort(profile) != queue_sort(&self.profiles[0]) {
                let message = "queueSort differs from that of the first profile; all profiles share one queue";
                return Err(Error::new(place.line, message));
            }
            let names: Vec<_> = profile.plugin_config.iter().map(|config| config.name.as_str()).collect();
            if let Some(name) = twice(&names) {
                return Err(Error::new(place.line, format!("two pluginConfig of {name}")));
            }
            for (point, set) in profile.plugins.iter().flatten() {
                if !POINTS.contains(&point.as_str()) {
                    let line = place.get("plugins").map_or(place.line, |plugins| line(plugins, point));
                    let message = format!("there is no extension point {point}; there are {}", POINTS.join(", "));
                    return Err(Error::new(line, message));
                }
                let names: Vec<_> = set.enabled.iter().map(|p| p.name.as_str()).collect();
                if let Some(name) = twice(&names) {
                    return Err(Error::new(place.line, format!("{name} is enabled twice at {point}")));
                }
                let all = set.disabled.iter().any(|p| p.name == "*");
                if all && set.enabled.is_empty() && matches!(point.as_str(), "bind" | "queueSort") {
                    let message = format!("nothing is left at {point}; the scheduler needs a plugin there");
                    return Err(Error::new(place.line, message));
                }
            }
        }
        Ok(())
    }
}

/// Fields of `plugins`.
const POINTS: [&str; 13] = [
    "multiPoint",
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
];

/// The first name that stands twice.
fn twice<'a>(names: &[&'a str]) -> Option<&'a str> {
    names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)).map(|(_, name)| *name)
}

impl Profile {
    fn name(&self) -> String {
        self.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::document::parse;

    fn read(plugins: &str, args: &str) -> Result<Configuration, String> {
        let text = format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- plugins: {plugins}\n  \
             pluginConfig:\n  - name: Tutti\n    args:\n{args}"
        );
        Configuration::read(&parse(&text).unwrap()[0]).map_err(|e| e.to_string())
    }

    #[test]
    fn each_fault_has_its_own_message() {
        let multi = "{multiPoint: {enabled: [{name: Tutti}]}}";
        let url = "      guestURL: file:///plugin.wasm\n";
        for (plugins, args, want) in [
            ("{permit: {enabled: [{name: Tutti}]}}", url.to_owned(), "line 6: Tutti is enabled at permit only"),
            ("{}", url.to_owned(), "line 6: Tutti has arguments but is enabled nowhere"),
            (multi, "      guestURL: /plugin.wasm\n".into(), "line 8: guestURL `/plugin.wasm` is a bare path"),
            (multi, "      guestURL: ftp://x/plugin.wasm\n".into(), "line 8: guestURL has the scheme ftp"),
            (
                multi,
                "      guestURL: https://x/plugin.wasm\n".into(),
                "line 8: guestURL https://x/plugin.wasm is on the network",
            ),
            (multi, format!("{url}      guestConfig: ''\n"), "line 9: guestConfig is empty"),
            (
                multi,
                format!("{url}      guestConfig: '{{\"a\": }}'\n"),
                "line 9: guestConfig is not JSON: expected value",
            ),
            (multi, format!("{url}      guestConfig: {{a: 1}}\n"), "line 9: guestConfig is one string that holds JSON"),
            (multi, format!("{url}      guestConfg: '{{}}'\n"), "line 9: unknown argument guestConfg"),
        ] {
            let error = read(plugins, &args).unwrap_err();
            assert!(error.starts_with(want), "{error}\nwanted {want}");
        }
        let good = read(multi, &format!("{url}      guestConfig: '{{\"a\": 1}}'\n")).unwrap();
        assert_eq!((good.guest_file.as_str(), good.guest_config.as_deref()), ("/plugin.wasm", Some("{\"a\": 1}")));
    }

    #[test]
    fn refuses_what_the_scheduler_refuses() {
        let profile = "schedulerName: a, plugins: {multiPoint: {enabled: [{name: Tutti}]}}, \
                       pluginConfig: [{name: Tutti, args: {guestURL: 'file:///p.wasm'}}]";
        for (settings, more, want) in [
            ("foo: 1", "", "unknown field `foo`"),
            ("parallelism: 0", "", "line 3: parallelism: must be greater than 0"),
            ("percentageOfNodesToScore: 200", "", "line 3: percentageOfNodesToScore: must be from 0 to 100"),
            ("podInitialBackoffSeconds: 0", "", "line 3: podInitialBackoffSeconds: must be greater than 0"),
            ("podInitialBackoffSeconds: 20", "", "line 3: podInitialBackoffSeconds: the longest backoff of 10 s"),
            ("leaderElection: {leaderElect: 'yes'}", "", "line 3: invalid type: string"),
            ("{}", "- schedulerName: b\n  plugins: {queueSort: {enabled: [{name: X}]}}", "line 6: queueSort differs"),
            (
                "{}",
                "- schedulerName: b\n  plugins: {bind: {disabled: [{name: '*'}]}}",
                "line 6: nothing is left at bind",
            ),
            (
                "{}",
                "- schedulerName: b\n  plugins: {score: {enabled: [{name: X}, {name: X}]}}",
                "line 6: X is enabled twice",
            ),
            ("{}", "- schedulerName: b\n  pluginConfig: [{name: X}, {name: X}]", "line 6: two pluginConfig of X"),
            ("{}", "- schedulerName: b\n  plugins: {premit: {}}", "line 7: there is no extension point premit"),
            ("{}", "- schedulerName: b\n  percentageOfNodesToScore: 101", "line 7: percentageOfNodesToScore: must"),
        ] {
            let settings = if settings == "{}" { "parallelism: 16" } else { settings };
            let text = format!(
                "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{settings}\nprofiles:\n\
                 - {{{profile}}}\n{more}\n"
            );
            let error = Configuration::read(&parse(&text).unwrap()[0]).unwrap_err().to_string();
            assert!(error.contains(want), "{text}\n{error}\nwanted {want}");
        }
    }

    #[test]
    fn profiles_and_settings_are_heeded_or_told() {
        let profile = |name: &str, more: &str| {
            format!(
                "- schedulerName: {name}\n  plugins: {{multiPoint: {{enabled: [{{name: Tutti, weight: 3}}]}}}}\n  pluginConfig:\n  \
                 - {{name: Tutti, args: {{guestURL: 'file:///plugin.wasm'}}}}\n{more}"
            )
        };
        let read = |profiles: &str| {
            let text = format!(
                "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\npercentageOfNodesToScore: 7\n\
                 podMaxBackoffSeconds: 5\nextenders: [{{urlPrefix: x}}]\nprofiles:\n{profiles}"
            );
            Configuration::read(&parse(&text).unwrap()[0]).map_err(|e| e.to_string())
        };
        let plain = "- schedulerName: plain\n  plugins: {score: {disabled: [{name: ImageLocality}]}}\n  pluginConfig:\n  \
                     - {name: NodeResourcesFit, args: {}}\n";
        let two = format!("{}{plain}{}", profile("gangs", ""), profile("more", "  percentageOfNodesToScore: 9\n"));
        let good = read(&two).unwrap();
        let names: Vec<_> = good.profiles.iter().map(|(name, runs_it)| (name.as_str(), *runs_it)).collect();
        assert_eq!(
            (good.scheduler.as_str(), names),
            ("gangs", vec![("gangs", true), ("more", true), ("plain", false)])
        );
        assert_eq!((good.percentage_of_nodes_to_score, good.max_backoff, good.weights["Tutti"]), (7, Some(5), 3));
        assert_eq!(
            good.notes,
            [
                "pluginConfig of NodeResourcesFit: not simulated, its defaults hold",
                "ImageLocality disabled at score: not simulated, they run all the same",
                "extenders: not simulated",
            ]
        );
        let other = profile("b", "").replace("plugin.wasm", "other.wasm");
        for (profiles, want) in [
            (format!("{}{other}", profile("a", "")), "a second wasm plugin, or other arguments"),
            (profile("a", "") + &profile("a", ""), "a second profile of schedulerName a"),
            (plain.to_owned(), "no pluginConfig has args.guestURL"),
        ] {
            let error = read(&profiles).unwrap_err();
            assert!(error.contains(want), "{error}\nwanted {want}");
        }
    }
}
