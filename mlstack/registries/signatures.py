"""Signatures of packages, by the user's own `cosign`.

What mlstack signs is name, version and digest. Such a signature stands beside the digest in the index of a
registry, and in `mlstack.lock` once the package is installed, so that it is checked again without the
registry. Artifacts of an OCI registry may also be signed in cosign's own way, and are verified there.
"""

from __future__ import annotations

import os
from pathlib import Path

from mlstack import programs
from mlstack.app.app import App, RegistryRef, SignaturePolicy
from mlstack.app.lock import LockedPackage
from mlstack.app.reader import as_overridden
from mlstack.errors import ConfigError, RegistryError
from mlstack.programs import ProgramError
from mlstack.registries.distribution import DIGEST, SCHEME, repository_of, split_address

_TIMEOUT_S = 60.0
_INSTALL = "install cosign 3 (https://docs.sigstore.dev) and make sure it is on the PATH"
_PASSWORD = "COSIGN_PASSWORD"
_UNSIGNED = 10  # cosign's exit status for an artifact without signatures


def _statement(name: str, version: str, digest: str) -> bytes:
    """Give the bytes that are signed: one line, so that a signature fits no other package or version."""
    return f"{name}@{version} {digest}\n".encode()


def policy_of(app: App, registry: str) -> SignaturePolicy | None:
    """Give what an app asks of a registry's packages; nothing when it asks for no signature."""
    return next((policy for policy in app.verify if policy.registry == registry), None)


def check_locked(app: App, locked: LockedPackage, policy: SignaturePolicy, *, root: Path) -> str:
    """Refuse a package that the policy's key has not signed.

    Returns:
        The artifact that is signed, which is to hold this content; empty where the content itself is signed.

    Raises:
        ConfigError: the key is not there.
        RegistryError: it is not signed, or by another key; `cosign` is missing, or its registry is away.
    """
    key = root / policy.public_key
    if not key.is_file():
        hint = "put cosign's public key there: cosign generate-key-pair writes it as cosign.pub"
        raise ConfigError(
            f"there is no key `{policy.public_key}` to verify with", where="app.yaml", hint=hint
        )
    signed, artifact = f"package `{locked.ref}`", _artifact(locked, root)
    options = [f"--key={key}", "--insecure-ignore-tlog=true"]
    checks = {}
    if locked.signature:
        command = ("cosign", "verify-blob", *options, f"--signature={locked.signature}", "-")
        checks[command] = _statement(locked.name, locked.version, locked.digest)
    if artifact:
        checks["cosign", "verify", *options, artifact] = b""
    by_other_key = False
    for command, statement in checks.items():
        try:
            programs.run(command, stdin=statement, timeout_s=_TIMEOUT_S)
            return "" if statement else artifact
        except ProgramError as error:
            reason = _reason(error)
            is_cut_short = error.status is None or "public key" in reason
            is_answer = error.status == _UNSIGNED or "no matching" in reason or bool(statement)
            if is_cut_short or not (is_answer or by_other_key):
                hint = _INSTALL if error.status is None else "check the key, the network and docker's login"
                raise RegistryError(f"cannot verify {signed}: {reason}", hint=hint) from error
            by_other_key = by_other_key or error.status != _UNSIGNED
    if by_other_key:
        message = f"the signature of {signed} is not by the key `{policy.public_key}`"
        hint = "nothing was changed; ask who keeps the registry, or change `verify` in app.yaml"
        raise RegistryError(message, hint=hint)
    message = f"{signed} is not signed, and app.yaml asks for signatures of registry `{policy.registry}`"
    step = f"cosign sign --key KEY {artifact}" if artifact else "mlstack registry index DIR --sign KEY"
    raise RegistryError(message, hint=f"its keeper signs with: {step}")


def _artifact(locked: LockedPackage, root: Path) -> str:
    """Give what cosign calls a package's artifact in an OCI registry; empty for what is none."""
    ref = as_overridden(RegistryRef(name=locked.registry, address=locked.source), root=root)
    if not (ref.address.startswith(SCHEME) and DIGEST.fullmatch(locked.revision)):
        return ""
    host, path = split_address(ref.address)
    return f"{host}/{repository_of(path, locked.name)}@{locked.revision}"


def sign(key: str, *, name: str, version: str, digest: str) -> str:
    """Sign a package version with a private key of cosign; its password is taken from COSIGN_PASSWORD.

    Raises:
        RegistryError: `cosign` is missing or refuses.
    """
    what = ["sign-blob", "--new-bundle-format=false", "-"]
    return _signed(key, what, f"{name}@{version}", _statement(name, version, digest)).decode().strip()


def sign_artifact(key: str, artifact: str) -> None:
    """Sign an artifact in an OCI registry as cosign does, with a private key; the signature lies beside it.

    Raises:
        RegistryError: `cosign` is missing or refuses, or the registry does.
    """
    _signed(key, ["sign", artifact], artifact, b"")


def _signed(key: str, what: list[str], shown: str, statement: bytes) -> bytes:
    options = ["--yes", f"--key={key}", "--tlog-upload=false", "--use-signing-config=false"]
    command = ["cosign", what[0], *options, *what[1:]]
    password = {_PASSWORD: os.environ.get(_PASSWORD, "")}  # else it takes stdin for one
    try:
        return programs.run(command, settings=password, stdin=statement, timeout_s=_TIMEOUT_S).stdout
    except ProgramError as error:
        hint = _INSTALL if error.status is None else f"check the key, and its password in {_PASSWORD}"
        raise RegistryError(f"cannot sign `{shown}`: {_reason(error)}", hint=hint) from error


def _reason(error: ProgramError) -> str:
    """Give the reason without what cosign says beside it."""
    return str(error).rpartition("error during command execution: ")[2]
