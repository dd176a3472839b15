"""What a deploy command was asked about: rendered, with the cluster for it, and the commit of its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from pathlib import Path

from mlstack import programs
from mlstack.app.app import ReadyRules
from mlstack.app.app_dir import AppDir
from mlstack.app.environment import ClusterIdentity, Environment
from mlstack.app.overrides import Overrides
from mlstack.dataclass import Record
from mlstack.disk_cache import NO_STORE, ByteStore
from mlstack.errors import ConfigError, UsageError, WrongClusterError
from mlstack.kube.client import Cluster, Opener
from mlstack.kube.parallel import prefetch
from mlstack.names import listed
from mlstack.objects.kube_object import DesiredState, KubeObject
from mlstack.render import render

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
    overrides: Overrides = field(default_factory=Overrides)
    store: ByteStore = NO_STORE  # keeps compiled templates and passed parameter sets
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
            store=self.store,
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

    answered = prefetch(meet)
    desired = target.desired() if state is None else state
    if confined:
        refuse_outside(place, desired.objects)
    cluster, identity = answered()
    refuse_other(place, identity)
    return ResolvedTarget(target=target, place=place, state=desired, cluster=cluster, identity=identity)


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
