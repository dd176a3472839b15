"""What mlstack asks of a cluster: a handful of verbs that a real server and the fake one share.

Objects are plain mappings as the API server writes them in JSON. Every method is safe to call from several
threads and raises only `mlstack.errors.ClusterError` and its branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mlstack.app.environment import ClusterIdentity
from mlstack.clock import STILL_S, Clock, backoff
from mlstack.dataclass import Record, dataclass
from mlstack.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    LockedError,
    MlstackError,
    ObjectNotFoundError,
    TransientError,
    UnreachableError,
)
from mlstack.objects import masking
from mlstack.objects.kube_object import MANAGER, Identity, Kinds, group_of

if TYPE_CHECKING:  # the verbs with their types, which a wrapper hands on without saying them again
    from mlstack.kube.api_server import ApiServerClient as _Verbs
else:
    _Verbs = object

INITIAL_EVENTS_END = "k8s.io/initial-events-end"

Propagation = Literal["Foreground", "Background", "Orphan"]
PatchKind = Literal["merge", "json"]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, order=True, kw_only=True)
class Right:
    """The right to one verb on one kind, in one namespace or in all (empty), to one name or to all."""

    group: str
    resource: str  # plural name of the kind, as `deployments`
    namespace: str = ""
    verb: str
    name: str = ""

    @property
    def full_resource(self) -> str:
        """Give the resource as kubectl takes it: `deployments.apps`."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


class Rights(Record):
    """What somebody may do in one namespace, as far as the server can list it: a SelfSubjectRulesReview."""

    rules: tuple[Mapping[str, Any], ...] = ()

    def allow(self, right: Right) -> bool:
        """Tell whether a rule gives a right; a right that none gives may be had in other ways."""
        return any(
            _has(rule.get("verbs"), right.verb)
            and _has(rule.get("apiGroups"), right.group)
            and _has(rule.get("resources"), right.resource)
            and right.name in (rule.get("resourceNames") or (right.name,))
            for rule in self.rules
        )


def _has(words: Iterable[str] | None, word: str) -> bool:
    listed = tuple(words or ())
    return "*" in listed or word in listed


