"""What a deploy command was asked about: rendered, with its cluster, what we may do there, and its commit."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlstack import programs
from mlstack.app.app import ReadyRules
from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.dataclass import Record
from mlstack.deploy.changes import Change, ChangeAction
from mlstack.errors import (
    ClusterError,
    ConfigError,
    ForbiddenError,
    InvalidError,
    TransientError,
    UsageError,
    WrongClusterError,
)
from mlstack.kube import parallel
from mlstack.kube.client import Cluster, ObjectRef, Opener, Right, Rights
from mlstack.names import listed
from mlstack.objects.kube_object import (
    MANAGED_BY_LABEL,
    MANAGER,
    DesiredState,
    Kind,
    Kinds,
    KubeObject,
    belongs_to,
    kinds_of_crd,
    records_name,
)
from mlstack.render import render

if TYPE_CHECKING:
    from mlstack.app.app_dir import AppDir
    from mlstack.app.components import Overrides

_QUESTIONS = 6  # asked side by side as soon as it is known that the cluster is the right one


class Holder(Record):
    """Somebody who takes locks."""

    # `ada@laptop/4711/9f3c…`: user, machine, process, and what no other process has.
    name: str = "mlstack"
    # Tells whether another name is that of a process of this machine that runs no more; false wherever
    # that is not certain.
    is_gone: Callable[[str], bool] = lambda name: False


class Target(Record):
    """What a deploy command was asked about."""

    app: AppDir
    environment: str
    components: Sequence[str] = ()  # and modules; none means all that the environment deploys
    overrides: Overrides | None = None
    context: str | None = None  # another kubectl context for this run; the cluster must be the same
    namespace: str | None = None  # another one, for this run
    # Secret values that cannot be read may be made up: nothing is compared or written.
    stand_ins: bool = False
    who: str = ""  # asks, as `user@host`; stands in the records of the cluster
    holder: Holder = field(default_factory=Holder)

    def place(self) -> Environment:
        """Give the environment as this run uses it.

        Raises:
            NotFoundError: there is no such environment.
            ConfigError: it names no context.
        """
        return render.place(self.app, self.environment, context=self.context, namespace=self.namespace)

    def desired(self) -> DesiredState:
        """Render the objects of the environment.

        Raises:
            ConfigError: a file, parameter or template is wrong.
        """
        return render.load(
            self.app,
            self.environment,
            components=self.components,
            overrides=self.overrides,
            namespace=self.namespace,
            stand_ins=self.stand_ins,
        )


class ResolvedTarget(Record):
    """A target, rendered, with the cluster that answers for it."""

    target: Target
    place: Environment  # the environment as this run uses it
    state: DesiredState  # what is wanted there
    cluster: Cluster
    identity: ClusterIdentity  # who answered; it is the environment's cluster
    whole: DesiredState | None = None  # of all components, where the files are not to be asked
    brought: tuple[Kind, ...] = ()  # what runs before this one bring to its cluster

    @property
    def selective(self) -> bool:
        """Tell whether only some components are looked at."""
        return bool(self.target.components)

    @property
    def rules(self) -> ReadyRules:
        """Give the app's own readiness rules, by kind: those of today, also for a set of an earlier day."""
        return {rule.kind: rule for rule in self.target.app.app.readiness}


def resolve(
    target: Target, opener: Opener, *, state: DesiredState | None = None, confined: bool = True
) -> ResolvedTarget:
    """Render a target and make sure that its context leads to its cluster; nothing else is asked there.

    The cluster says who it is while the files are rendered; what is wrong with the files is told first.
    `state` is what is wanted, where it does not come from the files; if `confined`, no object may lie outside
    the namespaces that the environment may write to.

    Raises:
        ConfigError: a file, parameter or template is wrong, or an object lies outside.
        WrongClusterError: the context leads to another cluster.
    """
    place = target.place()

    def meet() -> tuple[Cluster, ClusterIdentity]:
        cluster = opener(place.context)
        cluster.expect(_QUESTIONS)
        return cluster, cluster.identity()

    answered = parallel.prefetch(meet)
    desired = target.desired() if state is None else state
    if confined:
        refuse_outside(place, desired.objects)
    cluster, identity = answered()
    refuse_other(place, identity)
    return ResolvedTarget(target=target, place=place, state=desired, cluster=cluster, identity=identity)


