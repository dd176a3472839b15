"""Objects of a run watched until they work: many watches, each in a thread, as one stream of news.

A watch that breaks is taken up where it was; where the server no longer knows that place, what there is is
listed again and what has gone meanwhile is told. After a restart of an API server every watch ends like that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Condition, Thread
from types import TracebackType
from typing import Literal, Self

from mlstack.app.app import ReadyRules
from mlstack.clock import Clock
from mlstack.errors import ClusterError, ForbiddenError, MlstackError, ObjectNotFoundError
from mlstack.kube.client import Cluster, ObjectRef, WatchEvent
from mlstack.kube.watch import Listed, Reflector, WatchSource
from mlstack.objects.kube_object import Identity, KubeObject
from mlstack.readiness.assess import assess
from mlstack.readiness.evaluate import MISSING, Logs, ResourceStatus, StatusEvaluator
from mlstack.readiness.relatives import Data, Relatives, has_pods, kinds_below
from mlstack.readiness.rule import Facts, Readiness, key_of

# --- watches ---

# How long the server keeps one watch open: then it is taken up again, so that no thread lives for ever.
WATCH_S = 30.0
# What is kept of each object, to tell that it is gone.
_WHO = ("apiVersion", "kind", "metadata")
# News that come together are told together.
_TOGETHER_S = 0.1


@dataclass(frozen=True)
class News:
    """One object that has changed."""

    source: WatchSource
    what: Literal["put", "drop"]  # with the object as it is, or as it was
    data: Data


@dataclass
class _Stream:
    """One watch as it goes on; the thread writes, others read under its lock."""

    source: WatchSource
    reflector: Reflector
    known: dict[ObjectRef, Data] = field(default_factory=dict)
    synced: bool = False
    idle: bool = False
    error: MlstackError | None = None


class ResourceWatcher:
    """News of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._streams: dict[WatchSource, _Stream] = {}
        self._news: list[News] = []
        self._changed = Condition()
        self._closed = False

    def open(self, source: WatchSource) -> None:
        """Begin to watch, unless that goes on already."""
        with self._changed:
            if source in self._streams or self._closed:
                return
            stream = self._streams[source] = _Stream(source, Reflector(self._cluster, source))
        Thread(target=self._follow, args=(stream,), name=f"watch {source.kind}", daemon=True).start()

    def collect(self, *, timeout_s: float) -> list[News]:
        """Give what has happened; wait for it so long, or until no watch is open any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._news or self._all_idle(), timeout=timeout_s)
            self._changed.wait_for(self._all_idle, timeout=_TOGETHER_S)
            news, self._news = self._news, []
            return news

    @property
    def is_idle(self) -> bool:
        """Tell whether no watch is open: nothing can be heard before they are taken up again."""
        with self._changed:
            return self._all_idle()

    def resume(self) -> None:
        """Take up the watches that have ended."""
        with self._changed:
            for stream in self._streams.values():
                stream.idle = False
            self._changed.notify_all()

    def has_listed(self, source: WatchSource) -> bool:
        """Tell whether everything there is has been told once."""
        with self._changed:
            stream = self._streams.get(source)
            return stream is not None and stream.synced

    def error(self, source: WatchSource) -> MlstackError | None:
        """Give what keeps a watch from going on."""
        with self._changed:
            stream = self._streams.get(source)
            return stream.error if stream is not None else None

    def errors(self) -> list[MlstackError]:
        """Give what keeps watches from going on."""
        with self._changed:
            return [stream.error for stream in self._streams.values() if stream.error is not None]

    def close(self) -> None:
        """Hear nothing more; threads end with their watches."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _all_idle(self) -> bool:
        return all(stream.idle for stream in self._streams.values())

    def _follow(self, stream: _Stream) -> None:
        while not self._closed:
            error: MlstackError | None = None
            try:
                self._watch(stream)
            except MlstackError as found:
                error = found
            except Exception as found:  # a fault of ours must not end in silence: a thread has no caller
                error = MlstackError(f"watch of {stream.source.kind}: {found!r}")
            self._rest(stream, error)

    def _watch(self, stream: _Stream) -> None:
        for event in stream.reflector.watch(WATCH_S):
            if self._closed:
                return
            if isinstance(event, Listed):
                self._listed(stream, event)
            elif event.type != "BOOKMARK":
                self._tell(stream, event)

    def _tell(self, stream: _Stream, event: WatchEvent) -> None:
        ref = ObjectRef.of(event.object)
        with self._changed:
            if event.type == "DELETED":
                stream.known.pop(ref, None)
            else:
                stream.known[ref] = {name: event.object.get(name) for name in _WHO}
            self._news.append(News(stream.source, "drop" if event.type == "DELETED" else "put", event.object))
            self._changed.notify_all()

    def _listed(self, stream: _Stream, listed: Listed) -> None:
        """Note that everything was told, and tell what is not there any more."""
        with self._changed:
            for ref in [ref for ref in stream.known if ref not in listed.refs]:
                self._news.append(News(stream.source, "drop", stream.known.pop(ref)))
            stream.synced, stream.error = True, None
            self._changed.notify_all()

    def _rest(self, stream: _Stream, error: MlstackError | None) -> None:
        """Wait until somebody wants the watch to go on."""
        with self._changed:
            stream.idle, stream.error = True, error
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._closed or not stream.idle)


