"""What a run may write: the rights that it needs, told all at once, and who refuses what is kept of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from mlstack.app.environment import Environment
from mlstack.deploy.changes import Change, ChangeAction
from mlstack.deploy.target import ResolvedTarget
from mlstack.errors import ClusterError, ForbiddenError, InvalidError, TransientError
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef, Right, Rights
from mlstack.objects.kube_object import MANAGED_BY_LABEL, MANAGER, Kinds, belongs_to, records_name

_EVERYTHING = Right(group="*", resource="*", verb="*")
# A role may name the objects it is for; to objects that are not there yet, and to lists, that does not apply.
_NAMELESS = frozenset({"create", "list", "watch"})
_VERBS: Mapping[ChangeAction, tuple[str, ...]] = {
    "create": ("patch", "create"),
    "recreate": ("delete", "get", "patch", "create"),
    "delete": ("delete", "get"),
}


def may_everything(cluster: Cluster) -> bool:
    """Tell whether we may do everything; no where nobody can tell."""
    return _ask(cluster, [_EVERYTHING])[_EVERYTHING]


def check_rights(
    resolved: ResolvedTarget,
    changes: Sequence[Change],
    *,
    has_inventory: bool,
    may_all: bool | None = None,
) -> None:
    """Make sure that we have the rights to everything a run is going to send.

    `has_inventory` tells whether the environment has one in its cluster, `may_all` whether we may do
    everything, where that was asked before.

    Raises:
        ForbiddenError: rights are missing; names all of them.
    """
    if may_everything(resolved.cluster) if may_all is None else may_all:
        return
    needs = _Needs(resolved, [change.desired.data for change in changes if change.desired is not None])
    for change in changes:
        if change.writes:
            key, verbs = change.identity, _VERBS.get(change.action, ("patch",))
            # Whether a definition is served, and whether an old object is gone, is waited for by reading it.
            if "get" not in verbs and (key.kind == "CustomResourceDefinition" or change.live_uid):
                verbs = (*verbs, "get")
            needs.add_kind(change.api_version, key.kind, key.namespace, verbs, key.name)
            kept_by_pods = ("spec.selector", "spec.serviceName")
            is_anew = (key.kind, change.action) == ("StatefulSet", "recreate")
            if is_anew and any(field.path.startswith(kept_by_pods) for field in change.fields):
                needs.add_kind("v1", "Pod", key.namespace, ("list", "delete"))
    if all(change.desired is None for change in changes):
        needs.add_records("get", "patch", "delete", "list")
    else:
        needs.add_records("get", "patch", *([] if has_inventory else ["create"]))
    _refuse(resolved.cluster, resolved.place, needs.names)


@contextmanager
def explaining_rights(resolved: ResolvedTarget, *, writing: bool) -> Iterator[None]:
    """Say all that is missing where looking at a cluster ends at the first right that is.

    Raises:
        ForbiddenError: rights are missing; names all of them.
    """
    try:
        yield
    except ForbiddenError as error:
        if error.why != "rights":
            raise
        try:
            if not may_everything(resolved.cluster):
                _refuse(resolved.cluster, resolved.place, _of_looking(resolved, writing=writing).names)
        except ForbiddenError as whole:
            raise whole from error
        raise


class _Needs:
    """The rights that a run needs, and the names of the objects that each is for."""

    def __init__(self, resolved: ResolvedTarget, objects: Iterable[Mapping[str, object]]) -> None:
        self.names: dict[Right, frozenset[str]] = {}
        self._resolved, self._kinds = resolved, Kinds.builtin().with_crds(objects)

    def add(
        self, group: str, resource: str, namespace: str, verbs: Iterable[str], names: Iterable[str]
    ) -> None:
        for verb in verbs:
            right = Right(group=group, resource=resource, namespace=namespace, verb=verb)
            self.names[right] = self.names.get(right, frozenset()).union(names)

    def add_kind(
        self, api_version: str, kind: str, namespace: str, verbs: Iterable[str], *names: str
    ) -> None:
        served = self._kinds.lookup(api_version, kind)
        served = served or self._resolved.cluster.kinds().lookup(api_version, kind)
        if served is not None:
            place = namespace if served.namespaced else ""
            self.add(served.group, served.plural, place, verbs, filter(None, names))

    def add_records(self, *verbs: str, lock: bool = True) -> None:
        """Add what the inventory needs, and the lock."""
        namespace = self._resolved.place.namespace
        names = [records_name(self._resolved.state.app, self._resolved.place.name)]
        if lock:
            lock_verbs = ("get", "create", "update", "delete")
            self.add("coordination.k8s.io", "leases", namespace, lock_verbs, names)
        self.add("", "configmaps", namespace, verbs, names)


def _of_looking(resolved: ResolvedTarget, *, writing: bool) -> _Needs:
    state = resolved.state
    needs = _Needs(resolved, [obj.data for obj in state.objects])
    answers = parallel.run(lambda obj: resolved.cluster.get(ObjectRef.of(obj.data)), state.objects)
    for obj, live in zip(state.objects, answers, strict=True):
        # New objects are tried out as well, so that looking needs the right to create them.
        verbs = ("get", "patch") if isinstance(live, Mapping) else ("get", "patch", "create")
        needs.add_kind(obj.api_version, obj.kind, obj.namespace, verbs, obj.name)
    needs.add_records(*(("get", "patch", "create") if writing else ("get",)), lock=writing)
    return needs


def _refuse(cluster: Cluster, place: Environment, needs: Mapping[Right, frozenset[str]]) -> None:
    missing: dict[tuple[str, str], list[str]] = {}
    for right in sorted(_missing(cluster, needs), key=lambda right: right.verb):
        missing.setdefault((right.namespace, right.full_resource), []).append(right.verb)
    if not missing:
        return
    count = sum(map(len, missing.values()))
    lines = [f"{count} right{'s are' if count > 1 else ' is'} missing for this run on environment"]
    lines[0] += f" `{place.name}` (context {place.context})"
    for (namespace, resource), verbs in sorted(missing.items()):
        where = f"in namespace {namespace}" if namespace else "in the whole cluster"
        lines.append(f"  {', '.join(verbs)} {resource} {where}")
    granting = "\n      ".join(grant_commands(missing, name=f"mlstack-{place.name.replace('/', '-')}"))
    namespace, resource = min(missing)
    question = f"kubectl auth can-i {missing[namespace, resource][0]} {resource}"
    raise ForbiddenError(
        "\n".join(lines),
        hint=f"nothing was written; check one with `{question}{f' -n {namespace}' if namespace else ''}`;"
        f" an administrator can grant them:\n      {granting}",
    )


def _missing(cluster: Cluster, needs: Mapping[Right, frozenset[str]]) -> Iterator[Right]:
    # The right for each object alone; none where rights cannot be told apart by names.
    single = {
        right: [replace(right, name=name) for name in sorted(names)] if right.verb not in _NAMELESS else []
        for right, names in sorted(needs.items())
    }
    namespaces = sorted({right.namespace for right in needs} - {""})
    answers = zip(namespaces, parallel.run(cluster.rights, namespaces), strict=True)
    rules = {namespace: answer for namespace, answer in answers if isinstance(answer, Rights)}

    def is_given(right: Right) -> bool:
        rights = rules.get(right.namespace, Rights())
        return rights.allow(right) or (bool(single[right]) and all(map(rights.allow, single[right])))

    left = [right for right in single if not is_given(right)]
    may = _ask(cluster, left)
    denied = [right for right in left if not may[right]]
    alone = _ask(cluster, [named for right in denied for named in single[right]])
    for right in denied:
        if not single[right] or not all(alone[named] for named in single[right]):
            yield right


def _ask(cluster: Cluster, rights: Sequence[Right]) -> dict[Right, bool]:
    """Ask about each right; a cluster that does not answer such questions is taken for a yes."""
    answers = zip(rights, parallel.run(cluster.may, rights), strict=True)
    return {right: answer if isinstance(answer, bool) else right != _EVERYTHING for right, answer in answers}


def grant_commands(missing: Mapping[tuple[str, str], Sequence[str]], *, name: str) -> tuple[str, ...]:
    """Give the kubectl commands that would grant to `USER` the verbs missing by namespace and resource.

    Kinds of one place that lack the same verbs share a role; each role is bound as well. A role is called
    after what it grants, so that two messages never name two roles alike.
    """
    alike: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (namespace, resource), words in sorted(missing.items()):
        alike.setdefault((namespace, tuple(words)), []).append(resource)
    lines = []
    for (namespace, verbs), resources in sorted(alike.items()):
        content = f"{namespace} {verbs} {resources}"
        role = f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"
        kind, where = ("role", f" -n {namespace}") if namespace else ("clusterrole", "")
        lines.append(
            f"kubectl create {kind} {role}{where} --verb={','.join(verbs)} --resource={','.join(resources)}"
        )
        lines.append(f"kubectl create {kind}binding {role}{where} --{kind}={role} --user=USER")
    return tuple(lines)


# --- webhooks and policies before what is kept of an environment, named when they refuse ---

_WEBHOOK = re.compile(r'admission webhook [`"]([^`"]+)[`"](?: denied the request)?:? ?')
_EXEMPT = f"let it pass what has the label {MANAGED_BY_LABEL}={MANAGER}"


@contextmanager
def explained(
    cluster: Cluster, ref: ObjectRef, *, app: str, environment: str, so: str, what: str = "inventory"
) -> Iterator[None]:
    """Say plainly that what is kept at `ref` was refused: by whom, what to do, what follows (`so`)."""
    try:
        yield
    except (ForbiddenError, InvalidError, TransientError) as error:
        webhook = _WEBHOOK.search(error.message)
        is_policy = "ValidatingAdmissionPolicy" in error.message or getattr(error, "why", "") == "policy"
        text = error.message.removeprefix(f"`{ref}`: ").removeprefix(f"`{ref}` is refused: ")
        is_silent = isinstance(error, TransientError)
        who = "a policy of the cluster" if is_policy else ""
        hint = f"{_EXEMPT}, then run the command again" if is_policy else error.hint
        if webhook is not None:
            text, exempt = text.replace(webhook[0], "", 1), f"{_EXEMPT} (objectSelector)"
            configuration, named = _configuration(cluster, webhook[1]), ""
            wait = "wait until its service runs, or " if is_silent else ""
            hint = f"{wait}{exempt}, then run the command again"
            if configuration is not None:
                kind, name = configuration["kind"], configuration["metadata"]["name"]
                named = f" ({kind} `{name}`)"
                if belongs_to(configuration, app=app, environment=environment):
                    hint = (
                        f"it is a webhook of this environment: {exempt}; to get on now, take it away:"
                        f" kubectl delete {kind.lower()} {name}; the next apply sets it up again"
                    )
            elif is_silent:
                hint = (
                    f"see that the service behind the webhook runs, or {exempt}, then run the command again"
                )
            who = f"admission webhook `{webhook[1]}`{named}"
        is_named = who and not is_silent
        why = f"is refused by {who}: {text}" if is_named else f"cannot be written: {f'{who} {text}'.strip()}"
        error.message = f"the {what} of environment `{environment}`, `{ref}`, {why}; {so}"
        error.hint = hint
        raise


def _configuration(cluster: Cluster, webhook: str) -> Mapping[str, Any] | None:
    with suppress(ClusterError):
        for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
            for configuration in cluster.list("admissionregistration.k8s.io/v1", kind).items:
                if any(entry.get("name") == webhook for entry in configuration.get("webhooks") or ()):
                    return configuration
    return None
