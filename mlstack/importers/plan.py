"""What an import would write: plain manifests, and patches for what differs between environments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from mlstack.app import layout
from mlstack.app.environment import Environment
from mlstack.dataclass import Record
from mlstack.errors import ConfigError
from mlstack.names import MAX_NAME
from mlstack.objects import masking
from mlstack.objects.kube_object import Data, Identity, Kinds, group_of, same, without_nulls
from mlstack.render.component import check_object
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
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "-", text)[:MAX_NAME].strip("-_")
    return plain or "imported"


def generated_name(data: Any) -> str:
    """Give the name that an object without one gets: the beginning of those that the server would make."""
    metadata = data.get("metadata") if isinstance(data, Mapping) else None
    if not isinstance(metadata, Mapping) or metadata.get("name"):
        return ""
    return str(metadata.get("generateName") or "").rstrip("-.")


def told_of_name(data: Data) -> str:
    """Tell that an object got a name."""
    old = f"{data.get('kind')} with `generateName: {data['metadata']['generateName']}`"
    return f"{old} is called `{generated_name(data)}` now: each apply would have made another"


def told_of(data: Data, component: str) -> Iterator[str]:
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
        remark for new in planned for data in new.objects for remark in told_of(data, new.name)
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
            notes[f"{component}: {told_of_name(plain)}"] = None
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


def object_patch(before: Data, after: Data) -> Data | None:
    """Give the patch of an object that leads to another version of it; None if they are equal."""
    if not (change := difference(before, after)):
        return None
    own = {key: before["metadata"][key] for key in ("name", "namespace") if key in before["metadata"]}
    head = {key: after[key] for key in ("apiVersion", "kind")}
    metadata = own | dict(change.get("metadata", {}))
    return {**head, "metadata": metadata} | change | {"metadata": metadata}


def difference(before: Data, after: Data) -> dict[str, Any]:
    """Give the JSON merge patch that leads from one map to another; empty if they are equal."""
    patch: dict[str, Any] = {}
    for key in (*before, *(key for key in after if key not in before)):
        if key not in after:
            patch[key] = None
        elif key not in before:
            patch[key] = after[key]
        elif not same(before[key], after[key]):
            old, new = before[key], after[key]
            patch[key] = (
                difference(old, new) if isinstance(old, Mapping) and isinstance(new, Mapping) else new
            )
    return patch
