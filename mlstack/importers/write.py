"""From the plan of an import to an app: written all or nothing, and proved by rendering it beforehand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from mlstack.app import edit, layout
from mlstack.app.app import PackageRef, RegistryRef
from mlstack.app.app_dir import AppDir
from mlstack.app.document import API_VERSION, join_path, to_map
from mlstack.app.edit import EditedFile, app_lock
from mlstack.app.environment import Environment
from mlstack.app.package import FetchedPackage, PackageFolder, digest, file_digests
from mlstack.app.versions import Lock, LockedPackage, LockedRegistry
from mlstack.dataclass import Record, row
from mlstack.errors import UsageError
from mlstack.importers.plan import (
    ImportFailure,
    ImportPlan,
    Objects,
    PlannedComponent,
    PlannedPackage,
    component_name,
    generated_name,
    identity_of,
    is_cluster_wide,
    mapping,
)
from mlstack.names import check_new_name
from mlstack.objects import kube_object
from mlstack.objects.kube_object import Data, Identity, Kinds
from mlstack.objects.managed_fields import MISSING
from mlstack.registries.publish import build_index
from mlstack.registries.registry import DEFAULT_REGISTRY, INDEX_FILE
from mlstack.registries.resolver import APP
from mlstack.render import render
from mlstack.render.patches import differing
from mlstack.yaml import write


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


def summary(proofs: Sequence[EnvironmentProof], failures: Sequence[ImportFailure]) -> str:
    """Say in a line how many objects are equal, and what was left out."""
    left_out = len({failure.component for failure in failures})
    rest = f"; {left_out} component{'s'[: left_out != 1]} could not be imported" if left_out else ""
    return f"{sum(p.equal for p in proofs)} of {sum(p.objects for p in proofs)} objects equal{rest}"


def prove(
    objects: Objects, plan: ImportPlan, environments: Sequence[Environment], keep: Path | None
) -> list[EnvironmentProof]:
    """Render the new app in a folder of its own, and compare it with what there was."""
    proofs = []
    with TemporaryDirectory(prefix="mlstack-import-") as folder:
        app = AppDir.create(Path(folder) / "app", "proof")
        with app.locked():
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
    if isinstance(target, AppDir):
        with target.locked():
            return write_plan(target, plan, replace=replace)
    app_name = component_name(name)
    with app_lock(target):
        app = AppDir.create(target, app_name, registries=(DEFAULT_REGISTRY,))
    with app.locked():
        return write_plan(app, plan)


def write_plan(app: AppDir, plan: ImportPlan, *, replace: bool = False) -> Imported:
    """Write what an import has worked out, all of it or nothing; the app is locked.

    Raises:
        UsageError: a component is there already, and is not to be replaced.
    """
    rows = [_row(app, component, replace=replace) for component in plan.components]
    files: dict[str, bytes | str] = {component.file: component.text for component in plan.components}
    stale = [app.component_files[row.name][0] for row in rows if row.replaced]
    patches = {
        layout.patch_file(environment, component): write.to_yaml_documents(objects)
        for environment, components in plan.patches.items()
        for component, objects in components.items()
    }
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
    if plan.package is None:
        app.write({**files, **patches}, gone)
    else:
        _install(app, plan.package, {**files, **patches}, gone)
    return Imported(components=tuple(rows), patches=tuple(patches), notes=plan.notes)


_PACKAGES = "packages"


def _install(
    app: AppDir, package: PlannedPackage, beside: Mapping[str, bytes | str], gone: Sequence[str]
) -> None:
    """Write a package into the folder `packages/` of the app, its own registry; all in one write."""
    ref = RegistryRef(name=package.registry, address=f"./{_PACKAGES}", protocol="directory")
    addresses = {registry.name: registry.address for registry in app.app.registries}
    folder = app.root / _PACKAGES
    if addresses.get(ref.name, ref.address) != ref.address or (folder / package.name).exists():
        message = f"there is a package `{package.name}`, or a registry `{ref.name}` elsewhere, already"
        raise UsageError(message, hint=f"remove {_PACKAGES}/{package.name}, or import without --as-prototype")
    files = {PurePosixPath(path): text.encode() for path, text in package.files.items()}
    written = {f"{_PACKAGES}/{package.name}/{path}": data for path, data in files.items()}
    head = PackageFolder(files, source=package.name).head
    locked = LockedPackage(
        full_name=f"{ref.name}/{head.name}",
        version=head.version,
        digest=digest(files),
        source=ref.address,
        environments=(APP,),
        files=file_digests(files),
    )
    registries = [registry for registry in app.lock.registries if registry.name != ref.name]
    lock = Lock(
        registries=(*registries, LockedRegistry(name=ref.name, address=ref.address)),
        packages=(*app.lock.packages, locked),
    )
    app.install(
        lock,
        [FetchedPackage(locked=locked, files=files)],
        entered={APP: (PackageRef(registry=ref.name, name=head.name),)},
        registry=None if ref.name in addresses else ref,
        beside={**written, f"{_PACKAGES}/{INDEX_FILE}": _index(folder, package), **beside},
        delete=gone,
    )


def _index(folder: Path, package: PlannedPackage) -> str:
    with TemporaryDirectory(prefix="mlstack-import-") as place:
        copy = Path(place) / folder.name
        if folder.is_dir():
            shutil.copytree(folder, copy)
        edit.write_files({copy / package.name / path: text for path, text in package.files.items()})
        return build_index(copy, name=package.registry).text


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
