"""One pass of the controller: look, decide, act. Done twice it changes nothing more than once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.elastic import status
from mlstack.elastic.acting import lifecycle, notes, orders, reports
from mlstack.elastic.acting.actions import Action, Hands, Refused, Run, one_by_one
from mlstack.elastic.acting.gang import Gang, dismiss, see_to
from mlstack.elastic.acting.lifecycle import Life
from mlstack.elastic.acting.memory import JobMemory, Memory
from mlstack.elastic.acting.notes import Note
from mlstack.elastic.acting.orders import Orders
from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.observed.jobs import JobFacts, SetFacts
from mlstack.elastic.observed.pods import PodFacts
from mlstack.elastic.plan import plan as decide
from mlstack.elastic.scaleplan import Decision, Reason, ScalePlan
from mlstack.elastic.snapshot import Snapshot
from mlstack.elastic.world import MOVES_KEPT_MS, World

RESENT_MS = 60_000
"""The same change of a status that did not stay is not written again for so long."""

Decide = Callable[[Snapshot, PolicyConfig], ScalePlan]


@dataclass(frozen=True, kw_only=True)
class Told:
    """A note about a job.

    Attributes:
        job: its key.
        note: what happened.
    """

    job: str
    note: Note


@dataclass(frozen=True, kw_only=True)
class Pass:
    """What one pass saw, decided and did.

    Attributes:
        snapshot: the moment.
        plan: what the policy decided.
        actions: all writes, in their order.
        refused: those that the cluster did not take.
        told: what happened to jobs.
        next_ms: when something falls due, None for nothing.
    """

    snapshot: Snapshot
    plan: ScalePlan
    actions: tuple[Action, ...] = ()
    refused: tuple[Refused, ...] = ()
    told: tuple[Told, ...] = ()
    next_ms: int | None = None


@dataclass
class _Work:
    """A pass as it goes on."""

    now_ms: int
    done: list[Action] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    due: list[int] = field(default_factory=list)


class Reconciler:
    """Brings a cluster to what a policy decides.

    Args:
        cluster: where to write; a fenced one, where others may lead.
        world: what is known of it.
        config: of the policy.
        transitions: gives how often the lease has changed hands; every decision carries it.
        run: carries out writes that do not depend on each other.
        instance: name of this process, for events.
        is_dry: work everything out, write nothing.
        decide: the policy.
    """

    def __init__(
        self,
        cluster: Cluster,
        world: World,
        config: PolicyConfig | None = None,
        *,
        transitions: Callable[[], int | None] = lambda: None,
        run: Run = one_by_one,
        instance: str = "mlstack",
        is_dry: bool = False,
        decide: Decide = decide,
    ) -> None:
        """Hold the parts; nothing is read or written."""
        self._world = world
        self._config = config or PolicyConfig()
        self._hands = Hands(cluster, world, run)
        self._transitions, self._instance, self._is_dry = transitions, instance, is_dry
        self._decide = decide
        self._memory = Memory()

    def step(self, now_ms: int) -> Pass:
        """Do one pass.

        Raises:
            UnreachableError: the server does not answer. What was done is known; the next pass does the rest.
        """
        work = _Work(now_ms)
        lives = self._judge(work)
        self._end(lives, work)
        snapshot = self._world.snapshot(now_ms)
        plan = self._decide(snapshot, self._config)
        self._follow(plan, lives, work)
        return Pass(
            snapshot=snapshot,
            plan=plan,
            actions=tuple(work.done),
            refused=tuple(work.refused),
            told=tuple(work.told),
            next_ms=min(work.due, default=None),
        )

    def _judge(self, work: _Work) -> dict[str, Life]:
        """Tell what became of the jobs that are under way."""
        pods = self._world.pods_by_job()
        lives = {}
        for job in self._world.jobs():
            memory = self._remembered(job, pods[job.key])
            if job.wants_pods:
                lives[job.key] = lifecycle.judge(job, pods[job.key], memory, work.now_ms)
        self._memory.forget_all_but(set(pods))
        return lives

    def _remembered(self, job: JobFacts, pods: Sequence[PodFacts]) -> JobMemory:
        """Give what is remembered of a job; of one seen for the first time what its status tells."""
        found = self._memory.of(job.key, job.uid)
        if found is None:
            found = self._memory.begin(job.key, job.uid)
            found.failed = int((job.status.get("trainer") or {}).get("failed") or 0)
            found.counted = {pod.uid for pod in pods if pod.ending == "failed"} if found.failed else set()
        return found

    def _end(self, lives: Mapping[str, Life], work: _Work) -> None:
        """Write down which jobs are over before anything is planned: they take part no more."""
        ended: list[Action] = []
        for key, life in lives.items():
            job = self._world.job(key)
            if life.outcome and job is not None:
                ended += self._report(job, life, None, work)
                work.told.append(Told(job=key, note=notes.of_end(life)))
        self._carry_out(ended, work)

    def _follow(self, plan: ScalePlan, lives: Mapping[str, Life], work: _Work) -> None:
        """Do what was decided: say so, make room, then fill it."""
        statuses: list[Action] = []
        wanted: list[Orders] = []
        pods = self._world.pods_by_job()
        for job in self._world.jobs():
            if lives.get(job.key, Life()).outcome and not self._is_dry:
                continue  # the cluster did not take its end: the next pass tries again
            decision = plan.decisions.get(job.key)
            if decision is not None:
                decision, found = self._orders(job, decision, pods[job.key], lives[job.key], work)
            else:
                found = self._dismissal(job, pods[job.key], work)
            statuses += self._report(job, lives.get(job.key, Life()), decision, work)
            wanted.append(found)
        self._world.moves_ms = [
            *(moved for moved in self._world.moves_ms if work.now_ms - moved <= MOVES_KEPT_MS),
            *[work.now_ms] * plan.moves,
        ]
        self._carry_out(statuses, work)
        unsaid = {one.action.job for one in work.refused}
        agreed = [found for found in wanted if found.job not in unsaid]
        self._carry_out([action for found in agreed for action in found.deletions], work)
        self._carry_out([action for found in agreed for action in found.supports], work)
        self._carry_out([action for found in agreed for action in found.creations], work)
        self._carry_out(self._events(work), work)

    def _orders(
        self, job: JobFacts, decision: Decision, pods: Sequence[PodFacts], life: Life, work: _Work
    ) -> tuple[Decision, Orders]:
        """Give the writes that carry out a decision, which a hopeless gang overrules."""
        memory = self._remembered(job, pods)
        if decision.target == 0:
            self._note_change(job, decision, work)
            memory.admitted_ms = None
            return decision, self._dismissal(job, pods, work, why=decision.reasons[0].text)
        gang = self._gang(job, decision, pods, memory, work)
        if gang.is_hopeless:
            return self._give_up(job, pods, memory, work)
        self._note_change(job, decision, work)
        victims = set(decision.victims)
        leaving = [pod for pod in pods if pod.is_live and pod.role == "trainer" and pod.name in victims]
        self._bar(job, decision, leaving, memory, work)
        if life.due_ms is not None:
            work.due.append(life.due_ms)
        why = decision.reasons[0]
        text = f"{why.cause}: {why.text}"
        deleted = [
            *orders.deletions(job, leaving, text),
            *orders.deletions(job, life.removed, "makes place for another"),
            *orders.deletions(job, gang.loosened, gang.why, grace_s=0),
        ]
        if memory.pause.is_waiting(work.now_ms):
            work.due.append(memory.pause.until_ms)
            return decision, Orders(job=job.key, deletions=tuple(deleted))
        places = decision.places[: max(0, len(decision.places) - life.held)]
        support = gang.support
        return decision, Orders(
            job=job.key,
            deletions=tuple(deleted),
            supports=tuple(orders.supports(job, support, gang.why, self._transitions()) if support else ()),
            creations=tuple(
                orders.creations(
                    job, places, text, is_taken=self._is_taken(job, life), transitions=self._transitions()
                )
            ),
        )

    def _gang(
        self, job: JobFacts, decision: Decision, pods: Sequence[PodFacts], memory: JobMemory, work: _Work
    ) -> Gang:
        sets = self._sets(job)
        hints = {role: tuple(map(self._world.host_name, nodes)) for role, nodes in decision.hints.items()}
        if job.target == 0:
            memory.admitted_ms, memory.supported = work.now_ms, ()
        found = see_to(job, pods, sets, memory, hints=hints if job.target == 0 else {}, now_ms=work.now_ms)
        if found.support is not None:
            memory.supported = (job.generation,)
        if found.due_ms is not None:
            work.due.append(found.due_ms)
        return found

    def _give_up(
        self, job: JobFacts, pods: Sequence[PodFacts], memory: JobMemory, work: _Work
    ) -> tuple[Decision, Orders]:
        """Take a gang off that found no room for its servers, and let it wait again."""
        nodes = {node for hinted in memory.hints.values() for node in hinted}
        for node in sorted(nodes):
            self._world.bars.setdefault(job.key, {})[node] = memory.bar(node, work.now_ms)
        memory.admitted_ms = None
        text = "its masters and parameter servers found no node; it waits again"
        decision = Decision(
            job=job.key,
            target=0,
            is_admitted=False,
            hints={},
            reasons=(Reason(cause="stuck", text=text),),
        )
        self._note_change(job, decision, work)
        return decision, self._dismissal(job, pods, work, why=text)

    def _bar(
        self,
        job: JobFacts,
        decision: Decision,
        leaving: Sequence[PodFacts],
        memory: JobMemory,
        work: _Work,
    ) -> None:
        """Pass nodes over for a while that had a place on paper only."""
        if not any(reason.cause == "stuck" for reason in decision.reasons):
            return
        for pod in leaving:
            if not pod.node and pod.planned:
                until_ms = memory.bar(pod.planned, work.now_ms)
                self._world.bars.setdefault(job.key, {})[pod.planned] = until_ms

    def _dismissal(
        self, job: JobFacts, pods: Sequence[PodFacts], work: _Work, *, why: str = "the job has no pods"
    ) -> Orders:
        """Give the writes for a job that is to have no pods; pods that ended stay to be read."""
        if job.is_deleted or job.spec is None:
            return Orders(job=job.key)
        if job.has_ended:
            removal = self._expiry(job, work)
            if removal:
                return Orders(job=job.key, deletions=(removal,))
        live = [pod for pod in pods if pod.role == "trainer" and pod.is_live]
        support = dismiss(self._sets(job))
        return Orders(
            job=job.key,
            deletions=tuple(orders.deletions(job, live, why)),
            supports=tuple(orders.supports(job, support, why, self._transitions()) if support else ()),
        )

    def _expiry(self, job: JobFacts, work: _Work) -> Action | None:
        """Give the removal of a job whose time after its end is over."""
        ended_ms = status.ended_ms(job.status)
        if job.spec is None or job.spec.ttl_s is None or ended_ms is None:
            return None
        due_ms = ended_ms + job.spec.ttl_s * 1000
        if work.now_ms < due_ms:
            work.due.append(due_ms)
            return None
        return orders.removal(job, f"{job.spec.ttl_s} s after its end")

    def _report(self, job: JobFacts, life: Life, decision: Decision | None, work: _Work) -> list[Action]:
        """Write the status, where it changes."""
        if job.is_deleted or job.has_ended:
            return []
        pods = self._world.pods_by_job().get(job.key, [])
        memory = self._remembered(job, pods)
        now = reports.standing(job, pods, memory, life=life, decision=decision)
        wanted = status.build(now, job.status, now_ms=work.now_ms)
        patch = reports.difference(job.status, wanted)
        is_known = memory.sent == patch and work.now_ms - memory.sent_ms < RESENT_MS
        if not patch or is_known:
            return []
        memory.sent, memory.sent_ms = patch, work.now_ms
        work.told += [Told(job=job.key, note=note) for note in notes.of_status(job.status, wanted)]
        return [orders.status(job, patch, str(wanted.get("phase")))]

    def _note_change(self, job: JobFacts, decision: Decision, work: _Work) -> None:
        note = notes.of_decision(job.target, decision)
        if note is not None:
            work.told.append(Told(job=job.key, note=note))

    def _events(self, work: _Work) -> list[Action]:
        """Give the events for what was told and is news; the rest was not worth telling."""
        found = []
        said, work.told = work.told, []
        for told in said:
            job = self._world.job(told.job)
            memory = self._memory.of(told.job, job.uid) if job else None
            if job is None or memory is None or not notes.is_fresh(told.note, memory, work.now_ms):
                continue
            work.told.append(told)
            body = notes.event(job, told.note, work.now_ms, self._instance)
            ref, why = ObjectRef.of(body), told.note.reason
            found.append(Action(verb="create", ref=ref, job=job.key, why=why, body=body))
        return found

    def _carry_out(self, actions: Sequence[Action], work: _Work) -> None:
        work.done += actions
        if self._is_dry or not actions:
            return
        for refused in self._hands.carry_out(actions):
            work.refused.append(refused)
            self._pause(refused, work)

    def _pause(self, refused: Refused, work: _Work) -> None:
        """Try again later what the cluster did not take, and say why it did not."""
        job = self._world.job(refused.action.job)
        memory = self._memory.of(job.key, job.uid) if job else None
        if memory is None or job is None or refused.action.ref.kind == "Event":
            return
        if not memory.pause.is_waiting(work.now_ms):
            memory.pause.fail(work.now_ms)
        work.due.append(memory.pause.until_ms)
        note = Note(
            reason="Refused", action=refused.action.verb.title(), text=str(refused.error), type="Warning"
        )
        work.told.append(Told(job=job.key, note=note))

    def _sets(self, job: JobFacts) -> dict[str, SetFacts]:
        """Give the StatefulSets that are the job's own."""
        found = {}
        for kind in job.servers:
            known = self._world.stateful_set(f"{job.namespace}/{kind.set_name}")
            if known is not None and known.owner == job.uid:
                found[kind.set_name] = known
        return found

    def _is_taken(self, job: JobFacts, life: Life) -> Callable[[str], bool]:
        """Tell which names of pods are in use; those of pods about to be removed are not."""
        free = {pod.name for pod in life.removed}
        return lambda name: name not in free and self._world.has_pod(f"{job.namespace}/{name}")
