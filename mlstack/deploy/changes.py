"""What would change in a cluster, as values: one `Change` an object, `Changes` for a run."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from mlstack.app.document import API_VERSION
from mlstack.app.environment import ClusterIdentity
from mlstack.dataclass import Record, dataclass, row
from mlstack.errors import ConflictError, InvalidError, MlstackError
from mlstack.kube import parallel
from mlstack.names import listed
from mlstack.objects.kube_object import Data, Identity, KubeObject
from mlstack.objects.managed_fields import FieldChange, step_text
from mlstack.objects.masking import MASK, mask_object, mask_values, mask_whole
from mlstack.readiness.rule import ReadinessState, State

ChangeAction = Literal["create", "update", "recreate", "delete", "unchanged", "missing", "kept"]
RefusalKind = Literal["immutable", "destructive", "foreign", "invalid"]
OnFailure = Literal["stop", "rollback"]

DESTRUCTIVE: frozenset[ChangeAction] = frozenset({"recreate", "delete"})
EXISTING: frozenset[ChangeAction] = frozenset({"update", "recreate", "delete"})


_Written = Literal["created", "updated", "recreated", "deleted", "terminating"]
ChangeOutcome = Literal[_Written, "unchanged", "kept", "gone", "failed", "skipped"]
"""How an object ended."""

RunEventKind = Literal[ChangeOutcome, "waiting", "pending", "still", "warning", "note"]


@dataclass(frozen=True)
class RunEvent:
    """One thing that happened in a run, told while it goes on."""

    # what happened; `pending` is waited for, `still` after a long time that nobody heard of
    kind: RunEventKind
    identity: Identity | None  # the object it happened to, None for the whole run
    text: str = ""  # the sentence for a person


OnEvent = Callable[[RunEvent], None]


def silent(event: RunEvent) -> None:
    """Take an event and tell nobody."""


class Refusal(Record):
    """Why a change must not be carried out: a difference shows it, an apply refuses to begin."""

    # a field that cannot change in place, a definition that would lose something, an object of another
    # app or environment, or one that the server does not accept
    kind: RefusalKind
    reasons: tuple[str, ...]  # sentences, each with its own
    hint: str = ""  # what to do next
    # what the server said of an object that it does not accept: no change could be worked out
    error: MlstackError | None = field(default=None, compare=False, repr=False)


class Change(Record):
    """What happens to one object."""

    identity: Identity  # the object
    component: str  # full name of the component that brings it, empty if none does any more
    # `missing` is an object that only a creation could bring and creation is off; `kept` one that a
    # deletion spares
    action: ChangeAction
    fields: tuple[FieldChange, ...] = ()  # what differs, secrets masked; empty for creations
    reason: str = ""  # why it is recreated, kept or deleted
    notes: tuple[str, ...] = ()  # remarks for people, as whose fields are overridden
    api_version: str = ""  # API version the object is addressed by
    desired: KubeObject | None = None  # what is sent, None for deletions
    live_uid: str = ""  # UID of the object the change was computed from, empty if there was none
    # whether anything is sent. An unchanged object is still written when a value is as wanted but not
    # owned by us: else removing it later would do nothing
    writes: bool = True
    # why this must not be done; a difference shows it, an apply refuses to begin
    refusal: Refusal | None = None
    payload: Data | None = None  # what is really sent where that is less than what is desired
    # the live object's metadata, `{"metadata": {…}}`, of an object found unchanged by asking
    live_metadata: Data | None = None
    # resourceVersion of the object the change was computed from; the write is for it alone
    live_version: str = ""
    # JSON patch of `managedFields` that goes before the write: a take-over, or versions of the API that
    # are not served any more
    prepare: tuple[Data, ...] = ()
    # fields that an autoscaler is to own: held for it between our letting go of them and its first write
    handover: Data | None = None
    left: tuple[tuple[str, str], ...] = ()  # path and manager of each field that is left to somebody else
    # path and manager of each label and annotation that a person added since the last apply
    labels: tuple[tuple[str, str], ...] = ()
    made_elsewhere: bool = False  # whether another tool made the object, from which it is not taken over
    fingerprint: str = ""  # hash of what differs, with the true values
    # the live object of a change that is seen, and of a deletion, of that its metadata at least
    live: KubeObject | None = None

    @property
    def digest(self) -> str:
        """Give a hash of what a person approves; equal digests mean that the same would be done.

        Who owns a value that does not change is no part of it, nor is the version of the object.
        """
        name = [self.identity.group, self.identity.kind, self.identity.namespace, self.identity.name]
        return digest_of([name, self.action, self.live_uid, self.fingerprint, sorted(self.left)])

    @property
    def sent(self) -> Data:
        """Give what is sent of the object."""
        return self.subject.data if self.payload is None else self.payload

    @property
    def subject(self) -> KubeObject:
        """Give what is known of the object: as it is wanted, as it was found, or its name alone."""
        obj = self.desired or self.live
        if obj is not None:
            return obj
        identity = self.identity
        place = {"namespace": identity.namespace} if identity.namespace else {}
        metadata = {"name": identity.name, **place}
        data = {"apiVersion": self.api_version, "kind": identity.kind, "metadata": metadata}
        return KubeObject(data=data, component=self.component)


class Changes(Record):
    """Everything one run would do."""

    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # its namespace
    context: str  # the kubectl context the run goes to
    cluster: ClusterIdentity | None  # who answered there
    changes: tuple[Change, ...]  # one an object, in the order of execution
    notes: tuple[str, ...] = ()  # remarks on the run as a whole
    # for each component all components it depends on
    depends: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # texts to be masked wherever they stand
    secrets: tuple[str, ...] = field(default=(), repr=False, compare=False)

    @property
    def visible(self) -> tuple[Change, ...]:
        """Give the changes a person would call changes."""
        return tuple(change for change in self.changes if change.action in EXISTING | {"create"})

    @property
    def writes(self) -> tuple[Change, ...]:
        """Give the changes that send something."""
        return tuple(change for change in self.changes if change.writes)

    def counts(self) -> dict[str, int]:
        """Count the objects of each action, in order."""
        return dict(sorted(Counter(change.action for change in self.changes).items()))


def refusal_error(changes: Iterable[Change], *kinds: RefusalKind) -> MlstackError | None:
    """Give all refusals (of some kinds) as one error that names each object; None if there are none."""
    errors: list[MlstackError] = []
    for change in changes:
        refusal, where = change.refusal, f"component {change.component}" if change.component else None
        if refusal is None or (kinds and refusal.kind not in kinds):
            continue
        error = refusal.error
        if error is None:
            text = f"`{change.identity}`: {'; '.join(refusal.reasons)}"
            kind = ConflictError if refusal.kind == "foreign" else InvalidError
            error = kind(text, hint=refusal.hint or None)
        error.where = error.where or where
        errors.append(error)
    return parallel.together(errors) if errors else None


# --- what a person approves, and in what a change differs from it ---


def digest_of(value: Any) -> str:
    """Give the hash of any plain value; the order of keys does not matter."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def fingerprint(fields: Iterable[FieldChange]) -> str:
    """Give the hash of differences with their true values; these cannot be read from it.

    A map that comes or goes as a whole counts as its fields: whether others have something in it too does
    not matter.
    """
    return digest_of(sorted((path, *hashes) for path, hashes in _hashes(fields).items()))


