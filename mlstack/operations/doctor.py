"""Whether all that mlstack stands on is there, sound and up to date: programs, clusters, formats of files."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from mlstack import programs
from mlstack.app import edit, layout
from mlstack.app.app_dir import AppDir
from mlstack.app.document import API_VERSION, decode, is_newer
from mlstack.app.edit import app_lock
from mlstack.app.environment import ClusterSnapshot, is_kept_label
from mlstack.app.files import read_file
from mlstack.clock import Clock, timestamp
from mlstack.dataclass import dataclass
from mlstack.deploy import capacity
from mlstack.deploy import lock as locking
from mlstack.deploy import target as guard
from mlstack.deploy.changes import ApplyOptions
from mlstack.deploy.permissions import check_rights, explaining_rights
from mlstack.deploy.plan import diff_environment
from mlstack.deploy.target import Target, resolve
from mlstack.disk_cache import Cache
from mlstack.errors import (
    ForbiddenError,
    MlstackError,
    NotFoundError,
    ObjectNotFoundError,
    RegistryError,
    SchemaError,
)
from mlstack.kube.client import Cluster, Opener
from mlstack.kube.kubeconfig import IN_CLUSTER, Kubeconfig
from mlstack.names import nearest
from mlstack.objects.resources import is_gpu
from mlstack.readiness.placement import NodeRoom, repelling
from mlstack.render.tools import helm_version
from mlstack.yaml import read
from mlstack.yaml.edit import dump_commented, load_commented

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str  # `app`, `lock`, `cache`, `kubeconfig` …
    state: State
    message: str  # what was found
    hint: str = ""  # what to do about it; empty if nothing is


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """All that was looked at."""

    ok: bool  # true if nothing has failed
    environment: str | None  # whose cluster was asked; null for none
    checks: tuple[Check, ...]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a program finds around it."""

    cache: Cache
    kubeconfig: Callable[[], Kubeconfig]
    opener: Opener
    clock: Clock


def examine(app: AppDir | None, target: Target | None, around: Surroundings) -> Diagnosis:
    """Look at everything; with a target at its cluster as well. Nothing is written but a probe of the cache.

    `app` is None where there is none.
    """
    checks = [*_app(app), *_cache(around.cache), *_programs(app), *_kubeconfig(app, target, around)]
    if target is not None:
        checks += _cluster(target, around)
    return Diagnosis(
        ok=all(check.state != "failed" for check in checks),
        environment=target.environment if target is not None else None,
        checks=tuple(checks),
    )


def _attempt(name: str, work: Callable[[], str]) -> Check:
    """Give what some work says, or why it failed."""
    try:
        return Check(name=name, state="ok", message=work())
    except MlstackError as error:
        return _failed(name, error, f" ({error.where})" if error.where else "")


def _failed(name: str, error: MlstackError, where: str = "") -> Check:
    return Check(name=name, state="failed", message=f"{error.message}{where}", hint=error.hint or "")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


# --- the app: its files, packages, environments ---


def _app(app: AppDir | None) -> Iterator[Check]:
    if app is None:
        hint = "mlstack init NAME makes one; --dir DIR names one"
        yield Check(name="app", state="failed", message="there is no app directory here", hint=hint)
        return
    readable = _attempt("app", lambda: f"`{app.app.name}` in {app.root}")
    yield readable
    if readable.state == "failed":
        return
    yield _attempt("components", lambda: _counted(len(app.components()), "component"))
    yield _attempt("lock", lambda: f"{_counted(len(app.vendor.packages()), 'package')} as locked")
    for name in app.environment_names:
        checked = _attempt(f"environment {name}", lambda name=name: app.environment(name).file)  # type: ignore[misc]
        if checked.state == "failed":
            yield checked
    name, count = "environments", _counted(len(app.environment_names), "environment")
    if app.environment_names:
        yield Check(name=name, state="ok", message=count)
    else:
        yield Check(
            name=name, state="warning", message="there is no environment", hint="mlstack env add NAME"
        )


def _cache(cache: Cache) -> Iterator[Check]:
    key, probe = "doctor", b"probe"
    cache.put(key, probe)
    if cache.get(key) == probe:
        yield Check(name="cache", state="ok", message="can be written and read")
    else:
        hint = "let $XDG_CACHE_HOME (or ~/.cache) be a folder that you may write to; without it all is slower"
        yield Check(name="cache", state="warning", message="cannot be written", hint=hint)


