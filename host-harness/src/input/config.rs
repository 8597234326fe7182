//! KubeSchedulerConfiguration: which wasm plugin it loads, with which arguments, and whether the scheduler would register it.

use serde::Deserialize;
use serde_json::Value as Json;

use super::document::{Error, Value};

/// What a scheduler configuration says about its wasm plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The profile's scheduler name.
    pub scheduler: String,
    /// The plugin's name.
    pub plugin: String,
    /// The file that `guestURL: file://…` names.
    pub guest_file: String,
    /// `guestConfig`, JSON.
    pub guest_config: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigurationText {
    #[serde(default)]
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    scheduler_name: Option<String>,
    plugins: Option<std::collections::BTreeMap<String, PluginSet>>,
    #[serde(default)]
    plugin_config: Vec<PluginConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginSet {
    #[serde(default)]
    enabled: Vec<Plugin>,
    #[serde(default, rename = "disabled")]
    _disabled: Vec<Plugin>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Plugin {
    name: String,
    #[serde(rename = "weight")]
    _weight: Option<i32>,
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
        let mut found = None;
        for (i, profile) in text.profiles.iter().enumerate() {
            let place = document.get("profiles").and_then(Value::as_list).and_then(|l| l.get(i)).unwrap_or(document);
            for (j, config) in profile.plugin_config.iter().enumerate() {
                let place = place.get("pluginConfig").and_then(Value::as_list).and_then(|l| l.get(j)).unwrap_or(place);
                if config.args.get("guestURL").is_none() {
                    continue;
                }
                if found.is_some() {
                    return Err(Error::new(place.line, "a second wasm plugin; the harness runs one"));
                }
                found = Some(Self::of_plugin(profile, config, place)?);
            }
        }
        found.ok_or_else(|| Error::new(document.line, "no pluginConfig has args.guestURL, so no wasm plugin is loaded"))
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
        let scheduler = profile.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".to_owned());
        Ok(Self { scheduler, plugin: name.clone(), guest_file, guest_config })
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
}