def _hashes(fields: Iterable[FieldChange]) -> Mapping[str, Sequence[str]]:
    """Give the hashes of what is there and what is wanted, by field; a side that says nothing is empty."""
    hashes: defaultdict[str, list[str]] = defaultdict(lambda: ["", ""])
    for change in fields:
        for side, whole in enumerate((change.old, change.new)):
            for path, value in _leaves(change.path, whole):
                hashes[path][side] = digest_of(value)
    return hashes


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}{step_text(f'f:{key}')}", inner)
    elif value is not None:
        yield path, value


_LISTED = 5  # enough to see what it is about
OUTCOMES: Mapping[ChangeAction, RunEventKind] = {
    "create": "created",
    "update": "updated",
    "recreate": "recreated",
    "delete": "deleted",
    "unchanged": "unchanged",
}
DONE: Mapping[ChangeAction, str] = {
    "create": "created",
    "update": "updated",
    "recreate": "made anew",
    "delete": "deleted",
    "unchanged": "left as it is",
    "missing": "left missing",
    "kept": "kept",
}


def what_moved(approved: Change, now: Change) -> str:
    """Say in one line in what a change differs from the one that was approved."""
    texts = list(now.refusal.reasons if now.refusal else dict.fromkeys(_moved(approved, now)))
    return listed(texts, _LISTED) or "its values"