# --- programs of others ---

_USES = {
    "git": "git registries, and the commit in the history",
    "helm": "Helm charts",
    "kubectl": "kustomizations where there is no kustomize, and looking around",
    "kustomize": "kustomizations, copies of other people's above all",
    "sops": "secret values in SOPS files",
    "cosign": "signatures of packages",
}


def _programs(app: AppDir | None) -> Iterator[Check]:
    needed = set(_needed(app)) if app is not None else set[str]()
    for name, use in _USES.items():
        try:
            if name == "helm" and name in needed:
                helm_version()
            yield Check(name=name, state="ok", message=str(programs.find(name)))
        except RegistryError as error:
            yield _failed(name, error)
        except programs.ProgramError as error:
            state: State = "failed" if name in needed else "warning"
            for_what = "this app needs it for" if name in needed else "not here; only needed for"
            message, hint = f"{for_what} {use}", error.hint or ""
            yield Check(name=name, state=state, message=message, hint=hint if name in needed else "")


def _needed(app: AppDir) -> Iterator[str]:
    """Give the programs that an app cannot do without."""
    try:
        if any(registry.protocol == "git" for registry in app.app.registries):
            yield "git"
        if app.app.verify:
            yield "cosign"
        if any((app.root / package.folder / "Chart.yaml").is_file() for package in app.lock.packages):
            yield "helm"
    except MlstackError:  # the app's own check tells
        return
    if any((app.root / "environments").rglob("*.sops.yaml")):
        yield "sops"
    if any(app.kustomizations()):
        yield "kustomize"


# --- kubeconfig: contexts and credential plug-ins ---


def _kubeconfig(app: AppDir | None, target: Target | None, around: Surroundings) -> Iterator[Check]:
    try:
        config = around.kubeconfig()
        names = _contexts(app, target)
    except MlstackError as error:
        yield _failed("kubeconfig", error)
        return
    if not config.exists:
        hint = "set KUBECONFIG, or let your cluster write one; `render` and `validate` need none"
        state: State = "failed" if target is not None and set(names) - {IN_CLUSTER} else "warning"
        yield Check(name="kubeconfig", state=state, message="there is none", hint=hint)
        return
    paths = ", ".join(map(str, config.paths))
    message = f"{_counted(len(config.contexts), 'context')} in {paths}" if paths else "is there"
    yield Check(name="kubeconfig", state="ok", message=message)
    for context, environments in names.items():
        yield from _context(context, environments, config, is_asked=target is not None)


def _contexts(app: AppDir | None, target: Target | None) -> dict[str, list[str]]:
    """Give the contexts of environments, with the environments that have each."""
    names: dict[str, list[str]] = {}
    if target is not None:
        names[target.place().context] = [target.environment]
    elif app is not None:
        for name in app.environment_names:
            try:
                context = app.environment(name).context
            except MlstackError:  # the environment's own check tells
                continue
            names.setdefault(context, []).append(name)
    return names


def _context(context: str, environments: list[str], config: Kubeconfig, *, is_asked: bool) -> Iterator[Check]:
    name, users = f"context {context or '-'}", ", ".join(f"`{env}`" for env in environments)
    state: State = "failed" if is_asked else "warning"
    if context == IN_CLUSTER and context not in config.contexts:
        yield Check(name=name, state="ok", message=f"of {users}: the account of the pod")
    elif not context:
        hint = f"mlstack env set {environments[0]} --context CONTEXT"
        yield Check(name=name, state=state, message=f"{users} names none: render alone works", hint=hint)
    elif context not in config.contexts:
        near = nearest(context, config.contexts)
        hint = f"mlstack env set {environments[0]} --override --context {near or 'CONTEXT'}"
        message = f"of {users}: this machine does not know it; render and validate work all the same"
        yield Check(name=name, state=state, message=message, hint=hint)
    else:
        yield _attempt(name, lambda: f"of {users}: {_plugin(context, config)}")


def _plugin(context: str, config: Kubeconfig) -> str:
    """Say whether the credential plug-in of a context is there, if it has one."""
    if config.entries is None:
        return "known"
    plugin = config.entry(context).user.part("exec")
    command = plugin.text("command")
    if not command:
        return "known"
    try:
        return f"logs in by {programs.find(command)}"
    except programs.ProgramError as error:
        hint = plugin.text("installHint").strip() or error.hint
        raise NotFoundError(f"its credential plug-in `{command}` is not installed", hint=hint) from error