@dataclass(frozen=True, order=True)
class ObjectRef:
    """The address of one object; `namespace` is empty for cluster-scoped kinds."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> ObjectRef:
        """Give the address of an object."""
        metadata = obj.get("metadata") or {}
        return cls(
            str(obj.get("apiVersion") or ""),
            str(obj.get("kind") or ""),
            str(metadata.get("namespace") or ""),
            str(metadata.get("name") or ""),
        )

    @property
    def identity(self) -> Identity:
        """Give the identity of the object, whichever version it is addressed in."""
        return Identity(group_of(self.api_version), self.kind, self.namespace, self.name)

    def __str__(self) -> str:
        """Write the object as people name it: `Deployment kubeflow/tf-hub`."""
        return str(self.identity)


class Applied(Record):
    """What a write gave: the object as the server has it now (in a dry run: as it would have it)."""

    object: Mapping[str, Any]
    warnings: tuple[str, ...] = ()  # the server's remarks, as for deprecated versions
    created: bool = False


class WatchEvent(Record):
    """One change that a watch saw; an object that no longer matches the selector is `DELETED`.

    `object` is as it is after the change, before it for `DELETED`; a bookmark's has only a version.
    """

    type: EventType
    object: Mapping[str, Any]

    @property
    def resource_version(self) -> str:
        """Give the version from which another watch would go on."""
        return str(self.object["metadata"].get("resourceVersion") or "")

    @property
    def is_initial_end(self) -> bool:
        """Say whether this bookmark ends the list of what was there when the watch began."""
        annotations = self.object["metadata"].get("annotations") or {}
        return self.type == "BOOKMARK" and annotations.get(INITIAL_EVENTS_END) == "true"


class Listing(Record):
    """Objects of one kind at one moment; from `resource_version` a watch goes on and misses nothing."""

    items: tuple[Mapping[str, Any], ...]  # each with apiVersion and kind
    resource_version: str

    def events(self) -> Iterator[WatchEvent]:
        """Give it in the form in which a watch begins."""
        for item in self.items:
            yield WatchEvent(type="ADDED", object=item)
        metadata = {"resourceVersion": self.resource_version, "annotations": {INITIAL_EVENTS_END: "true"}}
        yield WatchEvent(type="BOOKMARK", object={"metadata": metadata})


class Cluster(Protocol):
    """What mlstack asks of a cluster; labels and fields are selectors as kubectl takes them.

    Errors of every verb: UnreachableError (no answer), ForbiddenError (credentials, rights, quota, policy),
    TransientError (try the same again later), InvalidError (never try it again), ConflictError (exists, has
    another version or UID, or others own its fields), ObjectNotFoundError (`what` says what is not there).
    """

    def identity(self) -> ClusterIdentity:
        """Give what tells this cluster from others; the UID is None where it may not be read."""
        ...

    def version(self) -> str:
        """Give the version of the server, as `v1.36.2`."""
        ...

    def kinds(self, *, refresh: bool = False) -> Kinds:
        """Give the kinds the server has; asks it once, and again with `refresh`."""
        ...

    def expect(self, requests: int) -> None:
        """Take note that so many requests will come at once: what they need is got ready meanwhile."""
        ...

    def may(self, right: Right) -> bool:
        """Tell whether we have a right: one SelfSubjectAccessReview."""
        ...

    def rights(self, namespace: str) -> Rights:
        """Give the rights we have in a namespace that the server can list; ask `may` about others."""
        ...

    def get(self, ref: ObjectRef) -> dict[str, Any] | None:
        """Read one object, None if it, its namespace or its kind is not there."""
        ...

    def list(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
    ) -> Listing:
        """List the objects of a kind, in one namespace or in all (None); `metadata_only` is less to send."""
        ...

    def apply(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, force: bool = False, dry_run: bool = False
    ) -> Applied:
        """Write what we want of an object by server-side apply; unknown fields are refused.

        `metadata.uid` in the object makes it an update of that very object, `metadata.resourceVersion` of
        that very version. With `force` it takes fields that others own.
        """
        ...

    def create(self, obj: Mapping[str, Any], *, manager: str = MANAGER, dry_run: bool = False) -> Applied:
        """Create an object."""
        ...

    def replace(
        self, obj: Mapping[str, Any], *, manager: str = MANAGER, subresource: str = "", dry_run: bool = False
    ) -> Applied:
        """Put an object in place of the one that is there; a `resourceVersion` in it must be the live one."""
        ...

    def patch(
        self,
        ref: ObjectRef,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        manager: str = MANAGER,
        dry_run: bool = False,
    ) -> Applied:
        """Change parts of an object: JSON merge patch (a mapping) or JSON patch (a list of operations).

        A `test` operation that fails is an InvalidError without causes.
        """
        ...

    def delete(
        self,
        ref: ObjectRef,
        *,
        propagation: Propagation = "Foreground",
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_s: int | None = None,
    ) -> dict[str, Any] | None:
        """Delete an object; gives it while it waits for finalizers, None once it is gone.

        What it owns goes before it, after it, or stays. `grace_period_s` is the time its pods get to end.
        """
        ...

    def watch(
        self,
        api_version: str,
        kind: str,
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        resource_version: str = "",
        timeout_s: float,
    ) -> Iterator[WatchEvent]:
        """Watch the objects of one kind.

        Without a `resource_version` the watch begins with `ADDED` for everything there is and a `BOOKMARK`
        for which `is_initial_end` holds. It ends when the time is up or the connection breaks: watch again
        from the last version seen. A WatchExpiredError says that the server no longer has that version.
        """
        ...

    def logs(
        self,
        ref: ObjectRef,
        container: str,
        *,
        previous: bool = False,
        lines: int,
        most_bytes: int,
        timeout_s: float,
    ) -> str:
        """Give the last lines that a container of a pod has written; nobody is asked twice.

        `previous` gives what it wrote before it was started last; its node may stay silent for `timeout_s`.
        An InvalidError says that it has no such container, or that has written nothing yet.
        """
        ...


_Ask = Callable[[], Any]
Fence = Callable[[str, Any], None]
Opener = Callable[[str], Cluster]
"""Gives the cluster of a kubectl context."""


WRITES = frozenset({"apply", "create", "replace", "patch", "delete"})
"""The verbs that change something, unless they are a dry run."""


class ClientWrapper(_Verbs):
    """Another client as it is, for those who do more around its verbs: each goes through `_call`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        return getattr(self._cluster, verb)(*args, **named)


