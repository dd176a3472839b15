"""What files bring to environments: `validate`, `policy list`, and environments side by side."""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from mlstack import __version__
from mlstack.app import edit, layout
from mlstack.app.app import Component
from mlstack.app.app_dir import AppDir
from mlstack.app.document import API_VERSION, decode, to_map
from mlstack.app.document import read as read_document
from mlstack.app.environment import ApprovedDifference, ClusterSnapshot, reading_snapshot
from mlstack.app.prototype import Need, map_references, shown_secret
from mlstack.app.reader import AppReader
from mlstack.dataclass import Record, dataclass, row
from mlstack.errors import ODD, UsageError, YamlError
from mlstack.names import percent_encoded
from mlstack.objects.kube_object import DesiredState, Kinds, KubeObject, belongs_to, kinds_of_crd, label_of
from mlstack.objects.masking import MASK
from mlstack.objects.references import templates
from mlstack.objects.resources import is_gpu, requests
from mlstack.render import render
from mlstack.render.component import unpacked
from mlstack.yaml import read, write
from mlstack.yaml.write import same

if TYPE_CHECKING:
    from mlstack.app.components import Overrides
    from mlstack.deploy.target import Prior, Target
    from mlstack.kube.client import Opener
    from mlstack.validate.formats import Fault
    from mlstack.validate.policies import PolicyOutcome, PolicyVerdict


class ValidateResult(Record):
    """What is wrong with the objects of an environment."""

    ok: bool  # true if the API server would take every object
    environment: str
    kubernetes_version: str  # whose schemas were asked
    count: int  # of objects
    faults: tuple[Fault, ...]  # in the order of the objects, then what policies found
    policies: tuple[PolicyOutcome, ...] = ()  # those that were asked for
    waived: tuple[Fault, ...] = ()  # what objects need not keep, with their reasons
    notes: tuple[str, ...] = ()  # what was waived, and what only the API server checks


def validate_environment(
    app: AppReader,
    environment: str,
    *,
    components: Sequence[str] = (),
    overrides: Overrides | None = None,
    definitions: Sequence[Mapping[str, Any]] = (),
    kubernetes_version: str = "",
    policy: str = "",
) -> ValidateResult:
    """Check every object of an environment offline; arguments as of `render.load`.

    Custom resources are checked against definitions of the same render, else of the installed packages, of a
    snapshot, or against those that are given. `kubernetes_version` is asked in place of the environment's;
    `policy` are sets and ids of policies, with commas between them.
    """
    version = _version(app, environment, kubernetes_version)
    load = partial(render.load, app, environment, overrides=overrides, stand_ins=True)
    state, snapshot = load(components=components), app.snapshot(environment)
    faults, left = _schema_faults(app, state, snapshot, definitions, version)
    # Components that are not asked for count as what stands beside.
    verdict = _verdict(app, policy, state, load() if components and policy else state, snapshot)
    waivers = [f"{outcome.id} ({outcome.waived})" for outcome in verdict.outcomes if outcome.waived]
    left += [f"waived with a reason: {', '.join(waivers)}"] if waivers else []
    faults, waived = [*faults, *verdict.faults], verdict.waived
    if faults or waived:  # only now is it worth rendering again to know the template line of each part
        located = load(components=components, locate=True)
        faults, waived = _placed(faults, located.objects), _placed(waived, located.objects)
    with reading_snapshot(environment):
        faults += _against(snapshot, state)
    return ValidateResult(
        ok=not any(fault.severity == "error" for fault in faults),
        environment=environment,
        kubernetes_version=version,
        count=len(state.objects),
        faults=tuple(faults),
        policies=tuple(verdict.outcomes),
        waived=tuple(waived),
        notes=(*state.notes, *left, *_other_version(snapshot, version, environment)),
    )


def _schema_faults(
    app: AppReader,
    state: DesiredState,
    snapshot: ClusterSnapshot | None,
    definitions: Sequence[Mapping[str, Any]],
    version: str,
) -> tuple[list[Fault], list[str]]:
    """Check objects by schemas and rules of a version; gives faults, and what could not be checked."""
    from mlstack.readiness.rule import need_text
    from mlstack.validate.validate import deprecations, load_schemas, validate_objects

    crds = [*_definitions(app, state), *(snapshot.definitions if snapshot else ()), *definitions]
    needs = {key: need for key, need in _needs(app, state, snapshot, definitions).items() if need}
    needed = {need.kind for need in needs.values()}
    faults, unchecked = validate_objects(state.objects, load_schemas(version), crds=crds, needed=needed)
    left = [f"component `{name}` {need_text(need, state.environment)}" for (name, _), need in needs.items()]
    left += [f"{kind}: rules in CEL that only the API server checks: {n}" for kind, n in unchecked.items()]
    return [*faults, *deprecations(state.objects, int(version.partition(".")[2]), definitions=crds)], left


