"""The file of a policy of an app's own: what its objects are to keep, in CEL."""

from __future__ import annotations

from typing import Literal

from mlstack.app.declare import WORD, key, list_of, record
from mlstack.dataclass import dataclass

_ID = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}


@dataclass(frozen=True, kw_only=True)
class PolicyMatch:
    """Which objects a policy is about."""

    kinds: tuple[str, ...] = key(
        list_of(WORD), "`Deployment`, or with its group `kubeflow.org/PyTorchJob`. Default: all.", default=()
    )


@dataclass(frozen=True, kw_only=True)
class PolicyFile:
    """What the objects of an app must keep, for `mlstack validate ENV --policy`."""

    id: str = key(_ID, "Its name in messages and waivers.", required=True)
    reason: str = key(WORD, "Why it is wanted.", required=True)
    fix: str = key(WORD, "What to do about an object that does not keep it.", required=True)
    severity: Literal["error", "warning"] = key(
        {"type": "string", "enum": ["error", "warning"]},
        "Whether `validate` fails where it is not kept. Default: error.",
        default="error",
    )
    sets: tuple[str, ...] = key(list_of(_ID), "Sets that it belongs to. Default: own.", default=())
    match: PolicyMatch | None = record(PolicyMatch, "Which objects it is about. Default: all.", default=None)
    each: Literal["object", "pod", "container"] = key(
        {"type": "string", "enum": ["object", "pod", "container"]},
        "What it is asked of: the object, the spec of each of its pods, each container. Default: object.",
        default="object",
    )
    expression: str = key(
        WORD,
        "CEL that is true where it is kept: of `object`, `environment` and `component`, and of `pod` and"
        " `container` where it is asked of those.",
        required=True,
    )
    message: str = key(WORD, "What is said of an object that does not keep it.", default="")