Prior = list[ResolvedTarget] | None  # runs for other environments, planned before; what is planned joins


@contextmanager
def resolved_after(prior: Prior, target: Target, opener: Opener) -> Iterator[ResolvedTarget]:
    """Resolve a target that may use kinds of `prior` runs; once its own is planned it is one of them."""
    prior, resolved = prior if prior is not None else [], resolve(target, opener)
    same_cluster = (run for run in prior if not differ(run.identity, resolved.identity))
    objects = (obj for run in same_cluster for obj in run.state.objects)
    yield replace(resolved, brought=tuple(kind for obj in objects for kind in kinds_of_crd(obj.data)))
    prior.append(resolved)


# --- is it the right cluster, and may anything be done there ---


def check_cluster(environment: Environment, cluster: Cluster) -> ClusterIdentity:
    """Give the identity of the cluster that answers, if it is the environment's.

    Raises:
        WrongClusterError: the context now leads to another cluster; names both.
    """
    identity = cluster.identity()
    refuse_other(environment, identity)
    return identity


def refuse_other(environment: Environment, identity: ClusterIdentity) -> None:
    """Raise if a cluster is not the environment's.

    A restored copy of a cluster has the same UID and a cluster behind the same certificate authority
    may be another one, so both have to agree as far as both sides know them.
    """
    pinned = environment.cluster
    if pinned is None or not differ(pinned, identity):
        return
    raise WrongClusterError(
        f"context `{environment.context}` leads to another cluster than environment `{environment.name}`:"
        f" expected {describe(pinned)}, found {describe(identity)}",
        where=environment.file or None,
        hint=f"choose the right context with `mlstack env set {environment.name} --context CONTEXT`;"
        f" if the environment has moved: mlstack env set {environment.name} --forget-cluster",
    )


def differ(pinned: ClusterIdentity, identity: ClusterIdentity) -> bool:
    """Tell whether two clusters cannot be the same, as far as both say who they are."""
    pairs = ((pinned.uid, identity.uid), (pinned.ca, identity.ca))
    return any(ours is not None and other is not None and ours != other for ours, other in pairs)


def describe(identity: ClusterIdentity) -> str:
    """Name a cluster: its address, UID and certificate authority as far as they are known."""
    digest = (identity.ca or "").removeprefix("sha256:")[:12]
    parts = (identity.server, identity.uid and f"UID {identity.uid}", digest and f"CA {digest}…")
    return ", ".join(filter(None, parts)) or "a cluster that does not say who it is"


def is_known(identity: ClusterIdentity) -> bool:
    """Tell whether an identity can tell clusters apart, so that it is worth keeping."""
    return identity.uid is not None or identity.ca is not None


def refuse_outside(environment: Environment, objects: Iterable[KubeObject]) -> None:
    """Raise for objects in places that an environment may not write to; a Namespace is inside itself.

    Raises:
        ConfigError: naming every such object, its component and file.
    """
    allowed, refuses_unscoped = environment.allowed_namespaces, environment.cluster_scoped == "refused"
    lines, strange, is_unscoped = [], set[str](), False
    for obj in objects:
        space = obj.name if (obj.group, obj.kind) == ("", "Namespace") else obj.namespace
        is_strange = bool(allowed and space and space not in allowed)
        if is_strange or (refuses_unscoped and not obj.namespace):
            source = f" ({obj.source})" if obj.source is not None else ""
            lines.append(f"  `{obj.identity}` of component `{obj.component}`{source}")
            strange |= {space} if is_strange else set()
            is_unscoped = is_unscoped or not obj.namespace
    if not lines:
        return
    options = [f"--allow-namespace {name}" for name in (*allowed, *sorted(strange))] if strange else []
    if refuses_unscoped and is_unscoped:
        options.append("--cluster-scoped")
    count = f"{len(lines)} objects lie" if len(lines) > 1 else "an object lies"
    raise ConfigError(
        "\n".join((f"{count} outside what environment `{environment.name}` may write to", *lines)),
        where=environment.file or None,
        hint=f"take them out, or allow it: mlstack env set {environment.name} {' '.join(options)}",
    )


