"""The history of an environment: revisions, the sets that they hold, and the Secrets that keep them."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import Any, Literal, TypeVar

from mlstack.app.environment import Environment
from mlstack.dataclass import Record
from mlstack.deploy import target as guard
from mlstack.deploy.changes import Change, ChangeAction, masked
from mlstack.deploy.target import Target
from mlstack.errors import ClusterError, ConflictError, ForbiddenError, NotFoundError, ObjectNotFoundError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef, Opener
from mlstack.kube.parallel import prefetch
from mlstack.objects import kube_object, managed_fields, masking
from mlstack.objects.kube_object import DesiredState, KubeObject, Source, environment_marks, records_name
from mlstack.objects.managed_fields import FieldChange

RevisionStatus = Literal["done", "failed", "not ready", "interrupted"]

T = TypeVar("T")
Identities = frozenset[kube_object.Identity]

UNNAMED = "…"
"""Stands among the components that do not work for too many to be named."""
CHANGING = frozenset({"created", "updated", "recreated", "deleted"})
"""Outcomes after which an object is not as it was."""
KEPT = 10
"""How many revisions of an environment stay."""


class Revision(Record):
    """What is known of one revision."""

    number: int  # counts up from 1; numbers are never used again
    time: str  # when the run ended, in UTC: `2026-11-22T02:25:46Z`
    who: str  # `user@host` of the person or program
    what: str  # what was done: `apply`, `apply -c cnn`, `rollback to 3`
    result: RevisionStatus  # how it ended
    components: tuple[str, ...] = ()  # full names of the components that were applied
    unsettled: tuple[str, ...] = ()  # components of the set whose last run did not end well
    counts: Mapping[str, int] = field(default_factory=dict)  # number of objects of each outcome
    # number of objects that were to be created, changed or deleted; 0 where that is not known
    planned: int = 0
    objects: int = 0  # number of objects of the set
    version: str = ""  # of mlstack
    digest: str = ""  # `sha256:…` of the set; equal sets have equal digests
    size_bytes: int = 0  # of the set, unpacked
    parts: int = 1  # number of Secrets it takes
    commit: str = ""  # of git that the app's files were at; empty where there was none
    dirty: bool = False  # whether some of them were not as it had them

    @property
    def changed(self) -> int:
        """Count the objects that were created, changed or deleted."""
        return sum(number for outcome, number in self.counts.items() if outcome in CHANGING)

    @property
    def is_good(self) -> bool:
        """Tell whether everything of the set was applied and worked."""
        return self.result == "done" and not self.unsettled


def last_good_revision(revisions: Sequence[Revision], components: Collection[str] = ()) -> Revision | None:
    """Give the newest revision (of oldest first) of which everything worked, or all of some components."""
    asked = {*components, UNNAMED}
    for revision in reversed(revisions):
        if revision.is_good or (components and not asked & {*revision.unsettled}):
            return revision
    return None


# --- sets ---


def merged(before: DesiredState, applied: DesiredState, moved: Identities = frozenset()) -> DesiredState:
    """Give the whole set after some components were applied: theirs as applied, the others as known.

    What has `moved` to a component that was not applied is there as it was before.
    """
    known = {obj.identity for obj in without(before, applied.known_as).objects} | moved
    known -= {obj.identity for obj in applied.objects}
    kept = [obj for obj in before.objects if obj.identity in known]

    def of_others(facts: Mapping[str, T]) -> dict[str, T]:
        return {name: fact for name, fact in facts.items() if name not in applied.known_as}

    return replace(
        applied,
        objects=(*kept, *applied.objects),
        components=tuple(sorted({*before.components, *applied.components} - {*applied.formerly})),
        depends={**of_others(before.depends), **applied.depends},
        timeouts={**of_others(before.timeouts), **applied.timeouts},
        has_secrets=before.has_secrets or applied.has_secrets,
        secrets=tuple(dict.fromkeys((*before.secrets, *applied.secrets))),
    )


def without(state: DesiredState, components: Iterable[str]) -> DesiredState:
    """Give a set without some of its components."""
    gone = set(components)
    return replace(
        state,
        objects=tuple(obj for obj in state.objects if obj.component not in gone),
        components=tuple(name for name in state.components if name not in gone),
    )


def only(state: DesiredState, components: Iterable[str]) -> DesiredState:
    """Give what a set has of some components; those are its components, whether it has anything of them."""
    asked = set(components)
    objects = tuple(obj for obj in state.objects if obj.component in asked)
    return replace(state, objects=objects, components=tuple(sorted(asked)))


def unsettled(previous: Revision | None, applied: Iterable[str], result: RevisionStatus) -> tuple[str, ...]:
    """Give the components that do not work as far as is known, after some were applied with this result."""
    before = set(previous.unsettled) if previous is not None else set()
    names = set(applied)
    return tuple(sorted(before - names if result == "done" else before | names))


def changes_between(older: DesiredState, newer: DesiredState) -> tuple[Change, ...]:
    """Give what came, changed and went between two sets; values of Secrets are masked."""
    before = {obj.identity: obj for obj in older.objects}
    after = {obj.identity: obj for obj in newer.objects}
    changes = []
    for key, present in {**after, **before}.items():
        old, new = before.get(key), after.get(key)
        obj = new or present
        if old is not None and new is not None and old.data == new.data:
            continue
        action: ChangeAction = "create" if old is None else "delete" if new is None else "update"
        differences: Iterable[FieldChange] = ()
        if old is not None and new is not None:
            tree = managed_fields.union(managed_fields.tree_of(old.data), managed_fields.tree_of(new.data))
            differences = managed_fields.compare(old.data, new.data, tree)
        changes.append(
            Change(
                identity=key,
                component=obj.component,
                action=action,
                api_version=obj.api_version,
                fields=masked(key, differences),
                desired=new,
            )
        )
    return tuple(changes)


# --- codec: a set as compressed JSON in Secrets, its facts in their annotations ---
# A list of metadata is enough to tell the revisions. The Secret called `….r<N>` is written last: a revision
# without it, or without one of its parts, was broken off and counts for nothing.

Secret = dict[str, Any]

PART_BYTES = 900_000
"""What one Secret takes of a set: the API server refuses Secrets above 1 MiB."""
TYPE = "mlstack.dev/history"
REVISION_LABEL = "mlstack.dev/revision"
FACTS = "mlstack.dev/facts"
CONTENT = "set.json.gz"

_FACTS_CHARACTERS = 200_000  # the API server takes 262,144 bytes of annotations
_GZIP = 16 + zlib.MAX_WBITS

# Whoever may write Secrets in the namespace may write such facts: no number of theirs drives a loop or takes
# memory before it is known to be a possible one.
MOST_BYTES = 256_000_000
"""What a set may take, unpacked: some 50,000 objects."""
_MOST_NUMBER = 10**12


def encode(
    draft: Revision, state: DesiredState, *, part_bytes: int = PART_BYTES
) -> tuple[Revision, tuple[bytes, ...]]:
    """Give a revision with the facts of its set, and that as compressed parts, none above `part_bytes`.

    The same set gives the same bytes, in whatever order its objects stand.
    """
    objects = sorted(state.objects, key=lambda obj: obj.identity)
    document = {
        "app": state.app,
        "environment": state.environment,
        "namespace": state.namespace,
        "components": list(state.components),
        "depends": {name: list(others) for name, others in state.depends.items()},
        "timeouts": dict(state.timeouts),
        **({"secrets": sorted(state.secrets)} if state.secrets else {}),  # to be masked where it is shown
        "objects": [{"component": obj.component, "object": obj.data} for obj in objects],
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), default=dict).encode()
    packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    content = packer.compress(text) + packer.flush()
    parts = tuple(content[start : start + part_bytes] for start in range(0, len(content), part_bytes))
    revision = replace(
        draft, digest=_digest(text), size_bytes=len(text), parts=len(parts), objects=len(objects)
    )
    return revision, parts


def _digest(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def decode(revision: Revision, parts: Sequence[bytes]) -> DesiredState:
    """Give the set of a revision back.

    Raises:
        DamagedHistoryError: the parts are not what was kept.
    """
    try:
        text = zlib.decompressobj(_GZIP).decompress(b"".join(parts), revision.size_bytes + 1)
        if _digest(text) != revision.digest:
            raise DamagedHistoryError(revision.number)
        document = json.loads(text)
        return DesiredState(
            app=document["app"],
            environment=document["environment"],
            namespace=document["namespace"],
            components=tuple(document["components"]),
            depends={name: tuple(others) for name, others in document.get("depends", {}).items()},
            timeouts=document.get("timeouts", {}),
            objects=tuple(
                KubeObject(
                    data=entry["object"],
                    component=entry["component"],
                    source=Source(component=entry["component"], file=f"revision {revision.number}"),
                )
                for entry in document["objects"]
            ),
            has_secrets=any(entry["object"].get("kind") == "Secret" for entry in document["objects"]),
            secrets=tuple(document.get("secrets", ())),
        )
    except (zlib.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedHistoryError(revision.number) from error


class DamagedHistoryError(ClusterError):
    """Raised when the Secrets of a revision are not what was written."""

    def __init__(self, number: int) -> None:
        super().__init__(
            f"revision {number} is damaged: its Secrets are not what was written",
            hint="choose another one; see `mlstack history ENV`",
        )


def secrets_of(
    revision: Revision, parts: Sequence[bytes], *, namespace: str, app: str, environment: str
) -> tuple[Secret, ...]:
    """Give the Secrets that hold a revision, in the order they are to be written: the first part last."""
    labels = {**environment_marks(app, environment), REVISION_LABEL: str(revision.number)}
    first, *others = (
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": namespace, "labels": labels, "name": name},
            "type": TYPE,
            "immutable": True,
            "data": {CONTENT: base64.b64encode(part).decode()},
        }
        for name, part in zip(
            part_names(records_name(app, environment), revision.number, len(parts)), parts, strict=True
        )
    )
    first["metadata"]["annotations"] = {FACTS: _facts(revision)}  # type: ignore[index]  # it is a map
    return (*others, first)


def part_names(name: str, number: int, parts: int) -> tuple[str, ...]:
    """Give the names of the Secrets of a revision, in the order of their content."""
    head = f"{name}.r{number}"
    return (head, *(f"{head}.{part}" for part in range(2, parts + 1)))


def content_of(secret: Mapping[str, Any], number: int) -> bytes:
    """Give the bytes a Secret holds."""
    try:
        return base64.b64decode(secret["data"][CONTENT], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedHistoryError(number) from error


def _facts(revision: Revision) -> str:
    facts = {key: value for key, value in vars(revision).items() if key != "number"}
    text = json.dumps(facts, sort_keys=True)
    if len(text) <= _FACTS_CHARACTERS:
        return text
    # So many components that only their number is worth anything: the set itself still names them.
    names = (UNNAMED,) if revision.unsettled else ()
    return _facts(replace(revision, components=(), unsettled=names, what=revision.what[:200]))


def revisions(items: Iterable[Mapping[str, Any]]) -> tuple[Revision, ...]:
    """Give the complete revisions among the metadata of Secrets, oldest first."""
    items = list(items)
    names = {_name(item) for item in items}
    complete = []
    for item in items:
        revision = _revision(item)
        if revision is not None and revision.parts <= len(names):
            head = _name(item).removesuffix(f".r{revision.number}")
            if names.issuperset(part_names(head, revision.number, revision.parts)):
                complete.append(revision)
    return tuple(sorted(complete, key=lambda revision: revision.number))


def impossible(items: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    """Give the numbers of the revisions among metadata of Secrets whose facts nobody could have written."""
    heads = [item for item in items if FACTS in (item["metadata"].get("annotations") or {})]
    return tuple(sorted({_number(item) for item in heads if _revision(item) is None}))


def _revision(item: Mapping[str, Any]) -> Revision | None:
    try:
        facts = json.loads(item["metadata"]["annotations"][FACTS])
        fields: dict[str, Any] = {name: str(facts[name]) for name in ("time", "who", "what", "result")}
        fields |= {name: str(facts[name]) for name in ("version", "digest")}
        fields |= {name: tuple(map(str, facts[name])) for name in ("components", "unsettled")}
        fields |= {name: _possible(facts[name]) for name in ("objects", "size_bytes")}
        return Revision(
            number=_possible(int(item["metadata"]["labels"][REVISION_LABEL]), _MOST_NUMBER),
            counts={str(name): _possible(count) for name, count in facts["counts"].items()},
            planned=_possible(facts.get("planned", 0)),
            commit=str(facts.get("commit", "")),
            dirty=facts.get("dirty") is True,
            parts=_possible(facts["parts"], 1 + MOST_BYTES // PART_BYTES, least=1),
            **fields,
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def _possible(number: object, most: int = MOST_BYTES, *, least: int = 0) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise ValueError("no such number was ever written")
    return number


def _number(item: Mapping[str, Any]) -> int:
    try:
        return _possible(int(item["metadata"]["labels"][REVISION_LABEL]), _MOST_NUMBER)
    except (KeyError, TypeError, ValueError):
        return 0


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])


def next_number(items: Iterable[Mapping[str, Any]]) -> int:
    """Give the number of the next revision; broken ones keep theirs, so that nothing is in the way."""
    return max(map(_number, items), default=0) + 1


def outdated(items: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Give the names of the Secrets to delete: old revisions and what is left of broken ones.

    The newest revision that worked stays in place of the oldest one kept, if it would go otherwise.
    """
    items = list(items)
    offered = revisions(items)
    staying = list(offered[-KEPT:])
    good = [revision for revision in offered if revision.is_good]
    if good and good[-1] not in staying:
        staying[0] = good[-1]
    numbers = {revision.number for revision in staying} | {*impossible(items)}
    return tuple(sorted(_name(item) for item in items if _number(item) not in numbers))