def _moved(approved: Change, now: Change) -> Iterator[str]:
    if approved.live_uid and now.live_uid != approved.live_uid:
        yield "it was made anew by somebody else" if now.live_uid else "it is gone"
        return
    if now.action != approved.action:
        yield f"it would be {DONE[now.action]}"
    old, new = _hashes(approved.fields), _hashes(now.fields)
    for path in sorted(old.keys() | new.keys()):
        if path not in new:
            yield f"`{path}` is as wanted already"
        elif path not in old:
            yield f"`{path}` differs as well"
        elif old[path] != new[path]:
            yield f"`{path}` has another value"
    for path, manager in sorted(set(now.left) - set(approved.left)):
        yield f"`{path}` belongs to `{manager}` now"
    for path, _ in sorted(set(approved.left) - set(now.left)):
        yield f"`{path}` belongs to nobody else any more"


# --- what is sent of one object ---


def with_uid(data: Data, uid: str, version: str = "") -> dict[str, Any]:
    """Give a payload that can only change this very object, in this version, as far as these are given."""
    given = {key: value for key, value in (("uid", uid), ("resourceVersion", version)) if value}
    return {**data, "metadata": {**data["metadata"], **given}}


# --- How an apply is to be done ---


class ApplyOptions(Record):
    """What a person chose for one apply."""

    dry_run: bool = False  # write nothing; the server checks new objects as well
    create: bool = True  # make objects that are missing
    adopt: bool = False  # take over objects of other apps and environments, and what kubectl or Helm applied
    force_conflicts: bool = False  # take fields from programs that own them too
    keep_foreign_fields: bool = False  # leave what people's tools set and no file has
    allow_destructive: bool = False  # let definitions lose fields and versions
    # how long to wait for another run on the environment, 0 refuses at once; None for 30 s, and no longer
    # than for anything else
    lock_timeout_s: float | None = None
    prune: bool = True  # delete what the environment has in its cluster and the files no longer bring
    allow_large_prune: bool = False  # also if that is more than half of it
    wait: bool = True  # return only when everything works, and what was deleted is gone
    # how long anything is waited for; None for 300 s, and less for pods that no node can take
    timeout_s: float | None = None
    wait_for_jobs: bool = False  # wait also for what runs to an end, until it runs
    # `rollback` applies the last revision that worked again, as far as the run was about it
    on_failure: OnFailure = "stop"
    fail_fast: bool = False  # begin nothing more once an object has failed
    allow_dirty: bool = False  # apply files to a protected environment that are in no commit
    check_capacity: bool = False  # look whether nodes and quotas have room for the pods, else write nothing


DECIDING = (
    "create",
    "adopt",
    "force_conflicts",
    "keep_foreign_fields",
    "allow_destructive",
    "prune",
    "allow_large_prune",
)
"""Options that decide what happens; the others are about how it is done."""


# --- what a deploy says about itself, ready to be read by a person or a program; secrets are masked ---

