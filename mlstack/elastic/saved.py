"""A snapshot as a file: saved from a live cluster, planned with anywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mlstack.elastic.snapshot import Arriving, Curve, Demand, Held, Job, Node, Role, Snapshot, Trainer
from mlstack.errors import ConfigError

API_VERSION = "mlstack.dev/v1"
KIND = "ElasticSnapshot"


def write(snapshot: Snapshot) -> str:
    """Write a snapshot as JSON; the same moment gives the same text."""
    found = {"apiVersion": API_VERSION, "kind": KIND, **asdict(snapshot)}
    return json.dumps(found, indent=1, sort_keys=True, default=_plain) + "\n"


def read(text: str, *, where: str) -> Snapshot:
    """Read a snapshot that was saved.

    Raises:
        ConfigError: it is none; `where` is the place.
    """
    try:
        found = json.loads(text)
        if not isinstance(found, Mapping) or found.get("kind") != KIND:
            raise ValueError(f"it is no {KIND}")
        if found.get("apiVersion") != API_VERSION:
            raise ValueError(f"its apiVersion is {found.get('apiVersion')!r}, not {API_VERSION}")
        return _snapshot(found)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"this is no saved snapshot: {error}", where=where, hint="mlstack elastic plan --save FILE"
        ) from error


def _snapshot(found: Mapping[str, Any]) -> Snapshot:
    return Snapshot(
        now_ms=int(found["now_ms"]),
        resources=tuple(found["resources"]),
        nodes=tuple(Node(**_vectors(one)) for one in found["nodes"]),
        demands=tuple(Demand(**_vectors(one)) for one in found["demands"]),
        arriving=tuple(Arriving(**_vectors(one)) for one in found["arriving"]),
        jobs=tuple(map(_job, found["jobs"])),
        moves_ms=tuple(found["moves_ms"]),
    )


def _job(found: Mapping[str, Any]) -> Job:
    curve = found.get("curve")
    return Job(
        **{
            **_vectors(found),
            "gang": tuple(Role(**_vectors(one)) for one in found["gang"]),
            "trainers": tuple(Trainer(**one) for one in found["trainers"]),
            "held": tuple(Held(**_vectors(one)) for one in found.get("held") or ()),
            "curve": Curve(points=tuple(map(tuple, curve["points"]))) if curve else None,
        }
    )


def _vectors(found: Mapping[str, Any]) -> dict[str, Any]:
    """Give the fields with amounts as tuples and names of nodes as a set."""
    values = dict(found)
    for name in ("allocatable", "used", "devices", "request", "trainer"):
        if name in values:
            values[name] = tuple(values[name])
    if values.get("nodes") is not None:
        values["nodes"] = frozenset(values["nodes"])
    return values


def _plain(value: object) -> object:
    if isinstance(value, frozenset):
        return sorted(value)
    raise TypeError(f"{value!r} has no place in a snapshot")
