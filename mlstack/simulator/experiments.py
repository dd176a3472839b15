"""Goals and whether they were met: one row each, from one value a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate
from math import ceil
from statistics import fmean

from mlstack.elastic.controller.requeue import TICK_MS
from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import Decision, Job, JobStage, Node, PolicyConfig, ScalePlan, Snapshot, Trainer
from mlstack.simulator import measures
from mlstack.simulator import scenario as cases
from mlstack.simulator.measures import Samples, over_time, window
from mlstack.simulator.run import SimulationOutcome, simulate, simulate_with
from mlstack.simulator.scenario import CASE_SERVICE

# --- Goals and whether they were met: one row each, from one value a seed ---


@dataclass(frozen=True, kw_only=True)
class Row:
    """One goal."""

    name: str  # what was measured, with its unit
    value: float  # what it came to over all seeds
    goal: str  # what it has to be, for people: `at least 60`
    is_met: bool
    per_seed: tuple[float, ...]  # what each seed came to, in their order

    def to_dict(self) -> dict[str, object]:
        """Give the row as programs read it."""
        return {
            "name": self.name,
            "value": round(self.value, 4),
            "goal": self.goal,
            "met": self.is_met,
            "perSeed": [round(value, 4) for value in self.per_seed],
        }


def at_least(
    name: str, per_seed: Sequence[float], bound: float, *, over: Callable[[Sequence[float]], float] = fmean
) -> Row:
    """Give the row of a goal whose value, by default the mean over the seeds, has to reach a bound."""
    value = over(per_seed)
    return Row(
        name=name, value=value, goal=f"at least {bound:g}", is_met=value >= bound, per_seed=tuple(per_seed)
    )


def at_most(
    name: str, per_seed: Sequence[float], bound: float, *, over: Callable[[Sequence[float]], float] = fmean
) -> Row:
    """Give the row of a goal whose value, by default the mean over the seeds, must not exceed a bound."""
    value = over(per_seed)
    return Row(
        name=name, value=value, goal=f"at most {bound:g}", is_met=value <= bound, per_seed=tuple(per_seed)
    )


@dataclass(frozen=True, kw_only=True)
class GoalTable:
    """All goals of a case, after it was run with some seeds."""

    case: str  # its name
    policy: str  # how jobs were scaled
    seeds: tuple[int, ...]  # of chance
    rows: tuple[Row, ...]  # a row a goal
    violations: tuple[str, ...] = ()  # breaches of what must always hold, each with its seed and time

    @property
    def ok(self) -> bool:
        """Tell whether every goal is met."""
        return all(row.is_met for row in self.rows)


# --- The figures of one simulated run of a case, small enough to be handed between processes ---

WINDOW_S = 550
STEADY_S = 400
"""From here on nothing is submitted in case 1."""

OFF_PEAK_S = (300, 370)
CALM_S = 120


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured of one run."""

    seed: int  # of the run
    values: Mapping[str, float]  # by name
    violations: tuple[str, ...]  # breaches of the laws of plans and samples


def figures(outcome: SimulationOutcome) -> Figures:
    """Measure a run."""
    samples = outcome.samples
    values = {
        **_of_jobs(samples),
        **_of_room(samples),
        **_of_changes(outcome),
        **(_of_service(outcome) if outcome.scenario.services else {}),
        "violations": float(len(outcome.violations)),
    }
    return Figures(seed=outcome.seed, values=values, violations=outcome.violations)


def _of_jobs(samples: Samples) -> dict[str, float]:
    seen = window(samples, 0, WINDOW_S)
    last = seen[-1]
    first, gang = measures.waits_for_trainer(seen), measures.waits_for_gang(seen)
    return {
        "complete": measures.complete(last),
        "pending": measures.pending(last),
        "pending max": max(map(measures.pending, seen)),
        "wait": first.mean,
        "gang wait": gang.mean,
        "gang wait p95": gang.percentile(95),
        "trainers": sum(measures.trainers(last)),
        "jain": measures.jain(measures.trainers(last)),
        "spread": measures.spread(measures.trainers(last)),
        "below minimum": len(measures.below_minimum(samples)),
    }