def refuse_empty(state: DesiredState) -> None:
    """Raise if there is nothing to deploy: more likely a mistake than a wish.

    Raises:
        ConfigError: no component gave an object.
    """
    if state.objects:
        return
    text, hint = ": the app has no components for it", "mlstack generate PROTOTYPE NAME"
    if state.components:
        names = ", ".join(f"`{name}`" for name in state.components)
        text, hint = f": component{'s' * (len(state.components) > 1)} {names} rendered none", ""
    raise ConfigError(f"environment `{state.environment}` has no objects{text}", hint=hint or None)


# --- may we do what a run is going to do: the rights that it needs, told all at once ---


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
    resolved: ResolvedTarget, changes: Sequence[Change], *, has_inventory: bool, may_all: bool | None = None
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
    is_removal = all(change.desired is None for change in changes)
    more = ("delete", "list") if is_removal else () if has_inventory else ("create",)
    needs.add_records("get", "patch", *more)
    _refuse(resolved.cluster, resolved.place, needs.names)


@contextmanager
def explaining_rights(resolved: ResolvedTarget, *, writing: bool) -> Iterator[None]:
    """Raise a ForbiddenError that names all missing rights, where looking ends at the first of them."""
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
        self._resolved, own = resolved, Kinds.builtin().with_crds(objects)
        self._kinds = Kinds((*own, *resolved.brought))

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

_WEBHOOK = r'admission webhook [`"]([^`"]+)[`"](?: denied the request)?:? ?'
_EXEMPT = f"let it pass what has the label {MANAGED_BY_LABEL}={MANAGER}"


@contextmanager
def explained(
    cluster: Cluster, ref: ObjectRef, *, app: str, environment: str, so: str, what: str = "inventory"
) -> Iterator[None]:
    """Say plainly that what is kept at `ref` was refused: by whom, what to do, what follows (`so`)."""
    try:
        yield
    except (ForbiddenError, InvalidError, TransientError) as error:
        webhook = re.search(_WEBHOOK, error.message)
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


# --- git: the commit that an app's files are at, and whether they are as it has them ---

_TIMEOUT_S = 10.0


class GitState(Record):
    """What git says of an app directory."""

    commit: str = ""  # the whole hash; empty where there is none
    changed: tuple[str, ...] = ()  # files that are not as the commit has them, from the top of the repository


NOWHERE = GitState()


def git_state(root: Path) -> GitState:
    """Ask git about an app directory; nothing where there is no git or no repository."""
    question = ["git", "-C", str(root), "status", "--porcelain=v2", "--branch", "-z", "--", "."]
    try:
        answer = programs.run(question, settings={"GIT_OPTIONAL_LOCKS": "0"}, timeout_s=_TIMEOUT_S).stdout
    except programs.ProgramError:
        return NOWHERE
    commit, changed, entries = "", [], answer.decode(errors="replace").split("\0")
    while entries:
        entry = entries.pop(0)
        if entry.startswith("# branch.oid "):
            commit = entry.removeprefix("# branch.oid ").replace("(initial)", "")
        elif entry[:1] in ("1", "2", "u", "?"):
            changed.append(entry.split(" ", {"1": 8, "2": 9, "u": 10, "?": 1}[entry[0]])[-1])
            if entry[0] == "2":  # behind a renamed file stands what it was called
                del entries[:1]
    return GitState(commit=commit, changed=tuple(changed))


def refuse_changed(place: Environment, source: GitState) -> None:
    """Raise for a protected environment if what would be applied is in no commit."""
    if place.protected and source.changed:
        raise UsageError(
            f"environment `{place.name}` is protected, and files of the app are not committed:"
            f" {listed(source.changed)}",
            hint="nothing was done; commit them, or add --allow-dirty",
        )
