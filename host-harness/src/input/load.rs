//! From paths to what they hold.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde_json::{Value as Json, json};

use super::config::{self, Configuration};
use super::document::{self, MAX_FILE_BYTES, Value};
use super::duration::Millis;
use super::strict::{self, Use};
use super::validate;
use crate::scenario::{self, ARRIVE_ANNOTATION, DURATION_ANNOTATION, Scenario};

/// A fault of the input, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the user named it.
    pub file: String,
    /// Counted from 1.
    pub line: Option<u32>,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

/// Where something was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file, as the user named it.
    pub file: Rc<str>,
    /// Counted from 1.
    pub line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// An object and the time it comes.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Since the start of the run.
    pub at: Millis,
    /// The object as the API server would take it: checked, and with a namespace if it lives in one.
    pub object: Json,
    /// Where it stands.
    pub origin: Origin,
}

/// All that was read.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Objects of the cluster, in the order read.
    pub arrivals: Vec<Arrival>,
    /// Scenarios, each with its file.
    pub scenarios: Vec<(String, Scenario)>,
    /// The scheduler configuration, if there was one.
    pub configuration: Option<Configuration>,
    /// Things the user should know, though the run can go on.
    pub notes: Vec<String>,
}

/// Reads files, directories (their `.yaml`, `.yml` and `.json` files, in the order of their names) and `-`, the standard input.
///
/// # Errors
/// All faults found, by file and line.
pub fn load(paths: &[PathBuf]) -> Result<Loaded, Vec<Problem>> {
    let mut loader = Loader::default();
    for path in paths {
        loader.path(path);
    }
    loader.finish()
}

/// The files that a path stands for.
///
/// # Errors
/// It can't be read, or is a directory without manifests.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, Problem> {
    let fault = |path: &Path, message: String| Problem { file: path.display().to_string(), line: None, message };
    let meta = std::fs::metadata(path).map_err(|e| fault(path, e.to_string()))?;
    if !meta.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let mut directories = vec![path.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).map_err(|e| fault(&directory, e.to_string()))? {
            let entry = entry.map_err(|e| fault(&directory, e.to_string()))?;
            // Links to directories may lead in circles, and a mounted ConfigMap has its files behind hidden ones once more.
            let is_directory = entry.file_type().is_ok_and(|t| t.is_dir());
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            let entry = entry.path();
            let extension = entry.extension().and_then(|e| e.to_str()).unwrap_or_default();
            if is_directory && !hidden {
                directories.push(entry);
            } else if ["yaml", "yml", "json"].contains(&extension) && entry.is_file() && !hidden {
                found.push(entry);
            }
        }
    }
    if found.is_empty() {
        return Err(fault(path, "the directory holds no .yaml, .yml or .json file".to_owned()));
    }
    found.sort();
    Ok(found)
}

/// Reads a whole text file of acceptable size.
fn read_text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX) + 1;
    let result = if path.as_os_str() == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|f| f.take(limit).read_to_end(&mut bytes))
    };
    result.map_err(|e| e.to_string())?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(format!("is larger than {} MiB; split it", MAX_FILE_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|e| format!("is not UTF-8 text: byte {}", e.utf8_error().valid_up_to()))
}

const CUSTOM: &str = "a custom resource; give the pods its controller makes";

/// The items of a list; `kubectl` writes `null` where there are none.
fn items(list: &Value) -> Option<&[Value]> {
    match list.get("items").map(|items| &items.node) {
        Some(document::Node::List(items)) => Some(items),
        Some(document::Node::Null) | None => Some(&[]),
        Some(_) => None,
    }
}

#[derive(Default)]
struct Loader {
    loaded: Loaded,
    problems: Vec<Problem>,
    /// Where each object was first seen.
    seen: BTreeMap<(String, String, String), Origin>,
    workloads: Vec<Arrival>,
    /// Objects left out, by kind, and why.
    left_out: BTreeMap<(String, &'static str), usize>,
}

impl Loader {
    fn path(&mut self, path: &Path) {
        if path.as_os_str() == "-" {
            return self.file(path, "<stdin>", true);
        }
        match files(path) {
            Ok(files) => {
                files.iter().for_each(|file| self.file(file, &file.display().to_string(), file == path));
            }
            Err(problem) => self.problems.push(problem),
        }
    }

    /// Reads a file that was named, or found in a directory, where an empty one may be.
    fn file(&mut self, path: &Path, name: &str, named: bool) {
        let before = self.loaded.arrivals.len() + self.loaded.scenarios.len() + self.workloads.len();
        let problems = self.problems.len();
        let text = match read_text(path) {
            Ok(text) => text,
            Err(message) => return self.problem(name, None, message),
        };
        let documents = match document::parse(&text) {
            Ok(documents) => documents,
            Err(e) => return self.problem(name, e.line, e.message),
        };
        if documents.is_empty() {
            let message = "holds no object";
            if named {
                self.problem(name, None, message.to_owned());
            } else {
                self.loaded.notes.push(format!("{name}: {message}"));
            }
            return;
        }
        let file: Rc<str> = name.into();
        for document in &documents {
            self.document(&file, document);
        }
        // A file of nothing but, say, Services is no fault, but no cluster either: the notes say so.
        let after = self.loaded.arrivals.len() + self.loaded.scenarios.len() + self.workloads.len();
        if after == before && self.problems.len() == problems && !documents.iter().any(config::is_configuration) {
            self.loaded.notes.push(format!("{name}: nothing in it has a part in scheduling"));
        }
    }

