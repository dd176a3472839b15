"""What somebody approved: the changes of one moment, what they were made from, and what has moved since.

A file with it may lie about where Secrets may not, so it holds no secret, nor a hash from which one could be
guessed at the speed of a hash: every digest is salted, and dear to compute where a secret may be behind it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlstack
from mlstack.app import atomic, reader
from mlstack.app.app import API_VERSION, ClusterIdentity, Component
from mlstack.app.params import Overrides
from mlstack.app.schema import check_file
from mlstack.deploy import target as guard
from mlstack.deploy.changes import DECIDING, Action, ApplyOptions, Change, Changes
from mlstack.deploy.plan import ApplyPlan
from mlstack.deploy.result import veiled
from mlstack.deploy.target import Target
from mlstack.errors import (
    ClusterError,
    ConfigError,
    ConflictError,
    NotFoundError,
    SchemaError,
    UsageError,
    WrongClusterError,
)
from mlstack.kube import parallel
from mlstack.objects import masking
from mlstack.objects.kube_object import Identity
from mlstack.objects.managed_fields import FieldChange

_IDLE: frozenset[Action] = frozenset({"unchanged", "kept", "missing"})
_WORK = 2**11  # 7 ms a digest: nothing for a plan, 80 days for a dictionary of a billion words
_SHOWN = 5  # differences that are named
_LONGEST = 40  # characters of a value that is shown


@dataclass(frozen=True, kw_only=True)
class ApprovedObject:
    """What may happen to one object."""

    identity: Identity
    api_version: str
    component: str
    action: Action
    uid: str  # of the object that it happens to, empty if there was none
    digest: str  # a change with the same plan digest is the same change
    reason: str = ""
    fields: tuple[FieldChange, ...] = ()  # what differs, secrets masked; for people
    notes: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Tell whether nothing happens to it."""
        return self.action in _IDLE


@dataclass(frozen=True, kw_only=True)
class Approval:
    """What may be done in one environment; the fields of a plan file, in its order."""

    tool: str  # `mlstack/<version>`
    created: str  # `2027-01-15T08:00:00Z`
    app: str
    environment: str
    context: str  # the kubectl context it was computed in
    namespace: str
    cluster: ClusterIdentity  # who answered there
    selection: tuple[str, ...] = ()  # components and modules that were asked for; none means all
    components: tuple[str, ...] = ()  # full names of those that were rendered
    options: Mapping[str, bool] = field(default_factory=dict)  # those that decide what happens
    overrides: Mapping[str, Any] = field(default_factory=dict)  # unless one of them is secret
    overrides_digest: str = ""  # plan digest, empty if there were none
    packages: Mapping[str, str] = field(default_factory=dict)  # digest of each installed one
    inputs: Mapping[str, str] = field(default_factory=dict)  # of each file read, empty if it was not there
    salt: str  # of all digests
    costly: bool  # whether a secret may be behind a digest
    counts: Mapping[str, int] = field(default_factory=dict)  # objects of each action
    notes: tuple[str, ...] = ()  # on the run as a whole
    objects: tuple[ApprovedObject, ...]  # in the order of execution

    @property
    def plan_digest(self) -> PlanDigest:
        """Give what its digests were made with."""
        return PlanDigest(self.salt, costly=self.costly)


@dataclass(frozen=True)
class PlanDigest:
    """Makes salted digests that say whether something is the same and nothing else."""

    salt: str  # the same for all digests of one approval
    costly: bool = field(kw_only=True)  # whether a secret may be behind a digest

    def __call__(self, text: str) -> str:
        """Give the digest of a text; the empty text stays empty."""
        if not text:
            return ""
        if not self.costly:
            return "sha256:" + hashlib.sha256(f"{self.salt}\0{text}".encode()).hexdigest()
        digest = hashlib.scrypt(text.encode(), salt=self.salt.encode(), n=_WORK, r=8, p=1, dklen=32)
        return "scrypt:" + digest.hex()


# --- approve ---


