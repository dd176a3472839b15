"""How a revision lies in a cluster: a set as compressed JSON in Secrets, its facts in their annotations.

A list of metadata is enough to tell the revisions. The Secret called `….r<N>` is written last: a revision
without it, or without one of its parts, was broken off and counts for nothing.
"""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlstack.errors import ClusterError
from mlstack.model import objects
from mlstack.model.history import KEPT, UNNAMED, Revision
from mlstack.model.objects import DesiredState, KubeObject, Source

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


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A set, ready to be kept.

    Attributes:
        parts: its compressed bytes, none longer than `PART_BYTES`.
        digest: `sha256:…` of the set.
        size_bytes: of the set, unpacked.
    """

    parts: tuple[bytes, ...]
    digest: str
    size_bytes: int


def pack(state: DesiredState, *, part_bytes: int = PART_BYTES) -> Packed:
    """Compress a set; the same set gives the same bytes, in whatever order its objects stand."""
    text = _canonical(state)
    packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
    content = packer.compress(text) + packer.flush()
    parts = tuple(content[start : start + part_bytes] for start in range(0, len(content), part_bytes))
    return Packed(parts=parts, digest=_digest(text), size_bytes=len(text))


def _canonical(state: DesiredState) -> bytes:
    document = {
        "app": state.app,
        "environment": state.environment,
        "namespace": state.namespace,
        "components": list(state.components),
        "depends": {name: list(others) for name, others in state.depends.items()},
        "timeouts": dict(state.timeouts),
        **({"secrets": sorted(state.secrets)} if state.secrets else {}),  # to be masked where it is shown
        "objects": [
            {"component": one.component, "object": one.data}
            for one in sorted(state.objects, key=lambda one: one.identity)
        ],
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), default=dict).encode()


def _digest(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def unpack(revision: Revision, parts: Sequence[bytes]) -> DesiredState:
    """Give the set of a revision back.

    Raises:
        DamagedError: the parts are not what was kept.
    """
    unpacker = zlib.decompressobj(_GZIP)
    try:
        text = unpacker.decompress(b"".join(parts), revision.size_bytes + 1)
    except zlib.error as error:
        raise damaged(revision.number) from error
    if _digest(text) != revision.digest:
        raise damaged(revision.number)
    try:
        return _state_of(json.loads(text), revision)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged(revision.number) from error


def _state_of(document: Mapping[str, Any], revision: Revision) -> DesiredState:
    return DesiredState(
        app=document["app"],
        environment=document["environment"],
        namespace=document["namespace"],
        components=tuple(document["components"]),
        depends={name: tuple(others) for name, others in document.get("depends", {}).items()},
        timeouts=document.get("timeouts", {}),
        objects=tuple(_object(one, revision.number) for one in document["objects"]),
        has_secrets=any(one["object"].get("kind") == "Secret" for one in document["objects"]),
        secrets=tuple(document.get("secrets", ())),
    )


def _object(one: Mapping[str, Any], number: int) -> KubeObject:
    source = Source(component=one["component"], file=f"revision {number}")
    return KubeObject(data=one["object"], component=one["component"], source=source)


class DamagedError(ClusterError):
    """Raised when the Secrets of a revision are not what was written."""


def damaged(number: int) -> DamagedError:
    """Give the error for a revision that cannot be read."""
    return DamagedError(
        f"revision {number} is damaged: its Secrets are not what was written",
        hint="choose another one; see `mlstack history ENV`",
    )


def secrets(
    revision: Revision, packed: Packed, *, name: str, namespace: str, app: str, environment: str
) -> tuple[Secret, ...]:
    """Give the Secrets that hold a revision, in the order they are to be written: the first part last."""
    marks = objects.marks(app=app, environment=environment, component="")
    del marks[objects.COMPONENT_LABEL]
    metadata = {"namespace": namespace, "labels": {**marks, REVISION_LABEL: str(revision.number)}}
    first, *others = names(name, revision.number, len(packed.parts))
    head = {**metadata, "name": first, "annotations": {FACTS: _facts(revision)}}
    described = [head, *({**metadata, "name": each} for each in others)]
    made = [_secret(each, part) for each, part in zip(described, packed.parts, strict=True)]
    return (*made[1:], made[0])


def _secret(metadata: Mapping[str, Any], part: bytes) -> Secret:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": TYPE,
        "immutable": True,
        "data": {CONTENT: base64.b64encode(part).decode()},
    }


def names(name: str, number: int, parts: int) -> tuple[str, ...]:
    """Give the names of the Secrets of a revision, in the order of their content."""
    head = f"{name}.r{number}"
    return (head, *(f"{head}.{part}" for part in range(2, parts + 1)))


def content_of(secret: Mapping[str, Any], number: int) -> bytes:
    """Give the bytes a Secret holds.

    Raises:
        DamagedError: it holds none of ours.
    """
    try:
        return base64.b64decode(secret["data"][CONTENT], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(number) from error


def _facts(revision: Revision) -> str:
    text = json.dumps(
        {key: value for key, value in vars(revision).items() if key != "number"}, sort_keys=True
    )
    if len(text) <= _FACTS_CHARACTERS:
        return text
    # So many components that only their number is worth anything: the set itself still names them.
    return _facts(
        replace(
            revision,
            components=(),
            unsettled=(UNNAMED,) if revision.unsettled else (),
            what=revision.what[:200],
        )
    )


def revisions(items: Iterable[Mapping[str, Any]]) -> tuple[Revision, ...]:
    """Give the complete revisions among the metadata of Secrets, oldest first."""
    found = list(items)
    there = {_name(item) for item in found}
    read = [(item, _revision(item)) for item in found]
    complete = [one for item, one in read if one is not None and _is_complete(item, one, there)]
    return tuple(sorted(complete, key=lambda one: one.number))


def impossible(items: Iterable[Mapping[str, Any]]) -> tuple[int, ...]:
    """Give the numbers of the revisions among metadata of Secrets whose facts nobody could have written."""
    heads = [item for item in items if FACTS in _annotations(item)]
    return tuple(sorted({_known_number(item) for item in heads if _revision(item) is None}))


def _is_complete(item: Mapping[str, Any], found: Revision, there: set[str]) -> bool:
    return found.parts <= len(there) and there.issuperset(_names_of(_name(item), found))


def _names_of(head: str, revision: Revision) -> tuple[str, ...]:
    return names(head.removesuffix(f".r{revision.number}"), revision.number, revision.parts)


def _revision(item: Mapping[str, Any]) -> Revision | None:
    """Read the facts of a first part; None for other parts, and for what this version cannot read."""
    try:
        facts = json.loads(_annotations(item)[FACTS])
        return Revision(
            number=_possible(_number(item), _MOST_NUMBER),
            time=str(facts["time"]),
            who=str(facts["who"]),
            what=str(facts["what"]),
            result=facts["result"],
            components=tuple(map(str, facts["components"])),
            unsettled=tuple(map(str, facts["unsettled"])),
            counts={str(name): _possible(count) for name, count in facts["counts"].items()},
            planned=_possible(facts.get("planned", 0)),
            objects=_possible(facts["objects"]),
            version=str(facts["version"]),
            digest=str(facts["digest"]),
            size_bytes=_possible(facts["size_bytes"]),
            parts=_possible(facts["parts"], 1 + MOST_BYTES // PART_BYTES, least=1),
        )
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return None


def _possible(number: object, most: int = MOST_BYTES, *, least: int = 0) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise ValueError("no such number was ever written")
    return number


def _annotations(item: Mapping[str, Any]) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}


def _number(item: Mapping[str, Any]) -> int:
    return int((item["metadata"].get("labels") or {})[REVISION_LABEL])


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])


def belongs(item: Mapping[str, Any], name: str) -> bool:
    """Tell whether a Secret is part of this history: labels alone do not tell `a/b` from `a.b`."""
    return _name(item).startswith(f"{name}.r")


def next_number(items: Iterable[Mapping[str, Any]]) -> int:
    """Give the number of the next revision; broken ones keep theirs, so that nothing is in the way."""
    return max((_known_number(item) for item in items), default=0) + 1


def _known_number(item: Mapping[str, Any]) -> int:
    try:
        return _possible(_number(item), _MOST_NUMBER)
    except (KeyError, TypeError, ValueError):
        return 0


def outdated(items: Iterable[Mapping[str, Any]], *, kept: int = KEPT) -> tuple[str, ...]:
    """Give the names of the Secrets to delete: old revisions and what is left of broken ones.

    The newest revision that worked stays in place of the oldest one kept, if it would go otherwise.
    """
    found = list(items)
    offered = revisions(found)
    staying = list(offered[-kept:])
    good = [one for one in offered if one.is_good]
    if good and good[-1] not in staying:
        staying[0] = good[-1]
    heads = [item for item in found if FACTS in _annotations(item)]
    unreadable = {_known_number(item) for item in heads if _revision(item) is None}
    numbers = {one.number for one in staying} | unreadable
    return tuple(sorted(_name(item) for item in found if _known_number(item) not in numbers))
