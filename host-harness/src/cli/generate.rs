use std::fmt::Write as _;
use std::io::Write;

use super::{Fault, Verdict};
use crate::input::duration::Millis;
use crate::random::Random;

/// Write a workload of training jobs as a scenario, to the standard output
///
/// A job works only while all its pods run. The same arguments give the same bytes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Nodes of the cluster
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,

    /// GPUs of a node
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    gpus: u32,

    /// Jobs
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    jobs: u32,

    /// Pods of a job, one GPU each
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pods: u32,

    /// How jobs arrive
    #[arg(long, value_enum, default_value_t = Arrival::Mixed)]
    arrival: Arrival,

    /// Over how long jobs arrive, for `--arrival spread`
    #[arg(long, value_name = "TIME", default_value = "30m")]
    over: Millis,

    /// Shortest work of a job; each draws its own
    #[arg(long, value_name = "TIME", default_value = "20m")]
    min_work: Millis,

    /// Longest work of a job
    #[arg(long, value_name = "TIME", default_value = "40m")]
    max_work: Millis,

    /// A job whose pods don't all run so long after the first did is ended and made again [default: never]
    #[arg(long, value_name = "TIME")]
    start_timeout: Option<Millis>,

    /// Draws the jobs' work and arrival; `tutti replay --seed` draws the order of mixed pods
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Arrival {
    /// All at once, the pods of all jobs in mixed order, as several controllers make them
    Mixed,
    /// All at once, job by job
    Ordered,
    /// Each job at a time of its own, its pods 100 ms apart
    Spread,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Verdict, Fault> {
    if args.min_work > args.max_work {
        return Err(Fault::Other("--min-work is longer than --max-work".to_owned()));
    }
    out.write_all(scenario(args).as_bytes())?;
    Ok(Verdict::Good)
}

fn scenario(args: &Args) -> String {
    let Args { nodes, gpus, jobs, pods, .. } = *args;
    let wanted = jobs * pods;
    let mut random = Random::new(args.seed);
    let mut text = format!(
        "# Written by `tutti generate`; its options: --nodes {nodes} --gpus {gpus} --jobs {jobs} --pods {pods} --arrival {}\n\
         # --min-work {} --max-work {} --start-timeout {} --seed {}\n\
         apiVersion: tutti.dev/v1\nkind: Scenario\n\
         about: {jobs} training jobs of {pods} GPU pods want {wanted} GPUs of {}. A job works only while all its pods run.\n\
         harnessOnly: it lasts for hours\nuntil: 48h\nsteps:\n- create:\n  \
         - {{node: \"node-{{1..{nodes}}}\", allocatable: {{cpu: 64, memory: 512Gi, example.com/gpu: {gpus}}}}}\n",
        match args.arrival {
            Arrival::Mixed => "mixed",
            Arrival::Ordered => "ordered",
            Arrival::Spread => "spread",
        },
        args.min_work,
        args.max_work,
        args.start_timeout.map_or("none".to_owned(), |t| t.to_string()),
        args.seed,
        nodes * gpus,
    );
    let mut write = |line: String| {
        // Writing to a string can't fail.
        let _ = writeln!(text, "{line}");
    };
    let width = jobs.to_string().len();
    let job_names: Vec<String> = (1..=jobs).map(|i| format!("job-{i:0width$}")).collect();
    for name in &job_names {
        write(format!("  - {{podGroup: {name}, minMember: {pods}}}"));
    }
    let pod = |name: &str, work: Millis| {
        let timeout = args.start_timeout.map_or(String::new(), |t| format!(", startTimeout: {t}"));
        format!(
            "  - {{pod: \"{name}-{{0..{}}}\", group: {name}, requests: {{cpu: 4, memory: 32Gi, example.com/gpu: 1}}, \
             runs: {work}, collective: true{timeout}}}",
            pods - 1
        )
    };
    let mut draw = |least: i64, most: i64| Millis(random.between(least / 1000, most / 1000) * 1000);
    match args.arrival {
        Arrival::Mixed | Arrival::Ordered => {
            let order = if args.arrival == Arrival::Mixed { "\n  anyOrder: true" } else { "" };
            write(format!("- at: 1s{order}\n  create:"));
            for name in &job_names {
                let work = draw(args.min_work.0, args.max_work.0);
                write(pod(name, work));
            }
        }
        Arrival::Spread => {
            let mut arrivals: Vec<_> = job_names
                .iter()
                .map(|name| (draw(0, args.over.0), name, draw(args.min_work.0, args.max_work.0)))
                .collect();
            arrivals.sort();
            for (at, name, work) in arrivals {
                write(format!("- at: {}\n  every: 100ms\n  create:\n{}", Millis(at.0 + 1000), pod(name, work)));
            }
        }
    }
    write("expect: []".to_owned());
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::input::document::parse;
    use crate::scenario::{Action, Scenario};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn every_arrival_is_a_scenario_of_all_pods() {
        for line in ["x", "x --arrival ordered --gpus 8 --nodes 25", "x --arrival spread --start-timeout 10m --seed 7"]
        {
            let args = Line::parse_from(line.split(' ')).args;
            let text = scenario(&args);
            assert_eq!(text, scenario(&args));
            let read = Scenario::read(&parse(&text).unwrap()[0]).unwrap_or_else(|e| panic!("{line}: {e:?}"));
            let made: usize =
                read.steps.iter().map(|s| if let Action::Create(o) = &s.action { o.len() } else { 0 }).sum();
            assert_eq!(made, args.nodes as usize + 50 + 400, "{line}");
        }
    }
}
