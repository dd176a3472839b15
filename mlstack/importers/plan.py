"""What an import would write, manifests and patches of environments; proved by rendering it, then written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mlstack.app import edit, layout
from mlstack.app.app_dir import AppDir
from mlstack.app.document import API_VERSION, join_path, to_map
from mlstack.app.edit import EditedFile, app_lock
from mlstack.app.environment import Environment
from mlstack.dataclass import Record, row
from mlstack.errors import ConfigError, UsageError
from mlstack.names import MAX_NAME, check_new_name
from mlstack.objects import kube_object, masking
from mlstack.objects.kube_object import Data, Identity, Kinds, group_of, without_nulls
from mlstack.objects.managed_fields import MISSING
from mlstack.registries.installation import install_own
from mlstack.registries.registry import DEFAULT_REGISTRY
from mlstack.render import render
from mlstack.render.component import check_object
from mlstack.render.patches import differing, object_patch
from mlstack.yaml import write


class PlannedComponent(Record):
    """A component that is a plain manifest."""

    name: str  # with its module in front
    text: str  # the whole file
    suffix: str = ".yaml"
    objects: tuple[Data, ...] = ()

    @property
    def file(self) -> str:
        """Give its file below the app."""
        module, _, name = self.name.rpartition(".")
        return layout.component_file(module, name).removesuffix(".yaml") + self.suffix

    @property
    def kinds(self) -> tuple[str, ...]:
        """Give the kinds of its objects, each once, in their order."""
        return tuple(dict.fromkeys(str(data.get("kind")) for data in self.objects))


class ImportFailure(Record):
    """A component that could not be imported for an environment."""

    component: str
    environment: str
    reason: str  # why, in a sentence
    where: str = ""  # file:line below the app of ksonnet


class PlannedPackage(Record):
    """A package of the app's own, in a registry that is a folder of the app."""

    name: str
    registry: str
    files: Mapping[str, str]  # by path in the package's folder


class ImportPlan(Record):
    """Components, patches and environments that an import adds to an app."""

    components: tuple[PlannedComponent, ...]
    # environment -> component -> partial objects
    patches: Mapping[str, Mapping[str, Sequence[Data]]] = field(default_factory=dict)
    environments: tuple[Environment, ...] = ()
    # environment -> component -> values of its parameters
    params: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    package: PlannedPackage | None = None  # with the prototypes of the components
    notes: tuple[str, ...] = ()