# --- the cluster of one environment ---


def _cluster(target: Target, around: Surroundings) -> Iterator[Check]:
    opened: list[Cluster] = []

    def meet() -> str:
        place = target.place()
        cluster = around.opener(place.context)
        identity = guard.check_cluster(place, cluster)
        opened.append(cluster)
        bound = "" if place.cluster is not None else "; the first apply binds the environment to it"
        return f"{guard.describe(identity)}{bound}"

    yield _attempt("cluster", meet)
    if not opened:
        return
    yield _version(target, opened[0])
    yield _attempt("rights", lambda: _rights(target, around))
    yield _attempt("run lock", lambda: _lock(target, opened[0], around.clock))
    file = f"{layout.ENVIRONMENTS}/{target.environment}/{layout.SNAPSHOT}"
    if (target.app.root / file).is_file():
        yield Check(name="snapshot", state="ok", message=file)
    else:
        hint = f"mlstack env snapshot {target.environment}"
        message = "none: validate does not know what this cluster serves and has room for"
        yield Check(name="snapshot", state="warning", message=message, hint=hint)


def _version(target: Target, cluster: Cluster) -> Check:
    try:
        version, expected = cluster.version(), target.place().kubernetes_version
    except MlstackError as error:
        return _failed("server version", error)
    own = ".".join(version.removeprefix("v").split(".")[:2])
    if own == expected:
        return Check(name="server version", state="ok", message=version)
    hint = f"mlstack env set {target.environment} --kubernetes-version {own}"
    message = f"{version}; the environment is checked against {expected}"
    return Check(name="server version", state="warning", message=message, hint=hint)


def _rights(target: Target, around: Surroundings) -> str:
    """Say that an apply may do all it would do now; nothing is written."""
    resolved = resolve(replace(target, stand_ins=True), around.opener)
    with explaining_rights(resolved, writing=True):
        plan = diff_environment(resolved, ApplyOptions(dry_run=True))
    has_inventory = plan.inventory.exists
    check_rights(resolved, plan.changes.changes, has_inventory=has_inventory, may_all=plan.may_all)
    writes = len(plan.changes.writes)
    return f"all that an apply needs now ({_counted(writes, 'write')})"


def _lock(target: Target, cluster: Cluster, clock: Clock) -> str:
    place, name = target.place(), target.app.app.name
    lease = locking.lease_of(cluster, place, name, holder=target.holder, clock=clock)
    term = lease.read()
    return "free" if term is None else f"held by {locking.describe(term)}"


# --- snapshots: what a cluster serves and has room for, kept in the app ---


_UNINTERESTING = "attachable-volumes-"


@dataclass(frozen=True, kw_only=True)
class SnapshotTaken:
    """A snapshot of an environment's cluster."""

    ok: bool = True  # with `--check`: whether the file says what the cluster is now
    environment: str
    file: str  # below the app directory
    version: str  # of the API server
    kinds: int  # that it serves
    definitions: int  # CustomResourceDefinitions among them
    nodes: int  # how many nodes it has
    gpus: int  # of all nodes
    quotas: int  # in the environment's namespace
    changed: bool  # whether the file says something else now, or would
    notes: tuple[str, ...] = ()  # what could not be seen


def take_snapshot(target: Target, *, opener: Opener, clock: Clock, check: bool = False) -> SnapshotTaken:
    """Ask the cluster of an environment what it can do, and keep that in the app (not with `check`)."""
    place = target.place()
    cluster = opener(place.context)
    guard.check_cluster(place, cluster)
    notes: list[str] = []
    live = capacity.read(cluster, namespaces=[place.namespace])
    notes += [f"{note}: the snapshot has none" for note in live.notes]
    shapes = Counter(map(_shape, live.nodes or ()))
    snapshot = ClusterSnapshot(
        taken=timestamp(clock.now_s()),
        version=cluster.version(),
        apis=_apis(cluster),
        definitions=tuple(_definitions(cluster, notes)),
        # Nodes that are alike are counted; their names and addresses are nobody's business.
        nodes=tuple({"count": count, **json.loads(shape)} for shape, count in sorted(shapes.items())),
        quotas=tuple(_quotas(_list(cluster, "ResourceQuota", place.namespace, []))),
        limits=tuple(
            {"name": item["metadata"]["name"], "limits": (item.get("spec") or {}).get("limits") or []}
            for item in _list(cluster, "LimitRange", place.namespace, notes)
        ),
        room=None if live.pods is None else _room(live, place.namespace),
    )
    app = target.app
    file = f"{layout.ENVIRONMENTS}/{target.environment}/{layout.SNAPSHOT}"
    known = app.snapshot(target.environment) if app.files.bytes(file) is not None else None
    changed = known is None or _content(known) != _content(snapshot)
    if not check and (known is None or replace(known, taken="") != replace(snapshot, taken="")):
        with app.locked():
            app.write({file: snapshot.text()})
    return SnapshotTaken(
        ok=not (check and changed),
        environment=target.environment,
        file=file,
        version=snapshot.version,
        kinds=sum(map(len, snapshot.apis.values())),
        definitions=len(snapshot.definitions),
        nodes=sum(node["count"] for node in snapshot.nodes),
        gpus=sum(
            int(node["count"]) * int(amount)
            for node in snapshot.nodes
            for name, amount in node["allocatable"].items()
            if is_gpu(name) and str(amount).isdecimal()
        ),
        quotas=len(snapshot.quotas),
        changed=changed,
        notes=tuple(notes),
    )