def _version(app: AppReader, environment: str, asked: str) -> str:
    from mlstack.validate.validate import VERSIONS, check_version, known_version

    place = app.environment(environment)
    if asked and not (version := known_version(asked)):
        hint = f"mlstack validate {environment} --kubernetes-version {VERSIONS.rpartition(' ')[2]}"
        raise UsageError(f"`--kubernetes-version` must be {VERSIONS}, got `{asked}`", hint=hint)
    if asked:
        return version
    return check_version(place.kubernetes_version, where=place.file, environment=environment)


def _verdict(
    app: AppReader, policy: str, state: DesiredState, whole: DesiredState, snapshot: ClusterSnapshot | None
) -> PolicyVerdict:
    """Ask policies of objects, beside all of the environment; nothing is found where none is named."""
    from mlstack.validate.policies import PolicyContext, PolicyVerdict, all_policies, check_policies, chosen

    if not policy:
        return PolicyVerdict([], [], [])
    declared = all_policies(app.policies)
    policies = chosen(policy, declared)
    nodes, apis = (snapshot.nodes, snapshot.apis) if snapshot is not None else ((), {})
    stack = PolicyContext(whole.objects, environment=state.environment, nodes=nodes, apis=apis)
    components = frozenset(obj.component for obj in state.objects)
    return check_policies(policies, stack, known=declared, components=components)


def _needs(
    app: AppReader,
    state: DesiredState,
    snapshot: ClusterSnapshot | None,
    definitions: Sequence[Mapping[str, Any]],
) -> dict[tuple[str, str], Need | None]:
    """Give what components need by their prototypes, by component and kind, where it may not be there."""
    kinds = Kinds.builtin().with_crds([*definitions, *(obj.data for obj in state.objects)])
    apis = snapshot.apis if snapshot is not None else {}
    return {
        (obj.component, obj.kind): app.need(obj.component, obj.api_version, obj.kind, state.environment)
        for obj in state.objects
        if kinds.lookup(obj.api_version, obj.kind) is None and obj.kind not in apis.get(obj.api_version, ())
    }


def validate_on_server(
    target: Target, *, opener: Opener, kubernetes_version: str = "", policy: str = "", prior: Prior = None
) -> ValidateResult:
    """Check every object offline, with the definitions that the cluster has; then by a dry run there."""
    from mlstack.deploy.changes import ApplyOptions
    from mlstack.deploy.plan import diff_environment
    from mlstack.deploy.target import explaining_rights, resolved_after
    from mlstack.validate.formats import Fault

    with resolved_after(prior, target, opener) as resolved:
        definitions = resolved.cluster.list("apiextensions.k8s.io/v1", "CustomResourceDefinition").items
    result = validate_environment(
        target.app,
        target.environment,
        components=target.components,
        overrides=target.overrides,
        definitions=definitions,
        kubernetes_version=kubernetes_version,
        policy=policy,
    )
    if any(fault.severity == "error" and not fault.policy for fault in result.faults):
        return result
    with explaining_rights(resolved, writing=False):
        changes = diff_environment(resolved, ApplyOptions(dry_run=True)).changes.changes
    refused = [
        Fault(component=change.component, object=str(change.identity), path="", message=reason)
        for change in changes
        if change.refusal is not None and change.refusal.kind == "invalid"
        for reason in (change.refusal.reasons or (str(change.refusal.error),))
    ]
    return row(ValidateResult, result, ok=result.ok and not refused, faults=(*result.faults, *refused))


def with_applied(result: ValidateResult, target: Target, *, opener: Opener) -> ValidateResult:
    """Add what is deprecated, or not served any more, of the set that was last applied to the cluster.

    What is found of the files as well is said once.
    """
    from mlstack.deploy.history import open_history
    from mlstack.validate.validate import deprecations

    past = open_history(target, opener)
    revisions = past.revisions()
    if not revisions:
        note = f"`{target.environment}` has no history in its cluster: nothing that was applied is known"
        return row(ValidateResult, result, notes=(*result.notes, note))
    newest, minor = revisions[-1], int(result.kubernetes_version.partition(".")[2])
    applied = past.load(newest)
    crds = _definitions(target.app, applied)
    reported = {(fault.object, fault.path, fault.message) for fault in result.faults}
    left = [
        replace(fault, message=f"{fault.message} (in revision {newest.number})", where=None)
        for fault in deprecations(applied.objects, minor, definitions=crds, is_live=True)
        if (fault.object, fault.path, fault.message) not in reported
    ]
    note = f"revision {newest.number}, the last applied, was looked at too"
    return row(ValidateResult, result, faults=(*result.faults, *left), notes=(*result.notes, note))


