"""Whether all that mlstack stands on is there, sound and up to date: app, programs, clusters, formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from mlstack import programs
from mlstack.app import edit, layout
from mlstack.app.app_dir import AppDir
from mlstack.app.document import API_VERSION, decode, is_newer
from mlstack.app.edit import app_lock
from mlstack.app.files import read_file
from mlstack.clock import Clock
from mlstack.dataclass import Record, dataclass
from mlstack.deploy import lock as locking
from mlstack.deploy import target as guard
from mlstack.deploy.changes import ApplyOptions
from mlstack.deploy.plan import diff_environment
from mlstack.deploy.target import Target, check_rights, explaining_rights, resolve
from mlstack.disk_cache import Cache
from mlstack.errors import MlstackError, NotFoundError, RegistryError, SchemaError
from mlstack.kube.client import Cluster, Opener
from mlstack.kube.kubeconfig import IN_CLUSTER, Kubeconfig
from mlstack.names import nearest
from mlstack.render.helm import helm_version
from mlstack.yaml import read
from mlstack.yaml.write import dump_commented, load_commented

CheckState = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str  # `app`, `lock`, `cache`, `kubeconfig` …
    state: CheckState
    message: str  # what was found
    hint: str = ""  # what to do about it; empty if nothing is


class Diagnosis(Record):
    """All that was looked at."""

    ok: bool  # true if nothing has failed
    environment: str | None  # whose cluster was asked; null for none
    checks: tuple[Check, ...]


class DoctorContext(Record):
    """What a program finds around it."""

    cache: Cache
    kubeconfig: Callable[[], Kubeconfig]
    opener: Opener
    clock: Clock


def examine(app: AppDir | None, target: Target | None, around: DoctorContext) -> Diagnosis:
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
        return Check(name, "ok", work())
    except MlstackError as error:
        return _failed(name, error, f" ({error.where})" if error.where else "")


def _failed(name: str, error: MlstackError, where: str = "") -> Check:
    return Check(name, "failed", f"{error.message}{where}", error.hint or "")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


# --- the app: its files, packages, environments ---


def _app(app: AppDir | None) -> Iterator[Check]:
    if app is None:
        hint = "mlstack init NAME makes one; --dir DIR names one"
        yield Check("app", "failed", "there is no app directory here", hint)
        return
    readable = _attempt("app", lambda: f"`{app.app.name}` in {app.root}")
    yield readable
    if readable.state == "failed":
        return
    yield _attempt("components", lambda: _counted(len(app.components()), "component"))
    yield _attempt("lock", lambda: f"{_counted(len(app.vendor.packages()), 'package')} as locked")
    listed = _attempt("environments", lambda: _counted(len(app.environment_names), "environment"))
    for name in _environment_names(app):
        checked = _attempt(f"environment {name}", lambda name=name: app.environment(name).file)  # type: ignore[misc]
        if checked.state == "failed":
            yield checked
    if listed.state == "failed" or app.environment_names:
        yield listed
    else:
        yield Check("environments", "warning", "there is no environment", "mlstack env add NAME")


def _environment_names(app: AppDir) -> Sequence[str]:
    try:
        return app.environment_names
    except MlstackError:  # the app's own check tells
        return ()


def _cache(cache: Cache) -> Iterator[Check]:
    key, probe = "doctor", b"probe"
    cache.put(key, probe)
    if cache.get(key) == probe:
        yield Check("cache", "ok", "can be written and read")
    else:
        hint = "let $XDG_CACHE_HOME (or ~/.cache) be a folder that you may write to; without it all is slower"
        yield Check("cache", "warning", "cannot be written", hint)


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
            yield Check(name, "ok", str(programs.find(name)))
        except RegistryError as error:
            yield _failed(name, error)
        except programs.ProgramError as error:
            state: CheckState = "failed" if name in needed else "warning"
            for_what = "this app needs it for" if name in needed else "not here; only needed for"
            message, hint = f"{for_what} {use}", error.hint or ""
            yield Check(name, state, message, hint if name in needed else "")


def _needed(app: AppDir) -> Iterator[str]:
    """Give the programs that an app cannot do without."""
    try:
        if any(registry.protocol == "git" for registry in app.app.registries):
            yield "git"
        if app.app.verify:
            yield "cosign"
        if any((app.root / package.folder / "Chart.yaml").is_file() for package in app.lock.packages):
            yield "helm"
        if any((app.root / "environments").rglob("*.sops.yaml")):
            yield "sops"
        if any(app.kustomizations()):
            yield "kustomize"
    except MlstackError:  # the app's own check tells
        return


# --- kubeconfig: contexts and credential plug-ins ---


def _kubeconfig(app: AppDir | None, target: Target | None, around: DoctorContext) -> Iterator[Check]:
    try:
        config = around.kubeconfig()
        names = _contexts(app, target)
    except MlstackError as error:
        yield _failed("kubeconfig", error)
        return
    if not config.exists:
        hint = "set KUBECONFIG, or let your cluster write one; `render` and `validate` need none"
        state: CheckState = "failed" if target is not None and set(names) - {IN_CLUSTER} else "warning"
        yield Check("kubeconfig", state, "there is none", hint)
        return
    paths = ", ".join(map(str, config.paths))
    message = f"{_counted(len(config.contexts), 'context')} in {paths}" if paths else "is there"
    yield Check("kubeconfig", "ok", message)
    for context, environments in names.items():
        yield from _context(context, environments, config, is_asked=target is not None)


def _contexts(app: AppDir | None, target: Target | None) -> dict[str, list[str]]:
    """Give the contexts of environments, with the environments that have each."""
    names: dict[str, list[str]] = {}
    if target is not None:
        names[target.place().context] = [target.environment]
    elif app is not None:
        for name in _environment_names(app):
            try:
                context = app.environment(name).context
            except MlstackError:  # the environment's own check tells
                continue
            names.setdefault(context, []).append(name)
    return names


def _context(context: str, environments: list[str], config: Kubeconfig, *, is_asked: bool) -> Iterator[Check]:
    name, users = f"context {context or '-'}", ", ".join(f"`{env}`" for env in environments)
    state: CheckState = "failed" if is_asked else "warning"
    if context == IN_CLUSTER and context not in config.contexts:
        yield Check(name, "ok", f"of {users}: the account of the pod")
    elif not context:
        hint = f"mlstack env set {environments[0]} --context CONTEXT"
        yield Check(name, state, f"{users} names none: render alone works", hint)
    elif context not in config.contexts:
        near = nearest(context, config.contexts)
        hint = f"mlstack env set {environments[0]} --override --context {near or 'CONTEXT'}"
        message = f"of {users}: this machine does not know it; render and validate work all the same"
        yield Check(name, state, message, hint)
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


def _cluster(target: Target, around: DoctorContext) -> Iterator[Check]:
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
        yield Check("snapshot", "ok", file)
    else:
        hint = f"mlstack env snapshot {target.environment}"
        message = "none: validate does not know what this cluster serves and has room for"
        yield Check("snapshot", "warning", message, hint)


def _version(target: Target, cluster: Cluster) -> Check:
    try:
        version, expected = cluster.version(), target.place().kubernetes_version
    except MlstackError as error:
        return _failed("server version", error)
    own = ".".join(version.removeprefix("v").split(".")[:2])
    if own == expected:
        return Check("server version", "ok", version)
    hint = f"mlstack env set {target.environment} --kubernetes-version {own}"
    message = f"{version}; the environment is checked against {expected}"
    return Check("server version", "warning", message, hint)


def _rights(target: Target, around: DoctorContext) -> str:
    """Say that an apply may do all it would do now; nothing is written."""
    resolved = resolve(replace(target, stand_ins=True), around.opener)
    with explaining_rights(resolved, writing=True):
        plan = diff_environment(resolved, ApplyOptions(dry_run=True))
    has_inventory = plan.inventory.exists
    check_rights(resolved, plan.changes.changes, has_inventory=has_inventory, may_all=plan.may_all)
    return f"all that an apply needs now ({_counted(len(plan.changes.writes), 'write')})"


def _lock(target: Target, cluster: Cluster, clock: Clock) -> str:
    place, name = target.place(), target.app.app.name
    lease = locking.lease_of(cluster, place, name, holder=target.holder, clock=clock)
    term = lease.read()
    return "free" if term is None else f"held by {locking.describe(term)}"


# --- upgrades: the files of an app brought up to date with this mlstack; comments stay ---


class Migration(Record):
    """The step from one version of our files to the next: what changes in the files of a kind, in place."""

    before: str  # an apiVersion
    after: str
    changes: Mapping[str, Callable[[Any], None]]  # by kind; the others change their apiVersion alone


MIGRATIONS: tuple[Migration, ...] = ()


class UpgradedFile(Record):
    """A file that had an older format."""

    file: str  # below the app directory
    before: str
    after: str


class Upgraded(Record):
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
            who, hint = (
                "no release of mlstack wrote",
                f"write apiVersion: {last}, and run mlstack validate ENV",
            )
            if is_newer(version):
                who, hint = f"a newer mlstack wrote; this one writes `{last}`", "upgrade mlstack"
            raise SchemaError(f"`apiVersion` is `{version}`, which {who}", where=file, hint=hint)
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
