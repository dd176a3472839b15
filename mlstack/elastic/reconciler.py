"""One pass of the controller: look, decide, act. Done twice it changes nothing more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field
from functools import partial
from typing import Any

from mlstack.clock import micro_time
from mlstack.dataclass import dataclass
from mlstack.elastic import state, status
from mlstack.elastic.actions import (
    ASKED_MS,
    MOST_CREATIONS,
    STAGES,
    Action,
    JobReconciler,
    NameTakenError,
    Runner,
    Trial,
    Trials,
    delete_pods,
    execute,
    free_capacity,
    one_by_one,
    set_refusal,
)
from mlstack.elastic.cache import MOVES_KEPT_MS, ClusterCache, build_snapshot, job_ref
from mlstack.elastic.facts import JobFacts
from mlstack.elastic.policy.plan import plan as decide
from mlstack.elastic.snapshot import Decision, PolicyConfig, ScalePlan, Snapshot
from mlstack.elastic.state import EVENT_API_VERSION, JobContext, JobEvent, JobRecord, Lifecycle
from mlstack.errors import ClusterError, ConflictError, ObjectNotFoundError, TransientError, UnreachableError
from mlstack.kube.client import Cluster, ObjectRef

_RESENT_MS = 60_000  # the same change of a status that did not stay is not written again for so long
_MOST_TURNS = 4
_LOOK_MS = 250  # an answer that takes longer is looked for so often
_CLOCKS_MS = 2_000  # times of events are whole seconds, of a clock that may go after ours


@dataclass(kw_only=True)
class Pass:
    """What one pass saw, decided and did."""

    now_ms: int
    snapshot: Snapshot = field(init=False)
    plan: ScalePlan = field(init=False)
    actions: list[Action] = field(default_factory=list)  # all writes, in their order
    refused: list[tuple[Action, ClusterError]] = field(default_factory=list)  # that the cluster did not take
    taken: list[Action] = field(default_factory=list)  # that it took, in passes that were cut short as well
    # What was decided in the end, by job: given-up gangs and lost trainers are not in the plan.
    decisions: dict[str, Decision] = field(default_factory=dict)
    events: list[JobEvent] = field(default_factory=list)  # what happened to jobs
    # Waits that are over once the status says so: key of the job, for its first `trainer` or `gang`, seconds.
    waits: list[tuple[str, str, int]] = field(default_factory=list)
    phases: Mapping[str, int] = field(default_factory=dict)  # jobs in each phase, those that ended included
    lacks: Mapping[str, int] = field(default_factory=dict)  # jobs without `trainer`, or all of their `gang`
    plan_s: float = 0.0  # how long the policy took
    due: list[int] = field(default_factory=list)  # when something falls due


class Reconciler:
    """Brings a cluster to what a policy decides; each write of a pod carries the lease's `transitions`.

    `run` carries out writes; `ask` carries out questions, and may return while some go on.
    """

    def __init__(
        self,
        cluster: Cluster,
        cache: ClusterCache,
        config: PolicyConfig | None = None,
        *,
        transitions: Callable[[], int | None] = lambda: None,
        run: Runner = one_by_one,
        ask: Runner = one_by_one,
        instance: str = "mlstack",
        is_dry: bool = False,
        monotonic_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._cluster, self._cache, self._config = cluster, cache, config or PolicyConfig()
        self._trials, self._run, self._ask = Trials(cluster, cache, ask), run, ask
        self._transitions, self._instance, self._is_dry = transitions, instance, is_dry
        self._monotonic_s = monotonic_s
        self._records: dict[str, JobRecord] = {}
        self._moves_ms: list[int] | None = None  # when trainers were moved for fairness alone
        # Of passes that were cut short.
        self._untold: list[JobEvent] = []
        self._taken: list[Action] = []

    def reconcile(self, now_ms: int) -> Pass:
        """Do one pass; after an UnreachableError the next pass does the rest."""
        done, self._untold = Pass(now_ms=now_ms, events=self._untold), []
        try:
            self._reconcile(done)
        except UnreachableError:
            self._untold = done.events
            raise
        done.taken, self._taken = self._taken, []
        return done

    def _reconcile(self, done: Pass) -> None:
        if self._moves_ms is None:
            self._moves_ms = state.restore_moves(self._cache.jobs.values(), done.now_ms - MOVES_KEPT_MS)
        contexts = self._contexts(done.now_ms)
        self._end_jobs(contexts, done)
        self._try_growth(contexts, done.now_ms)
        self._plan(contexts, done)
        contexts = self._contexts(done.now_ms)
        self._ask_sets(contexts, done.now_ms)
        done.lacks = Counter(
            state.lacks(context.job, context.pods) for context in contexts if context.job.wants_pods
        )
        self._act(contexts, done)
        done.phases = Counter(job.phase or "Pending" for job in self._cache.sorted_jobs())

    # --- look ---

    def _contexts(self, now_ms: int) -> list[JobContext]:
        pods, _ = self._cache.assign_pods()
        self._records = {key: record for key, record in self._records.items() if key in pods}
        contexts = []
        for job in self._cache.sorted_jobs():
            record = self._record(job)
            if record is None:  # it is seen for the first time: another leader may have looked after it
                record = self._records[job.key] = state.restore(job, pods[job.key], self._cache)
            life = state.judge(job, pods[job.key], record, now_ms) if job.wants_pods else Lifecycle()
            contexts.append(JobContext(job=job, pods=pods[job.key], record=record, life=life))
        return contexts

    def _record(self, job: JobFacts | None) -> JobRecord | None:
        """Give what is kept of a job, None where it was never seen, or is another of that name."""
        record = self._records.get(job.key) if job is not None else None
        return record if job is not None and record is not None and record.uid == job.uid else None

    def _end_jobs(self, contexts: Sequence[JobContext], done: Pass) -> None:
        """Write down which jobs are over before anything is planned: they take part no more."""
        ended: list[Action] = []
        for context in contexts:
            life, key = context.life, context.job.key
            if not life.outcome:
                continue
            ended += self._status(context, None, done)
            event = JobEvent(key, "Completed", "Finish", life.message)
            if life.outcome == "Failed":
                event = JobEvent(key, "Failed", "Finish", f"{life.reason}: {life.message}", "Warning")
            done.events.append(event)
        self._execute(ended, done)

    def _try_growth(self, contexts: Sequence[JobContext], now_ms: int) -> None:
        """Try one trainer more of jobs that were refused more of them, once it is time."""
        capped = [
            context
            for context in contexts
            if context.record.ceiling and not context.record.growth.is_waiting(now_ms)
        ]
        trials = self._trials.of([context.job for context in capped], now_ms, more=True)
        for record, trial in zip([context.record for context in capped], trials, strict=True):
            if trial.is_over and trial.refusal is None:
                record.ceiling = 0
            elif trial.is_over and trial.refusal is not None:
                record.cap(record.ceiling, trial.job.generation, trial.refusal, now_ms)

    def _ask_sets(self, contexts: Sequence[JobContext], now_ms: int) -> None:
        """Learn why StatefulSets make no pods: their controller, who is refused them, tells it in events."""
        answers: list[tuple[JobRecord, str]] = []

        def ask(record: JobRecord, namespace: str, name: str, since_ms: int) -> None:
            answers.append((record, set_refusal(self._cluster, namespace, name, since_ms)))

        questions = []
        for context in contexts:
            job, record, since_ms = context.job, context.record, context.record.short_ms
            if since_ms is None or now_ms - max(since_ms, record.asked_ms) < ASKED_MS:
                continue
            record.asked_ms = now_ms
            short = {name.rpartition("-")[0] for name in state.missing_pods(job, context.pods)}
            questions += [
                partial(ask, record, job.namespace, role.set_name, since_ms - _CLOCKS_MS)
                for role in job.servers
                if role.set_name in short
            ]
        if questions:
            self._ask(questions)
        for record, text in list(answers):
            if text:
                record.refuse(text, now_ms)

    # --- decide ---

    def _plan(self, contexts: Sequence[JobContext], done: Pass) -> None:
        """Decide; what the API server does not take of jobs that would be admitted is known before they are.

        Each job that it refuses, or of whose pods it makes more than is written, leaves its room to others,
        which are tried in turn; after some turns whoever is still untried waits for the next pass.
        """
        now_ms, untried = done.now_ms, dict[str, int]()
        for turn in range(_MOST_TURNS + 1):
            limits = {
                context.job.key: context.record.limits(
                    context.job, context.life.held, now_ms, not_before_ms=untried.get(context.job.key, 0)
                )
                for context in contexts
            }
            tried = self._cache.tried
            done.snapshot = build_snapshot(self._cache, now_ms, limits, self._moves_ms or ())
            begun_s = self._monotonic_s()
            done.plan = decide(done.snapshot, self._config)
            done.plan_s += self._monotonic_s() - begun_s
            waiting = [context for context in contexts if context.job.wants_pods and not context.job.target]
            new = [context for context in waiting if done.plan.decisions[context.job.key].target]
            again = {context.job.key for context in new if context.record.gang.streak}
            trials = self._trials.of([context.job for context in new], now_ms, again=again)
            taken = set()
            for context, trial in zip(new, trials, strict=True):
                if not trial.passes(done.plan):
                    self._keep_out(context, trial, untried, done)
                elif trial.requests == tried.get(context.job.key, {}):
                    taken.add(context.job.key)
            if len(taken) == len(new):
                break
            if turn == _MOST_TURNS - 1:
                untried |= dict.fromkeys({context.job.key for context in waiting} - taken, now_ms + 1)
                done.due.append(now_ms + _LOOK_MS)

    def _keep_out(self, context: JobContext, trial: Trial, untried: dict[str, int], done: Pass) -> None:
        """Keep a job from being admitted whose pods are not taken, or which is not tried yet."""
        job, record = context.job, context.record
        # Where pods are on their way out, the quotas of their namespace have more room soon.
        is_leaving = any(
            pod.namespace == job.namespace and pod.gone_ms is not None for pod in self._cache.pods.values()
        )
        if trial.refusal is None:
            untried[job.key] = done.now_ms + 1
            done.due.append(done.now_ms + _LOOK_MS)
        elif trial.is_passing or (trial.is_quota and is_leaving):
            record.passing.refuse(job.generation, done.now_ms, trial.refusal)
            done.due.append(record.passing.until_ms)
        else:
            record.gang.refuse(job.generation, done.now_ms, trial.refusal)
            done.due.append(record.gang.until_ms)

    # --- act ---

    def _act(self, contexts: Sequence[JobContext], done: Pass) -> None:
        plan, now_ms, actions = done.plan, done.now_ms, list[Action]()
        reconciler = JobReconciler(
            cache=self._cache,
            free=free_capacity(done.snapshot, plan),
            requests={job.key: job.trainer for job in done.snapshot.jobs},
            now_ms=now_ms,
            transitions=self._transitions(),
            due=done.due,
            creations_left=MOST_CREATIONS,
        )
        for context in sorted(contexts, key=self._urgency):
            job, decision = context.job, plan.decisions.get(context.job.key)
            if context.life.outcome and not self._is_dry:
                continue  # the cluster did not take its end: the next pass tries again
            if decision is not None:
                decision, of_job = reconciler.reconcile(context, decision)
                done.decisions[job.key] = decision
                recorder = context.record.events
                for event in state.decision_events(job, decision):
                    # What lasts since the time of a leader before was told by that one.
                    if event.lasts and recorder.is_new and status.says_waiting(job.status, event.text):
                        recorder.take_over(event.key, now_ms)
                    done.events.append(event)
            elif job.is_paused(context.pods, now_ms):
                why = "paused: a master or parameter server is lost"  # its trainers can only wait
                of_job = delete_pods(job, context.trainers, why)
            else:
                of_job = reconciler.take_off(context)
                if job.spec and job.spec.is_suspended and job.target and not job.has_ended:
                    done.events.append(JobEvent(job.key, "Suspended", "Suspend", "spec.suspend is true"))
            actions += [*self._status(context, decision, done), *of_job]
        recent = [moved for moved in self._moves_ms or () if now_ms - moved <= MOVES_KEPT_MS]
        self._moves_ms = [*recent, *[now_ms] * plan.moves]
        self._execute_stages(actions, reconciler.whole, done)
        self._execute(self._events(done), done)

    def _urgency(self, context: JobContext) -> tuple[int, bool]:
        """Rank the jobs whose trainers get room that is free: by priority, then those that lack a minimum."""
        spec = context.job.spec
        has_minimum = spec is None or len(context.trainers) >= spec.minimum
        return (-self._cache.priority(context.job).value, has_minimum)

    def _status(self, context: JobContext, decision: Decision | None, done: Pass) -> list[Action]:
        """Write the status by the smallest merge patch, where it changes."""
        job, record, now_ms = context.job, context.record, done.now_ms
        if job.is_deleted or job.has_ended:
            return []
        after = status.build_status(context, decision, self._cache.priority(job), now_ms)
        patch = _merge_patch(job.status, after)
        if not patch or (record.sent == patch and now_ms - record.sent_ms < _RESENT_MS):
            return []
        done.events += state.status_events(job, after)
        if job.spec and not job.status.get("startTime"):
            seconds = max(0, now_ms - job.spec.created_ms) // 1000
            ready, ready_before = ((row.get("trainer") or {}).get("ready") for row in (after, job.status))
            done.waits += [(job.key, "trainer", seconds)] if ready and not ready_before else []
            done.waits += [(job.key, "gang", seconds)] if after.get("startTime") else []
        ref, why = job_ref(job), str(after.get("phase"))
        return [Action("status", "status", ref, job.key, why, patch, version=job.version)]

    def _events(self, done: Pass) -> list[Action]:
        """Give the events for what is new, and count what was told before on its event."""
        actions: list[Action] = []
        reported: list[JobEvent] = []
        for event in done.events:
            job = self._cache.jobs.get(event.job)
            record = self._record(job)
            if job is None or record is None:
                continue
            manifest = event.manifest(job, done.now_ms, self._instance)
            ref, why = ObjectRef.of(manifest), event.reason
            is_new = record.events.record(event.key, ref.name, done.now_ms, lasts=event.lasts)
            if is_new:
                actions.append(Action("event", "create", ref, job.key, why, manifest))
            if is_new or not event.is_numbered:
                reported.append(event)
        done.events = reported
        for job in self._cache.sorted_jobs():
            record = self._record(job)
            for (reason, _), series in record.events.due(done.now_ms) if record else ():
                ref = ObjectRef(EVENT_API_VERSION, "Event", job.namespace, series.event)
                why, last = f"{reason}, {series.count} times", micro_time(series.last_ms / 1000)
                body = {"series": {"count": series.count, "lastObservedTime": last}}
                actions.append(Action("event", "patch", ref, job.key, why, body))
        return actions

    # --- write ---

    def _execute_stages(self, actions: Sequence[Action], whole: Set[str], done: Pass) -> None:
        """Do all writes of a pass stage by stage; a job whose status is refused goes no further.

        What stands around the trainers of the `whole` jobs counts as unwritten until it is taken. A server
        that is to go elsewhere goes once its set is written: the old one would make it again as it was.
        """
        for stage in STAGES:
            if stage == "delete":
                unsaid = {action.job for action, _ in done.refused}
                actions = [action for action in actions if action.job not in unsaid]
                done.events = [e for e in done.events if e.job not in unsaid or e.reason == "Refused"]
                self._note_begun(actions, whole - unsaid)
            chosen = [action for action in actions if action.stage == stage]
            if stage == "renew":
                refused = {action.job for action, _ in done.refused if action.verb == "apply"}
                chosen = [action for action in chosen if action.job not in refused]
            self._execute(chosen, done)

    def _note_begun(self, actions: Sequence[Action], whole: Set[str]) -> None:
        """Note what is about to be written, so that it is known even where nobody hears what came of it."""
        for key, record in self._records.items():
            record.kept = ""
            if key in whole:
                record.support_generation = self._cache.jobs[key].generation
                supports = [
                    action.ref for action in actions if action.job == key and action.stage == "support"
                ]
                record.unwritten = {ref: record.unwritten.get(ref) for ref in supports}

    def _execute(self, actions: Sequence[Action], done: Pass) -> None:
        done.actions += actions
        if self._is_dry or not actions:
            return
        errors = execute(self._cluster, self._cache, self._run, actions, self._taken)
        for index, action in enumerate(actions):
            record = self._record(self._cache.jobs.get(action.job))
            if record is None or index in errors:
                continue
            if action.verb == "status":  # one that does not stay is not written over and over
                record.sent, record.sent_ms = action.body, done.now_ms
            elif action.verb in ("create", "apply") and action.stage != "event":
                # What the cluster refused before is no longer in the way.
                record.refusal = ""
                record.unwritten.pop(action.ref, None)
        for index, error in errors.items():
            done.refused.append((actions[index], error))
            self._note_refused(actions[index], error, done)

    def _note_refused(self, action: Action, error: ClusterError, done: Pass) -> None:
        """Try again later what the cluster did not take, and say why it did not."""
        now_ms, job = done.now_ms, self._cache.jobs.get(action.job)
        record = self._record(job)
        if record is None or job is None:
            return
        if action.stage == "event":
            if isinstance(error, ObjectNotFoundError):
                record.events.forget(action.ref.name)
            return
        is_late = isinstance(error, ConflictError) and not isinstance(error, NameTakenError)
        is_passing = is_late or (isinstance(error, TransientError) and not error.webhook)
        if action.verb == "delete" and not is_passing:
            record.kept = str(error)
        if action.ref in record.unwritten and not is_passing:
            record.unwritten[action.ref] = error
        if action.verb in ("create", "apply") and not is_passing:
            record.refuse(str(error), now_ms)
            pods = self._cache.assign_pods()[0][job.key]
            live = sum(pod.role == "trainer" and pod.is_live for pod in pods)
            if action.ref.kind == "Pod" and live and not state.missing_pods(job, pods):
                # A job that can go on with the trainers that it has keeps to them.
                record.cap(live, job.generation, str(error), now_ms)
        if not record.writes.is_waiting(now_ms):
            # What will soon be taken, unlike what is forbidden or wrong.
            record.writes.fail(now_ms, is_passing=isinstance(error, ConflictError | TransientError))
        done.due.append(record.writes.until_ms)
        if not is_late:
            done.events.append(JobEvent(job.key, "Refused", action.verb.title(), str(error), "Warning"))


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Give the JSON merge patch that turns one value into the other, empty where they are equal."""
    patch: dict[str, Any] = {name: None for name in before if name not in after and before[name] is not None}
    for name, value in after.items():
        if isinstance(value, Mapping) and isinstance(before.get(name), Mapping):
            if inner := _merge_patch(before[name], value):
                patch[name] = inner
        elif before.get(name) != value:
            patch[name] = value
    return patch
