"""Plans that somebody approves: what they hold, and whether what an apply would do now is still that."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import mlstack
from mlstack.engine import guard, parallel
from mlstack.engine.deployment import Deployment
from mlstack.engine.target import Target
from mlstack.errors import ClusterError, ConfigError, ConflictError, UsageError, WrongClusterError
from mlstack.files import inputs
from mlstack.model import approval as approvals
from mlstack.model import masking
from mlstack.model import overrides as parameters
from mlstack.model.app import ClusterIdentity, Component
from mlstack.model.approval import Approval, Seal
from mlstack.model.diff import Change, Changes
from mlstack.model.objects import Identity
from mlstack.model.options import DECIDING, ApplyOptions
from mlstack.model.overrides import Overrides
from mlstack.model.report import veiled


def approve(found: Deployment, *, now_s: float, salt: str) -> Approval:
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
    seal = Seal(salt, costly=state.has_secrets)
    digests = _digests(changes, seal)
    given = parameters.plain(target.overrides)
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
        packages=inputs.packages(target.app),
        overrides={} if secret else given,
        overrides_digest=seal(_text(given)) if target.overrides else "",
        tool=f"mlstack/{mlstack.__version__}",
        created=datetime.fromtimestamp(int(now_s), UTC).isoformat().replace("+00:00", "Z"),
        salt=salt,
        costly=seal.costly,
        objects=tuple(approvals.approved(one, digests[one.identity]) for one in _veiled(changes).changes),
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


def sealed_inputs(target: Target, seal: Seal) -> dict[str, str]:
    """Give the sealed digest of each file that the render of a target has read."""
    found = inputs.digests(target.app)
    sealed = parallel.run(lambda file: seal(found[file]), list(found))
    return dict(zip(found, map(str, sealed), strict=True))


def _digests(changes: Changes, seal: Seal) -> Mapping[Identity, str]:
    """Give the sealed digest of each change; only those that a secret is behind are dear to compute."""
    cheap = Seal(seal.salt, costly=False)

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
        return parameters.from_plain(approval.overrides)
    if given and approval.seal(_text(parameters.plain(given))) == approval.overrides_digest:
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
    moved = approvals.moved_inputs(
        approval, sealed_inputs(target, approval.seal), inputs.packages(target.app)
    )
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


def refuse_moved_objects(approval: Approval, found: Deployment, *, where: str) -> None:
    """Raise if something would be done that was not approved.

    Raises:
        ConflictError: saying of each object what.
    """
    digests = _digests(found.changes, approval.seal)
    moved = approvals.moved_objects(approval, _veiled(found.changes), digests)
    if moved:
        raise ConflictError(
            "\n  ".join(["the cluster has moved since the plan was made; nothing was done", *moved]),
            where=where,
            hint=_again(approval),
        )


def _again(approval: Approval) -> str:
    return f"make a new plan: mlstack plan {approval.environment} --out FILE"