def _of_room(samples: Samples) -> dict[str, float]:
    seen = window(samples, 0, WINDOW_S)
    steady = window(samples, STEADY_S, WINDOW_S)
    return {
        "utilisation": over_time(seen, measures.utilisation),
        "utilisation of samples": measures.mean(map(measures.utilisation, seen)),
        "steady": over_time(steady, measures.utilisation),
        "final": measures.utilisation(seen[-1]),
        "useful": over_time(steady, measures.useful),
        "off-peak": over_time(window(samples, *OFF_PEAK_S), measures.utilisation),
        "time at 88 %": measures.time_at(seen, measures.utilisation, 88),
    }


def _of_changes(outcome: SimulationOutcome) -> dict[str, float]:
    samples, scenario = outcome.samples, outcome.scenario
    submitted_s = max((job.at_ms for job in scenario.jobs), default=0) / 1000 - scenario.begin_ms / 1000
    settled_s = submitted_s + 90
    return {
        "deletions": samples[-1].deleted,
        "settled": max(0.0, measures.last_change_s(samples) - submitted_s),
        "operations after": measures.operations(window(samples, settled_s, settled_s + CALM_S)),
    }


def _of_service(outcome: SimulationOutcome) -> dict[str, float]:
    samples, scenario = outcome.samples, outcome.scenario
    first_s = min((job.at_ms for job in scenario.jobs), default=0) / 1000 - scenario.begin_ms / 1000
    plateaus = measures.plateaus(window(samples, first_s + 45), CASE_SERVICE)
    ends = [measures.trainers(plateau.samples[-1]) for plateau in plateaus]
    return {
        "served": max(measures.served_after_s(samples, CASE_SERVICE), default=0.0),
        "shortfall": measures.shortfall(samples, CASE_SERVICE),
        "restored": max(measures.restored_after_s(samples, CASE_SERVICE), default=0.0),
        "complete later": min(map(measures.complete, window(samples, first_s + 45)), default=0),
        "jain of plateaus": min(map(measures.jain, ends), default=1.0),
        **{
            f"serving at end of step {index}": _serving(plateau.samples)
            for index, plateau in enumerate(plateaus)
        },
    }


def _serving(samples: Samples) -> float:
    found = measures.service_of(samples[-1], CASE_SERVICE)
    return float(found.running) if found else 0.0


# --- The goals of the two cases: what has to be reached, and what the runs with all seeds came to ---

Over = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Goal:
    """A bound for one figure."""

    name: str  # what is measured, with its unit
    figure: str  # its name among the figures
    bound: float  # what has to be reached, or not exceeded
    over: Over = fmean  # how the seeds become one value
    is_least: bool = False  # whether the bound is the least that will do, not the most

    def judge(self, runs: Sequence[Figures]) -> Row:
        """Give the row of this goal."""
        values = [run.values[self.figure] for run in runs]
        judge = at_least if self.is_least else at_most
        return judge(self.name, values, self.bound, over=self.over)


def _least(name: str, figure: str, bound: float, over: Over = fmean) -> Goal:
    return Goal(name, figure, bound, over, is_least=True)


_LAWS = Goal("breaches of I1-I4 and I8 in plans and samples, worst run", "violations", 0, max)

_SERVICE = (
    Goal("nginx at 99 % of a raised target, slowest step and run (s)", "served", 25, max),
    Goal("mean nginx shortfall while growing (pods)", "shortfall", 16),
)

