"""One pass of the controller: look, decide, act. Done twice it changes nothing more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Literal

from mlstack.elastic import status
from mlstack.elastic.controller import actions, events, job_reconciler
from mlstack.elastic.controller import memory as recalling
from mlstack.elastic.controller.actions import (
    Action,
    Actions,
    Executor,
    NameTakenError,
    Refused,
    Run,
    one_by_one,
)
from mlstack.elastic.controller.cache import MOVES_KEPT_MS, ClusterCache, is_paused
from mlstack.elastic.controller.events import EventNote
from mlstack.elastic.controller.job_reconciler import (
    ASKED_MS,
    MOST_CREATIONS,
    FreeCapacity,
    JobContext,
    JobReconciler,
    Life,
    Trial,
    Trials,
    absent,
    refused_by_set,
)
from mlstack.elastic.controller.jobs import JobFacts
from mlstack.elastic.controller.memory import ControllerState, JobMemory
from mlstack.elastic.facts import PodFacts
from mlstack.elastic.policy.plan import plan as decide
from mlstack.elastic.snapshot import Decision, PolicyConfig, ScalePlan, Snapshot
from mlstack.errors import ConflictError, ObjectNotFoundError, TransientError, UnreachableError
from mlstack.kube.client import Cluster, ObjectRef

RESENT_MS = 60_000
"""The same change of a status that did not stay is not written again for so long."""

_MOST_TURNS = 4
_LOOK_MS = 250  # an answer that takes longer is looked for so often
_CLOCKS_MS = 2_000  # times of events are whole seconds, of a clock that may go after ours

# What will soon be taken, unlike what is forbidden or wrong.
_PASSING = (ConflictError, TransientError)
_MAKING = ("create", "apply")

Decide = Callable[[Snapshot, PolicyConfig], ScalePlan]


@dataclass(frozen=True, kw_only=True)
class ReportedWait:
    """A note about a job."""

    job: str
    note: EventNote  # what happened


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A wait that is over."""

    job: str  # key of the job
    until: Literal["trainer", "gang"]  # what came: its first `trainer` that is ready, or the whole `gang`
    seconds: int  # since the job was created


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What one pass saw, decided and did."""

    snapshot: Snapshot  # the moment
    plan: ScalePlan  # what the policy decided
    actions: tuple[Action, ...] = ()  # all writes, in their order
    refused: tuple[Refused, ...] = ()  # those that the cluster did not take
    # those that it took, and those of passes before this one that were cut short
    taken: tuple[Action, ...] = ()
    # what was decided in the end, by job: gangs that are given up and trainers that were lost are not in the
    # plan
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    told: tuple[ReportedWait, ...] = ()  # what happened to jobs
    waits: tuple[Wait, ...] = ()  # whose waiting is over
    # how many jobs there are in each phase, those that ended included
    phases: Mapping[str, int] = field(default_factory=dict)
    # how many jobs that are to have pods lack a running `trainer`, and more of their `gang`
    lacks: Mapping[str, int] = field(default_factory=dict)
    plan_s: float = 0.0  # how long the policy took, in seconds
    next_ms: int | None = None  # when something falls due, None for nothing


@dataclass
class _Work:
    """A pass as it goes on."""

    now_ms: int
    done: list[Action] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    decisions: dict[str, Decision] = field(default_factory=dict)
    told: list[ReportedWait] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    due: list[int] = field(default_factory=list)
    plan_s: float = 0.0


class Reconciler:
    """Brings a cluster to what a policy decides."""

    def __init__(
        self,
        cluster: Cluster,
        world: ClusterCache,
        config: PolicyConfig | None = None,
        *,
        transitions: Callable[[], int | None] = lambda: None,
        run: Run = one_by_one,
        instance: str = "mlstack",
        is_dry: bool = False,
        decide: Decide = decide,
        most_creations: int = MOST_CREATIONS,
        ask: Run = one_by_one,
        monotonic_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._world = world
        self._config = config or PolicyConfig()
        self._hands = Executor(cluster, world, run)
        self._cluster, self._ask, self._trials = cluster, ask, Trials(cluster, world, ask)
        self._transitions, self._instance, self._is_dry = transitions, instance, is_dry
        self._decide, self._most_creations = decide, most_creations
        self._monotonic_s = monotonic_s
        self._memory, self._has_looked = ControllerState(), False
        self._untold: list[ReportedWait] = []

    def step(self, now_ms: int) -> Pass:
        """Do one pass.

        Raises:
            UnreachableError: the server does not answer. What was done is known; the next pass does the rest.
        """
        work = _Work(now_ms, told=self._untold)
        self._untold = []
        try:
            return self._step(work)
        except UnreachableError:
            self._untold = work.told
            raise

    def _step(self, work: _Work) -> Pass:
        now_ms = work.now_ms
        if not self._has_looked:
            self._has_looked = True
            self._world.moves_ms = recalling.moves(self._world.jobs(), now_ms - MOVES_KEPT_MS)
        subjects = self._subjects(now_ms)
        self._end(subjects, work)
        self._world.failed = {one.job.key: one.life.held for one in subjects if one.life.held}
        self._try_growth(subjects, now_ms)
        snapshot, plan = self._plan(subjects, work)
        subjects = self._subjects(now_ms)
        self._ask_sets(subjects, now_ms)
        lacks = Counter[str](job_reconciler.lack(one.job, one.pods) for one in subjects if one.job.wants_pods)
        self._follow(snapshot, plan, subjects, work)
        taken, self._hands.taken = self._hands.taken, []
        return Pass(
            snapshot=snapshot,
            plan=plan,
            actions=tuple(work.done),
            refused=tuple(work.refused),
            taken=tuple(taken),
            decisions=work.decisions,
            told=tuple(work.told),
            waits=tuple(work.waits),
            phases=Counter(job.phase or "Pending" for job in self._world.jobs()),
            lacks=lacks,
            plan_s=work.plan_s,
            next_ms=min(work.due, default=None),
        )

    def _plan(self, subjects: Sequence[JobContext], work: _Work) -> tuple[Snapshot, ScalePlan]:
        """Decide; what the API server does not take of jobs that would be admitted is known before they are.

        Each job that it refuses leaves its room to others, which are tried in turn; after some turns whoever
        is still untried waits for the next pass.
        """
        now_ms, held = work.now_ms, set[str]()
        for turn in range(_MOST_TURNS + 1):
            self._note_held(subjects, held, now_ms)
            snapshot = self._world.snapshot(now_ms)
            begun_s = self._monotonic_s()
            plan = self._decide(snapshot, self._config)
            work.plan_s += self._monotonic_s() - begun_s
            new = [
                one
                for one in subjects
                if one.job.target == 0 and _target(plan, one.job) and one.job.wants_pods
            ]
            if turn == _MOST_TURNS:
                trials = [Trial(one.job, 0, now_ms) for one in new]
            else:
                again = {one.job.key for one in new if one.memory.wait.streak}
                trials = self._trials.of([one.job for one in new], now_ms, again=again)
            refused = [pair for pair in zip(new, trials, strict=True) if not _passes(pair[1], plan)]
            if not refused:
                break
            for subject, trial in refused:
                self._hold(subject, trial, held, work)
        return snapshot, plan

    def _note_held(self, subjects: Sequence[JobContext], held: Set[str], now_ms: int) -> None:
        """Let the world know which jobs are not to be admitted, or have more trainers, before some time."""
        not_before, refused, ceilings = dict.fromkeys(held, now_ms + 1), {}, {}
        for subject in subjects:
            job, memory = subject.job, subject.memory
            until_ms = memory.not_before_ms(job.generation)
            if until_ms > now_ms:
                not_before[job.key] = until_ms
            known = memory.setbacks(0)
            refused[job.key] = (memory if job.target == 0 else known).refused(job.generation, now_ms)
            ceilings[job.key] = known.cap(job.generation, now_ms)
        self._world.not_before, self._world.refused = not_before, refused
        self._world.ceilings = {key: ceiling for key, ceiling in ceilings.items() if ceiling}

    def _hold(self, subject: JobContext, trial: Trial, held: set[str], work: _Work) -> None:
        """Keep a job from being admitted whose pods are not taken, or which is not tried yet."""
        job, memory = subject.job, subject.memory
        if trial.refusal is None:
            held.add(job.key)
            work.due.append(work.now_ms + _LOOK_MS)
        elif trial.refusal.is_passing or (trial.refusal.is_quota and self._is_leaving(job.namespace)):
            memory.shy_away(trial.refusal.text, work.now_ms)
            work.due.append(memory.shy.until_ms)
        else:
            memory.give_up(job.generation, work.now_ms, refusal=trial.refusal.text)
            work.due.append(memory.wait.until_ms)

    def _is_leaving(self, namespace: str) -> bool:
        """Tell whether pods of a namespace are on their way out: its quotas have more room soon."""
        return any(pod.namespace == namespace and pod.gone_ms is not None for pod in self._world.pods())

    def _try_growth(self, subjects: Sequence[JobContext], now_ms: int) -> None:
        """Try one trainer more of jobs that were refused more of them, once it is time."""
        capped = [one for one in subjects if one.memory.ceiling and not one.memory.growth.is_waiting(now_ms)]
        trials = self._trials.of([one.job for one in capped], now_ms, more=True) if capped else []
        for subject, trial in zip(capped, trials, strict=True):
            memory = subject.memory
            if trial.is_over and trial.refusal is None:
                memory.ceiling = 0
            elif trial.is_over and trial.refusal is not None:
                memory.cap(memory.ceiling, subject.job.generation, trial.refusal.text, now_ms)

    def _ask_sets(self, subjects: Sequence[JobContext], now_ms: int) -> None:
        """Learn why StatefulSets make no pods: their controller, who is refused them, tells it in events."""
        said: list[tuple[JobMemory, str]] = []

        def asking(memory: JobMemory, namespace: str, name: str, since_ms: int) -> Callable[[], None]:
            return lambda: said.append((memory, refused_by_set(self._cluster, namespace, name, since_ms)))

        works = []
        for subject in subjects:
            memory, since_ms = subject.memory, subject.memory.short_ms
            if since_ms is None or now_ms - max(since_ms, memory.asked_ms) < ASKED_MS:
                continue
            memory.asked_ms = now_ms
            lost = absent(subject.job, subject.pods)
            names = [kind.set_name for kind in subject.job.servers]
            works += [
                asking(memory, subject.job.namespace, name, since_ms - _CLOCKS_MS)
                for name in names
                if any(pod.rpartition("-")[0] == name for pod in lost)
            ]
        if works:
            self._ask(works)
        for memory, text in list(said):
            if text:
                memory.refuse(text, now_ms)

    def _subjects(self, now_ms: int) -> list[JobContext]:
        """Give the jobs with their pods, and what became of those that are under way."""
        pods = self._world.pods_by_job()
        self._memory.forget_all_but(set(pods))
        for key in self._world.bars.keys() - pods.keys():
            del self._world.bars[key]
        return [self._subject(job, pods[job.key], now_ms) for job in self._world.jobs()]

    def _subject(self, job: JobFacts, pods: Sequence[PodFacts], now_ms: int) -> JobContext:
        memory = self._memory.of(job.key, job.uid)
        if memory is None:  # seen for the first time: another leader may have looked after it
            memory = self._memory.begin(job.key, job.uid)
            sets = [self._world.stateful_set(f"{job.namespace}/{kind.set_name}") for kind in job.servers]
            recalling.recall(memory, job, pods, sets)
            if memory.bars:
                self._world.bars[job.key] = {node: bar.until_ms for node, bar in memory.bars.items()}
        life = job_reconciler.judge(job, pods, memory, now_ms) if job.wants_pods else Life()
        return JobContext(job=job, pods=pods, memory=memory, life=life)

    def _end(self, subjects: Sequence[JobContext], work: _Work) -> None:
        """Write down which jobs are over before anything is planned: they take part no more."""
        ended: list[Action] = []
        for subject in subjects:
            if subject.life.outcome:
                ended += self._report(subject, None, work)
                work.told.append(ReportedWait(job=subject.job.key, note=events.of_end(subject.life)))
        self._carry_out(ended, work)

    def _follow(
        self, snapshot: Snapshot, plan: ScalePlan, subjects: Sequence[JobContext], work: _Work
    ) -> None:
        """Do what was decided: say so, make room, then fill it."""
        director = JobReconciler(
            world=self._world,
            openings=FreeCapacity(snapshot, plan),
            now_ms=work.now_ms,
            transitions=self._transitions(),
            due=work.due,
            left=self._most_creations,
        )
        statuses: list[Action] = []
        wanted: list[Actions] = []
        for subject in sorted(subjects, key=self._urgency):
            decision = plan.decisions.get(subject.job.key)
            if subject.life.outcome and not self._is_dry:
                continue  # the cluster did not take its end: the next pass tries again
            if decision is None and is_paused(subject.job, subject.pods, work.now_ms):
                found = director.pause(subject)
            elif decision is None:
                found = director.dismiss(subject)
                work.told += [
                    ReportedWait(job=subject.job.key, note=note) for note in events.of_suspension(subject.job)
                ]
            else:
                decision, found = director.follow(subject, decision)
                work.decisions[subject.job.key] = decision
                self._note_change(subject, decision, work)
            statuses += self._report(subject, decision, work)
            wanted.append(found)
        self._note_moves(plan.moves, work.now_ms)
        self._carry_out(statuses, work)
        unsaid = {one.action.job for one in work.refused}
        agreed = [found for found in wanted if found.job not in unsaid]
        self._carry_out([action for found in agreed for action in found.deletions], work)
        self._support(agreed, work)
        self._carry_out([action for found in agreed for action in found.creations], work)
        self._carry_out(self._events(work), work)

    def _report(self, subject: JobContext, decision: Decision | None, work: _Work) -> list[Action]:
        """Write the status, where it changes."""
        job, memory = subject.job, subject.memory
        if job.is_deleted or job.has_ended:
            return []
        life, now_ms = subject.life, work.now_ms
        now = job_reconciler.standing(
            job,
            subject.pods,
            memory,
            life=life,
            decision=decision,
            priority=self._world.priority(job),
            now_ms=now_ms,
        )
        wanted = status.build_status(now, job.status, now_ms=work.now_ms)
        patch = job_reconciler.difference(job.status, wanted)
        is_known = memory.sent == patch and work.now_ms - memory.sent_ms < RESENT_MS
        if not patch or is_known:
            return []
        work.told += [ReportedWait(job=job.key, note=note) for note in events.of_status(job.status, wanted)]
        work.waits += _waits(job, wanted, work.now_ms)
        return [actions.status(job, patch, str(wanted.get("phase")))]

    def _support(self, wanted: Sequence[Actions], work: _Work) -> None:
        """Write what stands around the trainers, and remember for which jobs it stands as a whole.

        A server that is to go elsewhere goes only when its set is written: the old one would make it again as
        it was.
        """
        whole = {one.job: {each.ref for each in one.supports} for one in wanted if one.is_whole}
        self._note_unwritten(whole)
        self._carry_out([action for one in wanted for action in one.supports], work)
        refused = [one.action for one in work.refused if one.action.verb == "apply"]
        failed, refs = {each.job for each in refused}, {each.ref for each in refused}
        if not self._is_dry:
            self._note_unwritten({key: written & refs for key, written in whole.items()})
        renewals = [action for one in wanted if one.job not in failed for action in one.renewals]
        self._carry_out(renewals, work)

    def _note_unwritten(self, unwritten: Mapping[str, Set[ObjectRef]]) -> None:
        """Remember what is still to be written around the trainers of jobs."""
        for key, refs in unwritten.items():
            job = self._world.job(key)
            memory = self._memory.of(key, job.uid) if job else None
            if job is not None and memory is not None:
                memory.supported = ("begun", job.generation) if refs else (job.generation,)
                memory.unwritten = frozenset(refs)

    def _note_moves(self, moves: int, now_ms: int) -> None:
        """Remember when trainers were moved for fairness alone."""
        known = [moved for moved in self._world.moves_ms if now_ms - moved <= MOVES_KEPT_MS]
        self._world.moves_ms = [*known, *[now_ms] * moves]

    def _note_change(self, subject: JobContext, decision: Decision, work: _Work) -> None:
        """Tell what changed; what lasts since the time of a leader before was told by that one."""
        job, told = subject.job, subject.memory.told
        note = events.of_decision(job.target, decision)
        if note is None:
            return
        if note.lasts and told.is_new and status.says_waiting(job.status, note.text):
            told.take_over(note.key, work.now_ms)
        work.told.append(ReportedWait(job=job.key, note=note))

    def _events(self, work: _Work) -> list[Action]:
        """Give the events for what was told and is news, and count what was told before on its event."""
        found = []
        said, work.told = work.told, []
        for told in said:
            job = self._world.job(told.job)
            memory = self._memory.of(told.job, job.uid) if job else None
            if job is None or memory is None:
                continue
            body = events.event(job, told.note, work.now_ms, self._instance)
            ref, why = ObjectRef.of(body), told.note.reason
            is_news = memory.told.is_news(told.note.key, ref.name, work.now_ms, lasts=told.note.lasts)
            if is_news:
                found.append(Action(verb="create", ref=ref, job=job.key, why=why, body=body))
            if is_news or told.note.is_loud:
                work.told.append(told)
        return [*found, *self._repeats(work.now_ms)]

    def _repeats(self, now_ms: int) -> Iterator[Action]:
        """Give the changes of events that tell how often something was."""
        for job in self._world.jobs():
            memory = self._memory.of(job.key, job.uid)
            for (reason, _), series in memory.told.due(now_ms) if memory else ():
                ref = ObjectRef(events.API_VERSION, "Event", job.namespace, series.event)
                why = f"{reason}, {series.count} times"
                yield Action(verb="patch", ref=ref, job=job.key, why=why, body=series.body)

    def _carry_out(self, actions: Sequence[Action], work: _Work) -> None:
        work.done += actions
        if self._is_dry or not actions:
            return
        refusals = self._hands.carry_out(actions)
        done = {id(action) for action in actions} - {id(refused.action) for refused in refusals}
        self._note_done([action for action in actions if id(action) in done], work.now_ms)
        for refused in refusals:
            work.refused.append(refused)
            self._pause(refused, work)

    def _note_done(self, actions: Sequence[Action], now_ms: int) -> None:
        """Remember which statuses were written, since one that does not stay is not written over and over.

        Whatever else was taken shows that what the cluster refused before is no longer in the way.
        """
        for action in actions:
            job = self._world.job(action.job)
            memory = self._memory.of(job.key, job.uid) if job else None
            if memory is not None and action.verb == "status":
                memory.sent, memory.sent_ms = action.body, now_ms
            elif memory is not None and action.verb in _MAKING and action.ref.kind != "Event":
                memory.refusal = ""
                memory.taken_names.pop(action.ref, None)

    def _pause(self, refused: Refused, work: _Work) -> None:
        """Try again later what the cluster did not take, and say why it did not."""
        job = self._world.job(refused.action.job)
        memory = self._memory.of(job.key, job.uid) if job else None
        if memory is None or job is None:
            return
        if refused.action.ref.kind == "Event":
            if isinstance(refused.error, ObjectNotFoundError):
                memory.told.forget(refused.action.ref.name)
            return
        is_passing = isinstance(refused.error, TransientError) and not refused.error.webhook
        if refused.action.verb == "apply" and isinstance(refused.error, NameTakenError):
            memory.taken_names[refused.action.ref] = str(refused.error)
        if refused.action.verb in _MAKING and not is_passing:
            memory.refuse(str(refused.error), work.now_ms)
            self._cap(job, memory, refused, work.now_ms)
        if not memory.pause.is_waiting(work.now_ms):
            memory.pause.fail(work.now_ms, is_passing=isinstance(refused.error, _PASSING))
        work.due.append(memory.pause.until_ms)
        note = EventNote(
            reason="Refused", action=refused.action.verb.title(), text=str(refused.error), type="Warning"
        )
        work.told.append(ReportedWait(job=job.key, note=note))

    def _urgency(self, subject: JobContext) -> tuple[int, bool]:
        """Rank the jobs whose trainers get room that is free: by priority, then those that lack a minimum."""
        wanted = subject.job.spec
        if wanted is None:
            return (0, True)
        return (-self._world.priority(subject.job).value, len(subject.trainers) >= wanted.minimum)

    def _cap(self, job: JobFacts, memory: JobMemory, refused: Refused, now_ms: int) -> None:
        """Let a job that can go on with the trainers it has keep to them, where it is refused more."""
        pods = self._world.pods_by_job()[job.key]
        live = sum(pod.role == "trainer" and pod.is_live for pod in pods)
        if refused.action.ref.kind == "Pod" and live and not absent(job, pods):
            memory.cap(live, job.generation, str(refused.error), now_ms)


def _passes(trial: Trial, plan: ScalePlan) -> bool:
    """Tell whether a job may be admitted after a trial.

    What a quota has no room for now it may have once the plan has taken pods in the same namespace, as long
    as that is all it takes.
    """
    if not trial.is_over or trial.refusal is None:
        return trial.is_over
    if not trial.refusal.is_quota:
        return False
    poorer = {key.partition("/")[0] for key, decision in plan.decisions.items() if decision.victims}
    return poorer == {trial.job.namespace}


def _target(plan: ScalePlan, job: JobFacts) -> int:
    return plan.decisions[job.key].target if job.key in plan.decisions else 0


def _waits(job: JobFacts, after: Mapping[str, Any], now_ms: int) -> Iterator[Wait]:
    """Give what a job waits for no more, by its status before and after."""
    if job.spec is None or job.status.get("startTime"):
        return
    seconds = max(0, now_ms - job.spec.created_ms) // 1000
    ready = int((job.status.get("trainer") or {}).get("ready") or 0)
    if not ready and (after.get("trainer") or {}).get("ready"):
        yield Wait(job=job.key, until="trainer", seconds=seconds)
    if after.get("startTime"):
        yield Wait(job=job.key, until="gang", seconds=seconds)
