"""The published experiments: run with many seeds, and compared with their goals in `scenarios/goals.yaml`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import accumulate
from math import ceil
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from mlstack.dataclass import Record, row
from mlstack.elastic.controller import TICK_MS
from mlstack.elastic.policy.plan import plan
from mlstack.elastic.policy.sharing import jain
from mlstack.elastic.snapshot import Decision, Job, Node, PolicyConfig, Snapshot, Trainer
from mlstack.simulator import measures
from mlstack.simulator.control_plane import SchedulerSettings, WorkloadSettings
from mlstack.simulator.measures import SERIES, Samples, over_time, window
from mlstack.simulator.run import SimulationOutcome, simulate
from mlstack.simulator.scenario import FOLDER, NAMESPACE, Scenario, published, with_preemption
from mlstack.yaml.read import read_document

_Trial = TypeVar("_Trial")
_Result = TypeVar("_Result")


class GoalResult(Record):
    """One goal."""

    name: str  # what was measured, with its unit
    value: float  # what it came to over all seeds
    goal: str  # what it has to be, for people: `at least 60`
    is_met: bool  # whether it is that
    per_seed: tuple[float, ...]  # what each seed came to, in their order


class GoalTable(Record):
    """All goals of a case, after it was run with some seeds."""

    case: str  # its name
    policy: str  # how jobs were scaled
    seeds: tuple[int, ...]  # of chance
    rows: tuple[GoalResult, ...]  # a row a goal
    violations: tuple[str, ...] = ()  # breaches of what must always hold, each with its seed and time

    @property
    def ok(self) -> bool:
        """Tell whether every goal is met."""
        return all(row.is_met for row in self.rows)


def goals(case: str) -> Sequence[Mapping[str, Any]]:
    """Give the goals of an experiment, as its table in `goals.yaml` has them."""
    text = (FOLDER / "goals.yaml").read_text("utf-8")
    tables: Any = read_document(text, source="goals.yaml", is_yaml_1_2=True).value
    return tuple(tables[case])


def compare(name: str, goal: Mapping[str, Any], per_seed: Sequence[float]) -> GoalResult:
    """Compare what the seeds came to, by default their mean, with a goal."""
    over: dict[str, Callable[[Sequence[float]], float]] = {"mean": fmean, "min": min, "max": max}
    value = over[goal.get("over", "mean")](per_seed)
    if "tolerance" in goal:
        text = f"{goal['value']:g} ± {goal['tolerance']:.3g}"
        is_met = abs(value - goal["value"]) <= goal["tolerance"]
    elif "least" in goal:
        text, is_met = f"at least {goal['least']:g}", value >= goal["least"]
    else:
        text, is_met = f"at most {goal['most']:g}", value <= goal["most"]
    return GoalResult(name=name, value=value, goal=text, is_met=is_met, per_seed=tuple(per_seed))


def judge(
    case: str,
    seeds: tuple[int, ...],
    config: PolicyConfig,
    *,
    tick_ms: int = TICK_MS,
    is_preempting: bool | None = None,
    workers: int = 1,
) -> GoalTable:
    """Run an experiment with some seeds, in so many processes, and compare it with its goals.

    Args:
        config: of the policy; `jct` and `validation` have their own.
        tick_ms: longest time between two passes of the controller, likewise.
        is_preempting: whether the scheduler makes room for services; None for as the case has it.
    """
    if case == "jct":
        traces = run_all(run_trace, [(seed, load) for load in LOADS for seed in seeds], workers)
        return GoalTable(case=case, policy="fair, throughput", seeds=seeds, rows=compare_traces(traces))
    if case == "validation":
        trials, policy = validation_trials(seeds), "edl-v010, off"
    else:
        scenario, policy = published(case), config.mode
        if is_preempting is not None:
            scenario = with_preemption(scenario, is_preempting=is_preempting)
        trials = [SeedTrial(scenario=scenario, config=config, seed=seed, tick_ms=tick_ms) for seed in seeds]
    runs = run_all(run_trial, trials, workers)
    violations = tuple(f"seed {run.seed}, {text}" for run in runs for text in run.violations)
    return GoalTable(
        case=case, policy=policy, seeds=seeds, rows=compare_runs(case, runs), violations=violations
    )


def run_all(function: Callable[[_Trial], _Result], trials: Sequence[_Trial], workers: int) -> list[_Result]:
    """Make all runs, each in a process of its own where there is more than one worker, in the same order."""
    if workers <= 1 or len(trials) <= 1:
        return [function(trial) for trial in trials]
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import active_children, get_context

    with ProcessPoolExecutor(min(workers, len(trials)), mp_context=get_context("spawn")) as pool:
        try:
            return list(pool.map(function, trials))
        except BaseException:  # an interrupted run leaves no other to its end
            for process in active_children():
                process.terminate()
            raise


# --- the figures of one simulated run, small enough to be handed between processes ---


class SeedTrial(Record):
    """One run to be made."""

    scenario: Scenario
    config: PolicyConfig
    seed: int
    tick_ms: int = TICK_MS  # longest time between two passes of the controller


class Figures(Record):
    """What was measured of one run."""

    case: str = ""  # name of the scenario
    policy: str = ""
    seed: int
    values: Mapping[str, float]  # by name
    violations: tuple[str, ...]  # breaches of the laws of plans and samples


def run_trial(trial: SeedTrial) -> Figures:
    """Make one run and measure it."""
    return figures(simulate(trial.scenario, trial.config, seed=trial.seed, tick_ms=trial.tick_ms))


def figures(outcome: SimulationOutcome) -> Figures:
    """Measure a run."""
    samples, scenario, use = outcome.samples, outcome.scenario, SERIES["utilisation"].value
    whole, steady, off_peak = (window(samples, *times) for times in ((0, 550), (400, 550), (300, 370)))
    last = whole[-1]
    histories = measures.histories(whole).values()
    first, gang = (
        [measures.wait(history, for_gang=for_gang)[0] for history in histories] for for_gang in (False, True)
    )
    times_s = [(job.at_ms - scenario.begin_ms) / 1000 for job in scenario.jobs] or [-scenario.begin_ms / 1000]
    values: dict[str, float] = {
        "complete": last.complete,
        "pending": last.pending_jobs,
        "pending max": max(sample.pending_jobs for sample in whole),
        "wait": measures.mean(first),
        "gang wait": measures.mean(gang),
        "gang wait p95": measures.percentile(gang, 95),
        "trainers": sum(last.trainers),
        "jain": jain(last.trainers),
        "spread": measures.spread(last.trainers),
        "below minimum": sum(map(len, map(measures.below_minimum, measures.histories(samples).values()))),
        "utilisation": over_time(whole, use),
        "utilisation of samples": measures.mean(map(use, whole)),
        "steady": over_time(steady, use),
        "final": use(last),
        "useful": over_time(steady, SERIES["useful"].value),
        "off-peak": over_time(off_peak, use),
        "time at 88 %": over_time(whole, lambda sample: 100.0 * (use(sample) >= 88)),
        "deletions": samples[-1].deleted,
        "settled": max(0.0, measures.last_change_s(samples) - max(times_s)),
        "operations after": measures.operations(window(samples, max(times_s) + 90, max(times_s) + 210)),
        **(_service_figures(samples, min(times_s) + 45) if scenario.services else {}),
        "violations": float(len(outcome.violations)),
    }
    return row(Figures, outcome, case=scenario.name, values=values)


def _service_figures(samples: Samples, begin_s: float) -> dict[str, float]:
    """Measure the web service of case 2, and jobs beside it from a time on."""
    key = f"{NAMESPACE}/nginx"
    later = window(samples, begin_s)
    ends = [plateau.samples[-1] for plateau in measures.plateaus(later, key)]
    running = [service.running for end in ends for service in end.services if service.key == key]
    return {
        "served": max((step.seconds for step in measures.raises(samples, key)), default=0.0),
        "shortfall": measures.shortfall(samples, key),
        "restored": max(measures.restored_after_s(samples, key), default=0.0),
        "complete later": min((sample.complete for sample in later), default=0),
        "jain of plateaus": min((jain(end.trainers) for end in ends), default=1.0),
        **{f"serving at end of step {index}": float(count) for index, count in enumerate(running)},
    }


def compare_runs(case: str, runs: Sequence[Figures]) -> tuple[GoalResult, ...]:
    """Compare runs with all goals of an experiment; some goals are of the runs of one case and policy."""
    rows = []
    for goal in goals(case):
        values = [
            run.values[goal["figure"]]
            for run in runs
            if goal.get("case", run.case) == run.case and goal.get("policy", run.policy) == run.policy
        ]
        if values:
            rows.append(compare(goal["name"], goal, values))
    return tuple(rows)


# --- does the simulator do what EDL's cluster did? EDL's rules in the simulator beside its measurements ---


def as_measured(scenario: Scenario) -> Scenario:
    """Give a case as EDL ran it: Kubernetes 1.6, no priorities, trainers that take 30 s to end.

    The 30 s (a shell is the first process of every container), 10 s for web pods and what a failed attempt to
    find a node costs are assumptions, chosen to come near EDL's measurements. The 10 s between submissions of
    case 1 became 12.5 in EDL's runs.
    """
    services = tuple(replace(service, priority=0, grace_s=10) for service in scenario.services)
    first_ms, stretch = scenario.jobs[0].at_ms, Fraction(1) if services else Fraction(5, 4)
    return replace(
        scenario,
        jobs=tuple(
            replace(job, at_ms=first_ms + int((job.at_ms - first_ms) * stretch)) for job in scenario.jobs
        ),
        services=services,
        grace_s=30,
        scheduler=SchedulerSettings(
            preempts=False,
            bind_rate=50,
            failure_ms=40,  # an event and a condition at 50 requests a second
            retries_by_time=True,
            longest_backoff_ms=60_000,
        ),
        workloads=WorkloadSettings(spreads_removal=False),
    )


def validation_trials(seeds: Sequence[int], cases: Sequence[str] = ("case1", "case2")) -> list[SeedTrial]:
    """Give the runs that a validation takes; rigid jobs hardly differ between seeds, one will do."""
    return [
        SeedTrial(scenario=as_measured(published(case)), config=PolicyConfig(mode=policy), seed=seed)
        for case in cases
        for policy in ("off", "edl-v010")
        for seed in (seeds[:1] if policy == "off" else seeds)
    ]


# --- how long jobs take: a synthetic trace, run by a rigid queue and by the policies, on equal slots ---
# 150 jobs come as a Poisson stream. Their work is heavy-tailed: log-normal, cut at ten times the median, as
# clusters limit how long a job may take (else the one longest job alone decides the makespan). The part of
# the work that runs in parallel differs. The load is the time that all trainers would take, each job at its
# maximum, over what the cluster has in the time in which the jobs come: above 1 a queue grows. What the trace
# looks like was chosen with other seeds than the published ones, 0 to 9.

JOBS, SLOTS = 150, 250
LOADS = (Fraction(9, 5), Fraction(11, 5))
MEDIAN_MS = 40_000_000
JCT_TICK_MS = PAUSE_MS = 5_000


class TraceJob(Record):
    """A job of a trace."""

    key: str
    at_ms: int  # when it comes
    work_ms: int  # time that one trainer would take
    parallel: str  # part of the work that runs in parallel, as a decimal (Amdahl's law)
    maximum: int  # most trainers; the fewest are 1

    def speed(self, count: int) -> float:
        """Give how many times as fast as with one trainer it runs."""
        share = float(self.parallel)
        return count / (count * (1 - share) + share)

    @property
    def alone_ms(self) -> int:
        """Give the time that it takes at its maximum."""
        return round(self.work_ms / self.speed(self.maximum))


def draw(seed: int, load: Fraction) -> tuple[TraceJob, ...]:
    """Draw a trace; a seed gives the same jobs at every load, only faster or slower one after another."""
    dice = random.Random(seed)
    jobs = [
        TraceJob(
            key=f"trace/job-{index:03}",
            at_ms=0,
            work_ms=min(10 * MEDIAN_MS, round(MEDIAN_MS * dice.lognormvariate(0, 1.2))),
            parallel=dice.choice(("0.9", "0.95", "0.98", "0.99", "0.995")),
            maximum=dice.choice((16, 32, 60)),
        )
        for index in range(JOBS)
    ]
    gaps = [dice.expovariate(1.0) for _ in jobs]
    taken_ms = sum(job.alone_ms * job.maximum for job in jobs)
    unit_ms = taken_ms / (SLOTS * float(load)) / sum(gaps)
    times = (round(unit_ms * time) for time in accumulate(gaps))
    return tuple(replace(job, at_ms=at_ms) for job, at_ms in zip(jobs, times, strict=True))


class JctOutcome(NamedTuple):
    """How a trace went."""

    mean_jct_s: float  # mean time from the coming of a job to its end
    p95_jct_s: float  # the time that 19 of 20 jobs stay below
    makespan_s: float  # time from the start to the end of the last job


def _jct(trace: Sequence[TraceJob], ends_ms: Mapping[str, int]) -> JctOutcome:
    times_s = [(ends_ms[job.key] - job.at_ms) / 1000 for job in trace]
    return JctOutcome(fmean(times_s), measures.percentile(times_s, 95), max(ends_ms.values()) / 1000)


def run_rigid(trace: Sequence[TraceJob]) -> JctOutcome:
    """Run a trace first in, first out: each job at its maximum, or it waits and all after it wait too."""
    running: list[tuple[int, int]] = []
    free, now_ms, ends_ms = SLOTS, 0, {}
    for job in trace:
        now_ms = max(now_ms, job.at_ms)
        running.sort()
        while running and (running[0][0] <= now_ms or free < job.maximum):
            end_ms, count = running.pop(0)
            now_ms, free = max(now_ms, end_ms), free + count
        free -= job.maximum
        ends_ms[job.key] = now_ms + job.alone_ms
        running.append((ends_ms[job.key], job.maximum))
    return _jct(trace, ends_ms)


def run_policy(trace: Sequence[TraceJob], config: PolicyConfig) -> JctOutcome:
    """Run a trace under a policy.

    What a plan says happens at once (perfect actuation), only that a job whose number of trainers changes
    stands still for a while. Between two plans nothing changes but the work that is done, so the loop goes
    from event to event: a job comes, a job ends, or the policy is asked again, as long as something changes.
    """
    coming = list(reversed(trace))
    runs: dict[str, _Run] = {}
    ends_ms: dict[str, int] = {}
    pool = (Node(name="pool", allocatable=(SLOTS,), used=(0,)),)
    now_ms = 0
    again_ms: list[int] = []
    moves_ms: tuple[int, ...] = ()
    while coming or runs:
        due_ms = {key: end_ms for key, run in runs.items() if (end_ms := run.end_ms(now_ms)) is not None}
        until_ms = min([*due_ms.values(), *again_ms, *(job.at_ms for job in coming[-1:])])
        for run in runs.values():
            run.work(now_ms, until_ms)
        now_ms = until_ms
        for key in [key for key, end_ms in due_ms.items() if end_ms <= now_ms]:
            ends_ms[key] = now_ms
            del runs[key]
        while coming and coming[-1].at_ms <= now_ms:
            job = coming.pop()
            runs[job.key] = _Run(job)
        jobs = tuple(run.job for run in runs.values())
        snapshot = Snapshot(now_ms=now_ms, resources=("cpu",), nodes=pool, jobs=jobs, moves_ms=moves_ms)
        decided = plan(snapshot, config)
        recent = tuple(move_ms for move_ms in moves_ms if move_ms > now_ms - config.moves_window_ms)
        moves_ms, again_ms = recent + (now_ms,) * decided.moves, []
        for decision in decided.decisions.values():
            run = runs[decision.job]
            if decision.target != run.job.target or decision.victims:
                run.scale(decision, now_ms)
                again_ms = [now_ms + JCT_TICK_MS]
    return _jct(trace, ends_ms)


class _Run:
    def __init__(self, plan: TraceJob) -> None:
        self._plan, self._left_ms = plan, float(plan.work_ms)
        self._created, self._still_until_ms = 0, 0
        self.job = Job(
            key=plan.key,
            minimum=1,
            maximum=plan.maximum,
            trainer=(1,),
            created_ms=plan.at_ms,
            speed=f"amdahl:{plan.parallel}",
        )

    def end_ms(self, now_ms: int) -> int | None:
        if not self.job.target:
            return None
        return max(now_ms, self._still_until_ms) + ceil(self._left_ms / self._plan.speed(self.job.target))

    def work(self, since_ms: int, until_ms: int) -> None:
        if self.job.target:
            worked_ms = max(0, until_ms - max(since_ms, self._still_until_ms))
            self._left_ms -= worked_ms * self._plan.speed(self.job.target)

    def scale(self, decision: Decision, now_ms: int) -> None:
        trainers = [trainer for trainer in self.job.trainers if trainer.name not in decision.victims]
        while len(trainers) < decision.target:
            self._created += 1
            name = f"{self.job.key}-trainer-{self._created}"
            trainers.append(Trainer(name=name, node="pool", planned="pool", created_ms=now_ms, is_ready=True))
        self.job = replace(
            self.job,
            state="admitted" if decision.is_admitted else "waiting",
            target=len(trainers),
            trainers=tuple(trainers),
            changed_ms=now_ms,
        )
        self._still_until_ms = now_ms + PAUSE_MS


Trace = tuple[Fraction, Mapping[str, JctOutcome]]
"""The load of a trace, and how it went under `rigid` (first in, first out), `fair` and `throughput`."""


def run_trace(trial: tuple[int, Fraction]) -> Trace:
    """Run the trace of a seed and a load three times."""
    trace = draw(*trial)
    outcomes = {mode: run_policy(trace, PolicyConfig(mode=mode)) for mode in ("fair", "throughput")}
    return trial[1], {"rigid": run_rigid(trace), **outcomes}


def compare_traces(traces: Sequence[Trace]) -> tuple[GoalResult, ...]:
    """Compare traces with all goals, each at each load: by how many percent a figure fell, in hundredths."""
    rows = []
    for load in LOADS:
        outcomes = [outcome for trace_load, outcome in traces if trace_load == load]
        for goal in goals("jct"):
            new, old = (
                [getattr(outcome[goal[side]], goal["figure"]) for outcome in outcomes]
                for side in ("of", "below")
            )
            saved = [round(100 * (1 - after / before), 2) for after, before in zip(new, old, strict=True)]
            rows.append(compare(f"{goal['name']}, load {float(load):g} (%)", goal, saved))
    return tuple(rows)