def _other_version(snapshot: ClusterSnapshot | None, version: str, environment: str) -> Iterator[str]:
    """Tell where the cluster of a snapshot was of another version than the objects were checked for."""
    server = ".".join(snapshot.version.removeprefix("v").split(".")[:2]) if snapshot else version
    if snapshot and server != version:
        hint = f"mlstack env set {environment} --kubernetes-version {server}"
        yield f"the cluster was {snapshot.version} on {snapshot.taken[:10]}, not {version}: {hint}"


def _against(snapshot: ClusterSnapshot | None, state: DesiredState) -> Iterator[Fault]:
    """Find what the cluster of a snapshot does not serve, and has no room for."""
    if snapshot is None:
        return
    from mlstack.deploy.capacity import limits_beside
    from mlstack.validate.formats import Fault
    from mlstack.validate.validate import over_quota, too_large

    own = {(kind.api_version, kind.kind) for obj in state.objects for kind in kinds_of_crd(obj.data)}
    for obj in state.objects:
        served = obj.kind in snapshot.apis.get(obj.api_version, ())
        if not served and (obj.api_version, obj.kind) not in own:
            versions = [version for version, kinds in snapshot.apis.items() if obj.kind in kinds]
            other = f"; it has {obj.kind} in {', '.join(versions)}" if versions else ""
            yield Fault(
                component=obj.component,
                object=str(obj.identity),
                path="apiVersion",
                message=f"the cluster did not serve it on {snapshot.taken[:10]}{other}",
                where=str(obj.source) if obj.source else None,
            )
    yield from too_large(state.objects, [node["allocatable"] for node in snapshot.nodes])
    yield from over_quota(state.objects, limits_beside(snapshot, state.objects, state.namespace))


def _definitions(app: AppReader, state: DesiredState) -> list[Mapping[str, Any]]:
    """Read definitions of kinds that the render uses and lacks: of installed packages, of other components.

    Definitions are large: those that do not even name such a kind are not parsed.
    """
    kinds = Kinds.builtin().with_crds(obj.data for obj in state.objects)
    missing = {obj.kind for obj in state.objects if kinds.lookup(obj.api_version, obj.kind) is None}
    texts = dict(app.vendor.crds() if missing else {})
    for name, (file, _, _) in app.component_files.items() if missing else ():
        if name not in state.components:
            texts[file] = decode(app.files.bytes(file) or b"", file=file)
    return [
        data
        for file, text in texts.items()
        if "CustomResourceDefinition" in text and any(kind in text for kind in missing)
        for document in read.read_documents(text, source=file)
        for _, data in unpacked(document.value)
        if isinstance(data, Mapping) and data.get("kind") == "CustomResourceDefinition"
    ]


def _placed(faults: Sequence[Fault], objects: Sequence[KubeObject]) -> list[Fault]:
    sources = {(obj.component, str(obj.identity)): obj.source for obj in objects}
    return [
        replace(fault, where=source.at(fault.keys))
        if (source := sources.get((fault.component, fault.object)))
        else fault
        for fault in faults
    ]


# --- policies ---


class PolicyRow(Record):
    """One policy."""

    id: str  # as waivers name it
    sets: tuple[str, ...]  # that it belongs to
    severity: Literal["error", "warning"]  # with an error `validate` says no
    reason: str  # why it is wanted
    fix: str  # what to do about an object that does not keep it
    where: str = ""  # the file of an app's own


class PolicyList(Record):
    """The policies of an app: the built-in ones, then its own."""

    policies: tuple[PolicyRow, ...]  # as they are asked


def list_policies(app: AppReader) -> PolicyList:
    """List them."""
    from mlstack.validate.policies import all_policies

    policies = all_policies(app.policies).values()
    return PolicyList(policies=tuple(row(PolicyRow, policy) for policy in policies))


# --- env matrix ---


Section = Literal["param", "image", "replicas", "gpus"]


class MatrixRow(Record):
    """One thing in all environments."""

    section: Section  # what kind of thing it is
    # `COMPONENT PARAM`, or `COMPONENT KIND NAME ROLE CONTAINER` as far as that is needed to tell it apart
    subject: str
    values: Mapping[str, Any]  # by environment; null where there is none; secrets are masked
    differs: bool  # whether the environments have not all the same
    approved: bool  # the difference is meant
    reason: str = ""  # why


