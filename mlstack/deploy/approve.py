"""What somebody approved: the changes of one moment, what they were made from, and what has moved since.

A file with it may lie about where Secrets may not, so it holds no secret, nor a hash from which one could be
guessed at the speed of a hash: every digest is salted, and dear to compute where a secret may be behind it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlstack
from mlstack.app import app_dir, atomic, params
from mlstack.app.app import API_VERSION, ClusterIdentity, Component
from mlstack.app.params import Overrides
from mlstack.app.schema import check_file
from mlstack.deploy import target as guard
from mlstack.deploy.changes import DECIDING, Action, ApplyOptions, Change, Changes
from mlstack.deploy.deployment import ApplyPlan
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

# --- What somebody approved: the changes of one moment, what they were made from, and what has
# moved since
# A file with it may lie about where Secrets may not, so it holds no secret, nor a hash from which one could
# be guessed at the speed of a hash: every digest is salted, and dear to compute where a secret may be
# behind it.

_IDLE: frozenset[Action] = frozenset({"unchanged", "kept", "missing"})
_WORK = 2**11  # 7 ms a digest: nothing for a plan, 80 days for a dictionary of a billion words
_SHOWN = 5
_LONGEST = 40


@dataclass(frozen=True, kw_only=True)
class ApprovedObject:
    """What may happen to one object.

    Attributes:
        identity: the object.
        api_version: API version the object is addressed by.
        component: full name of the component that brings it.
        action: what happens to it.
        uid: UID of the object that it happens to, empty if there was none.
        digest: sealed hash of what is approved: a change with the same one is the same change.
        reason: why it is recreated, deleted or kept.
        fields: what differs, secrets masked; for people.
        notes: remarks, as whose fields are overridden.
    """

    identity: Identity
    api_version: str
    component: str
    action: Action
    uid: str
    digest: str
    reason: str = ""
    fields: tuple[FieldChange, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """Tell whether nothing happens to it."""
        return self.action in _IDLE


@dataclass(frozen=True, kw_only=True)
class Approval:
    """What may be done in one environment.

    Attributes:
        app: name of the app.
        environment: name of the environment.
        context: the kubectl context it was computed in.
        namespace: namespace of the environment.
        cluster: who answered there.
        selection: components and modules that were asked for; none means all of the environment.
        components: full names of the components that were rendered.
        options: options of the apply that decide what happens, by name.
        inputs: sealed digest of each file that was read, empty for one that was not there.
        packages: digest of each installed package.
        overrides: parameters for this run, unless one of them is secret.
        overrides_digest: sealed digest of the parameters for this run, empty if there were none.
        tool: `mlstack/<version>` that computed it.
        created: when, as `2027-01-15T08:00:00Z`.
        salt: of all digests.
        costly: whether a secret may be behind a digest.
        objects: in the order of execution.
        counts: number of objects of each action.
        notes: remarks on the run as a whole.
    """

    app: str
    environment: str
    context: str
    namespace: str
    cluster: ClusterIdentity
    selection: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    options: Mapping[str, bool] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    overrides_digest: str = ""
    tool: str
    created: str
    salt: str
    costly: bool
    objects: tuple[ApprovedObject, ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def seal(self) -> PlanDigest:
        """Give what its digests were made with."""
        return PlanDigest(self.salt, costly=self.costly)


class PlanDigest:
    """Makes digests that say whether something is the same and nothing else.

    Args:
        salt: random text; the same for all digests of one approval.
        costly: whether a secret may be behind a digest.
    """

    def __init__(self, salt: str, *, costly: bool) -> None:
        """Hold the salt."""
        self.salt, self.costly = salt, costly

    def __call__(self, text: str) -> str:
        """Give the sealed digest of a text; the empty text stays empty."""
        if not text:
            return ""
        if not self.costly:
            return "sha256:" + hashlib.sha256(f"{self.salt}\0{text}".encode()).hexdigest()
        made = hashlib.scrypt(text.encode(), salt=self.salt.encode(), n=_WORK, r=8, p=1, dklen=32)
        return "scrypt:" + made.hex()


def approved(change: Change, digest: str) -> ApprovedObject:
    """Give a change as it is kept, with its sealed digest."""
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


def moved_inputs(
    approval: Approval, inputs: Mapping[str, str], packages: Mapping[str, str]
) -> tuple[str, ...]:
    """Say which files and packages are not what the approved changes were made from.

    Args:
        approval: what was approved.
        inputs: sealed digest of each file that a render reads now.
        packages: digest of each installed package now.
    """
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


def moved_objects(approval: Approval, changes: Changes, digests: Mapping[Identity, str]) -> tuple[str, ...]:
    """Say of each object what would happen to it that was not approved.

    An object that is as approved already needs nothing any more, so an apply that was interrupted can be
    taken up again with the same file.

    Args:
        approval: what was approved.
        changes: what would be done now.
        digests: sealed digest of each of these changes.
    """
    before = {one.identity: one for one in approval.objects}
    said = (
        (change, _moved(before.get(change.identity), change, digests[change.identity]))
        for change in changes.changes
    )
    return tuple(f"{change.identity}: {what}" for change, what in said if what)


def _moved(old: ApprovedObject | None, now: Change, digest: str) -> str:
    if now.action in _IDLE:
        return "" if old is None or old.idle or now.action == "unchanged" else _instead(old, now)
    if old is None:
        return f"would be {_DONE[now.action]}, which the plan does not hold"
    if old.action == now.action and old.digest == digest:
        return ""
    return _instead(old, now)


_DONE: Mapping[Action, str] = {
    "create": "created",
    "update": "updated",
    "recreate": "made anew",
    "delete": "deleted",
    "unchanged": "left as it is",
    "missing": "left missing",
    "kept": "kept",
}


def _instead(old: ApprovedObject, now: Change) -> str:
    if old.uid and now.live_uid and old.uid != now.live_uid:
        return "was deleted and made anew by somebody else"
    if old.action != now.action:
        gone = old.uid and not now.live_uid
        return f"{'is gone and ' if gone else ''}would be {_DONE[now.action]}, not {_DONE[old.action]}"
    said = list(_differently(old.fields, now.fields))
    more = f" and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    told = f": {', '.join(said[:_SHOWN])}{more}" if said else ""
    return f"differs in another way than when it was approved{told}"


def _differently(old: Sequence[FieldChange], new: Sequence[FieldChange]) -> Iterator[str]:
    before, now = ({one.path: one for one in each} for each in (old, new))
    for path in dict.fromkeys((*before, *now)):
        if path not in now:
            yield f"`{path}` is as wanted already"
        elif path not in before:
            yield f"`{path}` differs as well"
        elif before[path] != now[path]:
            yield f"`{path}`{_was(before[path].old, now[path].old)}"


def _was(old: Any, new: Any) -> str:
    """Say which value a field has and had, if both are short enough to be read."""
    texts = [json.dumps(value, ensure_ascii=False) for value in (new, old)]
    is_short = old != new and all(len(text) <= _LONGEST for text in texts)
    return f" is {texts[0]}, was {texts[1]}" if is_short else " has another value"


# --- Plans that somebody approves: what they hold, and whether what an apply would do now is still
# that


def approve(found: ApplyPlan, *, now_s: float, salt: str) -> Approval:
    """Write down what a deploy would do, so that exactly that can be done later.

    Args:
        found: what was worked out.
        now_s: the time, in seconds since 1970.
        salt: random text.

    Raises:
        ClusterError: the cluster does not say who it is.
        InvalidError: an object must not be changed as the files want it.
    """
    state, changes, target = found.reached.state, found.changes, found.reached.target
    if changes.cluster is None or not guard.is_known(changes.cluster):
        raise ClusterError("the cluster does not say who it is, so a plan could be applied to any other")
    seal = PlanDigest(salt, costly=state.has_secrets)
    digests = _digests(changes, seal)
    given = params.plain(target.overrides)
    secret = _sets_secrets(target)
    return Approval(
        app=state.app,
        environment=state.environment,
        context=changes.context,
        namespace=state.namespace,
        cluster=changes.cluster,
        selection=tuple(target.components),
        components=state.components,
        options={name: getattr(found.options, name) for name in DECIDING},
        inputs=sealed_inputs(target, seal),
        packages=app_dir.packages(target.app),
        overrides={} if secret else given,
        overrides_digest=seal(_text(given)) if target.overrides else "",
        tool=f"mlstack/{mlstack.__version__}",
        created=datetime.fromtimestamp(int(now_s), UTC).isoformat().replace("+00:00", "Z"),
        salt=salt,
        costly=seal.costly,
        objects=tuple(approved(one, digests[one.identity]) for one in _veiled(changes).changes),
        counts=dict(sorted(changes.counts().items())),
        notes=tuple(map(masking.scrubbed, changes.notes)),
    )


def _veiled(changes: Changes) -> Changes:
    """Give changes as people may read them; their digests are those of the true values all the same."""
    return replace(changes, changes=tuple(_shown(one, changes.secrets) for one in changes.changes))


def _shown(change: Change, secrets: Sequence[str]) -> Change:
    """Give a change for a file that others read: what a run knows of secrets stands nowhere in it."""
    fields = (
        replace(field, old=masking.scrubbed_value(field.old), new=masking.scrubbed_value(field.new))
        for field in veiled(change.fields, secrets)
    )
    return replace(
        change,
        fields=tuple(fields),
        reason=masking.scrubbed(change.reason),
        notes=tuple(map(masking.scrubbed, change.notes)),
    )


def sealed_inputs(target: Target, seal: PlanDigest) -> dict[str, str]:
    """Give the sealed digest of each file that the render of a target has read."""
    found = app_dir.digests(target.app)
    sealed = parallel.run(lambda file: seal(found[file]), list(found))
    return dict(zip(found, map(str, sealed), strict=True))


def _digests(changes: Changes, seal: PlanDigest) -> Mapping[Identity, str]:
    """Give the sealed digest of each change; only those that a secret is behind are dear to compute."""
    cheap = PlanDigest(seal.salt, costly=False)

    def sealed(change: Change) -> str:
        made = seal if _holds_secret(change, changes.secrets) else cheap
        return made(change.digest)

    found = parallel.run(sealed, changes.changes)
    return {change.identity: str(made) for change, made in zip(changes.changes, found, strict=True)}


def _holds_secret(change: Change, secrets: Sequence[str]) -> bool:
    if (change.identity.group, change.identity.kind) == ("", "Secret"):
        return True
    data = change.desired.data if change.desired is not None else {}
    return bool(secrets) and masking.mask_values(data, secrets) != data


def _text(given: Mapping[str, Any]) -> str:
    return json.dumps(given, sort_keys=True)


def _sets_secrets(target: Target) -> bool:
    """Tell whether a parameter that was given for this run is secret in any component it may reach."""
    if not target.overrides:
        return False
    app = target.app
    names = {name for _, name, _ in target.overrides.keys(app.component_names())}
    components = (each for each in app.components() if isinstance(each, Component))
    prototypes = (app.prototype(each.prototype, where=each.file) for each in components)
    spelled = (param for each in prototypes for param in each.params.values() if param.secret)
    return any(names & {param.name, *param.aliases} for param in spelled)


def target_of(approval: Approval, target: Target) -> Target:
    """Give what an approval is about, in the place of what was asked for beside it.

    Args:
        approval: what was approved.
        target: the app directory, and what an option gave: another context, parameters.

    Raises:
        ConfigError: the plan is another app's.
        UsageError: it was made with secret parameters, and other ones are given now, or none.
    """
    app = target.app.app().name
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
        return params.from_plain(approval.overrides)
    if given and approval.seal(_text(params.plain(given))) == approval.overrides_digest:
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


def refuse_moved_files(approval: Approval, target: Target, *, where: str) -> None:
    """Raise if the files are not those that the approved changes were made from; ask after the render.

    Raises:
        ConfigError: naming each file and package that moved.
    """
    moved = moved_inputs(approval, sealed_inputs(target, approval.seal), app_dir.packages(target.app))
    if moved:
        raise ConfigError(
            "\n  ".join(["the files have changed since the plan was made; nothing was done", *moved]),
            where=where,
            hint=_again(approval),
        )


def refuse_moved_cluster(approval: Approval, found: ClusterIdentity, *, context: str) -> None:
    """Raise if another cluster answers than the one that the plan was made for.

    Raises:
        WrongClusterError: naming both.
    """
    if guard.differ(approval.cluster, found):
        raise WrongClusterError(
            f"the plan is for another cluster than context `{context}` leads to:"
            f" made for {guard.describe(approval.cluster)}, found {guard.describe(found)}",
            hint=f"give the context of that cluster with --context, or {_again(approval)}",
        )


def refuse_moved_objects(approval: Approval, found: ApplyPlan, *, where: str) -> None:
    """Raise if something would be done that was not approved.

    Raises:
        ConflictError: saying of each object what.
    """
    digests = _digests(found.changes, approval.seal)
    moved = moved_objects(approval, _veiled(found.changes), digests)
    if moved:
        raise ConflictError(
            "\n  ".join(["the cluster has moved since the plan was made; nothing was done", *moved]),
            where=where,
            hint=_again(approval),
        )


def _again(approval: Approval) -> str:
    return f"make a new plan: mlstack plan {approval.environment} --out FILE"


# --- The plan file: what somebody approved, written by `plan --out` and read by `apply` ---

KIND = "Plan"
_AGAIN = "make a new one: mlstack plan ENV --out FILE"


def new_salt() -> str:
    """Give a salt that nobody can know beforehand."""
    return os.urandom(16).hex()


def write(path: Path, approval: Approval) -> None:
    """Write a plan file that its owner alone can read, as a whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    text = json.dumps(_document(approval), indent=2, ensure_ascii=False)
    atomic.write_files({path: f"{text}\n"}, private=[path])


