"""Signatures of packages, by the user's own `cosign`; what is signed is name, version and digest.

A signature stands beside the digest in the index of a registry, and in `mlstack.lock` once the package is
installed, so that it can be checked again without the registry.
"""

from __future__ import annotations

from pathlib import Path

from mlstack import programs
from mlstack.app.app import App, LockedPackage, SignaturePolicy
from mlstack.errors import ConfigError, RegistryError
from mlstack.programs import ProgramError

_TIMEOUT_S = 60.0
_INSTALL = "install cosign 3 (https://docs.sigstore.dev) and make sure it is on the PATH"


def statement(name: str, version: str, digest: str) -> bytes:
    """Give the bytes that are signed: one line, so that a signature fits no other package or version."""
    return f"{name}@{version} {digest}\n".encode()


def policy_of(app: App, registry: str) -> SignaturePolicy | None:
    """Give what an app asks of a registry's packages; nothing when it asks for no signature."""
    return next((policy for policy in app.verify if policy.registry == registry), None)


def check_locked(app: App, locked: LockedPackage, policy: SignaturePolicy, *, root: Path) -> None:
    """Refuse a package that the policy's key has not signed.

    Raises:
        ConfigError: the key is not there.
        RegistryError: it is not signed, or by another key, or `cosign` is missing.
    """
    key = root / policy.public_key
    if not key.is_file():
        hint = "put cosign's public key there: cosign generate-key-pair writes it as cosign.pub"
        raise ConfigError(
            f"there is no key `{policy.public_key}` to verify with", where="app.yaml", hint=hint
        )
    signed = f"package `{locked.ref}`"
    if not locked.signature:
        message = f"{signed} is not signed, and app.yaml asks for signatures of registry `{policy.registry}`"
        hint = "its keeper signs with: mlstack registry index DIR --sign cosign.key"
        raise RegistryError(message, hint=hint)
    command = ["cosign", "verify-blob", "--key", str(key), "--insecure-ignore-tlog=true"]
    command += [f"--signature={locked.signature}", "-"]
    try:
        programs.run(
            command, stdin=statement(locked.name, locked.version, locked.digest), timeout_s=_TIMEOUT_S
        )
    except ProgramError as error:
        if error.status is None:
            raise RegistryError(f"cannot verify {signed}: {error}", hint=_INSTALL) from error
        message = f"the signature of {signed} is not by the key `{policy.public_key}`"
        hint = "nothing was changed; ask who keeps the registry, or change `verify` in app.yaml"
        raise RegistryError(message, hint=hint) from error


def sign(key: Path, *, name: str, version: str, digest: str) -> str:
    """Sign a package version with a private key of cosign; its password is taken from COSIGN_PASSWORD.

    Raises:
        RegistryError: `cosign` is missing or refuses.
    """
    command = ["cosign", "sign-blob", "--yes", f"--key={key}", "--tlog-upload=false"]
    command += ["--use-signing-config=false", "--new-bundle-format=false", "-"]
    try:
        answer = programs.run(command, stdin=statement(name, version, digest), timeout_s=_TIMEOUT_S)
    except ProgramError as error:
        hint = _INSTALL if error.status is None else "check the key, and its password in COSIGN_PASSWORD"
        raise RegistryError(f"cannot sign `{name}@{version}`: {error}", hint=hint) from error
    return answer.stdout.decode().strip()