GOALS: dict[str, tuple[Goal, ...]] = {
    "case1": (
        _least("complete jobs at 550 s, worst run", "complete", 20, min),
        Goal("pending jobs at 550 s (EDL's measure), worst run", "pending", 0, max),
        Goal("most pending jobs (EDL's measure), worst run", "pending max", 2, max),
        Goal("mean wait, EDL's measure (s)", "wait", 12),
        Goal("mean wait to complete gang (s)", "gang wait", 15),
        Goal("p95 wait to complete gang (s)", "gang wait p95", 25),
        _least("utilisation, steady (%)", "steady", 90.0),
        _least("useful utilisation without background (%)", "useful", 87.5),
        _least("Jain index at 550 s, worst run", "jain", 0.98, min),
        Goal("spread of trainers at 550 s, worst run", "spread", 2, max),
        Goal("moments of a job below its minimum, worst run", "below minimum", 0, max),
        Goal("last change after the last submission, worst run (s)", "settled", 90, max),
        Goal("operations in the 120 s after that, worst run", "operations after", 0, max),
        Goal("trainer deletions, worst run", "deletions", 320, max),
        _LAWS,
    ),
    "case2": (
        *_SERVICE,
        _least("mean utilisation, time-weighted (%)", "utilisation", 86.0),
        _least("mean utilisation, of samples as EDL (%)", "utilisation of samples", 86.0),
        _least("off-peak utilisation, mean of runs (%)", "off-peak", 84.0),
        Goal("utilisation restored after an nginx drop, slowest step and run (s)", "restored", 15, max),
        _least("complete jobs from 45 s after the first submission, worst moment", "complete later", 6, min),
        _least("Jain index at each plateau, worst", "jain of plateaus", 0.98, min),
        Goal("moments of a job below its minimum, worst run", "below minimum", 0, max),
        _LAWS,
    ),
    "case2-roomy": (
        _least("mean utilisation, time-weighted (%)", "utilisation", 91.0),
        _least("share of time at 88 % or more (%)", "time at 88 %", 85),
        *_SERVICE,
        _LAWS,
    ),
}


def judge_case(case: str, runs: Sequence[Figures]) -> tuple[Row, ...]:
    """Give the rows of all goals of a case."""
    return tuple(goal.judge(runs) for goal in GOALS[case])


# --- Run a case with many seeds, each in a process of its own ---


@dataclass(frozen=True, kw_only=True)
class SeedTrial:
    """One run to be made."""

    case: str  # name of the case
    policy: str  # how jobs are scaled
    seed: int  # of chance
    # whether on a cluster of EDL's time, with submissions as far apart as they really were
    is_as_measured: bool = False
    # whether the scheduler pushes trainers aside for services; None for as the case has it
    is_preempting: bool | None = None
    config: PolicyConfig | None = None  # all settings of the policy; None for its own
    tick_ms: int = TICK_MS  # longest time between two passes of the controller


MEASURED_SPACING_MS = 12_500
"""What became of 10 s between submissions in EDL's runs."""


def run_trial(trial: SeedTrial) -> Figures:
    """Make one run and measure it."""
    if not trial.is_as_measured:
        scenario = cases.named(trial.case, is_preempting=trial.is_preempting)
        config = trial.config or PolicyConfig(mode=trial.policy)
        return figures(simulate_with(scenario, config, seed=trial.seed, tick_ms=trial.tick_ms))
    is_first = trial.case == "case1"
    scenario = cases.case1(spacing_ms=MEASURED_SPACING_MS) if is_first else cases.CASES[trial.case]()
    return figures(simulate(cases.as_measured(scenario), trial.policy, seed=trial.seed))


def run_all(
    trials: Sequence[SeedTrial], *, workers: int = 2, done: Callable[[SeedTrial], None] = lambda trial: None
) -> list[Figures]:
    """Make all runs, in so many processes, and give what they came to in the same order.

    Args:
        workers: how many processes; 1 for none but this.
    """
    found = []
    if workers <= 1 or len(trials) <= 1:
        for trial in trials:
            found.append(run_trial(trial))
            done(trial)
        return found
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(min(workers, len(trials)), mp_context=get_context("spawn")) as pool:
        for trial, figure in zip(trials, pool.map(run_trial, trials), strict=True):
            found.append(figure)
            done(trial)
    return found


