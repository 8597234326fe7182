//! The `tutti` command as its users meet it: exit codes, messages, files written whole or not at all.

#![allow(clippy::unwrap_used, reason = "a failed step of a test fails it")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.0.path().join(name), content).unwrap();
        self
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn tutti(&self, line: &str) -> Output {
        self.tutti_with(line, "")
    }

    fn tutti_with(&self, line: &str, stdin: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tutti"))
            .args(line.split_whitespace())
            .current_dir(self.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A command that fails before it reads may have closed the pipe.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// The command fails with this exit code and a message that holds this text.
    #[track_caller]
    fn fails(&self, line: &str, code: i32, text: &str) {
        let output = self.tutti(line);
        let message = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{line}\n{message}");
        assert!(message.contains(text), "{line}\n{message}\nwanted {text}");
        assert!(!message.contains("panicked"), "{message}");
    }
}

const CLUSTER: &str = "\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110}}
---
apiVersion: v1
kind: Pod
metadata: {name: a, annotations: {tutti.dev/duration: 10s}}
spec: {containers: [{name: m, image: i, resources: {requests: {cpu: 1}}}]}
";

fn pod(more: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\nspec:\n  containers:\n  - name: m\n{more}")
}

#[test]
fn bad_input_names_file_and_line() {
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        bomb.push_str(&format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", ")));
    }
    for (content, text) in [
        (pod("    image: [\n"), "in.yaml:"),
        (pod("    imaeg: x\n"), "in.yaml:8: unknown field \"spec.containers.0.imaeg\""),
        (pod("    resources: {requests: {cpu: 1Ki5}}\n"), "in.yaml:8: `1Ki5` is not a quantity"),
        (pod("").replace("kind: Pod", "kind: Pood"), "in.yaml:2: unknown kind Pood"),
        (format!("{}---\n{}", pod(""), pod("")), "in.yaml:9: Pod default/a stands twice; it was first at in.yaml:1"),
        (
            pod("").replace("name: a\n", "name: a\n  annotations:\n    tutti.dev/duration: -5s\n"),
            "in.yaml:6: tutti.dev/duration: `-5s` is a negative duration",
        ),
        (pod("").replace("name: a\n", "labels: {}\n"), "in.yaml:1: the Pod has no metadata.name"),
        ("a: &a\n  b: *a\n".to_owned(), "in.yaml:2"),
        (bomb, "in.yaml:"),
        ("a: 1\na: 2\n".to_owned(), "in.yaml:2"),
        (String::new(), "in.yaml: holds no object"),
        ("\u{0}".to_owned(), "in.yaml"),
        ("[1, 2]\n".to_owned(), "in.yaml:1: the object has no apiVersion"),
    ] {
        Dir::new().file("in.yaml", &content).fails("replay --no-plugin in.yaml", 2, text);
    }
}

#[test]
fn bad_files_are_named() {
    let dir = Dir::new();
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    dir.file("latin1.yaml", b"a: \xe9\n").file("huge.yaml", vec![b'#'; 100 << 20]).file("ok.yaml", CLUSTER);
    // Not by its permissions: the tests may run as root, who reads everything.
    #[cfg(unix)]
    std::os::unix::fs::symlink("gone", dir.path().join("unreadable.yaml")).unwrap();
    for (line, text) in [
        ("replay --no-plugin unreadable.yaml", "unreadable.yaml: No such file"),
        ("replay --no-plugin empty", "empty: the directory holds no .yaml, .yml or .json file"),
        ("replay --no-plugin nowhere.yaml", "nowhere.yaml: "),
        ("replay --no-plugin latin1.yaml", "latin1.yaml: is not UTF-8 text: byte 3"),
        ("replay --no-plugin huge.yaml", "huge.yaml: is larger than 64 MiB"),
        ("replay ok.yaml", "out/guest/plugin.wasm: "),
        ("replay --no-plugin --until -5s ok.yaml", "--until"),
        ("replay --no-plugin --frobnicate ok.yaml", "--frobnicate"),
        ("replay", "<PATH>"),
        ("frobnicate", "frobnicate"),
        ("test --no-plugin ok.yaml", "no scenario in ok.yaml"),
        ("explain --no-plugin ga ok.yaml", "no gang ga; within 1m no pod of any gang comes"),
        ("generate --min-work 2h --max-work 1h", "--min-work is longer than --max-work"),
        ("replay --no-plugin --svg ok.yaml ok.yaml", "ok.yaml: is one of the inputs; nothing was written"),
        ("replay --no-plugin --svg nowhere/o.svg ok.yaml", "there is no directory nowhere"),
        ("replay --no-plugin --seed 18446744073709551615 ok.yaml", "leaves no room for 1 seeds"),
        ("new Bad/Name", "a crate's name has"),
    ] {
        dir.fails(line, 2, text);
    }
}

