"""What a keeper of packages does before others get them: index, signatures, a look at what updates break."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from mlstack import programs
from mlstack.app import document
from mlstack.app.chart import is_chart_folder
from mlstack.app.document import API_VERSION, to_map
from mlstack.app.package import PackageFolder
from mlstack.app.params import spelling_table
from mlstack.app.prototype import Example, Package, Prototype
from mlstack.app.versions import IndexPackage, RegistryIndex, joined
from mlstack.errors import ConfigError, NotFoundError, RegistryError, UsageError
from mlstack.names import check_registry_name
from mlstack.programs import ProgramError
from mlstack.registries.registry import INDEX_FILE, PACKAGE_FILES, FolderTree, contents, read_index
from mlstack.yaml import write

if TYPE_CHECKING:
    from mlstack.objects.kube_object import KubeObject

# --- write the index of a registry from its package folders ---


class BuiltIndex(NamedTuple):
    """The index of a registry, made anew."""

    text: str  # of `registry.yaml`
    overwritten: tuple[str, ...]  # `NAME@VERSION` whose content is another one than the index had


def build_index(folder: Path, *, name: str = "", key: str = "") -> BuiltIndex:
    """Make `registry.yaml` for a registry's folder, from what its packages hold now.

    Name, summary, addresses and retired names are taken from the index that is there. Older versions stay
    as long as their folder does.

    Args:
        folder: the registry's folder.
        name: of the registry; else the one that its index has, else its folder's.
        key: a private key of cosign that signs the versions which have no signature.

    Raises:
        RegistryError: there is no package, or the name cannot be a registry's.
        SchemaError: a package is wrong.
    """
    before_index = _known(folder, name)
    entries = [kept for package in before_index.packages.values() for kept in _kept(package, folder)]
    for path in package_folders(folder):
        relative = Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
        entries.append(PackageFolder.read(path, source=path.name).entry(relative))
    joint = joined(entries)
    if key:
        joint = {name: _with_signatures(package, key) for name, package in joint.items()}
    index = replace(before_index, packages=joint)
    text = "# The packages are derived from their folders: mlstack rewrites them.\n" + index_text(index)
    before = contents(before_index)
    overwritten = (
        f"{name}@{version}"
        for name, digests in contents(index).items()
        for version, digest in digests.items()
        if before.get(name, {}).get(version, digest) != digest
    )
    return BuiltIndex(text, tuple(overwritten))


def index_text(index: RegistryIndex) -> str:
    """Write an index as `registry.yaml`."""
    head = {"apiVersion": API_VERSION, "kind": "Registry"}
    return write.to_yaml(head | to_map(index, always=("name", "packages")))


def package_folders(folder: Path) -> list[Path]:
    """Give the package folders of a registry, sorted: its own, or those in `prototypes` beside it.

    Raises:
        NotFoundError: there is no such folder.
        RegistryError: there is no package.
    """
    if not folder.is_dir():
        raise NotFoundError(f"no folder `{folder}`", hint="relative paths start at the working directory")
    source = folder if _has_packages(folder) else folder.parent / "prototypes"
    if not _has_packages(source):
        message = f"no package folder in `{folder}`, nor in `prototypes` beside it"
        raise RegistryError(message, hint="a package is a folder with package.yaml, or a chart")
    return sorted(folder for folder in source.glob("*") if is_package_folder(folder))


def is_package_folder(folder: Path) -> bool:
    """Tell whether a folder holds a package, or a chart, which is one too."""
    return any((folder / name).is_file() for name in PACKAGE_FILES)


def refuse_chart(folder: Path, why: str, hint: str) -> None:
    """Refuse a chart where only a package of ours is served.

    Raises:
        UsageError: it is one; `hint` says what serves.
    """
    if is_chart_folder(folder):
        raise UsageError(f"`{folder}` is a Helm chart, {why}", hint=hint)


def _with_signatures(package: IndexPackage, key: str) -> IndexPackage:
    versions = []
    for entry in package.versions:
        facts = {"name": package.name, "version": entry.version, "digest": entry.digest}
        versions.append(replace(entry, signature=entry.signature or sign(key, **facts)))
    return replace(package, versions=tuple(versions))


def _has_packages(folder: Path) -> bool:
    return any(map(is_package_folder, folder.glob("*")))


def _known(folder: Path, name: str) -> RegistryIndex:
    source = folder.resolve().name  # `.` has none
    index = RegistryIndex(name=name or source)
    if (folder / INDEX_FILE).is_file():
        index = read_index(FolderTree(folder.resolve()), source=source, name=source)
        index = replace(index, name=name or index.name)
    try:
        check_registry_name(index.name)
    except UsageError as error:
        raise RegistryError(error.message, hint="give one: mlstack registry index DIR --name NAME") from error
    return index


def _kept(package: IndexPackage, folder: Path) -> Iterator[IndexPackage]:
    """Give the package with each of the versions whose folder still holds that version."""
    for version in package.versions:
        place = folder / version.path
        if is_package_folder(place):
            head = PackageFolder.read(place, source=version.path).head
            if (head.name, head.version) == (package.name, version.version):
                yield replace(package, versions=(version,))


# --- sign packages, by the user's own `cosign` ---
# What mlstack signs is name, version and digest. Such a signature stands beside the digest in the index of a
# registry, and in `mlstack.lock` once the package is installed, so that it is checked again without the
# registry.

COSIGN_S = 60.0
GET_COSIGN = "install cosign 3 (https://docs.sigstore.dev) and make sure it is on the PATH"
KEYLESS = "keyless"  # in place of a private key: sign as whom one is logged in
_PASSWORD = "COSIGN_PASSWORD"


def signed_line(name: str, version: str, digest: str) -> bytes:
    """Give the bytes that are signed: one line, so that a signature fits no other package or version."""
    return f"{name}@{version} {digest}\n".encode()


def sign(key: str, *, name: str, version: str, digest: str) -> str:
    """Sign a package version with a private key of cosign; its password is taken from COSIGN_PASSWORD.

    `KEYLESS` in place of the key signs as whom the person, or the workflow of a CI server, is logged in.

    Raises:
        RegistryError: `cosign` is missing or refuses.
    """
    what, statement = f"{name}@{version}", signed_line(name, version, digest)
    if key != KEYLESS:
        return _signed(key, ["sign-blob", "--new-bundle-format=false", "-"], what, statement).decode().strip()
    with TemporaryDirectory(prefix="mlstack-signature-") as folder:
        bundle = Path(folder, "bundle")
        _signed(key, ["sign-blob", f"--bundle={bundle}", "-"], what, statement)
        return base64.b64encode(json.dumps(json.loads(bundle.read_bytes())).encode()).decode()


def sign_artifact(key: str, artifact: str) -> None:
    """Sign an artifact in an OCI registry as cosign does, as `sign`; the signature lies beside it."""
    _signed(key, ["sign", artifact], artifact, b"")


def _signed(key: str, what: list[str], shown: str, statement: bytes) -> bytes:
    options = ["--yes"]
    if key != KEYLESS:
        options += [f"--key={key}", "--tlog-upload=false", "--use-signing-config=false"]
    command = ["cosign", what[0], *options, *what[1:]]
    password = {_PASSWORD: os.environ.get(_PASSWORD, "")}  # else it takes stdin for one
    try:
        return programs.run(command, settings=password, stdin=statement, timeout_s=COSIGN_S).stdout
    except ProgramError as error:
        hint = f"check the key, and its password in {_PASSWORD}"
        if key == KEYLESS:
            hint = "give a token of your OpenID provider in SIGSTORE_ID_TOKEN, as CI servers do"
        hint = GET_COSIGN if error.status is None else hint
        raise RegistryError(f"cannot sign `{shown}`: {reason_of(error)}", hint=hint) from error


def reason_of(error: ProgramError) -> str:
    """Give the reason without what cosign says beside it."""
    return str(error).rpartition("error during command execution: ")[2]


# --- whether those who have an earlier version of a package come through an update to a later one ---


class UpgradeFault(NamedTuple):
    """What an update breaks; a `warning` is what users should know."""

    prototype: str
    message: str
    example: str = ""  # what it was seen with; empty for what is declared
    severity: str = "error"


def upgrade_faults(before: Package, after: Package) -> Iterator[UpgradeFault]:
    """Compare two versions of a package as their users meet them: names, parameters, objects of the examples.

    The examples are those of the earlier version.
    """
    names = {name for new in after.prototypes.values() for name in (new.name, *new.aliases)}
    for name, old in before.prototypes.items():
        for alias in old.aliases:
            if alias not in names:
                yield UpgradeFault(name, f"`{alias}`, another name of it, is gone")
        heirs = (new for new in after.prototypes.values() if name in new.aliases)
        new = after.prototypes.get(name) or next(heirs, None)
        if new is None:
            yield UpgradeFault(name, "the prototype is gone, and no other has its name as an alias")
            continue
        for spelled in (name, *(alias for alias in old.aliases if alias in new.aliases)):
            yield from _spellings(old, new, spelled)
        yield from _declarations(old, new)
        for example in old.examples.values():
            yield from _example(old, new, example)


def _spellings(old: Prototype, new: Prototype, name: str) -> Iterator[UpgradeFault]:
    """Tell which names of parameters are gone, of those that the prototype has under one of its names."""
    known, under = spelling_table(new.called(name).params), f" under the name `{name}`"
    for spelling, own in spelling_table(old.called(name).params).items():
        if spelling in known or (name != old.name and spelling in spelling_table(old.params)):
            continue
        if name != old.name:
            yield UpgradeFault(old.name, f"the parameter `{spelling}`{under} is gone")
        elif spelling == own:
            hint = "keep it as an alias, or deprecate it"
            yield UpgradeFault(old.name, f"the parameter `{spelling}` is gone: {hint}")
        else:
            yield UpgradeFault(old.name, f"`{spelling}`, another name of `{own}`, is gone")


def _declarations(old: Prototype, new: Prototype) -> Iterator[UpgradeFault]:
    for name, param in new.params.items():
        was = next((old.params[own] for own in (name, *param.aliases) if own in old.params), None)
        if param.required and (was is None or not was.required) and not param.has_default:
            yield UpgradeFault(old.name, f"the parameter `{name}` is required now")
        if was is not None and was.has_default and was.default != param.default:
            change = f"{document.shown(was.default)} → {document.shown(param.default)}"
            yield UpgradeFault(old.name, f"the default of `{name}` changes: {change}", severity="warning")


_Key = tuple[str, str, str, str]  # group, kind, namespace, name


def _example(old: Prototype, new: Prototype, example: Example) -> Iterator[UpgradeFault]:
    try:
        before = _rendered(old, example)
    except ConfigError:  # it never worked
        return
    try:
        after = _rendered(new, example)
    except ConfigError as error:
        reason = error.message.replace("\n", " ")
        yield UpgradeFault(old.name, f"its parameters do not render any more: {reason}", example.name)
        return
    for key, obj in before.items():
        for message, severity in _effects(obj, after.get(key), [*before.values()]):
            yield UpgradeFault(old.name, message, example.name, severity)


def _rendered(prototype: Prototype, example: Example) -> dict[_Key, KubeObject]:
    from mlstack.render.trial import PrototypeTrial  # what tries a prototype is loaded for that alone

    objects = PrototypeTrial(prototype).objects(example.params, example=example)
    return {(obj.group, obj.kind, obj.namespace or "", obj.name): obj for obj in objects}


def _effects(
    old: KubeObject, new: KubeObject | None, others: Sequence[KubeObject]
) -> Iterator[tuple[str, str]]:
    """Tell what becomes of an object: what is wrong with that, and how bad it is."""
    from mlstack.objects.managed_fields import FieldChange
    from mlstack.readiness.evaluate import needs_new_run

    named = f"{old.kind} `{old.name}`"
    if new is None and old.kind == "PersistentVolumeClaim":
        yield f"the claim `{old.name}` is dropped, and with it what was stored", "error"
    elif new is None:
        yield f"{named} goes from the cluster", "warning"
    if new is None:
        return
    for claim in sorted(_claims(old) - _claims(new)):
        yield f"{named}: the claim template `{claim}` is dropped", "error"
    if fields := fixed_fields(old, new):
        what = "the selector is renamed: " if "`spec.selector`" in fields else ""
        yield f"{named}: {what}{', '.join(fields)} cannot change while the object exists", "error"
    elif _size(new) < _size(old):
        yield f"{named}: it shrinks, which no claim can", "error"
    elif old.kind == "Service" and _loses_pods(old, new, others):
        change = f"{_written(_selector(old))} → {_written(_selector(new))}"
        yield f"{named}: the selector changes, and the pods that run lose its requests: {change}", "error"
    changes = _changes(old.data.get("spec"), new.data.get("spec"), "spec")
    changed = [FieldChange(path=path, action="changed", old=was, new=now) for path, was, now in changes]
    if why := needs_new_run(old.data, changed):
        yield f"{named} is deleted and made anew: {why}", "warning"


def _claims(obj: KubeObject) -> set[str]:
    spec = obj.data.get("spec")
    templates = spec.get("volumeClaimTemplates") if isinstance(spec, Mapping) else None
    return {str(template["metadata"]["name"]) for template in templates or ()}


def fixed_fields(old: KubeObject, new: KubeObject) -> list[str]:
    """Give, in backticks, the fields whose change the API server refuses; each of a spec tried by itself."""
    from mlstack.testing.kinds import update_faults

    key = (old.group, old.kind)
    fields = dict.fromkeys(cause.field for cause in update_faults(key, old.data, new.data))
    if "spec" in fields:
        before, after = old.data["spec"], new.data["spec"]
        changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        alone = {name: {**old.data, "spec": {**before, name: after.get(name)}} for name in changed}
        fields = {f"spec.{name}": None for name in changed if [*update_faults(key, old.data, alone[name])]}
    return [f"`{field}`" for field in fields]


def _size(obj: KubeObject) -> float:
    """Give the bytes that a claim asks for; 0 of anything else."""
    if obj.kind != "PersistentVolumeClaim":
        return 0
    from mlstack.objects.resources import quantity

    asked = ((obj.data.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return float(quantity(asked.get("storage")) or 0)


def _selector(obj: KubeObject) -> dict[str, str]:
    return dict((obj.data.get("spec") or {}).get("selector") or {})


def _written(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) or "none"


def _loses_pods(old: KubeObject, new: KubeObject, others: Sequence[KubeObject]) -> bool:
    """Tell whether pods of the earlier version, as far as they are known, are selected no more."""
    before, after = _selector(old).items(), _selector(new).items()
    if before == after or not before:
        return False
    templates = (((obj.data.get("spec") or {}).get("template") or {}) for obj in others)
    labels = ((template.get("metadata") or {}).get("labels") or {} for template in templates)
    selected = [pod.items() for pod in labels if before <= pod.items()]
    return not selected or not all(after <= pod for pod in selected)


def _changes(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Give the paths at which two maps differ with what stands there, lists as a whole."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            yield from _changes(old.get(name), new.get(name), f"{path}.{name}")
    elif old != new:
        yield path, old, new