# --- A synthetic trace of training jobs: when they come, how much there is to do, how well they
# scale
# 150 jobs come as a Poisson stream. Their work is heavy-tailed: log-normal, cut at ten times the median, as
# clusters limit how long a job may take (else the one longest job alone decides the makespan). The part of
# the work that runs in parallel differs. The load is the time that all trainers would take, each job at its
# maximum, over what the cluster has in the time in which the jobs come: above 1 a queue grows.

JOBS = 150
SLOTS = 250
LOADS = (Fraction(9, 5), Fraction(11, 5))
PARALLEL = ("0.9", "0.95", "0.98", "0.99", "0.995")
MAXIMA = (16, 32, 60)
MINIMUM = 1
MEDIAN_MS = 40_000_000
LONGEST_MS = 10 * MEDIAN_MS
SIGMA = 1.2


@dataclass(frozen=True, kw_only=True)
class TraceJob:
    """A job of a trace."""

    key: str
    at_ms: int  # when it comes
    work_ms: int  # time that one trainer would take
    parallel: str  # part of the work that runs in parallel, as a decimal (Amdahl's law)
    minimum: int  # fewest trainers
    maximum: int  # most trainers

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
    drawn = [_draw_one(dice, index) for index in range(JOBS)]
    gaps = [dice.expovariate(1.0) for _ in drawn]
    taken_ms = sum(job.alone_ms * job.maximum for job in drawn)
    unit_ms = taken_ms / (SLOTS * float(load)) / sum(gaps)
    times = (round(unit_ms * each) for each in accumulate(gaps))
    return tuple(replace(job, at_ms=at_ms) for job, at_ms in zip(drawn, times, strict=True))


def _draw_one(dice: random.Random, index: int) -> TraceJob:
    return TraceJob(
        key=f"trace/job-{index:03}",
        at_ms=0,
        work_ms=min(LONGEST_MS, round(MEDIAN_MS * dice.lognormvariate(0, SIGMA))),
        parallel=dice.choice(PARALLEL),
        minimum=MINIMUM,
        maximum=dice.choice(MAXIMA),
    )


# --- How long jobs take: the trace run by a rigid queue and by the real policies, on slots that are
# all alike
# What a plan says happens at once (perfect actuation), only that a job whose number of trainers changes
# stands still for a while. Between two plans nothing changes but the work that is done, so the simulation
# goes from event to event: a job comes, a job ends, or the policy wants to be asked again.

PAUSE_MS = 5_000
JCT_TICK_MS = 5_000
_NODE = "pool"


@dataclass(frozen=True, kw_only=True)
class JctOutcome:
    """How a trace went."""

    mean_jct_s: float  # mean time from the coming of a job to its end
    p95_jct_s: float  # the time that 19 of 20 jobs stay below
    makespan_s: float  # time from the start to the end of the last job
    changes: int = 0  # how often the number of trainers of a running job was changed
    plans: int = 0  # how often the policy was asked


def run_rigid(trace: Sequence[TraceJob]) -> JctOutcome:
    """Run a trace first in, first out: each job at its maximum, or it waits and all after it wait too."""
    running: list[tuple[int, int]] = []
    free, now_ms, ends = SLOTS, 0, {}
    for job in trace:
        now_ms = max(now_ms, job.at_ms)
        running.sort()
        while running and (running[0][0] <= now_ms or free < job.maximum):
            end_ms, count = running.pop(0)
            now_ms, free = max(now_ms, end_ms), free + count
        free -= job.maximum
        ends[job.key] = now_ms + job.alone_ms
        running.append((ends[job.key], job.maximum))
    return _outcome(trace, ends)