/// A module of this text, with the smallest export set that loads.
fn module(prefilter: &str) -> Vec<u8> {
    wat::parse_str(format!(
        "(module (memory (export \"memory\") 1) (func (export \"prefilter\") (result i32) {prefilter}))"
    ))
    .unwrap()
}

#[test]
fn bad_plugins_are_told_apart() {
    let good = module("i32.const 0");
    let exports = wat::parse_str(
        "(module (memory (export \"memory\") 1) (func (export \"filter\") (result i32) i32.const 0)
           (func (export \"prefilter\") (result i32) i32.const 0) (func (export \"unreserve\"))
           (func (export \"reserve\") (result i32) i32.const 0) (func (export \"permit\") (result i64) i64.const 0))",
    )
    .unwrap();
    let dir = Dir::new();
    dir.file("ok.yaml", CLUSTER)
        .file("good.wasm", &good)
        .file("cut.wasm", &good[..good.len() - 3])
        .file("text.wasm", "hello")
        .file("exports.wasm", exports)
        .file("trap.wasm", module("unreachable"))
        .file("loop.wasm", module("(loop (br 0)) i32.const 0"));
    for (plugin, text) in [
        ("cut.wasm", "cut.wasm: "),
        ("text.wasm", "this is not a WebAssembly module"),
        ("exports.wasm", "the nearest it takes is"),
        ("trap.wasm", "trap.wasm: "),
        ("loop.wasm", "loop.wasm: "),
    ] {
        dir.fails(&format!("replay --plugin {plugin} --svg out.svg --trace out.json ok.yaml"), 2, text);
        assert!(!dir.path().join("out.svg").exists() && !dir.path().join("out.json").exists(), "{plugin}");
    }
    for plugin in ["cut.wasm", "text.wasm", "exports.wasm"] {
        dir.fails(&format!("inspect {plugin}"), 2, plugin);
    }
    let output = dir.tutti("inspect good.wasm");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("accepted"), "{output:?}");
}

#[test]
fn replays_and_writes_whole_files() {
    let dir = Dir::new();
    dir.file("ok.yaml", CLUSTER);
    std::fs::create_dir(dir.path().join("d")).unwrap();
    let output = dir.tutti("replay --no-plugin --format json --svg d/out.svg --trace out.json ok.yaml");
    assert!(output.status.success(), "{output:?}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["usage"]["resource"], "cpu");
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.path().join("out.json")).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|e| e["name"] == "default/a"));
    assert!(std::fs::read_to_string(dir.path().join("d/out.svg")).unwrap().ends_with("</svg>\n"));
    // The same input from elsewhere, and as JSON.
    assert!(dir.tutti_with("replay --no-plugin -", CLUSTER).status.success());
    let json =
        r#"{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}]}"#;
    assert!(dir.tutti_with("replay --no-plugin -", json).status.success());
    // A directory that can't be written leaves nothing behind.
    dir.file("d/file", "");
    for (line, text) in [
        ("--svg d/file/out.svg", "d/file"),
        ("--svg d", "d: is a directory"),
        // Where one of two files can't be written, neither is.
        ("--svg d/new.svg --trace d/file/out.json", "d/file"),
        ("--svg d/new.svg --trace d/new.svg", "d/new.svg: named for two outputs"),
        ("--svg /proc/nowhere/out.svg", "/proc/nowhere"),
    ] {
        dir.fails(&format!("replay --no-plugin {line} ok.yaml"), 2, text);
        dir.fails(&format!("replay --no-plugin {line} ok.yaml"), 2, "nothing was written");
        assert_eq!(std::fs::read_dir(dir.path().join("d")).unwrap().count(), 2, "{line}");
    }
}

#[test]
fn exit_codes_tell_failure_from_fault() {
    let scenario = |bound: u32| {
        format!(
            "apiVersion: tutti.dev/v1\nkind: Scenario\nabout: x\nsteps:\n- create:\n  - {{node: n1, allocatable: {{cpu: 4}}}}\n  \
             - {{pod: a, requests: {{cpu: 1}}}}\nexpect:\n- {{at: end, bound: {{a: {bound}}}}}\n"
        )
    };
    let dir = Dir::new();
    dir.file("good.yaml", scenario(1))
        .file("bad.yaml", scenario(2))
        .file("wrong.yaml", scenario(1).replace("about", "abuot"));
    assert!(dir.tutti("test --no-plugin good.yaml").status.success());
    dir.fails("test --no-plugin bad.yaml", 1, "bad.yaml:9: at 1m: bound of a wanted 2, found 1");
    dir.fails("test --no-plugin wrong.yaml", 2, "wrong.yaml:3: unknown field `abuot`");
    dir.fails("replay --no-plugin bad.yaml", 1, "bound of a wanted 2, found 1");
    dir.fails("replay --no-plugin good.yaml bad.yaml", 2, "good.yaml and bad.yaml are scenarios; name one");
}

#[test]
fn what_is_not_simulated_is_told() {
    let object = |version: &str, kind: &str, name: &str| {
        format!("---\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\n")
    };
    let pod = |name: &str, spec: &str| {
        object("v1", "Pod", name) + &format!("spec: {{containers: [{{name: m, image: i}}], {spec}}}\n")
    };
    let claims = "resourceClaims: [{name: gpu, resourceClaimName: c}]";
    let volume = "volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]";
    let text = CLUSTER.to_owned()
        + &object("apps/v1", "DaemonSet", "daemons")
        + &object("v1", "ConfigMap", "c")
        + &object("storage.k8s.io/v1", "CSINode", "n1")
        + &pod("claims-1", claims)
        + &pod("claims-2", claims)
        + &pod("volume", volume)
        + &pod("other", "schedulerName: other")
        + "---\napiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n- plugins: {multiPoint: \
           {enabled: [{name: Tutti}]}}\n  pluginConfig:\n  - {name: Tutti, args: {guestURL: 'file:///none.wasm'}}\n  \
           - {name: InterPodAffinity, args: {}}\n";
    let output = Dir::new().file("in.yaml", text).tutti("replay --no-plugin in.yaml");
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8_lossy(&output.stderr);
    for note in [
        "note: 1 ConfigMap: has no part in scheduling, left out",
        "note: 1 DaemonSet: not simulated: its controller; give its pods",
        "note: 1 CSINode: not simulated: limits of volumes per node",
        "note: pluginConfig of InterPodAffinity: not simulated, its defaults hold",
        "note: not simulated: dynamic resource allocation (resourceClaims) of 2 pods, default/claims-1 first",
        "which keeps waiting pod default/volume",
        "note: no profile of the configuration has the schedulerName other, which leaves alone pod default/other",
    ] {
        assert!(notes.contains(note), "{notes}\nwanted {note}");
    }
    let reason = "persistentvolumeclaim \"data\" not found";
    assert!(String::from_utf8_lossy(&output.stdout).contains(reason), "{output:?}");
}

#[test]
fn test_reports_every_broken_file() {
    let scenario = |create: &str| {
        format!(
            "apiVersion: tutti.dev/v1\nkind: Scenario\nabout: x\nuntil: 1s\nsteps:\n- create:\n  - {create}\nexpect: []\n"
        )
    };
    let (good, dir) = (scenario("{node: n1, allocatable: {cpu: 4}}"), Dir::new());
    std::fs::create_dir(dir.path().join("read")).unwrap();
    std::fs::create_dir(dir.path().join("run")).unwrap();
    dir.file("read/a.yaml", good.replace("about", "abuot"))
        .file("read/b.yaml", &good)
        .file("read/c.yaml", good.replace("cpu: 4", "cpu: 1Ki5"));
    for text in ["read/a.yaml:3: unknown field `abuot`", "read/c.yaml:7: `1Ki5` is not a quantity"] {
        dir.fails("test --no-plugin read", 2, text);
    }
    // What only the run can find doesn't keep the others from being run.
    let refused = scenario("{pod: p, with: {spec: {priorityClassName: none}}}");
    dir.file("run/a.yaml", &refused).file("run/b.yaml", &good).file("run/c.yaml", &refused);
    for text in [
        "BROKEN  run/a.yaml\n        run/a.yaml: create pod/default/p is refused at 0s: no PriorityClass",
        "ok      run/b.yaml",
        "BROKEN  run/c.yaml",
        "2 of the scenarios could not be run",
    ] {
        dir.fails("test --no-plugin run", 2, text);
    }
}

#[test]
fn new_makes_a_whole_crate_or_nothing() {
    let dir = Dir::new();
    assert!(dir.tutti("new my-plugin").status.success());
    let read = |file: &str| std::fs::read_to_string(dir.path().join("my-plugin").join(file)).unwrap();
    assert!(
        read("Cargo.toml").contains("name = \"my-plugin\"") && read("src/lib.rs").contains("plugin!(MyPlugin: Score)")
    );
    assert!(read(".cargo/config.toml").contains("zstack-size"));
    dir.fails("new my-plugin", 2, "my-plugin: exists already");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn closed_output_is_no_failure_and_a_full_one_is() {
    let dir = Dir::new();
    dir.file("ok.yaml", CLUSTER);
    for line in ["generate --jobs 10000", "replay --no-plugin ok.yaml"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tutti"));
        command.args(line.split(' ')).current_dir(dir.path()).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        if let Ok(full) = std::fs::File::create("/dev/full") {
            let output = command.stdout(full).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.code() == Some(2) && message.contains("No space left"), "{line}: {output:?}");
        }
    }
}

const GPUS: &str = "\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: 4, memory: 8Gi, pods: 110, nvidia.com/gpu: 2}}
";

/// What a cluster's own dumps and people's manifests hold, and a run over them must make sense of.
#[test]
fn takes_what_clusters_print() {
    let gang = |name: &str, more: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{scheduling.x-k8s.io/pod-group: g}}}}\n\
             spec:\n  containers: [{{name: m, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]\n{more}"
        )
    };
    let dir = Dir::new();
    let group = "---\napiVersion: scheduling.x-k8s.io/v1alpha1\nkind: PodGroup\nmetadata: {name: g}\n\
                 spec: {minMember: 2}\nstatus: {phase: Running, running: 2}\n";
    let bound = "  nodeName: n1\n  priorityClassName: gold\n  priority: 7\nstatus: {phase: Running, addedLater: 1}\n";
    dir.file("running.yaml", [GPUS, group, &gang("a", bound), &gang("b", bound)].concat())
        .file("ended.yaml", [GPUS, &gang("a", "status: {phase: Succeeded}\n"), &gang("b", "status: {phase: Failed}\n")].concat())
        .file("lonely.yaml", [GPUS, group].concat())
        .file("custom.yaml", [GPUS, "---\napiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: j}\n"].concat())
        .file("none.yaml", "apiVersion: v1\nkind: List\nitems: null\n")
        .file("waiting.yaml", [GPUS, &gang("a", "  priorityClassName: gold\n  priority: 7\n")].concat())
        .file("class.yaml", [GPUS, &gang("a", "  priorityClassName: gold\n")].concat())
        .file(
            "clash.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w}\nspec: {selector: {}, template: {}}\n---\n\
             apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: w}\n\
             spec: {selector: {}, template: {}, serviceName: w}\n",
        )
        .file(
            "many.yaml",
            "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: w}\nspec: {selector: {}, replicas: 2147483647}\n",
        )
        .file(
            "job.yaml",
            [
                GPUS,
                "---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec:\n  parallelism: 2\n  completions: 3\n  \
                 template:\n    spec:\n      affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
                 [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {job-name: j}}}]}}\n      \
                 containers: [{name: m, image: i}]\n",
            ]
            .concat()
            .replace("metadata: {name: n1}", "metadata: {name: n1, labels: {kubernetes.io/hostname: n1}}"),
        );
    let json = |line: &str| -> serde_json::Value {
        let output = dir.tutti(line);
        assert!(output.status.success(), "{line} {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    // GPUs that only limits name count, and what runs on is drawn.
    let running = json("replay --no-plugin --format json --until 10m --trace t.json running.yaml");
    assert_eq!(running["usage"]["resource"], "nvidia.com/gpu");
    assert_eq!((&running["usage"]["mean"], &running["endMs"]), (&1.0.into(), &600_000.into()));
    let trace = std::fs::read_to_string(dir.path().join("t.json")).unwrap();
    assert_eq!(trace.matches("\"dur\":600000000").count(), 2, "{trace}");
    let ended = json("replay --no-plugin --format json ended.yaml");
    assert_eq!((&ended["gangs"][0]["succeeded"], &ended["gangs"][0]["failed"]), (&1.into(), &1.into()));
    assert_eq!(ended["gangs"][0]["doneMs"], 0);
    let job = json("replay --no-plugin --format json job.yaml");
    assert_eq!(job["pendingPods"], serde_json::json!([]));
    for (line, code, text) in [
        (
            "replay --no-plugin waiting.yaml",
            0,
            "the input lacks PriorityClass gold (`kubectl get priorityclasses -o yaml`)",
        ),
        ("explain --no-plugin g ended.yaml", 0, "is done since 0s: all 2 pods have ended, 1 of them failed."),
        (
            "explain --no-plugin g lonely.yaml",
            0,
            "its PodGroup is there (lonely.yaml:6), but within 1m no pod of it comes.",
        ),
        ("replay --no-plugin custom.yaml", 0, "1 MPIJob of kubeflow.org/v2beta1: not simulated: a custom resource"),
        ("replay --no-plugin none.yaml", 0, "nothing in it has a part in scheduling"),
        ("replay --no-plugin job.yaml", 0, "Job j makes its first 2 pods only; the 1 that follow"),
        ("replay --no-plugin class.yaml", 2, "class.yaml:6: create pod/default/a is refused at 0s: no PriorityClass"),
        (
            "replay --no-plugin clash.yaml",
            2,
            "clash.yaml:6: StatefulSet w makes the pod default/w-0, which stands in the input",
        ),
        ("replay --no-plugin many.yaml", 2, "many.yaml:1: ReplicaSet w asks for 2147483647 pods; it must be from 0 to"),
    ] {
        dir.fails(line, code, text);
    }
}

/// Every pod that waits says why, as on a cluster.
#[test]
fn no_pod_waits_without_a_reason() {
    let dir = Dir::new();
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: m, image: i}]}\n";
    let gated = pod.replace("spec: {", "spec: {schedulingGates: [{name: example.com/g}], ");
    dir.file("pod.yaml", [GPUS, pod].concat()).file("gated.yaml", [GPUS, &gated].concat()).file(
        "error.wasm",
        wat::parse_str(r#"(module (memory (export "memory") 1) (func (export "filter") (result i32) i32.const 1))"#)
            .unwrap(),
    );
    for (line, why) in [
        ("replay --no-plugin --format json gated.yaml", "Scheduling is blocked due to non-empty scheduling gates"),
        ("replay --plugin error.wasm --format json --until 5s pod.yaml", "running \"Tutti\" filter plugin: "),
    ] {
        let output = dir.tutti(line);
        let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(summary["pendingPods"][0]["reason"].as_str().unwrap().contains(why), "{output:?}");
    }
}