class MatrixResult(Record):
    """Several environments side by side."""

    ok: bool  # true if every difference is approved
    environments: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    written: str = ""  # the file to which differences were added


def compare_all(
    app: AppDir,
    environments: Sequence[str],
    *,
    components: Sequence[str] = (),
    same: bool = False,
    approve: str | None = None,
) -> MatrixResult:
    """Compare two environments or more by what their files bring; no cluster is asked.

    With `same` it gives also what is the same everywhere. `approve` is the reason with which all differences
    are entered among the approved ones.
    """
    if len(environments) < 2:
        raise UsageError("one environment has nothing to be compared with", hint="mlstack env matrix A B")
    app = app.without_personal()
    cells: dict[tuple[Section, str], dict[str, Any]] = defaultdict(dict)
    sections = get_args(Section)
    for name in environments:
        state = render.load(app, name, components=components, stand_ins=True)
        for section, subject, value in (*_params(app, name, components), *_objects(state)):
            cells[section, subject][name] = value
    rows = [
        line
        for (section, subject), values in sorted(
            cells.items(), key=lambda cell: (sections.index(cell[0][0]), cell[0][1])
        )
        if (line := _row(app, section, subject, values, environments)).differs or same
    ]
    written = _approve(app, rows, approve) if approve is not None else ""
    if written:
        rows = [_row(app, line.section, line.subject, line.values, environments) for line in rows]
    return MatrixResult(
        ok=all(line.approved or not line.differs for line in rows),
        environments=tuple(environments),
        rows=tuple(rows),
        written=written,
    )


@dataclass(frozen=True)
class _Secret:
    """The value of a secret parameter, which is compared and not shown."""

    value: Any  # with what people may see in the place of each reference

    def beside(self, first: Any) -> Any:
        """Give what people see of it, who see the first one as the mask."""
        text = shown_secret(self.value)
        return f"{text} (another)" if text == MASK and isinstance(first, _Secret) and self != first else text


def _row(
    app: AppDir, section: Section, subject: str, known: Mapping[str, Any], environments: Sequence[str]
) -> MatrixRow:
    values = {name: known.get(name) for name in environments}
    first = values[environments[0]]
    differs = not all(same(value, first) for value in values.values())
    reason = app.approved.reason(subject) if differs else None
    values |= {name: value.beside(first) for name, value in values.items() if isinstance(value, _Secret)}
    return MatrixRow(
        section=section,
        subject=subject,
        values=values,
        differs=differs,
        approved=reason is not None,
        reason=reason or "",
    )


def _params(app: AppDir, environment: str, components: Sequence[str]) -> Iterator[tuple[Section, str, Any]]:
    for component in app.selected(app.environment(environment), components):
        if isinstance(component, Component):
            params = app.prototype_of(component, environment).params
            for name, value in app.resolve(component, environment).values.items():
                if value is not None:
                    is_secret = name in params and params[name].secret
                    shown = map_references(value, lambda place: place.shown) if is_secret else value
                    yield "param", f"{component.full_name} {name}", _Secret(shown) if is_secret else shown


def _objects(state: DesiredState) -> Iterator[tuple[Section, str, Any]]:
    for obj in state.objects:
        gpus = 0
        where = f"{obj.component} {obj.kind} {obj.name}"
        for template in templates(obj):
            place = f"{where} {template.role}".rstrip()
            for container in template.containers:
                yield "image", f"{place} {container.get('name', '')}".rstrip(), container.get("image")
            yield "replicas", place, template.replicas
            asked = requests(template.spec)
            gpus += template.replicas * sum(asked[name] for name in asked if is_gpu(name))
        if gpus:
            yield "gpus", where, gpus


def _approve(app: AppDir, rows: Sequence[MatrixRow], reason: str) -> str:
    """Enter the differences that are not approved yet; give the file, empty if there is none."""
    with app.locked():
        edited = app.edited(layout.APPROVED, "ApprovedDifferences")
        for line in rows:
            if line.differs and app.approved.reason(line.subject) is None:
                entry = ApprovedDifference(subject=line.subject, reason=reason)
                edited.append(("approved",), to_map(entry))
        if not edited.changed:
            return ""
        app.write({edited.file: edited.text})
    return edited.file


# --- exports: a folder with one file an object, for GitOps, and an index of them ---


FileState = Literal["missing", "changed", "stale"]  # a stale one holds an object that is gone


class ExportResult(Record):
    """The manifests of an environment in a folder, as they were written, or would be."""

    folder: str
    count: int  # of objects
    differences: Mapping[str, FileState]  # by file that is not, or was not, as it is wanted
    notes: tuple[str, ...] = ()