def run_policy(trace: Sequence[TraceJob], config: PolicyConfig) -> JctOutcome:
    """Run a trace under a policy."""
    pool = _Pool(config)
    coming = list(reversed(trace))
    while coming or pool.runs:
        times = [each for each in (coming[-1].at_ms if coming else None, pool.next_ms()) if each is not None]
        pool.go_on(min(times))
        while coming and coming[-1].at_ms <= pool.now_ms:
            pool.submit(coming.pop())
        pool.decide()
    return _outcome(trace, pool.ends, changes=pool.changes, plans=pool.plans)


@dataclass
class _Run:
    """A job that is under way or waits."""

    job: TraceJob
    left_ms: float
    names: list[Trainer] = field(default_factory=list)
    made: int = 0
    state: JobStage = "waiting"
    still_until_ms: int = 0
    changed_ms: int | None = None

    def end_ms(self, now_ms: int) -> int | None:
        """Give when it will be done if nothing changes."""
        if not self.names:
            return None
        return max(now_ms, self.still_until_ms) + ceil(self.left_ms / self.job.speed(len(self.names)))

    def work(self, since_ms: int, until_ms: int) -> None:
        """Do what can be done in a time."""
        if self.names:
            worked_ms = max(0, until_ms - max(since_ms, self.still_until_ms))
            self.left_ms -= worked_ms * self.job.speed(len(self.names))


class _Pool:
    """The slots with the jobs on them, and the policy that shares them out."""

    def __init__(self, config: PolicyConfig) -> None:
        self._config = config
        self._again_ms: int | None = None
        self._moves_ms: tuple[int, ...] = ()
        self.now_ms = 0
        self.runs: dict[str, _Run] = {}
        self.ends: dict[str, int] = {}
        self.changes = 0
        self.plans = 0

    def next_ms(self) -> int | None:
        """Give when a job ends or the policy wants to be asked again, whatever is first."""
        ends = [end for run in self.runs.values() if (end := run.end_ms(self.now_ms)) is not None]
        return min([*ends, *([self._again_ms] if self._again_ms is not None else [])], default=None)

    def go_on(self, until_ms: int) -> None:
        """Let time pass, and let those go that are done by then."""
        done = [
            key
            for key, run in self.runs.items()
            if (end := run.end_ms(self.now_ms)) is not None and end <= until_ms
        ]
        for run in self.runs.values():
            run.work(self.now_ms, until_ms)
        self.now_ms = until_ms
        for key in done:
            self.ends[key] = until_ms
            del self.runs[key]

    def submit(self, job: TraceJob) -> None:
        """Let a job come."""
        self.runs[job.key] = _Run(job=job, left_ms=float(job.work_ms))

    def decide(self) -> None:
        """Ask the policy, and do as it says; ask again soon as long as something changes."""
        decided = plan(self._snapshot(), self._config)
        self.plans += 1
        self._remember(decided)
        is_changed = [self._obey(decision) for decision in decided.decisions.values()]
        self._again_ms = self.now_ms + JCT_TICK_MS if any(is_changed) else None

    def _remember(self, decided: ScalePlan) -> None:
        since_ms = self.now_ms - self._config.moves_window_ms
        recent = tuple(each for each in self._moves_ms if each > since_ms)
        self._moves_ms = recent + (self.now_ms,) * decided.moves

    def _obey(self, decision: Decision) -> bool:
        run = self.runs[decision.job]
        if decision.target == len(run.names) and not decision.victims:
            return False
        if run.names:
            self.changes += 1
        victims = set(decision.victims)
        run.names = [each for each in run.names if each.name not in victims]
        while len(run.names) < decision.target:
            run.names.append(self._trainer(run))
        run.state = "admitted" if decision.is_admitted else "waiting"
        run.still_until_ms, run.changed_ms = self.now_ms + PAUSE_MS, self.now_ms
        return True

    def _trainer(self, run: _Run) -> Trainer:
        run.made += 1
        name = f"{run.job.key}-trainer-{run.made}"
        return Trainer(name=name, node=_NODE, planned=_NODE, created_ms=self.now_ms, is_ready=True)

    def _snapshot(self) -> Snapshot:
        return Snapshot(
            now_ms=self.now_ms,
            resources=("cpu",),
            nodes=(Node(name=_NODE, allocatable=(SLOTS,), used=(0,)),),
            jobs=tuple(_job(run) for run in self.runs.values()),
            moves_ms=self._moves_ms,
        )