#[test]
fn gangs_of_two_conventions_are_two() {
    let dir = Dir::new();
    let pod = |name: &str, meta: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, {meta}: {{%: g}}}}\n\
             spec: {{containers: [{{name: m, image: i}}]}}\n"
        )
    };
    let label = pod("a", "labels").replace('%', "scheduling.x-k8s.io/pod-group");
    let annotation = pod("b", "annotations").replace('%', "gang.scheduling.koordinator.sh/name");
    dir.file("two.yaml", [GPUS, &label, &annotation].concat());
    let output = dir.tutti("replay --no-plugin --format json two.yaml");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let gangs: Vec<_> = summary["gangs"].as_array().unwrap().iter().map(|g| g["gang"].as_str().unwrap()).collect();
    assert_eq!(gangs, ["default/g (scheduling.x-k8s.io/pod-group)", "default/g (gang.scheduling.koordinator.sh/name)"]);
}

/// A device keeps being one, a link too, and a failed expectation is told within the JSON.
#[test]
fn outputs_are_what_they_were() {
    let dir = Dir::new();
    dir.file("ok.yaml", CLUSTER).file("target.svg", "old");
    std::os::unix::fs::symlink("target.svg", dir.path().join("link.svg")).unwrap();
    assert!(dir.tutti("replay --no-plugin --svg link.svg --trace /dev/null ok.yaml").status.success());
    assert!(std::fs::symlink_metadata(dir.path().join("link.svg")).unwrap().is_symlink());
    assert!(std::fs::read_to_string(dir.path().join("target.svg")).unwrap().ends_with("</svg>\n"));
    assert!(!std::fs::symlink_metadata("/dev/null").unwrap().is_file());
    dir.file(
        "s.yaml",
        "apiVersion: tutti.dev/v1\nkind: Scenario\nabout: x\nsteps:\n- create: [{node: n1, allocatable: {cpu: 1}}]\n\
         expect:\n- {by: 5s, bound: {a: 1}}\n",
    );
    let output = dir.tutti("replay --no-plugin --format json s.yaml");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(summary["failures"][0].as_str().unwrap().starts_with("s.yaml:7: "), "{summary}");
}