def approve(plan: ApplyPlan, *, now_s: float, salt: str) -> Approval:
    """Write down what a deploy would do, so that exactly that can be done later.

    Args:
        plan: what was worked out.
        now_s: the time, in seconds since 1970.
        salt: random text.

    Raises:
        ClusterError: the cluster does not say who it is.
    """
    state, changes, target = plan.resolved.state, plan.changes, plan.resolved.target
    if changes.cluster is None or not guard.is_known(changes.cluster):
        raise ClusterError("the cluster does not say who it is, so a plan could be applied to any other")
    plan_digest = PlanDigest(salt, costly=state.has_secrets)
    digests = _digests(changes, plan_digest)
    overrides = target.overrides.plain()
    return Approval(
        tool=f"mlstack/{mlstack.__version__}",
        created=datetime.fromtimestamp(int(now_s), UTC).isoformat().replace("+00:00", "Z"),
        app=state.app,
        environment=state.environment,
        context=changes.context,
        namespace=state.namespace,
        cluster=changes.cluster,
        selection=tuple(target.components),
        components=state.components,
        options={name: getattr(plan.options, name) for name in DECIDING},
        overrides={} if _sets_secrets(target) else overrides,
        overrides_digest=plan_digest(_text(overrides)) if target.overrides else "",
        packages=reader.packages(target.app),
        inputs=_input_digests(target, plan_digest),
        salt=salt,
        costly=plan_digest.costly,
        counts=dict(sorted(changes.counts().items())),
        notes=tuple(map(masking.scrubbed, changes.notes)),
        objects=tuple(
            approved(_shown(change, changes.secrets), digests[change.identity]) for change in changes.changes
        ),
    )


def approved(change: Change, digest: str) -> ApprovedObject:
    """Give a change as it is kept, with its plan digest."""
    return ApprovedObject(
        identity=change.identity,
        api_version=change.api_version,
        component=change.component,
        action=change.action,
        uid=change.live_uid,
        digest=digest,
        reason=change.reason,
        fields=change.fields,
        notes=change.notes,
    )


def _shown(change: Change, secrets: Sequence[str]) -> Change:
    """Give a change for a file that others read: what a run knows of secrets stands nowhere in it.

    Its digest is that of the true values all the same.
    """
    differences = (
        replace(shown, old=masking.scrubbed_value(shown.old), new=masking.scrubbed_value(shown.new))
        for shown in veiled(change.fields, secrets)
    )
    return replace(
        change,
        fields=tuple(differences),
        reason=masking.scrubbed(change.reason),
        notes=tuple(map(masking.scrubbed, change.notes)),
    )


def _input_digests(target: Target, plan_digest: PlanDigest) -> dict[str, str]:
    """Give the digest of each file that the render of a target has read."""
    inputs = reader.digests(target.app)
    digests = parallel.run(lambda file: plan_digest(inputs[file]), list(inputs))
    return dict(zip(inputs, map(str, digests), strict=True))


def _digests(changes: Changes, plan_digest: PlanDigest) -> Mapping[Identity, str]:
    """Give the digest of each change; only those that a secret is behind are dear to compute."""
    cheap = PlanDigest(plan_digest.salt, costly=False)

    def digest(change: Change) -> str:
        data = change.desired.data if change.desired is not None else {}
        holds_secret = (change.identity.group, change.identity.kind) == ("", "Secret") or (
            bool(changes.secrets) and masking.mask_values(data, changes.secrets) != data
        )
        return (plan_digest if holds_secret else cheap)(change.digest)

    digests = parallel.run(digest, changes.changes)
    return {change.identity: str(text) for change, text in zip(changes.changes, digests, strict=True)}


def _text(overrides: Mapping[str, Any]) -> str:
    return json.dumps(overrides, sort_keys=True)


def _sets_secrets(target: Target) -> bool:
    """Tell whether a parameter that was given for this run is secret in any component it may reach."""
    if not target.overrides:
        return False
    app = target.app
    names = {name for _, name, _ in target.overrides.keys(app.component_files)}
    components = (component for component in app.components() if isinstance(component, Component))
    prototypes = (app.prototype(component.prototype, where=component.file) for component in components)
    secret = (param for one in prototypes for param in one.params.values() if param.secret)
    return any(names & {param.name, *param.aliases} for param in secret)


# --- take up what was approved ---


def target_of(approval: Approval, target: Target) -> Target:
    """Give what an approval is about, in the place of what was asked for beside it.

    Args:
        approval: what was approved.
        target: the app directory, and what an option gave: another context, parameters.

    Raises:
        ConfigError: the plan is another app's.
        UsageError: it was made with secret parameters, and other ones are given now, or none.
    """
    app = target.app.app.name
    if approval.app != app:
        raise ConfigError(f"the plan is for app `{approval.app}`, this is app `{app}`")
    own = target.app.environment(approval.environment)
    elsewhere = approval.context if approval.context != own.context else None
    return replace(
        target,
        environment=approval.environment,
        components=approval.selection,
        overrides=_overrides(approval, target.overrides),
        context=target.context or elsewhere,
        namespace=approval.namespace if approval.namespace != own.namespace else None,
    )