def _job(run: _Run) -> Job:
    return Job(
        key=run.job.key,
        minimum=run.job.minimum,
        maximum=run.job.maximum,
        trainer=(1,),
        created_ms=run.job.at_ms,
        state=run.state,
        target=len(run.names),
        trainers=tuple(run.names),
        changed_ms=run.changed_ms,
        speed=f"amdahl:{run.job.parallel}",
    )


def _outcome(
    trace: Sequence[TraceJob], ends: dict[str, int], *, changes: int = 0, plans: int = 0
) -> JctOutcome:
    times = sorted(ends[job.key] - job.at_ms for job in trace)
    return JctOutcome(
        mean_jct_s=sum(times) / len(times) / 1000,
        p95_jct_s=times[ceil(0.95 * len(times)) - 1] / 1000,
        makespan_s=max(ends.values()) / 1000,
        changes=changes,
        plans=plans,
    )


# --- The goals for the time that jobs take, over seeds and loads of the synthetic trace ---

SEEDS = tuple(range(10))
"""The published seeds. What the trace looks like was chosen with other ones."""


@dataclass(frozen=True, kw_only=True)
class JctTrial:
    """One trace under the rigid queue and both policies."""

    seed: int  # of the trace
    load: Fraction  # of the trace
    rigid: JctOutcome  # first in, first out, every job at its maximum
    fair: JctOutcome  # policy `fair`
    throughput: JctOutcome  # policy `throughput`


def try_out(seed: int, load: Fraction) -> JctTrial:
    """Run one trace three times."""
    trace = draw(seed, load)
    return JctTrial(
        seed=seed,
        load=load,
        rigid=run_rigid(trace),
        fair=run_policy(trace, PolicyConfig(mode="fair")),
        throughput=run_policy(trace, PolicyConfig(mode="throughput")),
    )


def run_trials(seeds: Sequence[int] = SEEDS, *, workers: int = 2) -> tuple[JctTrial, ...]:
    """Run the traces of all seeds at all loads, in so many processes."""
    cases = [(seed, load) for load in LOADS for seed in seeds]
    if workers <= 1:
        return tuple(try_out(*case) for case in cases)
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return tuple(pool.map(try_out, *zip(*cases, strict=True)))


def judge_jct(trials: Sequence[JctTrial]) -> tuple[Row, ...]:
    """Give the rows of all goals, each at each load."""
    return tuple(
        row for load in LOADS for row in _judge_load(load, [each for each in trials if each.load == load])
    )


def _judge_load(load: Fraction, trials: Sequence[JctTrial]) -> tuple[Row, ...]:
    def row(name: str, saved: Callable[[JctTrial], float], bound: float) -> Row:
        return at_least(f"{name}, load {float(load):g} (%)", [saved(trial) for trial in trials], bound)

    return (
        row("fair: mean JCT below rigid FIFO", lambda each: _below(_mean, each.fair, each.rigid), 60),
        row("fair: makespan below rigid FIFO", lambda each: _below(_makespan, each.fair, each.rigid), 15),
        row("throughput: mean JCT below fair", lambda each: _below(_mean, each.throughput, each.fair), 7),
        row("throughput: p95 JCT below fair", lambda each: _below(_p95, each.throughput, each.fair), 0),
    )


def _below(measure: Callable[[JctOutcome], float], new: JctOutcome, old: JctOutcome) -> float:
    """Give by how many percent a measure fell, rounded to a hundredth."""
    return round(100 * (1 - measure(new) / measure(old)), 2)