# --- the history of one environment in its cluster: read, gone on with by runs, forgotten ---

_ATTEMPTS = 3  # somebody without the lock may have taken the number


class History(Record):
    """The revisions of one environment; its methods raise ClusterError where the cluster cannot be asked."""

    cluster: Cluster
    app: str
    environment: str
    namespace: str
    # Gives the Secrets as they were when this run began, which nobody else writes meanwhile.
    ahead: Callable[[], Sequence[Mapping[str, Any]]] | None = None

    @classmethod
    def of(cls, app: str, place: Environment, cluster: Cluster) -> History:
        """Give the history of an environment as a run uses it."""
        return cls(cluster=cluster, app=app, environment=place.name, namespace=place.namespace)

    def exists(self) -> bool:
        """Tell whether there is a past; false where its Secrets may not be listed."""
        with suppress(ForbiddenError):
            return bool(self._items())
        return False

    def revisions(self) -> tuple[Revision, ...]:
        """Give all revisions that are complete, oldest first."""
        return revisions(self._items())

    def impossible(self) -> tuple[int, ...]:
        """Give the numbers of revisions whose facts nobody could have written."""
        return impossible(self._items())

    def find(self, number: int) -> Revision:
        """Give one revision.

        Raises:
            NotFoundError: there is none of that number.
        """
        items = self._items()
        complete = revisions(items)
        if revision := next((kept for kept in complete if kept.number == number), None):
            return revision
        if number in impossible(items):
            raise DamagedHistoryError(number)
        numbers = f"there are {complete[0].number} to {complete[-1].number}" if complete else ""
        raise NotFoundError(
            f"environment `{self.environment}` has no revision {number}; {numbers or 'no history is kept'}",
            hint=f"mlstack history {self.environment}",
        )

    def load(self, revision: Revision) -> DesiredState:
        """Give the set of a revision.

        Raises:
            DamagedHistoryError: it is not what was written.
        """

        def part(name: str) -> bytes:
            secret = self.cluster.get(self._ref(name))
            if secret is None:
                raise DamagedHistoryError(revision.number)
            return content_of(secret, revision.number)

        names = part_names(records_name(self.app, self.environment), revision.number, revision.parts)
        state = decode(revision, parallel.whole(parallel.run(part, names)))
        masking.note_object({"items": [obj.data for obj in state.objects]})
        masking.note(*state.secrets)
        return state

    def record(
        self,
        draft: Revision,
        state: DesiredState | None,
        *,
        selective: bool = False,
        moved: Identities = frozenset(),
        if_news: bool = False,
    ) -> Revision | None:
        """Write a revision, then let go of the oldest and of what is left of broken ones.

        Args:
            draft: what is known of the run; number, digest and the like are filled in.
            state: what was applied; None if the draft's components were to go. One that is not `done` has
                them still, and without a history to go on with nothing is written.
            selective: only the components of the state were applied: the others are taken from the
                revision before, as is what has `moved` to one of these.
            if_news: write nothing and give None if the newest revision says the same already.
        """
        items = self._items()
        newest = next(reversed(revisions(items)), None)
        base = newest if selective or state is None else None
        if base is not None:
            gone, earlier = draft.components if draft.result == "done" else (), self.load(base)
            state = without(earlier, gone) if state is None else merged(earlier, state, moved)
        if state is None:
            return None
        left = unsettled(base, draft.components, draft.result)
        draft = replace(draft, unsettled=tuple(name for name in left if name not in state.formerly))
        draft, parts = encode(draft, state)
        if if_news and newest and (newest.digest, newest.unsettled) == (draft.digest, draft.unsettled):
            return None
        return self._create(draft, parts, items)

    def _create(
        self, draft: Revision, parts: Sequence[bytes], items: Sequence[Mapping[str, Any]]
    ) -> Revision:
        """Write a revision under the next free number, and delete what it makes outdated."""
        place = {"namespace": self.namespace, "app": self.app, "environment": self.environment}
        first = next_number(items)
        for number in range(first, first + _ATTEMPTS):
            revision = replace(draft, number=number)
            secrets = secrets_of(revision, parts, **place)
            try:
                for secret in secrets:  # one after the other: the last one is what makes it a revision
                    self.cluster.create(secret)
            except ConflictError:
                continue
            self._delete(outdated([*items, *secrets]))
            return revision
        raise ClusterError(f"revision {first} and the next are written by somebody else")

    def forget(self) -> None:
        """Delete all of it, with what is left of broken revisions."""
        self._delete([str(item["metadata"]["name"]) for item in self._items()])

    def _delete(self, names: Sequence[str]) -> None:
        def delete(name: str) -> None:
            with suppress(ObjectNotFoundError):
                self.cluster.delete(self._ref(name), propagation="Background")

        parallel.whole(parallel.run(delete, names))

    def read_ahead(self) -> History:
        """Give the same history, which begins to be read at once, while other things are done."""
        return replace(self, ahead=prefetch(self._items))

    def _items(self) -> Sequence[Mapping[str, Any]]:
        if self.ahead is not None:
            with suppress(ClusterError):  # it may be back by now
                return self.ahead()
        labels = f"{kube_object.selector(app=self.app, environment=self.environment)},{REVISION_LABEL}"
        address = {"namespace": self.namespace, "labels": labels}
        items = self.cluster.list("v1", "Secret", metadata_only=True, **address).items
        head = f"{records_name(self.app, self.environment)}.r"  # labels alone do not tell `a/b` from `a.b`
        return tuple(item for item in items if item["metadata"]["name"].startswith(head))

    def _ref(self, name: str) -> ObjectRef:
        return ObjectRef("v1", "Secret", self.namespace, name)


def open_history(target: Target, opener: Opener) -> History:
    """Give the history of a target from the cluster of its context; nothing is rendered.

    Raises:
        ConfigError: the environment's file is wrong.
        WrongClusterError: the context leads to another cluster.
    """
    place = target.place()
    cluster = opener(place.context)
    guard.check_cluster(place, cluster)
    return History.of(target.app.app.name, place, cluster)


# What ends programs by SIGTERM kills them when they have not gone after 10 s (Docker) or 30 s (Kubernetes).
LEAVING_S = 6.0


def before_leaving(record: Callable[[], None]) -> None:
    """Write down how far a run came that was asked to end, as long as its user may be kept for that."""
    with suppress(TimeoutError):
        prefetch(record)(LEAVING_S)


def run_summary(target: Target, verb: str) -> str:
    """Give a run in a few words: `apply -c cnn,web with --set`; values are not told, some are secret."""
    components = f" -c {','.join(target.components)}" if target.components else ""
    return f"{verb}{components}{' with --set' if target.overrides else ''}"