# --- objects ---
# Nothing is asked object by object: one watch a kind and namespace tells of the objects themselves, and
# only where something does not work are pods, what owns them and events of that namespace watched as well.

# From so many namespaces on, one watch over all of them is cheaper for the server than one each.
MANY_NAMESPACES = 5
# How often what time alone changes is judged again, and ended watches are taken up.
TICK_S = 1.0
# How often an object that no watch tells of is asked for.
ASK_S = 2.0
_LONGEST_TICK_S = 2.0

UNSEEN = Readiness(state="waiting", reason="not looked at yet")
REPLACED = Readiness(
    state="failed", reason="somebody deleted it and made it anew while it was waited for (its UID changed)"
)
GONE = Readiness(state="missing", reason="somebody deleted it while it was waited for")
# The run itself has waited for these when it wrote them.
_WAITED_FOR = ("CustomResourceDefinition", "Namespace")
_ENDED = Readiness(state="done", reason="ended, and was removed after its time to live")


class ReadinessWatcher:
    """Watches objects from when it is entered until it is closed.

    Args:
        cluster: where they are.
        wanted: the objects as the files bring them.
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
        wanted: Sequence[KubeObject],
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
        self._cluster, self._clock = cluster, clock
        self._watches = ResourceWatcher(cluster)
        self._relatives = Relatives()
        self._rules = rules or {}
        self._evaluator = StatusEvaluator(
            cluster,
            self._relatives,
            wait_for_load_balancer=wait_for_load_balancer,
            rules=self._rules,
            logs=logs,
        )
        self._live: dict[Identity, Data] = {}
        self._uids = dict(uids or {})
        self._ahead_s = ahead_s
        self._is_jealous = uids is not None
        self._answers: dict[Identity, tuple[float, Data | None]] = {}
        self._judged: dict[Identity, tuple[float, ResourceStatus]] = {}
        self._dirty: set[Identity] = set()
        self._stirred: set[str] = set()
        self._narrow: set[tuple[str, str]] = set()
        self._labels, self._everything = labels, everything
        self._balancer = wait_for_load_balancer
        self._wanted = tuple(wanted)
        self._static = {obj.identity for obj in wanted if not everything and self._is_static(obj)}
        self._watched = [obj for obj in self._wanted if obj.identity not in self._static]
        self._sources: dict[Identity, WatchSource] = {}
        self._resumed_s, self._tick_s = clock.now_s(), TICK_S

    def __enter__(self) -> Self:
        """Begin to watch."""
        self._open_own()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Give what keeps the server from being heard, None if it is."""
        return next((error for error in self._watches.errors() if not _is_tolerable(error)), None)

    def rounds(self) -> Iterator[tuple[ResourceStatus, ...]]:
        """Give every object as it is now, again and again: as soon as one changes, and every second."""
        while True:
            self._take(self._watches.collect(timeout_s=TICK_S))
            statuses = tuple(self._look(obj) for obj in self._wanted)
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
        self._narrow_down()
        self._watches.resume()

    def _take(self, news: Iterable[News]) -> None:
        for item in news:
            identity = KubeObject(data=item.data).identity
            self._stirred.add(identity.namespace)
            if identity in self._sources:
                self._dirty.add(identity)
                if item.what == "drop":
                    self._live.pop(identity, None)
                else:
                    self._live[identity] = item.data
            # A workload of ours may stand between another object of ours and its pods.
            (self._relatives.put if item.what == "put" else self._relatives.drop)(item.data)

    def _look(self, wanted: KubeObject) -> ResourceStatus:
        identity = wanted.identity
        if identity in self._static:
            return ResourceStatus(wanted=wanted, live=wanted.data, readiness=Readiness(state="ready"))
        now_s = self._clock.now_s()
        judged_s, last = self._judged.get(identity, (0.0, None))
        if last is not None and not self._is_due(last, judged_s, now_s):
            return last
        seen = self._judged_now(wanted, now_s)
        self._dirty.discard(identity)
        self._judged[identity] = (now_s, seen)
        if not seen.readiness.is_fine and seen.live is not None:
            self._open_relatives(wanted)
        return seen

    def _is_due(self, last: ResourceStatus, judged_s: float, now_s: float) -> bool:
        if last.wanted.identity in self._dirty or last.live is None:
            return True
        if last.readiness.is_fine and not self._everything:
            return False
        return now_s - judged_s >= TICK_S or last.wanted.namespace in self._stirred

    def _judged_now(self, wanted: KubeObject, now_s: float) -> ResourceStatus:
        identity = wanted.identity
        live = self._live.get(identity)
        if live is None:
            live = self._asked(wanted, now_s)
        if live is None:
            return ResourceStatus(wanted=wanted, live=None, readiness=self._absent(wanted))
        uid = str(live["metadata"].get("uid"))
        if self._is_jealous and self._uids.setdefault(identity, uid) != uid:
            return ResourceStatus(wanted=wanted, live=live, readiness=REPLACED)
        return self._evaluator.evaluate(wanted, live, now_s=now_s + self._ahead_s)

    def _absent(self, wanted: KubeObject) -> Readiness:
        if wanted.identity not in self._answers:
            return UNSEEN
        if wanted.identity not in self._uids:
            return MISSING
        ends = wanted.kind == "Job" and "ttlSecondsAfterFinished" in (wanted.data.get("spec") or {})
        return _ENDED if ends else GONE

    def _asked(self, wanted: KubeObject, now_s: float) -> Data | None:
        """Ask for an object that no watch tells of: it is gone, or lost its labels, or may not be watched."""
        source = self._sources[wanted.identity]
        if not self._watches.has_listed(source) and not isinstance(
            self._watches.error(source), ForbiddenError | ObjectNotFoundError
        ):
            return None
        asked_s, live = self._answers.get(wanted.identity, (-ASK_S, None))
        if now_s - asked_s < ASK_S:
            return live
        try:
            live = self._cluster.get(ObjectRef.of(wanted.data))
        except ForbiddenError as refusal:
            self._evaluator.note(refusal)
            return None
        except ClusterError:  # the server is away: what it said last must do
            return live
        self._answers[wanted.identity] = (now_s, live)
        return live

    def _open_own(self) -> None:
        namespaces = _namespaces((obj.api_version, obj.kind, obj.namespace) for obj in self._watched)
        for obj in self._watched:
            key = (obj.api_version, obj.kind)
            is_wide = len(namespaces[key]) >= MANY_NAMESPACES and key not in self._narrow
            namespace = None if is_wide or not obj.namespace else obj.namespace
            source = WatchSource(*key, namespace, self._labels, metadata_only=self._is_plain(obj))
            self._sources[obj.identity] = source
            self._watches.open(source)

    def _is_static(self, obj: KubeObject) -> bool:
        """Tell whether there is nothing to wait for once an object is written."""
        is_waited_for = obj.kind in _WAITED_FOR and key_of(obj.data) not in self._rules
        return is_waited_for or self._is_plain(obj)

    def _is_plain(self, obj: KubeObject) -> bool:
        """Tell whether an object works as soon as it is there."""
        if key_of(obj.data) in self._rules:
            return False
        payload = {name: part for name, part in obj.data.items() if name != "status"}
        facts = Facts(data=payload, wait_for_load_balancer=self._balancer)
        return not payload.get("webhooks") and assess(facts).state == "ready"

    def _narrow_down(self) -> None:
        """Watch namespace by namespace what may not be watched in all of them."""
        for source in set(self._sources.values()):
            if source.namespace is None and isinstance(self._watches.error(source), ForbiddenError):
                self._narrow.add((source.api_version, source.kind))
        if self._narrow:
            self._open_own()

    def _open_relatives(self, wanted: KubeObject) -> None:
        if not wanted.namespace or not has_pods(wanted.data):
            return
        for api_version, kind in (*kinds_below([wanted.data]), ("v1", "Event")):
            self._watches.open(WatchSource(api_version, kind, wanted.namespace))


def _is_tolerable(error: MlstackError) -> bool:
    """Tell whether waiting can do without what a watch was refused."""
    is_refusal = isinstance(error, ForbiddenError) and error.why != "credentials"
    return is_refusal or isinstance(error, ObjectNotFoundError)


def _namespaces(keys: Iterable[tuple[str, str, str]]) -> Mapping[tuple[str, str], Mapping[str, int]]:
    places: dict[tuple[str, str], Counter[str]] = {}
    for api_version, kind, namespace in keys:
        places.setdefault((api_version, kind), Counter())[namespace] += 1
    return places