RunKind = Literal["ApplyResult", "DeleteResult"]


class ObjectChange(Record):
    """What would happen to one object."""

    object: str  # the object as people name it: `Deployment kubeflow/tf-hub`
    api_version: str  # its API version
    kind: str  # its kind
    namespace: str  # its namespace, empty for cluster-scoped objects
    name: str  # its name
    component: str  # full name of the component that brings it
    action: ChangeAction  # `create`, `update`, `recreate`, `delete`, `unchanged`, `missing` or `kept`
    reason: str = ""  # why it is recreated, deleted or kept
    fields: tuple[FieldChange, ...] = ()  # what differs
    notes: tuple[str, ...] = ()  # remarks, as whose fields are overridden
    manifest: Mapping[str, Any] | None = None  # the whole object where it is created, else None
    refused: tuple[str, ...] = ()  # why an apply would not do this, empty if it would
    hint: str = ""  # what to do about that


class ChangeReport(Record):
    """What a run would do."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["DiffResult"] = "DiffResult"  # kind of this format
    ok: bool  # true if nothing would change
    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # its namespace
    context: str  # the kubectl context
    objects: tuple[ObjectChange, ...]  # one row an object, in the order of execution
    counts: Mapping[str, int]  # number of objects of each action
    # what the objects take of the cluster afterwards, by amount: `pods`, `requests.cpu` (thousandths of a
    # core), `requests.memory` (bytes), `gpus.PRODUCT`, `storage.CLASS`, `loadbalancers` and the like
    takes: Mapping[str, int] = field(default_factory=dict)
    takes_more: Mapping[str, int] = field(default_factory=dict)  # than now, by amount; less below 0
    notes: tuple[str, ...] = ()  # remarks on the run as a whole


class ObjectResult(Record):
    """What happened to one object."""

    object: str  # the object as people name it
    kind: str  # its kind
    namespace: str  # its namespace, empty for cluster-scoped objects
    name: str  # its name
    component: str  # full name of the component that brings it
    # what happened; `terminating` was deleted, is held by a finalizer, and nobody waited
    outcome: ChangeOutcome
    text: str = ""  # the reason or remark, empty if there is nothing to say
    state: State | Literal[""] = ""  # how it stood when the wait for it ended, empty if nobody waited
    reason: str = ""  # what it waited for, or why it failed


class RunResult(Record):
    """What `apply` or `delete` did."""

    api_version: str = API_VERSION  # version of this format
    kind: RunKind = "ApplyResult"  # kind of this format
    ok: bool  # true if every object came to its end, and works as far as it was waited for
    app: str  # name of the app
    environment: str  # name of the environment
    namespace: str  # its namespace
    context: str  # the kubectl context
    dry_run: bool  # whether the server only said what it would do
    objects: tuple[ObjectResult, ...]  # one row an object, in the order of execution
    counts: Mapping[str, int] = field(default_factory=dict)  # number of objects of each outcome
    notes: tuple[str, ...] = ()  # remarks on the run as a whole


class Interrupted(KeyboardInterrupt):
    """Raised when a person stops a run that has begun."""

    def __init__(self, partial: RunResult) -> None:
        super().__init__("interrupted")
        self.partial = partial


def report(changes: Changes) -> ChangeReport:
    """Write down what a run would do."""
    from mlstack.readiness.capacity import footprint

    later = [_later(change, change.desired) for change in changes.changes if change.desired is not None]
    now = [
        change.live if change.live and change.action in EXISTING else change.desired
        for change in changes.changes
        if change.action != "create"
    ]
    takes = footprint(later)
    return row(
        ChangeReport,
        changes,
        ok=not changes.visible,
        objects=tuple(_row(change, changes.secrets) for change in changes.changes),
        counts=changes.counts(),
        takes=takes.now,
        takes_more=takes.more_than(footprint([obj for obj in now if obj is not None])),
    )


def _later(change: Change, desired: KubeObject) -> KubeObject:
    """Give an object as it will be: a claim stays with the storage class that the cluster chose for it."""
    if change.action != "update" or change.live is None or desired.kind != "PersistentVolumeClaim":
        return desired
    spec = {**(change.live.data.get("spec") or {}), **(desired.data.get("spec") or {})}
    return desired.with_data({**desired.data, "spec": spec})


def _row(change: Change, secrets: Sequence[str]) -> ObjectChange:
    desired = change.desired if change.action == "create" else None
    return row(
        ObjectChange,
        change,
        change.identity,
        object=str(change.identity),
        fields=hide_secrets(change.fields, secrets),
        manifest=mask_values(mask_object(desired.data), secrets) if desired is not None else None,
        refused=change.refusal.reasons if change.refusal else (),
        hint=change.refusal.hint if change.refusal else "",
    )


def run_result(
    changes: Changes,
    outcomes: Mapping[Identity, RunEvent],
    *,
    standings: Mapping[Identity, ReadinessState] | None = None,
    kind: RunKind = "ApplyResult",
    dry_run: bool = False,
) -> RunResult:
    """Write down what a run did."""
    states, rows = standings or {}, []
    for change in changes.changes:
        key, state = change.identity, states.get(change.identity)
        event = outcomes.get(key, RunEvent("skipped", None, "not reached"))
        stood = {"state": state.readiness.state, "reason": state.readiness.reason} if state else {}
        facts = {"component": change.component, "outcome": event.kind, "text": event.text, **stood}
        rows.append(row(ObjectResult, key, object=str(key), **facts))
    is_done = not any(result.outcome in ("failed", "skipped") for result in rows)
    return row(
        RunResult,
        changes,
        kind=kind,
        ok=is_done and all(state.is_good for state in states.values()),
        dry_run=dry_run,
        objects=tuple(rows),
        counts=dict(sorted(Counter(result.outcome for result in rows).items())),
    )


def masked(identity: Identity, changes: Iterable[FieldChange]) -> tuple[FieldChange, ...]:
    """Hide the values of a Secret's data; which keys differ may be seen."""
    if (identity.group, identity.kind) != ("", "Secret"):
        return tuple(changes)
    return tuple(
        replace(change, old=mask_whole(change.old), new=mask_whole(change.new))
        if change.path.startswith(("data", "stringData")) or "last-applied" in change.path
        else change
        for change in changes
    )