def component_name(text: str) -> str:
    """Give the name for a component that comes nearest to a text."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", text)[:MAX_NAME].strip("-_") or "imported"


def generated_name(data: Any) -> str:
    """Give the name that an object without one gets: the beginning of those that the server would make."""
    metadata = data.get("metadata") if isinstance(data, Mapping) else None
    if not isinstance(metadata, Mapping) or metadata.get("name"):
        return ""
    return str(metadata.get("generateName") or "").rstrip("-.")


def generated_name_note(data: Data) -> str:
    """Tell that an object got a name."""
    old = f"{data.get('kind')} with `generateName: {data['metadata']['generateName']}`"
    return f"{old} is called `{generated_name(data)}` now: each apply would have made another"


def secret_note(data: Data, component: str) -> Iterator[str]:
    """Tell what a person should know about an object that was imported."""
    name = f"{data.get('kind')} {(data.get('metadata') or {}).get('name')}"
    if masking.is_secret(data) and any(data.get(key) for key in ("data", "stringData")):
        masking.note_object(data)
        yield (
            f"{component}: {name} holds its values in the file; keep them out of git: take the Secret out and"
            " create it in the cluster, or make its values parameters marked x-secret"
        )


# --- the same components in several environments ---
# The manifest has the objects of the base environment; another environment's values become a patch (RFC
# 7396). Objects that only some environments have go into components of their own, which only those target.


Objects = Mapping[str, Mapping[str, Sequence[Data]]]
"""Component -> environment -> objects."""

_FIRST_KEYS = ("apiVersion", "kind", "metadata")


class _Group(Record):
    """Objects of a component that the same environments have."""

    component: str
    environments: tuple[str, ...]  # the base first
    objects: Mapping[Identity, Mapping[str, Data]]  # by environment


def plan_variants(
    objects: Objects,
    environments: Sequence[Environment],
    *,
    sources: Mapping[str, str],
    all_targets: bool = True,
) -> tuple[ImportPlan, list[ImportFailure]]:
    """Give what an app needs to bring these objects in these environments.

    `sources` say where a component came from. An environment that deploys everything names no targets, if
    `all_targets` of the app are those that are imported here. What cannot be brought stands beside the plan.
    """
    places = {environment.name: environment for environment in environments}
    order = sorted(places, key=lambda name: (name != "", name != "default", name))
    notes, refused, groups = dict[str, None](), list[ImportFailure](), list[_Group]()
    for component, by_environment in objects.items():
        sound = dict(_sound(component, by_environment, places, notes, refused))
        groups += _grouped(component, sound, order)
    written = [*_components(groups, sources, refused)]
    planned = tuple(component for component, _ in written)
    named = {component.name: group for component, group in written}
    notes |= dict.fromkeys(
        remark for new in planned for data in new.objects for remark in secret_note(data, new.name)
    )
    targets = {name: list(_targets(named, name, notes)) for name in order}
    placed = [
        replace(places[name], targets=() if all_targets and {*listed} == {*named} else tuple(listed))
        for name, listed in targets.items()
        if listed
    ]
    notes |= dict.fromkeys(
        f"environment `{name}` has nothing left to deploy; it is left out"
        for name in order
        if not targets[name]
    )
    plan = ImportPlan(
        components=planned, patches=_patches(named), environments=tuple(placed), notes=tuple(notes)
    )
    return plan, refused


def _components(
    groups: Sequence[_Group], sources: Mapping[str, str], refused: list[ImportFailure]
) -> Iterator[tuple[PlannedComponent, _Group]]:
    """Write the objects of the base of each group, unless YAML cannot hold them."""
    for name, group in _named(groups).items():
        base = tuple(versions[group.environments[0]] for versions in group.objects.values())
        source = sources.get(group.component)
        head = f"# Imported from {source}.\n" if source else ""
        try:
            text = head + write.to_yaml_documents(base)
        except ValueError as error:
            refused += [
                ImportFailure(component=group.component, environment=other, reason=str(error))
                for other in group.environments
            ]
            continue
        yield PlannedComponent(name=name, text=text, objects=base), group


def _patches(named: Mapping[str, _Group]) -> dict[str, dict[str, Sequence[Data]]]:
    """Give what leads from the base to each other environment: environment -> component -> patches."""
    patches: dict[str, dict[str, Sequence[Data]]] = {}
    for name, group in named.items():
        base, *others = group.environments
        for other in others:
            pairs = [(versions[base], versions[other]) for versions in group.objects.values()]
            if changes := [patch for pair in pairs if (patch := object_patch(*pair))]:
                patches.setdefault(other, {})[name] = changes
    return patches


def is_cluster_wide(data: Data) -> bool:
    """Tell whether objects of a kind are in no namespace, whatever version of it is named."""
    group, kind = group_of(str(data.get("apiVersion", ""))), str(data.get("kind", ""))
    kinds = [builtin for builtin in Kinds.builtin().of_group(group) if builtin.kind == kind]
    gone = {("policy", "PodSecurityPolicy"), ("extensions", "PodSecurityPolicy")}
    return (bool(kinds) and not kinds[0].namespaced) or (group, kind) in gone


def mapping(value: Any) -> Mapping[str, Any]:
    """Give a value if it is a map, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def identity_of(data: Data) -> Identity:
    """Give the identity of an object, whatever it lacks."""
    metadata = mapping(data.get("metadata"))
    group, namespace = group_of(str(data.get("apiVersion"))), str(metadata.get("namespace") or "")
    return Identity(group, str(data.get("kind")), namespace, str(metadata.get("name")))


def _sound(
    component: str,
    by_environment: Mapping[str, Sequence[Data]],
    places: Mapping[str, Environment],
    notes: dict[str, None],
    refused: list[ImportFailure],
) -> Iterator[tuple[str, list[Data]]]:
    """Give the objects that can be brought, without the namespace of their environment."""
    for name, listed in by_environment.items():
        known: dict[Identity, Data] = {}
        try:
            for data in listed:
                shaped = _shaped(data, places[name].namespace, component, notes)
                check_object(shaped, lambda path: "")
                identity = identity_of(shaped)
                if identity in known:
                    twice = f"{identity} is there twice in `{name}`"
                    notes[f"{component}: {twice}; the first counts: rename one"] = None
                known.setdefault(identity, shaped)
        except ConfigError as error:
            refused.append(ImportFailure(component=component, environment=name, reason=error.message))
            continue
        yield name, list(known.values())