def _overrides(approval: Approval, given: Overrides) -> Overrides:
    if approval.overrides or not approval.overrides_digest:
        if given:
            raise UsageError("a plan holds its parameters", hint="leave `--set` and `--values` out")
        return Overrides.from_plain(approval.overrides)
    if given and approval.plan_digest(_text(given.plain())) == approval.overrides_digest:
        return given
    raise UsageError(
        "the plan was made with secret parameters, which it does not hold"
        + ("; these are others" if given else ""),
        hint="give the same `--set` and `--values` as when it was made",
    )


def options_of(approval: Approval, options: ApplyOptions) -> ApplyOptions:
    """Give the options of an apply, those that decide what happens as they were approved."""
    decided: dict[str, Any] = {name: approval.options.get(name, False) for name in DECIDING}
    return replace(options, **decided)


# --- verification: is what an apply would do now still what was approved ---


def refuse_moved_files(approval: Approval, target: Target, *, where: str) -> None:
    """Raise if the files are not those that the approved changes were made from; ask after the render.

    Raises:
        ConfigError: naming each file and package that moved.
    """
    inputs = _input_digests(target, approval.plan_digest)
    moved = moved_inputs(approval, inputs, reader.packages(target.app))
    if moved:
        text = "\n  ".join(["the files have changed since the plan was made; nothing was done", *moved])
        raise ConfigError(text, where=where, hint=_again(approval))


def moved_inputs(
    approval: Approval, inputs: Mapping[str, str], packages: Mapping[str, str]
) -> tuple[str, ...]:
    """Say which files and packages are not what the approved changes were made from, by their digests now."""
    return (
        *_moved_names(approval.packages, packages, "package "),
        *_moved_names(approval.inputs, inputs, ""),
    )


def _moved_names(before: Mapping[str, str], now: Mapping[str, str], what: str) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name, ""), now.get(name, "")
        if old != new:
            verb = "has changed" if old and new else "is new" if new else "is not read any more"
            yield f"{what}`{name}` {verb}"


def refuse_moved_cluster(approval: Approval, identity: ClusterIdentity, *, context: str) -> None:
    """Raise WrongClusterError if another cluster answers than the one that the plan was made for."""
    if guard.differ(approval.cluster, identity):
        raise WrongClusterError(
            f"the plan is for another cluster than context `{context}` leads to:"
            f" made for {guard.describe(approval.cluster)}, found {guard.describe(identity)}",
            hint=f"give the context of that cluster with --context, or {_again(approval)}",
        )


def refuse_moved_objects(approval: Approval, plan: ApplyPlan, *, where: str) -> None:
    """Raise if something would be done that was not approved.

    Raises:
        ConflictError: saying of each object what.
    """
    changes = plan.changes
    shown = replace(changes, changes=tuple(_shown(one, changes.secrets) for one in changes.changes))
    moved = moved_objects(approval, shown, _digests(changes, approval.plan_digest))
    if moved:
        text = "\n  ".join(["the cluster has moved since the plan was made; nothing was done", *moved])
        raise ConflictError(text, where=where, hint=_again(approval))


def _again(approval: Approval) -> str:
    return f"make a new plan: mlstack plan {approval.environment} --out FILE"


def moved_objects(approval: Approval, changes: Changes, digests: Mapping[Identity, str]) -> tuple[str, ...]:
    """Say of each object what would happen to it that was not approved.

    An object that is as approved already needs nothing any more, so an apply that was interrupted can be
    taken up again with the same file.
    """
    before = {known.identity: known for known in approval.objects}
    moved = (
        (change, _moved(before.get(change.identity), change, digests[change.identity]))
        for change in changes.changes
    )
    return tuple(f"{change.identity}: {what}" for change, what in moved if what)


_DONE: Mapping[Action, str] = {
    "create": "created",
    "update": "updated",
    "recreate": "made anew",
    "delete": "deleted",
    "unchanged": "left as it is",
    "missing": "left missing",
    "kept": "kept",
}


def _moved(old: ApprovedObject | None, now: Change, digest: str) -> str:
    if now.action in _IDLE and (old is None or old.idle or now.action == "unchanged"):
        return ""
    if old is None:
        return f"would be {_DONE[now.action]}, which the plan does not hold"
    if now.action not in _IDLE and (old.action, old.digest) == (now.action, digest):
        return ""
    if old.uid and now.live_uid and old.uid != now.live_uid:
        return "was deleted and made anew by somebody else"
    if old.action != now.action:
        gone = old.uid and not now.live_uid
        return f"{'is gone and ' if gone else ''}would be {_DONE[now.action]}, not {_DONE[old.action]}"
    texts = list(_differently(old.fields, now.fields))
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    named = f": {', '.join(texts[:_SHOWN])}{more}" if texts else ""
    return f"differs in another way than when it was approved{named}"