def _content(snapshot: ClusterSnapshot) -> Any:
    return json.loads(replace(snapshot, taken="", room=None).text())


def _apis(cluster: Cluster) -> dict[str, tuple[str, ...]]:
    served: dict[str, set[str]] = defaultdict(set)
    for kind in cluster.kinds():
        served[kind.api_version].add(kind.kind)
    return {version: tuple(sorted(kinds)) for version, kinds in sorted(served.items())}


def _list(
    cluster: Cluster, kind: str, namespace: str | None, notes: list[str], version: str = "v1"
) -> Iterable[Mapping[str, Any]]:
    try:
        return cluster.list(version, kind, namespace=namespace).items
    except ForbiddenError:
        notes.append(f"no right to list {kind}: the snapshot has none")
    except ObjectNotFoundError:
        pass
    return ()


def _definitions(cluster: Cluster, notes: list[str]) -> Iterable[dict[str, Any]]:
    version, kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
    items = _list(cluster, kind, None, notes, version)
    for item in sorted(items, key=lambda item: str(item["metadata"]["name"])):
        spec = {key: value for key, value in (item.get("spec") or {}).items() if key != "conversion"}
        metadata = {"name": item["metadata"]["name"]}
        yield {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _shape(node: Mapping[str, Any]) -> str:
    status, labels = node.get("status") or {}, node["metadata"].get("labels") or {}
    allocatable = {
        name: str(amount)
        for name, amount in sorted((status.get("allocatable") or {}).items())
        if not name.startswith(_UNINTERESTING)
    }
    taints = sorted(
        f"{taint.get('key')}={taint.get('value') or ''}:{taint.get('effect')}"
        for taint in (node.get("spec") or {}).get("taints") or ()
        if not str(taint.get("key")).startswith("node.kubernetes.io/")
    )
    kept = {name: labels[name] for name in sorted(labels) if is_kept_label(name)}
    return json.dumps({"allocatable": allocatable, "labels": kept, "taints": taints}, sort_keys=True)


def _room(live: capacity.Occupancy, namespace: str) -> dict[str, Any]:
    """Write down what pods leave of the nodes that take pods, and what else decides whether more fit."""
    shapes = sorted(set(map(_shape, live.nodes or ())))
    rooms = capacity.node_rooms(live)
    counts: Counter[str] = Counter()
    for node, room in zip(live.nodes or (), rooms, strict=True):
        keys = [str(taint.get("key")) for taint in room.place.taints]
        if room.is_ready and not any(key.startswith("node.kubernetes.io/") for key in keys):
            counts[json.dumps([shapes.index(_shape(node)), _free(room)], sort_keys=True)] += 1
    rows = [(*json.loads(text), count) for text, count in sorted(counts.items())]
    terms = {
        json.dumps([pod["metadata"]["namespace"], term], sort_keys=True)
        for pod in live.pods or ()
        for term in repelling(pod["spec"])
    }
    return {
        "nodes": [{"shape": shape, "count": count, "free": free} for shape, free, count in rows],
        "waiting": sum(pods.count for pods in capacity.waiting(live)),
        "repelling": [json.loads(term) for term in sorted(terms)],
        "used": {q.key.rpartition("/")[2]: dict(q.used) for q in live.quotas.get(namespace) or ()},
        "pools": [
            {
                "name": pool.name,
                "more": pool.more,
                "free": pool.node and _free(pool.node),
                "labels": pool.node and {n: v for n, v in pool.node.place.labels.items() if is_kept_label(n)},
                "taints": pool.node and list(pool.node.place.taints),
            }
            for pool in capacity.pools(live, rooms)
        ],
    }


def _free(room: NodeRoom) -> dict[str, int]:
    return {name: value for name, value in sorted(room.free.items()) if not name.startswith(_UNINTERESTING)}


def _quotas(items: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for item in sorted(items, key=lambda item: str(item["metadata"]["name"])):
        spec = item.get("spec") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue  # it counts only some pods, and nobody knows which before they run
        hard = spec.get("hard") or {}
        yield {"name": item["metadata"]["name"], "hard": {name: str(hard[name]) for name in sorted(hard)}}


# --- upgrades: the files of an app brought up to date with this mlstack; comments stay ---


@dataclass(frozen=True, kw_only=True)
class Migration:
    """The step from one version of our files to the next: what changes in the files of a kind, in place."""

    before: str  # an apiVersion
    after: str
    changes: Mapping[str, Callable[[Any], None]]  # by kind; the others change their apiVersion alone


MIGRATIONS: tuple[Migration, ...] = ()


@dataclass(frozen=True, kw_only=True)
class UpgradedFile:
    """A file that had an older format."""

    file: str  # below the app directory
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Upgraded:
    """The files that were brought up to date, or would be."""

    files: tuple[UpgradedFile, ...]  # those that had an older format
    dry_run: bool = False  # whether nothing was written


def upgrade(root: Path, *, dry_run: bool = False, migrations: Sequence[Migration] = MIGRATIONS) -> Upgraded:
    """Rewrite the files of an app that have an older format, all or none; comments stay."""
    texts = _migrated(root, migrations)
    if texts and not dry_run:
        with app_lock(root):
            texts = _migrated(root, migrations)
            edit.write_files({root / entry.file: text for entry, text in texts.items()})
    return Upgraded(files=tuple(texts), dry_run=dry_run)


def _migrated(root: Path, migrations: Sequence[Migration]) -> dict[UpgradedFile, str]:
    """Give the files of an app that have an older format, with their text up to date; nothing is written."""
    last = migrations[-1].after if migrations else API_VERSION
    steps = {migration.before: migration for migration in migrations}
    texts: dict[UpgradedFile, str] = {}
    for file in _own_files(root):
        text = decode(read_file(root / file), file=file)
        version = _format_of(text, file)
        if version in ("", last):
            continue
        if version not in steps:
            message = f"`apiVersion` is `{version}`, which no release of mlstack wrote"
            hint = f"write apiVersion: {last}, and run mlstack validate ENV"
            if is_newer(version):
                message = (
                    f"`apiVersion` is `{version}`, which a newer mlstack wrote; this one writes `{last}`"
                )
                hint = "upgrade mlstack"
            raise SchemaError(message, where=file, hint=hint)
        [document] = load_commented(text, source=file)
        before = version
        while version in steps:
            step = steps[version]
            step.changes.get(str(document.get("kind")), lambda document: None)(document)
            document["apiVersion"] = version = step.after
        texts[UpgradedFile(file=file, before=before, after=version)] = dump_commented(document)
    return texts


def _own_files(root: Path) -> Iterator[str]:
    yield layout.APP_FILE
    if (root / layout.LOCK_FILE).is_file():
        yield layout.LOCK_FILE
    for folder in (layout.COMPONENTS, layout.ENVIRONMENTS):
        for place, _, files in layout.walk(root / folder):
            inside = Path(place).relative_to(root)
            yield from ((inside / file).as_posix() for file in files if file.endswith((".yaml", ".yml")))


def _format_of(text: str, file: str) -> str:
    """Give the version of a file of ours; empty for a manifest."""
    if "mlstack.dev/" not in text and file != layout.APP_FILE:
        return ""
    documents = read.read_documents(text, source=file)
    value = documents[0].value if len(documents) == 1 else None
    version = str(value.get("apiVersion", "")) if isinstance(value, Mapping) else ""
    if file == layout.APP_FILE and isinstance(value, Mapping) and value.get("kind") == "ksonnet.io/app":
        hint = "bring it over: mlstack import ksonnet-app DIR --out NEW"
        raise SchemaError("this is an app of ksonnet", where=file, hint=hint)
    return version if version.startswith("mlstack.dev/") else ""