def _shaped(data: Data, namespace: str, component: str, notes: dict[str, None]) -> Data:
    """Give an object in our order, without nulls, its status and a namespace that it gets anyway."""
    plain = without_nulls(data)
    metadata = plain.get("metadata")
    if isinstance(metadata, dict):
        if (namespace and metadata.get("namespace") == namespace) or is_cluster_wide(plain):
            metadata.pop("namespace", None)
        if name := generated_name(plain):
            notes[f"{component}: {generated_name_note(plain)}"] = None
            metadata["name"] = name
            del metadata["generateName"]
        if not metadata.get("labels", True):
            del metadata["labels"]
        inner = {key: metadata.pop(key) for key in ("name", "namespace") if key in metadata}
        plain["metadata"] = inner | metadata
    head = {key: plain[key] for key in _FIRST_KEYS if key in plain}
    return head | {key: value for key, value in plain.items() if key not in (*_FIRST_KEYS, "status")}


def _grouped(
    component: str, by_environment: Mapping[str, Sequence[Data]], order: Sequence[str]
) -> list[_Group]:
    """Part the objects of a component by the environments that have them, the largest group first."""
    objects: dict[Identity, dict[str, Data]] = {}
    for name in order:
        for data in by_environment.get(name, ()):
            objects.setdefault(identity_of(data), {})[name] = data
    parts: dict[tuple[str, ...], dict[Identity, Mapping[str, Data]]] = {}
    for identity, versions in objects.items():
        parts.setdefault(tuple(versions), {})[identity] = versions
    ordered = sorted(parts.items(), key=lambda part: -len(part[0]))
    return [_Group(component=component, environments=names, objects=inner) for names, inner in ordered]


def _named(groups: Sequence[_Group]) -> dict[str, _Group]:
    """Give each group the name of its component; further ones that of their environment behind it."""
    named: dict[str, _Group] = {}
    taken: set[str] = set()
    for group in groups:
        module, _, stem = group.component.rpartition(".")
        folder = ".".join(map(component_name, filter(None, module.split("."))))
        plain = ".".join(filter(None, (folder, component_name(stem))))
        if any(other.component == group.component for other in named.values()):
            plain = f"{plain}-{component_name('-'.join(group.environments[:2]))}"
        name, number = plain, 1
        while name.casefold() in taken or name.rpartition(".")[2].lower() == "params":
            number += 1
            name = f"{plain}-{number}"
        taken.add(name.casefold())
        named[name] = group
    return named


def _targets(named: Mapping[str, _Group], environment: str, notes: dict[str, None]) -> Iterator[str]:
    """Give the components of an environment; one that brings what another has brought stays out."""
    known: dict[Identity, str] = {}
    for name, group in named.items():
        if environment not in group.environments:
            continue
        clash = next((identity for identity in group.objects if identity in known), None)
        if clash is None:
            yield name
            known |= dict.fromkeys(group.objects, name)
        else:
            whose = f"{clash} comes from `{known[clash]}` too; choose one of them there"
            notes[f"`{name}` is no target of `{environment}`: {whose}"] = None


# --- from the plan to an app: written all or nothing, and proved by rendering it beforehand ---


class ImportedRow(Record):
    """One component that was made."""

    name: str
    file: str  # below the app directory
    objects: int
    kinds: tuple[str, ...]  # of its objects
    replaced: bool = False  # there was one of that name before


class Imported(Record):
    """What an import added to an app, and whether the objects stayed equal."""

    components: tuple[ImportedRow, ...]
    folder: str = ""  # of the app they were written to, where it is a new one
    environments: tuple[EnvironmentProof, ...] = ()  # the proof of each; none where the text stayed as it was
    failures: tuple[ImportFailure, ...] = ()  # what could not be imported, and why
    patches: tuple[str, ...] = ()  # their files below the app directory
    notes: tuple[str, ...] = ()
    summary: str = ""  # `207 of 207 objects equal`

    @property
    def ok(self) -> bool:
        """Tell whether everything was imported, and is equal."""
        return not self.failures and not any(proof.differences for proof in self.environments)


def proved(
    written: Imported, proofs: Sequence[EnvironmentProof], failures: Sequence[ImportFailure] = ()
) -> Imported:
    """Give what was written with its proofs, what was left out, and a line on how many objects are equal."""
    left_out = len({failure.component for failure in failures})
    rest = f"; {left_out} component{'s'[: left_out != 1]} could not be imported" if left_out else ""
    text = f"{sum(p.equal for p in proofs)} of {sum(p.objects for p in proofs)} objects equal{rest}"
    return replace(written, environments=tuple(proofs), failures=tuple(failures), summary=text)


