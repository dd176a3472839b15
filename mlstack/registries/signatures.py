"""Signatures of packages, by the user's own `cosign`.

What mlstack signs is name, version and digest. Such a signature stands beside the digest in the index of a
registry, and in `mlstack.lock` once the package is installed, so that it is checked again without the
registry. Artifacts of an OCI registry may also be signed in cosign's own way, and are verified there; what
cosign saves of those is kept in the user's cache, so that the registry is not asked again.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from mlstack import disk_cache, programs
from mlstack.app.app import App, RegistryRef, SignaturePolicy
from mlstack.app.chart import CHART_FILE
from mlstack.app.lock import LockedPackage
from mlstack.app.reader import as_overridden
from mlstack.errors import ConfigError, RegistryError
from mlstack.programs import ProgramError
from mlstack.registries.distribution import DIGEST, SCHEME, repository_of, split_address

_TIMEOUT_S = 60.0
_INSTALL = "install cosign 3 (https://docs.sigstore.dev) and make sure it is on the PATH"
_PASSWORD = "COSIGN_PASSWORD"
KEYLESS = "keyless"
"""In place of a private key: sign as whom one is logged in."""
_BUNDLE = b'{"'
_UNPREPARED = (
    "public key",
    "trusted root",
    "fetching",
    "TUF",
    "log query",
)  # it did not come to look at the signature
_UNSIGNED = 10  # cosign's exit status for an artifact without signatures


def _statement(name: str, version: str, digest: str) -> bytes:
    """Give the bytes that are signed: one line, so that a signature fits no other package or version."""
    return f"{name}@{version} {digest}\n".encode()


def policy_of(app: App, registry: str) -> SignaturePolicy | None:
    """Give what an app asks of a registry's packages; nothing when it asks for no signature."""
    return next((policy for policy in app.verify if policy.registry == registry), None)


def check_locked(app: App, locked: LockedPackage, policy: SignaturePolicy, *, root: Path) -> str:
    """Refuse a package that those whom the policy names have not signed.

    Returns:
        The artifact that is signed, which is to hold this content; empty where the content itself is signed.

    Raises:
        ConfigError: a file of the policy is not there.
        RegistryError: it is not signed, or by others; `cosign` is missing, or its registry is away.
    """
    signed, artifact = f"package `{locked.ref}`", _artifact(locked, root)
    asked, by_others = _options(policy, root), False
    if artifact and _is_kept(artifact, asked):
        return artifact
    with TemporaryDirectory(prefix="mlstack-signature-") as folder:
        checks = {}
        if made := _signature(locked, policy, Path(folder)):
            command = ("cosign", "verify-blob", *asked, made, "-")
            checks[command] = _statement(locked.name, locked.version, locked.digest)
        if artifact:
            checks["cosign", "verify", *asked, artifact] = b""
        for command, statement in checks.items():
            try:
                programs.run(command, stdin=statement, timeout_s=_TIMEOUT_S)
                if not statement:
                    _keep(artifact)
                return "" if statement else artifact
            except ProgramError as error:
                reason = _reason(error)
                is_cut_short = error.status is None or any(text in reason for text in _UNPREPARED)
                is_answer = error.status == _UNSIGNED or bool(statement) or "no matching" in reason
                if is_cut_short or not (is_answer or by_others):
                    hint = (
                        _INSTALL if error.status is None else "check the key, the network and docker's login"
                    )
                    raise RegistryError(f"cannot verify {signed}: {reason}", hint=hint) from error
                by_others = by_others or error.status != _UNSIGNED
    if by_others:
        whose = f"by the key `{policy.public_key}`" if policy.public_key else f"by `{policy.identity}`"
        message = f"the signature of {signed} is not {whose}"
        hint = "nothing was changed; ask who keeps the registry, or change `verify` in app.yaml"
        raise RegistryError(message, hint=hint)
    message = f"{signed} is not signed, and app.yaml asks for signatures of registry `{policy.registry}`"
    key = "--key KEY " if policy.public_key else ""
    step = f"its keeper signs with: mlstack registry index DIR --sign {'KEY' if key else KEYLESS}"
    if artifact:
        step = f"its keeper signs with: cosign sign {key}{artifact}"
    elif CHART_FILE.name in locked.files:
        step = "charts are signed in OCI registries alone (no `.prov` is read): helm push, then cosign sign"
    raise RegistryError(message, hint=step)


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
    if not content.startswith(_BUNDLE):
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
        return is_meant and bool(programs.run(command, timeout_s=_TIMEOUT_S))
    return False


def _keep(artifact: str) -> None:
    """Have cosign save an artifact and its signatures in the cache; where it cannot, nothing is kept."""
    if (place := _place(artifact)) is None:
        return
    with suppress(OSError, ProgramError), TemporaryDirectory(dir=place.parent) as folder:
        programs.run(["cosign", "save", "--dir", f"{folder}/copy", artifact], timeout_s=_TIMEOUT_S)
        shutil.rmtree(place, ignore_errors=True)
        Path(folder, "copy").rename(place)


def sign(key: str, *, name: str, version: str, digest: str) -> str:
    """Sign a package version with a private key of cosign; its password is taken from COSIGN_PASSWORD.

    `KEYLESS` in place of the key signs as whom the person, or the workflow of a CI server, is logged in.

    Raises:
        RegistryError: `cosign` is missing or refuses.
    """
    what, statement = f"{name}@{version}", _statement(name, version, digest)
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
        return programs.run(command, settings=password, stdin=statement, timeout_s=_TIMEOUT_S).stdout
    except ProgramError as error:
        hint = f"check the key, and its password in {_PASSWORD}"
        if key == KEYLESS:
            hint = "give a token of your OpenID provider in SIGSTORE_ID_TOKEN, as CI servers do"
        hint = _INSTALL if error.status is None else hint
        raise RegistryError(f"cannot sign `{shown}`: {_reason(error)}", hint=hint) from error


def _reason(error: ProgramError) -> str:
    """Give the reason without what cosign says beside it."""
    return str(error).rpartition("error during command execution: ")[2]