def _differently(old: Sequence[FieldChange], new: Sequence[FieldChange]) -> Iterator[str]:
    before, now = ({change.path: change for change in changes} for changes in (old, new))
    for path in dict.fromkeys((*before, *now)):
        if path not in now:
            yield f"`{path}` is as wanted already"
        elif path not in before:
            yield f"`{path}` differs as well"
        elif before[path] != now[path]:
            value, known = now[path].old, before[path].old
            texts = [json.dumps(one, ensure_ascii=False) for one in (value, known)]
            is_short = value != known and all(len(text) <= _LONGEST for text in texts)
            yield f"`{path}` is {texts[0]}, was {texts[1]}" if is_short else f"`{path}` has another value"


# --- plan file: written by `plan --out` and read by `apply` ---

KIND = "Plan"
_NEW_PLAN = "make a new one: mlstack plan ENV --out FILE"


def new_salt() -> str:
    """Give a salt that nobody can know beforehand."""
    return os.urandom(16).hex()


def write(path: Path, approval: Approval) -> None:
    """Write a plan file that its owner alone can read, as a whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    cluster = approval.cluster
    identity = {"uid": cluster.uid, "ca": cluster.ca, "server": cluster.server}
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **{_camel(one.name): getattr(approval, one.name) for one in fields(Approval)},
        "cluster": {name: fact for name, fact in identity.items() if fact is not None},
        "options": {_camel(name): value for name, value in approval.options.items()},
        "objects": [_object(approved) for approved in approval.objects],
    }
    text = json.dumps(document, indent=2, ensure_ascii=False)
    atomic.write_files({path: f"{text}\n"}, private=[path])


def _object(approved: ApprovedObject) -> dict[str, Any]:
    identity = approved.identity
    facts = {_camel(one.name): getattr(approved, one.name) for one in fields(ApprovedObject)}
    del facts["identity"]
    return {
        "object": str(identity),
        "group": identity.group,
        "apiVersion": facts.pop("apiVersion"),
        "kind": identity.kind,
        "namespace": identity.namespace,
        "name": identity.name,
        **facts,
        "fields": [
            {"path": change.path, "action": change.action, "old": change.old, "new": change.new}
            for change in approved.fields
        ],
    }


def read(path: Path) -> Approval:
    """Read a plan file.

    Raises:
        NotFoundError: there is none.
        ConfigError: it is damaged, something else, or of a newer mlstack.
    """
    where = str(path)
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFoundError(f"no plan file `{path}`", hint=_NEW_PLAN) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("the plan file is damaged: it is no JSON", where=where, hint=_NEW_PLAN) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read the plan file: {reason}", where=where) from error
    _check_head(path, document)
    try:
        check_file(KIND, document, source=where)
    except SchemaError as error:
        raise ConfigError(f"the plan file is damaged: {error}", where=where, hint=_NEW_PLAN) from error
    facts = {_snake(name): _frozen(fact) for name, fact in document.items()}
    del facts["api_version"], facts["kind"]
    facts["cluster"] = ClusterIdentity(**document["cluster"])
    facts["options"] = {_snake(name): chosen for name, chosen in document["options"].items()}
    facts["objects"] = tuple(_approved(entry) for entry in document["objects"])
    return Approval(**facts)


def _check_head(path: Path, document: Any) -> None:
    head = document if isinstance(document, Mapping) else {}
    api_version, kind = head.get("apiVersion"), head.get("kind")
    if (api_version, kind) == (API_VERSION, KIND):
        return
    if kind == KIND and str(api_version).startswith("mlstack.dev/"):
        raise ConfigError(
            f"the plan file has version `{api_version}`, this mlstack reads `{API_VERSION}`",
            where=str(path),
            hint=f"use the mlstack that made it ({head.get('tool', 'a newer one')}), or {_NEW_PLAN}",
        )
    what = f"a `{kind}` of `{api_version}`" if kind else "something else"
    raise ConfigError(f"this is no plan file, but {what}", where=str(path), hint=_NEW_PLAN)


def _approved(entry: Mapping[str, Any]) -> ApprovedObject:
    names = ("group", "kind", "namespace", "name")
    facts = {_snake(name): _frozen(fact) for name, fact in entry.items() if name not in (*names, "object")}
    facts["fields"] = tuple(FieldChange(**change) for change in entry["fields"])
    return ApprovedObject(identity=Identity(*(entry[name] for name in names)), **facts)


def _frozen(fact: Any) -> Any:
    return tuple(fact) if isinstance(fact, list) else fact


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
