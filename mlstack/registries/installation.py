"""What an app has to get: versions chosen for its requirements, what is missing fetched, and signed."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from mlstack import disk_cache, programs
from mlstack.app import layout
from mlstack.app.app import Component, PackageRef, RegistryRef, SignaturePolicy, parse_package_ref
from mlstack.app.app_dir import AppDir
from mlstack.app.edit import write_files
from mlstack.app.files import CHART_FILE
from mlstack.app.package import FetchedPackage, PackageFolder, Vendor, digest, file_digests
from mlstack.app.prototype import Package, Prototype
from mlstack.app.versions import KSONNET_PREFIX, IndexPackage, Lock, LockedPackage, LockedRegistry, newest
from mlstack.dataclass import Record
from mlstack.errors import ConfigError, MlstackError, NotFoundError, RegistryError, UsageError
from mlstack.names import fits, not_found
from mlstack.programs import ProgramError
from mlstack.registries.distribution import DIGEST, SCHEME, repository_of, split_address
from mlstack.registries.publish import COSIGN_S, GET_COSIGN, KEYLESS, build_index, reason_of, signed_line
from mlstack.registries.registry import (
    INDEX_FILE,
    as_overridden,
    indexes,
    is_bundled,
    open_registry,
    refusing,
)
from mlstack.registries.resolver import APP, AppCatalog, Choice, Requirements, select

Entered = Mapping[str, tuple[PackageRef, ...]]
"""By scope (`*` for the app) requirements that a command brings."""
_MOST_ROUNDS = 20


class Installation(Record):
    """What is written, or to be: the lock, and packages that `vendor/` lacks."""

    before: Lock
    lock: Lock
    fetched: tuple[FetchedPackage, ...]
    notes: tuple[str, ...] = ()  # what registries say against versions


def requirements_of(
    app: AppDir, entered: Entered | None = None, *, removed: Entered | None = None
) -> Requirements:
    """Give what an app asks for: `app.yaml`, its environments, and versions that components name.

    Args:
        app: the app directory.
        entered: what a command adds; in place of what asks for the same package, but for exact versions.
        removed: what a command takes out.
    """
    entered, removed = entered or {}, removed or {}
    own = [ref for ref in app.app.packages if ref not in removed.get(APP, ())]
    for ref in entered.get(APP, ()):
        own = [old for old in own if ref.is_exact or old.is_exact or old.full_name != ref.full_name]
        own += [] if ref in own else [ref]
    environments = {}
    for name in app.environment_names:
        gone = removed.get(name, ())
        scope = {ref.full_name: ref for ref in app.environment(name).packages if ref not in gone}
        scope |= {ref.full_name: ref for ref in entered.get(name, ())}
        if scope:
            environments[name] = tuple(scope.values())
    return Requirements(app=(*own, *_named_by_components(app, own)), environments=environments)


def _named_by_components(app: AppDir, required: Iterable[PackageRef]) -> list[PackageRef]:
    """Give installed versions that components name themselves: they must not go unasked."""
    installed = {locked.ref for locked in app.lock.packages} - set(required)
    named = set()
    for name in app.component_files:
        with suppress(MlstackError):  # a broken component is an error where it is used
            component = app.component(name)
            if isinstance(component, Component) and "@" in component.prototype:
                named.add(component.prototype.rpartition("/")[0].rpartition("/")[2])
    refs = [ref for ref in installed if f"{ref.name}@{ref.version}" in named]
    return sorted(refs, key=str)


def plan(
    app: AppDir,
    requirements: Requirements,
    catalog: AppCatalog,
    *,
    free: Collection[tuple[str, str]] = (),
    force: Collection[str] = (),
) -> Installation:
    """Work out what an app gets; nothing is written.

    Packages whose scope and full name are `free` may move to a newer version than the locked one; those whose
    full name is in `force` are fetched again even when they are there.

    Raises:
        ConfigError: requirements contradict each other, or a package needs another mlstack.
        NotFoundError: no such registry, package or version.
        RegistryError: a registry does not answer, or what it has is wrong.
    """
    locked = {(package.full_name, package.version): package for package in app.lock.packages}
    choices, fetched = _selected(app, requirements, catalog, locked, free=free, force=force)
    for package in fetched.values():
        check_signed(app, package.locked)
    for choice in choices:
        if any(choice.package == package for _, package in free):
            catalog.check_unchanged(choice.package, choice.version)
    locked |= {key: package.locked for key, package in fetched.items()}
    packages = _as_chosen(locked, choices)
    _check(app, packages, tuple(fetched.values()))
    registries = catalog.locked_registries(app.lock.registries, {package.registry for package in packages})
    return Installation(
        before=app.lock,
        lock=replace(app.lock, registries=tuple(registries), packages=packages),
        fetched=tuple(fetched.values()),
        notes=(*catalog.notes, *(note for c in choices for note in catalog.warnings(c.package, c.version))),
    )


def change(
    app: AppDir,
    entered: Entered,
    *,
    free: Collection[tuple[str, str]] = (),
    force: Collection[str] | None = (),
) -> Installation:
    """Bring new requirements into an app, with all that follows; all of it or nothing is written.

    Args:
        app: the app directory.
        entered: the requirements; versions may be branches, tags, commits or digests.
        free: scopes and full names of packages that may move on.
        force: full names of those that are fetched again, as they are now if their content has changed;
            None for all, as they are locked.

    Raises:
        ConfigError, NotFoundError, RegistryError: as of `plan`; nothing is written.
    """
    made_for: object = None
    for _ in range(_MOST_ROUNDS):
        registries, before = app.app.registries, app.lock
        # What was fetched serves again, unless others have changed what it was fetched for.
        if made_for != (registries, before.packages):
            made_for = registries, before.packages
            catalog = AppCatalog(registries, before.packages, root=app.root)
            catalog.let_in_changed(force or ())
        exact = {scope: tuple(map(catalog.exact, refs)) for scope, refs in entered.items()}
        requirements = requirements_of(app, exact)
        forced = {locked.full_name for locked in before.packages} if force is None else force
        installation = plan(app, requirements, catalog, free=free, force=forced)  # it takes its time
        with app.locked():
            now = (app.app.registries, app.lock, requirements_of(app, exact))
            if now != (registries, before, requirements):
                continue  # others have edited meanwhile
            app.install(installation.lock, installation.fetched, entered=exact)
        return installation
    message = "packages and registries were changed by other commands meanwhile; nothing was installed"
    raise ConfigError(message, where=layout.APP_FILE, hint="try again")


def _selected(
    app: AppDir,
    requirements: Requirements,
    catalog: AppCatalog,
    locked: Mapping[tuple[str, str], LockedPackage],
    *,
    free: Collection[tuple[str, str]],
    force: Collection[str],
) -> tuple[Sequence[Choice], dict[tuple[str, str], FetchedPackage]]:
    """Select versions and fetch those that lack, until what the index says of them is what they say."""
    preferred, named = preferences(app.lock.packages, free), {package for _, package in free}
    for _ in range(_MOST_ROUNDS):
        choices = select(requirements, catalog, preferred=preferred)
        fetched = {}
        for choice in choices:
            installed = locked.get((choice.package, choice.version))
            if choice.package in force or _is_missing(app, installed, named):
                fetched[choice.package, choice.version] = catalog.fetch(choice.package, choice.version)
        before = {key: catalog.requires(*key) for key in fetched}
        if all(catalog.says(package) == before[key] for key, package in fetched.items()):
            break
    return choices, fetched


def preferences(
    locked: Iterable[LockedPackage], free: Collection[tuple[str, str]] = ()
) -> dict[tuple[str, str], str]:
    """Give the versions to stay at, by scope and full name."""
    packages = list(locked)
    stay = {(APP, name): package.version for name, package in newest(packages).items()}
    stay |= {(scope, p.full_name): p.version for p in packages for scope in p.environments}
    return {key: version for key, version in stay.items() if key not in free}


def _relocked(app: AppDir, requirements: Requirements, locked: Iterable[LockedPackage]) -> Lock:
    """Give the lock that requirements lead to among what is locked, no registry asked."""
    versions = {(package.full_name, package.version): package for package in locked}
    catalog = AppCatalog(app.app.registries, versions.values(), root=app.root, offline=True)
    choices = select(requirements, catalog, preferred=preferences(versions.values()))
    for choice in choices:
        if (choice.package, choice.version) not in versions:
            raise NotFoundError(f"`{choice.package}@{choice.version}` is not locked")
    packages = _as_chosen(versions, choices)
    used = {package.registry for package in packages}
    registries = (registry for registry in app.lock.registries if registry.name in used)
    return Lock(registries=tuple(registries), packages=packages)


def _is_missing(app: AppDir, locked: LockedPackage | None, free: Collection[str]) -> bool:
    """Tell whether `vendor/` lacks a version; one that may be looked at closely is also read."""
    if locked is None:
        return True
    folder = app.root / locked.folder
    if not folder.is_dir() or not all((folder / path).is_file() for path in locked.files):
        return True  # a command that was killed may have brought some files of it
    if not free or locked.full_name in free:
        app.vendor.folder(locked)
    return False


def _check(app: AppDir, packages: Sequence[LockedPackage], fetched: Sequence[FetchedPackage]) -> None:
    """Read packages whole, so that what cannot be used or removed again is never written into an app."""
    vendor = Vendor(app.root, packages, app.store, fetched=fetched)
    by_ref = {locked.ref: locked for locked in packages}
    for package in fetched:
        locked = by_ref[package.locked.ref]
        with refusing(f"package `{locked.ref}` is refused"):
            read = vendor.package(locked)
        if (read.name, read.version) != (locked.name, locked.version):
            message = f"package `{locked.name}@{locked.version}` calls itself `{read.name}@{read.version}`"
            hint = "tell who keeps the registry: `mlstack registry index` writes what its packages say"
            raise RegistryError(message, where=f"{locked.full_name}/package.yaml", hint=hint)


def _as_chosen(
    known: Mapping[tuple[str, str], LockedPackage], choices: Iterable[Choice]
) -> tuple[LockedPackage, ...]:
    return tuple(
        replace(known[c.package, c.version], requires=c.requires, environments=c.environments)
        for c in choices
    )


def refuse_stale(app: AppDir) -> None:
    """Refuse a lock that does not say what the app's files ask for.

    Raises:
        ConfigError: with what differs.
    """
    try:
        lock = _relocked(app, requirements_of(app), app.lock.packages)
        before, after = ({(p.ref, p.environments) for p in side.packages} for side in (app.lock, lock))
        differs = ", ".join(sorted({f"`{ref}`" for ref, _ in before ^ after}))
    except (ConfigError, NotFoundError) as error:
        differs = error.message
    if differs:
        message = f"mlstack.lock is not up to date with the app's requirements: {differs}"
        raise ConfigError(message, where="mlstack.lock", hint="mlstack pkg install")


def remove(app: AppDir, removed: Entered, *, gone: Collection[LockedPackage] = ()) -> tuple[str, ...]:
    """Take requirements out of an app's files, with what nothing asks for then; give what is gone.

    `gone` goes in any case. No registry is asked.
    """
    left = tuple(package for package in app.lock.packages if package not in gone)
    requirements = requirements_of(app, removed=removed)

    def is_there(ref: PackageRef) -> bool:
        return any(p.full_name == ref.full_name and fits(p.version, ref.version) for p in left)

    # What was never installed is no reason to keep another from being removed.
    scopes = requirements.environments.items()
    environments = {name: tuple(filter(is_there, refs)) for name, refs in scopes}
    installed = Requirements(app=tuple(filter(is_there, requirements.app)), environments=environments)
    folders = app.install(_relocked(app, installed, left), removed=removed)
    return tuple(str(package.ref) for package in folders)


def covers(named: PackageRef, ref: PackageRef) -> bool:
    """Tell whether `ref` is what `named` means; without a version it means all of a package."""
    return named.full_name == ref.full_name and named.version in ("", ref.version)


def leave_environment(app: AppDir, texts: Sequence[str], environment: str) -> tuple[str, ...]:
    """Take requirements out of an environment's file, so that the app's count; give what is gone."""
    own = app.environment_chain(environment)[-1].environment.packages
    wanted = [full_ref(app, text, offline=True) for text in texts]
    for named in wanted:
        if not any(covers(named, ref) for ref in own):
            message = f"environment `{environment}` does not ask for package `{named}` itself"
            hint = f"mlstack env describe {environment}"
            raise not_found(message, named.full_name, [ref.full_name for ref in own], hint=hint)
    return remove(app, {environment: tuple(ref for ref in own if any(covers(ask, ref) for ask in wanted))})


def full_ref(app: AppDir, text: str, *, offline: bool = False) -> PackageRef:
    """Read a package as typed; its registry may be left out where only one has such a package.

    With `offline` it is looked for among the installed ones alone.

    Raises:
        UsageError: it is no package.
        NotFoundError: no registry has it, or several.
    """
    name, at, version = text.partition("@")
    if "/" in name:
        return parse_package_ref(text)
    parse_package_ref(f"any/{text}")
    owners = sorted({locked.registry for locked in app.lock.packages if locked.name == name})
    notes: list[str] = []
    if not owners and not offline:
        every = [*indexes(app.app.registries, root=app.root, notes=notes)]
        owners = [registry for registry, index in every if name in index.packages]
    if len(owners) == 1:
        return parse_package_ref(f"{owners[0]}/{name}{at}{version}")
    if owners:
        listed = ", ".join(f"`{owner}/{name}`" for owner in owners)
        message = f"`{name}` could be any of the packages {listed}"
        raise NotFoundError(message, hint="write the registry in front")
    if offline:
        raise NotFoundError(f"no installed package `{name}`", hint="mlstack pkg list --installed")
    is_registry = name in [registry for registry, _ in every]
    hint = f"`{name}` is a registry: mlstack registry describe {name}" if is_registry else "mlstack pkg list"
    names = [own for _, index in every if not is_registry for own in index.packages]
    raise not_found(f"no registry has a package `{name}`", name, names, hint=hint)


def read_package(app: AppDir, ref: PackageRef) -> tuple[Package, LockedPackage, tuple[str, ...]]:
    """Give a package with its prototypes, where it comes from, and what its registry says against it.

    What is installed is read from `vendor/`; of several versions the usual one, if none is named.
    """
    installed = [
        p for p in app.lock.packages if p.full_name == ref.full_name and fits(p.version, ref.version)
    ]
    if installed:
        usual = app.vendor.plain().get(ref.full_name)
        locked = usual if usual in installed else newest(installed)[ref.full_name]
        return app.vendor.package(locked), locked, ()
    catalog = AppCatalog(app.app.registries, (), root=app.root)
    exact = catalog.exact(ref)
    if not exact.is_exact:
        version = next(iter(catalog.versions(ref.full_name, ref.version)), None)
        if version is None:
            versions = ", ".join(catalog.versions(ref.full_name, ""))
            message = f"`{ref.full_name}` has no version `{ref.version}`"
            raise NotFoundError(message, hint=f"known versions: {versions or 'none'}")
        exact = replace(exact, version=version)
    choices = select(Requirements(app=(exact,)), catalog, preferred={})
    fetched = {(c.package, c.version): catalog.fetch(c.package, c.version) for c in choices}
    packages = _as_chosen({key: package.locked for key, package in fetched.items()}, choices)
    vendor = Vendor(app.root, packages, app.store, fetched=tuple(fetched.values()))
    locked = next(package for package in packages if package.ref == exact)
    with refusing(f"package `{exact}` is refused"):
        package = vendor.package(locked)
    return package, locked, tuple(catalog.warnings(exact.full_name, exact.version))


# --- the package that every app has at hand ---

BUILT_IN = "starter"
"""Package of the bundled registry that a component installs which is made from it."""


def built_in_package(app: AppDir) -> tuple[PackageRef, IndexPackage] | None:
    """Give the built-in package while it is not installed, in apps that know the bundled registry."""
    for ref in app.app.registries:
        full_name = f"{ref.name}/{BUILT_IN}"
        if is_bundled(ref.address) and full_name not in {locked.full_name for locked in app.lock.packages}:
            package = open_registry(ref, root=app.root).index.package(BUILT_IN)
            return PackageRef(registry=ref.name, name=BUILT_IN), package
    return None


def built_in_prototype(app: AppDir, name: str) -> tuple[Prototype, PackageRef] | None:
    """Give the built-in prototype of that name or alias, and its package, while that is not installed."""
    short = name.removeprefix(KSONNET_PREFIX)
    if built_in := built_in_package(app):
        ref, package = built_in
        for prototype in package.prototypes:
            if short in (*prototype.names, *(f"{ref.full_name}/{known}" for known in prototype.names)):
                return read_package(app, ref)[0].prototypes[prototype.name], ref
    return None


# --- packages of the app's own, in a registry that is a folder of it ---

_PACKAGES = "packages"


def install_own(
    app: AppDir,
    name: str,
    files: Mapping[str, str],
    *,
    registry: str,
    beside: Mapping[str, bytes | str],
    delete: Sequence[str],
) -> None:
    """Write a package into the folder `packages/` of the app, its own registry, and install it; in one write.

    `files` are by path in the package's folder; `beside` others of the app, `delete` those that go.
    """
    ref = RegistryRef(name=registry, address=f"./{_PACKAGES}", protocol="directory")
    addresses = {known.name: known.address for known in app.app.registries}
    folder = app.root / _PACKAGES
    if addresses.get(ref.name, ref.address) != ref.address or (folder / name).exists():
        message = f"there is a package `{name}`, or a registry `{ref.name}` elsewhere, already"
        raise UsageError(message, hint=f"remove {_PACKAGES}/{name}, or import without --as-prototype")
    content = {PurePosixPath(path): text.encode() for path, text in files.items()}
    written = {f"{_PACKAGES}/{name}/{path}": data for path, data in content.items()}
    head = PackageFolder(content, source=name).head
    locked = LockedPackage(
        full_name=f"{ref.name}/{head.name}",
        version=head.version,
        digest=digest(content),
        source=ref.address,
        environments=(APP,),
        files=file_digests(content),
    )
    others = (known for known in app.lock.registries if known.name != ref.name)
    own = LockedRegistry(name=ref.name, address=ref.address)
    app.install(
        replace(app.lock, registries=(*others, own), packages=(*app.lock.packages, locked)),
        [FetchedPackage(locked=locked, files=content)],
        entered={APP: (PackageRef(registry=ref.name, name=head.name),)},
        registry=None if ref.name in addresses else ref,
        beside={**written, f"{_PACKAGES}/{INDEX_FILE}": _index(folder, name, files, registry), **beside},
        delete=delete,
    )


def _index(folder: Path, name: str, files: Mapping[str, str], registry: str) -> str:
    with TemporaryDirectory(prefix="mlstack-import-") as place:
        copy = Path(place) / folder.name
        if folder.is_dir():
            shutil.copytree(folder, copy)
        write_files({copy / name / path: text for path, text in files.items()})
        return build_index(copy, name=registry).text


# --- signatures, verified by the user's own `cosign` ---
# Of the content, as the index has it, or of the artifact in an OCI registry, in cosign's own way. What cosign
# saves of those is kept in the user's cache, so that the registry is not asked again.

_UNSIGNED = 10  # cosign's exit status for an artifact without signatures
_UNPREPARED = ("public key", "trusted root", "fetching", "TUF", "log query")  # it did not come to look


def check_signed(app: AppDir, locked: LockedPackage) -> str | None:
    """Refuse a package that those whom `app.yaml` names for its registry have not signed.

    Returns:
        The artifact that is signed, which is to hold this content; empty where the content itself is signed,
        None where nobody asks for a signature.

    Raises:
        ConfigError: a file of the policy is not there.
        RegistryError: it is not signed, or by others; `cosign` is missing, or its registry is away.
    """
    policy = next((policy for policy in app.app.verify if policy.registry == locked.registry), None)
    if policy is None:
        return None
    artifact, asked, by_others = _artifact(locked, app.root), _options(policy, app.root), False
    if artifact and _is_kept(artifact, asked):
        return artifact
    with TemporaryDirectory(prefix="mlstack-signature-") as folder:
        checks = {}
        if option := _signature(locked, policy, Path(folder)):
            line = signed_line(locked.name, locked.version, locked.digest)
            checks["cosign", "verify-blob", *asked, option, "-"] = line
        if artifact:
            checks["cosign", "verify", *asked, artifact] = b""
        for command, line in checks.items():
            try:
                programs.run(command, stdin=line, timeout_s=COSIGN_S)
                if not line:
                    _keep(artifact)
                return "" if line else artifact
            except ProgramError as error:
                reason = reason_of(error)
                is_cut_short = error.status is None or any(text in reason for text in _UNPREPARED)
                is_answer = error.status == _UNSIGNED or bool(line) or "no matching" in reason
                if is_cut_short or not (is_answer or by_others):
                    hint = "check the key, the network and docker's login" if error.status else GET_COSIGN
                    message = f"cannot verify package `{locked.ref}`: {reason}"
                    raise RegistryError(message, hint=hint) from error
                by_others = by_others or error.status != _UNSIGNED
    raise _not_signed(locked, policy, artifact, by_others=by_others)


def _not_signed(
    locked: LockedPackage, policy: SignaturePolicy, artifact: str, *, by_others: bool
) -> RegistryError:
    if by_others:
        whose = f"by the key `{policy.public_key}`" if policy.public_key else f"by `{policy.identity}`"
        message = f"the signature of package `{locked.ref}` is not {whose}"
        hint = "nothing was changed; ask who keeps the registry, or change `verify` in app.yaml"
        return RegistryError(message, hint=hint)
    key = "KEY" if policy.public_key else KEYLESS
    hint = f"its keeper signs with: mlstack registry index DIR --sign {key}"
    if artifact:
        hint = f"its keeper signs with: cosign sign {'--key KEY ' if policy.public_key else ''}{artifact}"
    elif CHART_FILE.name in locked.files:
        hint = "charts are signed in OCI registries alone (no `.prov` is read): helm push, then cosign sign"
    asks = f"app.yaml asks for signatures of registry `{policy.registry}`"
    return RegistryError(f"package `{locked.ref}` is not signed, and {asks}", hint=hint)


def _options(policy: SignaturePolicy, root: Path) -> list[str]:
    """Give what asks cosign for the signature of those whom a policy names."""
    for name, file in (("key", policy.public_key), ("trusted root", policy.trusted_root)):
        if file and "://" not in file and not (root / file).is_file():
            hint = "put cosign's public key there: cosign generate-key-pair writes it as cosign.pub"
            hint = hint if name == "key" else "cosign trusted-root create --out FILE writes it"
            raise ConfigError(f"there is no {name} `{file}` to verify with", where="app.yaml", hint=hint)
    if policy.public_key:
        key = policy.public_key if "://" in policy.public_key else root / policy.public_key
        return [f"--key={key}", "--insecure-ignore-tlog=true"]
    trusted = [f"--trusted-root={root / policy.trusted_root}"] if policy.trusted_root else []
    identity = [f"--certificate-identity={policy.identity}", f"--certificate-oidc-issuer={policy.issuer}"]
    return [*identity, *trusted]


def _signature(locked: LockedPackage, policy: SignaturePolicy, folder: Path) -> str:
    """Give cosign's option for the signature of a package's content; empty where none is of use.

    With a key that is the signature alone; without one it is cosign's bundle: certificate and log entry too.
    """
    content = base64.b64decode(locked.signature)
    if not content.startswith(b'{"'):
        return f"--signature={locked.signature}" if locked.signature and policy.public_key else ""
    (folder / "bundle").write_bytes(content)
    return f"--bundle={folder / 'bundle'}"


def _artifact(locked: LockedPackage, root: Path) -> str:
    """Give what cosign calls a package's artifact in an OCI registry; empty for what is none."""
    ref = as_overridden(RegistryRef(name=locked.registry, address=locked.source), root=root)
    if not (ref.address.startswith(SCHEME) and DIGEST.fullmatch(locked.revision)):
        return ""
    host, path = split_address(ref.address)
    return f"{host}/{repository_of(path, locked.name)}@{locked.revision}"