def hide_secrets(changes: Iterable[FieldChange], secrets: Sequence[str]) -> tuple[FieldChange, ...]:
    """Hide secrets that a template put into other objects; the value before one may have been one too."""
    shown = []
    for change in changes:
        old, new = (mask_values(value, secrets) if secrets else value for value in (change.old, change.new))
        if (old, new) != (change.old, change.new):
            change = replace(change, old=_as_hidden(old, new), new=_as_hidden(new, old))
        shown.append(change)
    return tuple(shown)


def _as_hidden(value: Any, beside: Any) -> Any:
    """Give a value masked where the one beside it is: an earlier secret stood there."""
    if isinstance(value, Mapping) and isinstance(beside, Mapping):
        return {name: _as_hidden(inner, beside.get(name)) for name, inner in value.items()}
    if isinstance(value, list) and isinstance(beside, list) and len(value) == len(beside):
        return [_as_hidden(*pair) for pair in zip(value, beside, strict=True)]
    return _hidden(value) if MASK in f"{beside}{value}" else value


def _hidden(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _hidden(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    return None if value is None else MASK


class ResultList(Record):
    """What a command gives for each of several environments, in their order."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["ResultList"] = "ResultList"  # kind of this format
    ok: bool  # true if every one is
    # one result an environment; one that failed is `{environment, ok: false, error: {message, where, hint,
    # exitCode}}`, with what was done until then in `partial`
    items: tuple[Mapping[str, Any], ...]