def read(path: Path) -> Approval:
    """Read a plan file.

    Raises:
        NotFoundError: there is none.
        ConfigError: it is damaged, something else, or of a newer mlstack.
    """
    value = _value(path)
    _check_head(path, value)
    try:
        check_file(KIND, value, source=str(path))
    except SchemaError as error:
        raise ConfigError(f"the plan file is damaged: {error}", where=str(path), hint=_AGAIN) from error
    return _approval(value)


def _value(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFoundError(f"no plan file `{path}`", hint=_AGAIN) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("the plan file is damaged: it is no JSON", where=str(path), hint=_AGAIN) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read the plan file: {reason}", where=str(path)) from error


def _check_head(path: Path, value: Any) -> None:
    head = value if isinstance(value, Mapping) else {}
    api_version, kind = head.get("apiVersion"), head.get("kind")
    if (api_version, kind) == (API_VERSION, KIND):
        return
    if kind == KIND and str(api_version).startswith("mlstack.dev/"):
        raise ConfigError(
            f"the plan file has version `{api_version}`, this mlstack reads `{API_VERSION}`",
            where=str(path),
            hint=f"use the mlstack that made it ({head.get('tool', 'a newer one')}), or {_AGAIN}",
        )
    found = f"a `{kind}` of `{api_version}`" if kind else "something else"
    raise ConfigError(f"this is no plan file, but {found}", where=str(path), hint=_AGAIN)


def _document(approval: Approval) -> dict[str, Any]:
    cluster = approval.cluster
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "tool": approval.tool,
        "created": approval.created,
        "app": approval.app,
        "environment": approval.environment,
        "context": approval.context,
        "namespace": approval.namespace,
        "cluster": _without_empty({"uid": cluster.uid, "ca": cluster.ca, "server": cluster.server}),
        "selection": list(approval.selection),
        "components": list(approval.components),
        "options": {_camel(name): value for name, value in approval.options.items()},
        "overrides": dict(approval.overrides),
        "overridesDigest": approval.overrides_digest,
        "packages": dict(approval.packages),
        "inputs": dict(approval.inputs),
        "salt": approval.salt,
        "costly": approval.costly,
        "counts": dict(approval.counts),
        "notes": list(approval.notes),
        "objects": [_object(one) for one in approval.objects],
    }


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _without_empty(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def _object(one: ApprovedObject) -> dict[str, Any]:
    identity = one.identity
    return {
        "object": str(identity),
        "group": identity.group,
        "apiVersion": one.api_version,
        "kind": identity.kind,
        "namespace": identity.namespace,
        "name": identity.name,
        "component": one.component,
        "action": one.action,
        "uid": one.uid,
        "digest": one.digest,
        "reason": one.reason,
        "fields": [
            {"path": field.path, "action": field.action, "old": field.old, "new": field.new}
            for field in one.fields
        ],
        "notes": list(one.notes),
    }


def _approval(value: Mapping[str, Any]) -> Approval:
    return Approval(
        app=value["app"],
        environment=value["environment"],
        context=value["context"],
        namespace=value["namespace"],
        cluster=ClusterIdentity(**value["cluster"]),
        selection=tuple(value["selection"]),
        components=tuple(value["components"]),
        options={_snake(name): chosen for name, chosen in value["options"].items()},
        inputs=value["inputs"],
        packages=value["packages"],
        overrides=value["overrides"],
        overrides_digest=value["overridesDigest"],
        tool=value["tool"],
        created=value["created"],
        salt=value["salt"],
        costly=value["costly"],
        objects=tuple(_approved(one) for one in value["objects"]),
        counts=value["counts"],
        notes=tuple(value["notes"]),
    )


def _approved(value: Mapping[str, Any]) -> ApprovedObject:
    return ApprovedObject(
        identity=Identity(value["group"], value["kind"], value["namespace"], value["name"]),
        api_version=value["apiVersion"],
        component=value["component"],
        action=value["action"],
        uid=value["uid"],
        digest=value["digest"],
        reason=value["reason"],
        fields=tuple(FieldChange(**field) for field in value["fields"]),
        notes=tuple(value["notes"]),
    )