def _place(artifact: str) -> Path | None:
    """Give where the cache keeps what cosign saved of an artifact; None where there is no cache."""
    folder = disk_cache.of_user(os.environ).subfolder("signatures")
    return folder / artifact.rpartition(":")[2] if folder else None


def _is_kept(artifact: str, asked: list[str]) -> bool:
    """Tell whether the cache has the artifact with signatures by those who are asked for."""
    if (place := _place(artifact)) is None or not place.is_dir():
        return False
    with suppress(OSError, ValueError, LookupError, TypeError, ProgramError):  # then its registry is asked
        images = json.loads((place / "index.json").read_bytes())["manifests"]
        is_meant = images[0]["digest"] == artifact.rpartition("@")[2]
        command = ["cosign", "verify", *asked, "--local-image", str(place)]
        return is_meant and bool(programs.run(command, timeout_s=COSIGN_S))
    return False


def _keep(artifact: str) -> None:
    """Have cosign save an artifact and its signatures in the cache; where it cannot, nothing is kept."""
    if (place := _place(artifact)) is None:
        return
    with suppress(OSError, ProgramError), TemporaryDirectory(dir=place.parent) as folder:
        programs.run(["cosign", "save", "--dir", f"{folder}/copy", artifact], timeout_s=COSIGN_S)
        shutil.rmtree(place, ignore_errors=True)
        Path(folder, "copy").rename(place)