def prove(
    objects: Objects, plan: ImportPlan, environments: Sequence[Environment], keep: Path | None
) -> list[EnvironmentProof]:
    """Render the new app in a folder of its own, and compare it with what there was."""
    proofs = []
    with TemporaryDirectory(prefix="mlstack-import-") as folder:
        app = AppDir.create(Path(folder) / "app", "proof")
        write_plan(app, plan)
        placed = {environment.name for environment in plan.environments}
        for place in environments:
            before = [data for by in objects.values() for data in by.get(place.name, ())]
            after: list[Data] = []
            if place.name in placed:
                after = [obj.data for obj in render.load(app, place.name).objects]
            proofs.append(compare(place.name, place.namespace, before, after))
            if keep is not None:
                _keep(keep, place, before, after)
    return proofs


def _keep(folder: Path, place: Environment, before: Sequence[Data], after: Sequence[Data]) -> None:
    """Write both sides of a proof, each in the same order and without what does not count."""
    for side, objects in (("before", before), ("after", after)):
        plain = [comparable(data, place.namespace) for data in objects]
        plain.sort(
            key=lambda data: [str(data["kind"]), *map(str, map(data["metadata"].get, ("namespace", "name")))]
        )
        file = folder / side / f"{place.name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        in_order = (json.loads(json.dumps(data, sort_keys=True)) for data in plain)
        edit.write_files({file: write.to_yaml_documents(in_order)})


def write_app(target: AppDir | Path, name: str, plan: ImportPlan, *, replace: bool) -> Imported:
    """Write an import into an app, or into a new one in a folder; raises as `write_plan`."""
    if isinstance(target, Path):
        with app_lock(target):
            target = AppDir.create(target, component_name(name), registries=(DEFAULT_REGISTRY,))
    return write_plan(target, plan, replace=replace)


def write_plan(app: AppDir, plan: ImportPlan, *, replace: bool = False) -> Imported:
    """Write what an import has worked out, all of it or nothing.

    Raises:
        UsageError: a component is there already, and is not to be replaced.
    """
    with app.locked():
        rows = [_row(app, component, replace=replace) for component in plan.components]
        files: dict[str, bytes | str] = {component.file: component.text for component in plan.components}
        stale = [app.component_files[row.name][0] for row in rows if row.replaced]
        patches = {
            layout.patch_file(environment, component): write.to_yaml_documents(objects)
            for environment, components in plan.patches.items()
            for component, objects in components.items()
        }
        too = _also_deployed(app, plan)
        added = [place for place in plan.environments if place.name not in app.environment_names]
        for place in plan.environments:
            if place in added:
                head = {"apiVersion": API_VERSION, "kind": "Environment"}
                text = write.to_yaml({**head, **to_map(place, ("namespace",))})
                files[layout.environment_file(place.name)] = text
            else:
                edited = _with_targets(app, place, {component.name for component in plan.components})
                files |= {edited.file: edited.text} if edited.changed else {}
        for environment, values in plan.params.items():
            edited = app.edited(layout.environment_params_file(environment), "EnvironmentParams")
            for component, own in values.items():
                edited.set(("components", component), dict(own))
            files[edited.file] = edited.text
        gone = [file for file in stale if file not in files]
        files |= patches
        if plan.package is None:
            app.write(files, gone)
        else:
            new = plan.package
            install_own(app, new.name, new.files, registry=new.registry, beside=files, delete=gone)
        return Imported(components=tuple(rows), patches=tuple(patches), notes=(*plan.notes, *too))


def _also_deployed(app: AppDir, plan: ImportPlan) -> list[str]:
    """Tell which other environments deploy too what is imported for some, as they name no targets."""
    own, new = {place.name for place in plan.environments}, [f"`{row.name}`" for row in plan.components]
    names = [place.name for place in app.environments() if own and not place.targets]
    what = f"deploys {', '.join(new)} too: mlstack env targets"
    return [f"`{name}` {what} {name} NAME chooses" for name in names if name not in own]


def _with_targets(app: AppDir, place: Environment, imported: Set[str]) -> EditedFile:
    """Give the file of an environment that is there already, with the imported components as targets.

    One that deploys everything says so by name, where a component is for others alone.
    """
    edited = app.edited(layout.environment_file(place.name), "Environment")
    if not app.environment(place.name).targets and not imported <= {*place.targets} and place.targets:
        others = imported - {*place.targets}
        edited.set(("targets",), sorted({*app.component_files, *place.targets} - others))
    for target in place.targets:
        if (edited.at(("targets",)) or ()) and target not in edited.at(("targets",)):
            edited.append(("targets",), target)
    return edited