def export(
    app: AppDir,
    environment: str,
    *,
    into: Path,
    suffix: str = "yaml",
    components: Sequence[str] = (),
    overrides: Overrides | None = None,
    check: bool = False,
) -> ExportResult:
    """Write one file an object (`yaml` or `json`), and an index of them, into a folder; or only `check` it.

    The index has no suffix that tools take for a manifest. It says where each object comes from, and what the
    files were last written by: it stays as it is while they do. Other arguments are as of `render.load`.
    """
    state = render.load(app, environment, components=components, overrides=overrides)
    objects = {into / f"{_file_of(obj)}.{suffix}": obj for obj in state.objects}
    write_object = write.to_yaml if suffix == "yaml" else write.to_json
    files = {file: write_object(dict(obj.data)).encode() for file, obj in objects.items()}
    rows: dict[str, FileState] = {
        str(file): "changed" if file.exists() else "missing"
        for file, content in files.items()
        if not _holds(file, content)
    }
    stale = _stale(into, files, state, components)
    rows |= dict.fromkeys(map(str, stale), "stale")
    index = into / f"mlstack.{label_of(environment)}.index"
    known = _indexed(index)
    others = {file: known[file] for file in known if components and file.split("/")[0] not in state.known_as}
    own = {file.relative_to(into).as_posix(): _entry(obj) for file, obj in objects.items()}
    entries = dict(sorted((others | own).items()))
    if rows or entries != known:
        files[index] = write.to_yaml({**_provenance(app, state), "files": entries}).encode()
        rows[str(index)] = "changed" if index.exists() else "missing"
    if not check:
        private = [file for file, obj in objects.items() if obj.kind == "Secret"]
        edit.write_files(files, private=private, delete=stale)
    return ExportResult(folder=str(into), count=len(objects), differences=rows, notes=state.notes)


def _holds(file: Path, content: bytes) -> bool:
    with suppress(OSError):  # what may not be read is written anew
        return file.is_file() and file.read_bytes() == content
    return False


def _provenance(app: AppDir, state: DesiredState) -> dict[str, Any]:
    """Say what files are made of and by: the commit, if there is one, and the packages with their digests."""
    from mlstack.deploy.target import git_state

    git = git_state(app.root)
    packages = {f"{locked.full_name}@{locked.version}": locked.digest for locked in app.lock.packages}
    return {
        "apiVersion": API_VERSION,
        "kind": "Export",
        "app": state.app,
        "environment": state.environment,
        "mlstack": __version__,
        **({"commit": git.commit, "dirty": bool(git.changed)} if git.commit else {}),
        **({"packages": packages} if packages else {}),
    }


def _indexed(index: Path) -> Mapping[str, Any]:
    """Read the entries of an index, by file; none where it is not there, or is none."""
    with suppress(OSError, YamlError, *ODD):
        entries = read_document(index.read_bytes(), file=str(index)).value["files"]
        return {str(file): entries[file] for file in entries}
    return {}


def _entry(obj: KubeObject) -> Mapping[str, str]:
    return {"object": str(obj.identity), "source": obj.source.file if obj.source else ""}


def _stale(
    folder: Path, files: Collection[Path], state: DesiredState, components: Collection[str]
) -> list[Path]:
    """Find what an earlier export of the environment, or of `components`, wrote of objects that are gone."""
    stale = []
    for path in sorted({*folder.glob("*/*_*.yaml"), *folder.glob("*/*_*.json")} - {*files}):
        with suppress(OSError, YamlError, *ODD):
            data = read_document(path.read_bytes(), file=str(path)).value
            is_own = belongs_to(data, app=state.app, environment=state.environment)
            if is_own and (not components or path.parent.name in state.known_as):
                stale.append(path)
    return stale


_LONGEST_FILE = 180  # bytes, of 255: a temporary name is longer


def _file_of(obj: KubeObject) -> str:
    """Name the file of an object, without a suffix, by component, kind, namespace and name.

    Names of some kinds (roles, bindings) hold any character but `/` and `%`. What two names must differ in on
    every system, and must not be lost, is written as in addresses: `a:b` is `a%3Ab`.
    """
    kind = f"{obj.kind}.{obj.group}" if obj.group else obj.kind
    parts = [kind.lower(), *([obj.namespace] if obj.namespace else []), obj.name]
    name = "_".join(re.sub(r"[^a-z0-9.-]", percent_encoded, part) for part in parts)
    if len(name) > _LONGEST_FILE:
        name = f"{name[: _LONGEST_FILE - 13]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"{obj.component or '_'}/{name}"