def _mean(outcome: JctOutcome) -> float:
    return outcome.mean_jct_s


def _makespan(outcome: JctOutcome) -> float:
    return outcome.makespan_s


def _p95(outcome: JctOutcome) -> float:
    return outcome.p95_jct_s


# --- Does the simulator do what EDL's cluster did? EDL's rules in the simulator beside EDL's
# measurements
# The measurements are means over ten runs, from EDL's raw logs of 2017. The mix of nodes was fitted to the
# runs without elasticity, and how long attempts, retries and web pods take to all of them: see
# `cases.as_measured`.


@dataclass(frozen=True)
class Measured:
    """What EDL measured, and how near the simulator has to come."""

    case: str  # name of the case
    policy: str  # `edl-v010`, or `off` for jobs that are not elastic
    name: str  # what was measured
    figure: str  # its name among the figures
    value: float  # what EDL measured
    tolerance: float  # largest difference

    def judge(self, runs: Sequence[Figures]) -> Row:
        """Give the row of this measurement."""
        values = tuple(run.values[self.figure] for run in runs)
        value = fmean(values)
        return Row(
            name=f"{self.case} {'OFF' if self.policy == 'off' else 'ON'}: {self.name}",
            value=value,
            goal=f"{self.value:g} ± {self.tolerance:.3g}",
            is_met=abs(value - self.value) <= self.tolerance,
            per_seed=values,
        )


MEASURED = (
    Measured("case1", "off", "pending jobs at the end", "pending", 14, 0),
    Measured("case1", "off", "trainers at the end", "trainers", 347, 0.02 * 347),
    Measured("case1", "off", "utilisation at the end (%)", "final", 88.66, 1),
    Measured("case1", "edl-v010", "mean wait (s)", "wait", 47.2, 0.25 * 47.2),
    Measured("case1", "edl-v010", "utilisation at the end (%)", "final", 86.35, 2),
    Measured("case1", "edl-v010", "trainers at the end", "trainers", 253, 0.05 * 253),
    Measured("case1", "edl-v010", "Jain index at the end", "jain", 0.437, 0.06),
    Measured("case1", "edl-v010", "pending jobs at the end", "pending", 0.9, 1),
    Measured("case2", "off", "mean utilisation (%)", "utilisation", 62.9, 1),
    Measured("case2", "off", "off-peak utilisation (%)", "off-peak", 44.9, 1),
    Measured("case2", "edl-v010", "nginx shortfall while growing", "shortfall", 73.4, 0.15 * 73.4),
    Measured("case2", "edl-v010", "nginx at the end of 200", "serving at end of step 4", 187, 0.2 * 187),
    Measured("case2", "edl-v010", "nginx at the end of 300", "serving at end of step 5", 262, 0.2 * 262),
    Measured("case2", "edl-v010", "nginx at the end of 400", "serving at end of step 6", 332, 0.2 * 332),
    Measured("case2", "edl-v010", "mean utilisation (%)", "utilisation", 83.7, 4),
)


def trials(seeds: Sequence[int], cases: Sequence[str] = ("case1", "case2")) -> list[SeedTrial]:
    """Give the runs that a validation takes; rigid jobs hardly differ between seeds, one will do."""
    return [
        SeedTrial(case=case, policy=policy, seed=seed, is_as_measured=True)
        for case in cases
        for policy in ("off", "edl-v010")
        for seed in (seeds[:1] if policy == "off" else seeds)
    ]


def judge_validation(made: Sequence[SeedTrial], found: Sequence[Figures]) -> tuple[Row, ...]:
    """Give the rows of all measurements."""
    return tuple(
        row.judge(
            [
                figures
                for trial, figures in zip(made, found, strict=True)
                if (trial.case, trial.policy) == (row.case, row.policy)
            ]
        )
        for row in MEASURED
        if any(trial.case == row.case for trial in made)
    )