def _row(app: AppDir, component: PlannedComponent, *, replace: bool) -> ImportedRow:
    app.check_component(component.name)
    existing = app.component_files.get(component.name)
    if existing and not replace:
        message = f"there is a component `{component.name}` already"
        raise UsageError(message, where=existing[0], hint="--force replaces it, --module puts it elsewhere")
    check_new_name(component.name, app.component_files, "a component")
    return row(ImportedRow, component, objects=len(component.objects), replaced=existing is not None)


# --- the proof of an import: whether the objects of two sides are equal, and where not ---

_CONFIG_HASH = "mlstack.dev/config-hash"
_OUR_LABELS = {
    *(kube_object.APP_LABEL, kube_object.ENVIRONMENT_LABEL, kube_object.COMPONENT_LABEL),
    *(kube_object.MANAGED_BY_LABEL, kube_object.PART_OF_LABEL, "ksonnet.io/component"),
}


class ProofDifference(Record):
    """One place where the objects before and after an import differ."""

    environment: str
    object: str
    path: str  # empty where one side has no such object
    before: Any = None
    after: Any = None
    note: str = ""  # what kind of difference it is, where that is known


class EnvironmentProof(Record):
    """How the objects of one environment compare."""

    environment: str
    objects: int  # before
    equal: int  # how many of them are the same afterwards
    differences: tuple[ProofDifference, ...] = ()  # what is not, field by field


def compare(
    environment: str, namespace: str, before: Iterable[Data], after: Iterable[Data]
) -> EnvironmentProof:
    """Compare the objects of an environment by identity, as objects and not as text.

    Nulls, `status`, labels that mlstack or ks set, and namespaces of cluster-wide kinds do not count.
    """
    old, new = _by_identity(before, namespace), _by_identity(after, namespace)
    differences: list[ProofDifference] = []
    equal = 0
    for identity in {**old, **new}:
        first, second = old.get(identity, [MISSING]), new.get(identity, [MISSING])
        for pair in zip(first, [*second, *[MISSING] * (len(first) - len(second))], strict=False):
            own = [*_differences(environment, str(identity), *pair)]
            differences += own
            equal += not own
    count = sum(map(len, old.values()))
    return EnvironmentProof(
        environment=environment, objects=count, equal=equal, differences=tuple(differences)
    )


def _by_identity(objects: Iterable[Data], namespace: str) -> dict[Identity, list[Data]]:
    by_identity: dict[Identity, list[Data]] = {}
    for data in objects:
        plain = comparable(data, namespace)
        by_identity.setdefault(identity_of(plain), []).append(plain)
    return by_identity


def comparable(data: Data, namespace: str) -> dict[str, Any]:
    """Give an object without what does not count."""
    is_built_in = Kinds.builtin().lookup(str(data.get("apiVersion")), str(data.get("kind"))) is not None
    plain = _unmarked(kube_object.without_nulls(kube_object.normalised(data, built_in=is_built_in)))
    plain.pop("status", None)
    metadata = dict(mapping(plain.get("metadata")))
    old_labels = mapping(metadata.pop("labels", None)).items()
    labels = {key: value for key, value in old_labels if key not in _OUR_LABELS}
    if name := generated_name(plain):
        metadata["name"] = name
    metadata.pop("generateName", None)
    if labels:
        metadata["labels"] = labels
    metadata["namespace"] = "" if is_cluster_wide(data) else str(metadata.get("namespace") or namespace)
    return {**plain, "metadata": metadata}


def _unmarked(value: Any) -> Any:
    """Give a value without the annotation by which mlstack restarts what reads a changed configuration."""
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    result = {key: _unmarked(item) for key, item in value.items() if key != _CONFIG_HASH}
    if not result.get("annotations", True):
        del result["annotations"]
    return result


def _differences(environment: str, name: str, before: Any, after: Any) -> Iterator[ProofDifference]:
    if before is MISSING or after is MISSING:
        note = "not there after the import" if after is MISSING else "not there before the import"
        yield ProofDifference(environment=environment, object=name, path="", note=note)
        return
    for path, old, new in differing(before, after):
        is_text = isinstance(old, str) and isinstance(new, str) and "\n" in old
        yield ProofDifference(
            environment=environment,
            object=name,
            path=join_path(path),
            before=None if old is MISSING else old,
            after=None if new is MISSING else new,
            note="text of one string differs" if is_text else "",
        )
