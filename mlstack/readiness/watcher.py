"""Objects of a run watched until they work.

Nothing is asked object by object: one watch a kind and namespace tells of the objects themselves, and only
where something does not work are pods, what owns them and events of that namespace watched as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from mlstack.app.app import ReadyRules
from mlstack.clock import Clock
from mlstack.errors import ClusterError, ForbiddenError, MlstackError, ObjectNotFoundError
from mlstack.kube.client import Cluster, ObjectRef
from mlstack.kube.watch import ResourceWatcher, WatchSource
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.readiness.evaluate import MISSING, Logs, ResourceStatus, StatusEvaluator, assess
from mlstack.readiness.rule import Data, Facts, Readiness, has_pods, key_of, kinds_below

# From so many namespaces on, one watch over all of them is cheaper for the server than one each.
MANY_NAMESPACES = 5
# How often what time alone changes is judged again, and ended watches are taken up.
TICK_S = 1.0
# How often an object that no watch tells of is asked for.
ASK_S = 2.0
_LONGEST_TICK_S = 2.0

UNSEEN = Readiness("waiting", "not looked at yet")
REPLACED = Readiness(
    "failed", "somebody deleted it and made it anew while it was waited for (its UID changed)"
)
GONE = Readiness("missing", "somebody deleted it while it was waited for")
# The run itself has waited for these when it wrote them.
_WAITED_FOR = ("CustomResourceDefinition", "Namespace")
_ENDED = Readiness("done", "ended, and was removed after its time to live")


class ReadinessWatcher:
    """Watches objects from when it is entered until it is closed.

    Args:
        cluster: where they are.
        desired: the objects as the files bring them.
        clock: tells the time, and lets it pass while no watch is open.
        labels: what all of them carry, so that other people's objects are not sent.
        wait_for_load_balancer: whether a Service of type LoadBalancer needs its address.
        uids: the UIDs they are known to have; another one means that somebody made them anew. None where
            that is nobody's business.
        everything: look also at kinds that need nothing but to be there.
        ahead_s: seconds by which the server's clock is ahead of ours.
        rules: the app's own readiness rules.
        logs: reads the logs of what crashed; None reads none.
    """

    def __init__(
        self,
        cluster: Cluster,
        desired: Sequence[KubeObject],
        *,
        clock: Clock,
        labels: str = "",
        wait_for_load_balancer: bool = False,
        uids: Mapping[Identity, str] | None = None,
        everything: bool = False,
        ahead_s: float = 0.0,
        rules: ReadyRules | None = None,
        logs: Logs | None = None,
    ) -> None:
        self._cluster, self._clock, self._rules = cluster, clock, rules or {}
        self._watches = ResourceWatcher(cluster)
        self._balancer = wait_for_load_balancer
        self._evaluator = StatusEvaluator(
            cluster, wait_for_load_balancer=wait_for_load_balancer, rules=rules, logs=logs
        )
        self._relatives = self._evaluator.relatives
        self._desired, self._labels, self._everything = tuple(desired), labels, everything
        self._uids, self._is_jealous, self._ahead_s = dict(uids or {}), uids is not None, ahead_s
        self._live: dict[Identity, Data] = {}
        self._answers: dict[Identity, tuple[float, Data | None]] = {}
        self._judged: dict[Identity, tuple[float, ResourceStatus]] = {}
        self._dirty: set[Identity] = set()
        self._stirred: set[str] = set()  # namespaces in which anything has happened
        self._narrow: set[tuple[str, str]] = set()  # kinds that may not be watched in all namespaces
        self._sources: dict[Identity, WatchSource] = {}
        self._static = {
            obj.identity
            for obj in desired
            if not everything
            and (self._is_plain(obj) or (obj.kind in _WAITED_FOR and key_of(obj.data) not in self._rules))
        }
        self._resumed_s, self._tick_s = clock.now_s(), TICK_S

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._open_own()
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop listening."""
        self._watches.close()

    @property
    def notes(self) -> tuple[str, ...]:
        """Give remarks on what could not be read."""
        for error in self._watches.errors():
            if isinstance(error, ForbiddenError):
                self._evaluator.note(error)
        return tuple(self._evaluator.notes)

    def outage(self) -> MlstackError | None:
        """Give what keeps the server from being heard; waiting can do without what is refused."""
        for error in self._watches.errors():
            is_refusal = isinstance(error, ForbiddenError) and error.why != "credentials"
            if not is_refusal and not isinstance(error, ObjectNotFoundError):
                return error
        return None

    def rounds(self) -> Iterator[tuple[ResourceStatus, ...]]:
        """Give every object as it is now, again and again: as soon as one changes, and every second."""
        while True:
            for event in self._watches.collect(timeout_s=TICK_S):
                identity, is_gone = KubeObject(data=event.object).identity, event.type == "DELETED"
                self._stirred.add(identity.namespace)
                if identity in self._sources:
                    self._dirty.add(identity)
                    self._live.pop(identity, None)
                    self._live |= {} if is_gone else {identity: event.object}
                # A workload of ours may stand between another object of ours and its pods.
                (self._relatives.drop if is_gone else self._relatives.put)(event.object)
            statuses = tuple(self._look(obj) for obj in self._desired)
            self._stirred.clear()
            yield statuses
            self._pass_time()

    def _pass_time(self) -> None:
        """Let time pass where nothing can be heard, and take up watches that have ended."""
        now_s = self._clock.now_s()
        if self._watches.is_idle:
            self._clock.sleep(self._tick_s)
            self._tick_s = min(self._tick_s * 1.5, _LONGEST_TICK_S)
        elif now_s - self._resumed_s < TICK_S:
            return
        else:
            self._tick_s = TICK_S
        self._resumed_s = now_s
        for source in set(self._sources.values()):
            if source.namespace is None and isinstance(self._watches.error(source), ForbiddenError):
                self._narrow.add((source.api_version, source.kind))
        if self._narrow:
            self._open_own()
        self._watches.resume()

    def _look(self, desired: KubeObject) -> ResourceStatus:
        identity, now_s = desired.identity, self._clock.now_s()
        if identity in self._static:
            return ResourceStatus(desired=desired, live=desired.data, readiness=Readiness("ready"))
        judged_s, last = self._judged.get(identity, (0.0, None))
        if last is not None and last.live is not None and identity not in self._dirty:
            is_settled = last.readiness.is_fine and not self._everything
            if is_settled or (now_s - judged_s < TICK_S and desired.namespace not in self._stirred):
                return last
        status = self._judge(desired, now_s)
        self._dirty.discard(identity)
        self._judged[identity] = (now_s, status)
        if (
            not status.readiness.is_fine
            and status.live is not None
            and desired.namespace
            and has_pods(desired.data)
        ):
            for api_version, kind in (*kinds_below([desired.data]), ("v1", "Event")):
                self._watches.open(WatchSource(api_version, kind, desired.namespace))
        return status

    def _judge(self, desired: KubeObject, now_s: float) -> ResourceStatus:
        identity = desired.identity
        live = self._live.get(identity) or self._ask(desired, now_s)
        if live is None:
            readiness = MISSING if identity in self._answers else UNSEEN
            if readiness is MISSING and identity in self._uids:
                ends = desired.kind == "Job" and "ttlSecondsAfterFinished" in (desired.data.get("spec") or {})
                readiness = _ENDED if ends else GONE
            return ResourceStatus(desired=desired, live=None, readiness=readiness)
        uid = str(live["metadata"].get("uid"))
        if self._is_jealous and self._uids.setdefault(identity, uid) != uid:
            return ResourceStatus(desired=desired, live=live, readiness=REPLACED)
        return self._evaluator.evaluate(desired, live, now_s=now_s + self._ahead_s)

    def _ask(self, desired: KubeObject, now_s: float) -> Data | None:
        """Ask for an object that no watch tells of: it is gone, or lost its labels, or may not be watched."""
        source = self._sources[desired.identity]
        refused = isinstance(self._watches.error(source), ForbiddenError | ObjectNotFoundError)
        if not refused and not self._watches.has_listed(source):
            return None
        asked_s, live = self._answers.get(desired.identity, (-ASK_S, None))
        if now_s - asked_s < ASK_S:
            return live
        try:
            live = self._cluster.get(ObjectRef.of(desired.data))
        except ForbiddenError as refusal:
            self._evaluator.note(refusal)
            return None
        except ClusterError:  # the server is away: what it said last must do
            return live
        self._answers[desired.identity] = (now_s, live)
        return live

    def _open_own(self) -> None:
        watched = [obj for obj in self._desired if obj.identity not in self._static]
        namespaces: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        for obj in watched:
            namespaces[(obj.api_version, obj.kind)].add(obj.namespace)
        for obj in watched:
            key = (obj.api_version, obj.kind)
            is_wide = len(namespaces[key]) >= MANY_NAMESPACES and key not in self._narrow
            namespace = None if is_wide or not obj.namespace else obj.namespace
            source = WatchSource(*key, namespace, self._labels, metadata_only=self._is_plain(obj))
            self._sources[obj.identity] = source
            self._watches.open(source)

    def _is_plain(self, obj: KubeObject) -> bool:
        if key_of(obj.data) in self._rules:
            return False
        payload = {name: part for name, part in obj.data.items() if name != "status"}
        facts = Facts(data=payload, wait_for_load_balancer=self._balancer)
        return not payload.get("webhooks") and assess(facts).state == "ready"