    fn problem(&mut self, file: &str, line: Option<u32>, message: String) {
        self.problems.push(Problem { file: file.to_owned(), line, message });
    }

    fn document(&mut self, file: &Rc<str>, document: &Value) {
        let kind = document.get("kind").and_then(Value::as_str).unwrap_or_default();
        if scenario::is_scenario(document) {
            match Scenario::read(document) {
                Ok(scenario) => self.loaded.scenarios.push((file.to_string(), scenario)),
                Err(errors) => errors.into_iter().for_each(|e| self.problem(file, e.line, e.message)),
            }
        } else if config::is_configuration(document) {
            match Configuration::read(document) {
                Ok(_) if self.loaded.configuration.is_some() => {
                    self.problem(file, Some(document.line), "a second KubeSchedulerConfiguration; give one".to_owned());
                }
                Ok(configuration) => self.loaded.configuration = Some(configuration),
                Err(e) => self.problem(file, e.line, e.message),
            }
        } else if let (true, Some(items)) = (kind.ends_with("List"), items(document)) {
            // Items of a PodList carry neither apiVersion nor kind; those of a List do.
            let of_list = |key: &str, text: &str| {
                let line = document.line;
                (
                    document::Key { line, name: key.to_owned() },
                    Value { line, node: document::Node::Text(text.to_owned()) },
                )
            };
            let version = document.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            for item in items {
                let mut item = item.clone();
                if let document::Node::Map(entries) = &mut item.node
                    && kind != "List"
                    && !entries.iter().any(|(k, _)| k.name == "kind")
                {
                    entries.push(of_list("kind", kind.trim_end_matches("List")));
                    entries.push(of_list("apiVersion", version));
                }
                self.document(file, &item);
            }
        } else {
            self.object(file, document);
        }
    }

    fn object(&mut self, file: &Rc<str>, document: &Value) {
        let kind = match strict::kind_of(document) {
            Ok(kind) => kind,
            Err(e) => return self.problem(file, e.line, e.message),
        };
        let Some(kind) = kind else {
            let text = |name: &str| document.get(name).and_then(Value::as_str).unwrap_or_default();
            let what = format!("{} of {}", text("kind"), text("apiVersion"));
            *self.left_out.entry((what, CUSTOM)).or_default() += 1;
            return;
        };
        let mut faults = strict::check(document, kind);
        if faults.is_empty() {
            faults = validate::check(document, kind);
        }
        let bad = !faults.is_empty();
        faults.into_iter().for_each(|e| self.problem(file, e.line, e.message));
        if bad {
            return;
        }
        let left_out = match kind.used {
            Use::NoPart => Some(""),
            Use::NotSimulated(what) => Some(what),
            Use::Modelled | Use::Workload => None,
        };
        if let Some(why) = left_out {
            *self.left_out.entry((kind.kind.to_owned(), why)).or_default() += 1;
            return;
        }
        let text = |path: &[&str]| document.at(path).and_then(Value::as_str);
        let Some(name) = text(&["metadata", "name"]) else {
            return self.problem(file, Some(document.line), format!("the {} has no metadata.name", kind.kind));
        };
        let namespace = match (kind.namespaced, text(&["metadata", "namespace"])) {
            (true, namespace) => namespace.unwrap_or("default"),
            (false, _) => "",
        };
        let origin = Origin { file: Rc::clone(file), line: document.line };
        let key = (format!("{} of {}", kind.kind, kind.api_version), namespace.to_owned(), name.to_owned());
        if let Some(first) = self.seen.get(&key) {
            let what = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
            let message = format!("{} {what} stands twice; it was first at {first}", kind.kind);
            return self.problem(file, Some(document.line), message);
        }
        self.seen.insert(key, origin.clone());
        let mut at = Millis(0);
        for (annotation, is_arrival) in [(ARRIVE_ANNOTATION, true), (DURATION_ANNOTATION, false)] {
            for path in [&["metadata", "annotations"][..], &["spec", "template", "metadata", "annotations"]] {
                let Some(value) = document.at(path).and_then(|a| a.get(annotation)) else { continue };
                match Millis::parse(value.as_str().unwrap_or_default()) {
                    Ok(time) if is_arrival => at = time,
                    Ok(_) => {}
                    Err(message) => return self.problem(file, Some(value.line), format!("{annotation}: {message}")),
                }
            }
        }
        let mut object = document.to_json();
        if kind.namespaced {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let arrival = Arrival { at, object, origin };
        match kind.used {
            Use::Workload => self.workloads.push(arrival),
            _ => self.loaded.arrivals.push(arrival),
        }
    }

    fn finish(mut self) -> Result<Loaded, Vec<Problem>> {
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        super::workload::expand(&mut self.loaded, &self.workloads)?;
        for ((kind, why), count) in &self.left_out {
            self.loaded.notes.push(match *why {
                "" => format!("{count} {kind}: has no part in scheduling, left out"),
                why => format!("{count} {kind}: not simulated: {why}"),
            });
        }
        self.loaded.notes.extend(super::limits::of(&self.loaded));
        Ok(self.loaded)
    }
}