class _Verb:
    """A verb of a wrapper, which goes through `_call` without a frame of its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, wrapper: ClientWrapper, owner: type) -> Callable[..., Any]:
        return partial(wrapper._call, self._name)


for _name in [name for name in vars(Cluster) if not name.startswith("_")]:
    setattr(ClientWrapper, _name, _Verb(_name))


def written(
    cluster: Cluster, ref: ObjectRef, body: Mapping[str, Any], subresource: str = ""
) -> dict[str, Any] | None:
    """Give an object as it is if it is as it was to become, else None.

    For the second of two requests, of which the first got no answer: is it refused because the first was
    heard? Where somebody else wrote the very same, nothing is left to be done either.
    """
    live = cluster.get(ref)
    if live is None:
        return None
    parts = (subresource,) if subresource else tuple(key for key in body if key not in ("metadata", "status"))
    metadata, live_metadata = body.get("metadata") or {}, live.get("metadata") or {}
    is_written = all(_contains(live.get(key), body.get(key)) for key in parts) and all(
        _contains(live_metadata.get(key), value) for key, value in metadata.items() if key not in _SERVERS_OWN
    )
    return live if is_written else None


def _contains(live: Any, part: Any) -> bool:
    if isinstance(part, Mapping):
        fields = live if isinstance(live, Mapping) else {}
        return all(_contains(fields.get(key), value) for key, value in part.items())
    if isinstance(part, list | tuple) and isinstance(live, list):
        return len(live) == len(part) and all(map(_contains, live, part))
    return bool(live == part)


_SERVERS_OWN = frozenset({"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink"})


# --- patience, fence, secrets ---
# Every request may be sent again: reading changes nothing, server-side apply and deletion by UID do the same
# thing twice, and what must happen once carries a resourceVersion or fails with "already exists".

# An API server that is restarted is back in 4 to 40 s.
OUTAGE_S = 60.0
# How long a server may ask for patience before one request fails.
BUSY_S = 120.0
# Right after its start a server does not know all rights and kinds yet.
WARMING_UP_S = 5.0


class _Silence:
    """What is known of a server that may not answer; all that ask it share it, so that one says it."""

    def __init__(self, has_answered: bool) -> None:
        self.lock, self.has_answered = Lock(), has_answered
        self.since_s: float | None = None
        self.noticed_s, self.back_s, self.reminded_s = 0.0, -inf, -inf
        self.is_told, self.told_busy = False, set[str]()  # webhooks, and the server itself by an empty name


class Patience:
    """How a server that does not answer is waited for; the first answer ever must come at once.

    Args:
        clock: for pauses.
        notify: told in one sentence when waiting begins and when it ends.
        answered: whether the server is known to have answered already.
        webhook_s: how long a webhook may fail to answer.
        timeout_s: how long anything at all is waited for at most.
        remind: told every `STILL_S` what is waited for.
    """

    def __init__(
        self,
        clock: Clock,
        notify: Callable[[str], None],
        *,
        answered: bool = False,
        webhook_s: float = 0.0,
        timeout_s: float = inf,
        remind: Callable[[str], None] | None = None,
    ) -> None:
        self.clock, self._notify, self._remind = clock, notify, remind
        self._outage_s, self._busy_s = min(OUTAGE_S, timeout_s), min(BUSY_S, timeout_s)
        self._webhook_s, self._silence = min(webhook_s, timeout_s), _Silence(answered)

    def join(self, other: Patience) -> None:
        """Wait for the server of another one: what was said or waited there is not said or waited again."""
        other._silence.has_answered |= self._silence.has_answered
        self._silence = other._silence

    def bear(self, error: MlstackError, *, asked_s: float, begun_s: float) -> None:
        """Return if it is worth to ask again, else raise the error."""
        if isinstance(error, UnreachableError):
            self._ride_out(error, asked_s)
        elif isinstance(error, LockedError) or not isinstance(error, ClusterError):  # not the server's word
            raise error
        else:
            self.note_answer(asked_s)
            if isinstance(error, TransientError):
                if self.clock.now_s() - begun_s >= (self._webhook_s if error.webhook else self._busy_s):
                    raise error
                self._say_busy(error)
            elif not self._may_be_early(error):
                raise error
        self._remind_of_waiting(begun_s)

    def note_answer(self, asked_s: float) -> None:
        """Take note of an answer; a late one, to what was asked before the silence, does not end it."""
        silence = self._silence
        with silence.lock:
            silence.has_answered = True
            if silence.since_s is None or asked_s < silence.noticed_s:
                return
            was_told, silence.is_told = silence.is_told, False
            silence.since_s, silence.back_s = None, self.clock.now_s()
        if was_told:
            self._notify("the API server answers again")

    def _ride_out(self, error: UnreachableError, asked_s: float) -> None:
        silence = self._silence
        with silence.lock:
            if not silence.has_answered:
                raise error
            if silence.since_s is None:
                silence.since_s, silence.noticed_s = asked_s, self.clock.now_s()
            if self.clock.now_s() - silence.since_s >= self._outage_s:
                raise error
            was_told, silence.is_told = silence.is_told, True
        if not was_told:
            self._notify(f"the API server does not answer; trying again for {self._outage_s:.0f} s")

    def _say_busy(self, error: TransientError) -> None:
        with self._silence.lock:
            is_new = error.webhook not in self._silence.told_busy
            self._silence.told_busy.add(error.webhook)
        if is_new:
            self._notify(error.message if error.webhook else f"the API server is busy: {error.message}")

    def _remind_of_waiting(self, begun_s: float) -> None:
        """Say again what is waited for if nobody has for long; once for all that wait."""
        silence, now_s = self._silence, self.clock.now_s()
        with silence.lock:
            if self._remind is None or now_s - max(silence.reminded_s, begun_s) < STILL_S:
                return
            silence.reminded_s, away = now_s, silence.since_s is not None
        self._remind(f"until the API server {'answers' if away else 'or a webhook is ready'}")

    def _may_be_early(self, error: MlstackError) -> bool:
        """Tell whether a server that has just started may say this of something that is right."""
        if self.clock.now_s() - self._silence.back_s >= WARMING_UP_S:
            return False
        if isinstance(error, ForbiddenError):
            return error.why in ("rights", "credentials")
        return isinstance(error, ObjectNotFoundError) and error.what == "kind"


class GuardedClient(ClientWrapper):
    """The one wrapper around a client: requests go again while no answer comes, writes are fenced.

    Around another one it takes that one's place: what is not given is as there, and what is known of the
    server's silence stays known. What Secrets hold that go through it, the run prints nowhere.

    Args:
        cluster: what is asked.
        patience: how long and how it is asked again; None for once.
        fence: is told verb and object before each try of a write, and may raise.
    """

    def __init__(
        self, cluster: Cluster, *, patience: Patience | None = None, fence: Fence | None = None
    ) -> None:
        if isinstance(cluster, GuardedClient):
            if patience and cluster._patience:
                patience.join(cluster._patience)
            patience, fence = patience or cluster._patience, fence or cluster._fence
            cluster = cluster._cluster
        super().__init__(cluster)
        self._patience: Patience | None = patience
        self._fence: Fence | None = fence

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        is_write = verb in WRITES and not named.get("dry_run")
        fence = partial(self._fence, verb, args[0]) if is_write and self._fence else None
        if verb in ("apply", "create", "replace"):
            masking.note_object(args[0])
        ask = partial(getattr(self._cluster, verb), *args, **named)
        if verb == "watch":
            return self._watch(ask)
        if self._patience is None or verb in ("expect", "logs"):  # logs are not worth any patience
            if fence:
                fence()
            answer = ask()
        else:
            created = args[0] if verb == "create" and is_write else None
            answer = self._insist(ask, self._patience, fence=fence, created=created)
        for item in answer.items if isinstance(answer, Listing) else [answer]:
            masking.note_object(item.object if isinstance(item, Applied) else item)
        return answer

    def _insist(
        self, ask: _Ask, patience: Patience, *, fence: _Ask | None = None, created: Any = None
    ) -> Any:
        """Ask until there is an answer; what is there because an earlier try was heard is created."""
        begun_s, was_silent, pauses = patience.clock.now_s(), False, backoff(0.1, 1.0)
        while True:
            asked_s = patience.clock.now_s()
            try:
                if fence:  # which may ask the server itself, for whose lock it is
                    fence()
                answer = ask()
            except MlstackError as error:
                if created is not None and was_silent and isinstance(error, ConflictError):
                    read = partial(written, self._cluster, ObjectRef.of(created), created)
                    if (live := self._insist(read, patience)) is not None:
                        return Applied(object=live, created=True)
                patience.bear(error, asked_s=asked_s, begun_s=begun_s)
                was_silent = was_silent or isinstance(error, UnreachableError)
            else:
                patience.note_answer(asked_s)
                return answer
            patience.clock.sleep(next(pauses))

    def _watch(self, begin: Callable[[], Iterator[WatchEvent]]) -> Iterator[WatchEvent]:
        """Hand events on; a watch that breaks ends, one that cannot begin is begun again."""

        def first_event() -> tuple[WatchEvent | None, Iterator[WatchEvent]]:
            events = begin()
            return next(events, None), events

        event, rest = self._insist(first_event, self._patience) if self._patience else first_event()
        while event is not None:
            masking.note_object(event.object)
            yield event
            event = next(rest, None)


def asked_once(cluster: Cluster) -> Cluster:
    """Give a client without patience and fence."""
    return cluster._cluster if isinstance(cluster, GuardedClient) else cluster
