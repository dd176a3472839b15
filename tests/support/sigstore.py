"""What Sigstore gives whoever signs without a key: certificate, log entry, bundle; made here, offline.

Authority, logs and signer are numbers of this module, of which `cosign trusted-root create` is told.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from mlstack import programs
from tests.support.certificates import (
    ECDSA_SHA256,
    bits,
    integer,
    name,
    number,
    pem,
    public_key,
    self_signed,
    sign,
    tlv,
)

_AUTHORITY = self_signed("fulcio.test")
_CT_LOG, _LOG, _SIGNER = number("ct log"), number("transparency log"), number("signer")
_TIME_S = 1_700_000_000  # 2023, when the certificate was good
_FROM = "start-time=2020-01-01T00:00:00Z"


def trusted_root(folder: Path) -> Path:
    """Write the file that makes cosign trust the authority and the logs of this module."""
    files = {"fulcio.pem": _AUTHORITY.certificate}
    files |= {
        f"{log}.pub": pem("PUBLIC KEY", public_key(key)) for log, key in (("ct", _CT_LOG), ("rekor", _LOG))
    }
    for file, text in files.items():
        (folder / file).write_text(text)
    services = [f"--fulcio=url=https://fulcio.test,certificate-chain={folder}/fulcio.pem"]
    services += [f"--ctfe=url=https://ct.test,public-key={folder}/ct.pub,{_FROM}"]
    services += [f"--rekor=url=https://rekor.test,public-key={folder}/rekor.pub,{_FROM}"]
    programs.run(["cosign", "trusted-root", "create", *services, "--out", str(folder / "root.json")])
    return folder / "root.json"


def bundle(message: bytes, *, identity: str, issuer: str) -> bytes:
    """Sign a message as somebody of whom an OpenID provider knows the mail address."""
    certificate, signature = _certificate(identity, issuer), sign(_SIGNER, message)
    digest = hashlib.sha256(message)
    signed = {
        "messageDigest": {"algorithm": "SHA2_256", "digest": _text(digest.digest())},
        "signature": _text(signature),
    }
    facts = _log_facts(_hashed(certificate, signature, digest.hexdigest()))
    return _bundle(certificate, facts, messageSignature=signed)


def sign_artifact(artifact: str, folder: Path, *, identity: str, issuer: str, as_bundle: bool) -> None:
    """Sign an artifact of an OCI registry as such a somebody, and lay the signature beside it.

    As cosign 3 does, a bundle around a statement; or as cosign 2 did, the claims with their signature.
    """
    name, _, digest = artifact.partition("@")
    certificate = _certificate(identity, issuer)
    if as_bundle:
        files = {"payload": _attested(certificate, digest)}
    else:
        claims = {"identity": {"docker-reference": name}, "image": {"docker-manifest-digest": digest}}
        critical = {**claims, "type": "cosign container image signature"}
        payload = _canonical({"critical": critical, "optional": None})
        signature = sign(_SIGNER, payload)
        facts = _log_facts(_hashed(certificate, signature, hashlib.sha256(payload).hexdigest()))
        promised = {"SignedEntryTimestamp": _text(sign(_LOG, _canonical(facts))), "Payload": facts}
        files = {
            "payload": payload,
            "signature": _text(signature).encode(),
            "certificate": pem("CERTIFICATE", certificate).encode(),
            "rekor-response": _canonical({"rekorBundle": promised}),
        }
    for file, content in files.items():
        (folder / file).write_bytes(content)
    options = [f"--{file}={folder / file}" for file in files]
    programs.run(["cosign", "attach", "signature", *options, artifact])


def _attested(certificate: bytes, digest: str) -> bytes:
    """Make the bundle that says of an artifact that it is signed: a statement in an envelope."""
    subject = {"digest": {"sha256": digest.removeprefix("sha256:")}, "annotations": {}}
    statement = {"_type": "https://in-toto.io/Statement/v1", "subject": [subject], "predicate": {}}
    payload = _canonical({**statement, "predicateType": "https://sigstore.dev/cosign/sign/v1"})
    kind = "application/vnd.in-toto+json"
    signature = sign(_SIGNER, f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload)
    envelope = {"payload": _text(payload), "payloadType": kind, "signatures": [{"sig": _text(signature)}]}
    hashes = {
        name: {"algorithm": "sha256", "value": hashlib.sha256(content).hexdigest()}
        for name, content in (("envelopeHash", _canonical(envelope)), ("payloadHash", payload))
    }
    verifier = _text(pem("CERTIFICATE", certificate).encode())
    spec = {**hashes, "signatures": [{"signature": _text(signature), "verifier": verifier}]}
    facts = _log_facts({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec})
    return _bundle(certificate, facts, dsseEnvelope=envelope)


def _bundle(certificate: bytes, facts: Mapping[str, object], **signed: object) -> bytes:
    material = {"certificate": {"rawBytes": _text(certificate)}, "tlogEntries": [_log_entry(facts)]}
    kind = "application/vnd.dev.sigstore.bundle.v0.3+json"
    return json.dumps({"mediaType": kind, "verificationMaterial": material, **signed}).encode()


def _certificate(identity: str, issuer: str) -> bytes:
    """Make what Fulcio makes: the identity, who vouches for it, and the promise of a certificate log."""
    extensions = [
        _extension("551d0f", bytes.fromhex("03020780")),  # digital signatures
        _extension("551d25", tlv(0x30, bytes.fromhex("06082b06010505070303"))),  # of code
        _extension("551d11", tlv(0x30, tlv(0x81, identity.encode()))),
        _extension("2b0601040183bf300101", issuer.encode()),
        _extension("2b0601040183bf300108", tlv(0x0C, issuer.encode())),
    ]
    authority = public_key(_AUTHORITY.subject[1])
    begin = b"\0\0" + (_TIME_S * 1000).to_bytes(8, "big") + b"\0\1" + hashlib.sha256(authority).digest()
    before = _body(extensions)
    promise = sign(_CT_LOG, begin + len(before).to_bytes(3, "big") + before + b"\0\0")
    entry = b"\0" + hashlib.sha256(public_key(_CT_LOG)).digest() + begin[2:10] + b"\0\0\4\3" + _sized(promise)
    promises = _extension("2b06010401d679020402", tlv(0x04, _sized(_sized(entry))))
    body = _body([*extensions, promises])
    return tlv(0x30, body + ECDSA_SHA256 + bits(sign(_AUTHORITY.subject[1], body)))


def _body(extensions: list[bytes]) -> bytes:
    validity = tlv(0x30, tlv(0x17, b"200101000000Z") + tlv(0x17, b"491231235959Z"))
    head = tlv(0xA0, integer(2)) + integer(4711) + ECDSA_SHA256 + name(_AUTHORITY.subject[0]) + validity
    more = tlv(0xA3, tlv(0x30, b"".join(extensions)))
    return tlv(0x30, head + name("signer") + public_key(_SIGNER) + more)


def _extension(identifier: str, value: bytes) -> bytes:
    return tlv(0x30, tlv(0x06, bytes.fromhex(identifier)) + tlv(0x04, value))


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def _hashed(certificate: bytes, signature: bytes, digest: str) -> Mapping[str, object]:
    """Make the entry of a log for a signature of bytes with a digest."""
    signed = {
        "content": _text(signature),
        "publicKey": {"content": _text(pem("CERTIFICATE", certificate).encode())},
    }
    spec = {"data": {"hash": {"algorithm": "sha256", "value": digest}}, "signature": signed}
    return {"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": spec}


def _log_facts(entry: Mapping[str, object]) -> dict[str, object]:
    """Make what Rekor promises to keep: an entry, the first of the log."""
    log_id = hashlib.sha256(public_key(_LOG)).hexdigest()
    return {"body": _text(_canonical(entry)), "integratedTime": _TIME_S, "logID": log_id, "logIndex": 0}


def _log_entry(facts: Mapping[str, object]) -> dict[str, object]:
    """Make what Rekor answers: the entry, alone in its log, with promise, proof and checkpoint."""
    body = base64.b64decode(str(facts["body"]))
    entry = json.loads(body)
    log_id, root = hashlib.sha256(public_key(_LOG)), _text(hashlib.sha256(b"\0" + body).digest())
    note = f"rekor.test - 1\n1\n{root}\n"
    by = _text(log_id.digest()[:4] + sign(_LOG, note.encode()))
    return {
        "logIndex": "0",
        "logId": {"keyId": _text(log_id.digest())},
        "kindVersion": {"kind": entry["kind"], "version": entry["apiVersion"]},
        "integratedTime": str(_TIME_S),
        "inclusionPromise": {"signedEntryTimestamp": _text(sign(_LOG, _canonical(facts)))},
        "inclusionProof": {
            "logIndex": "0",
            "rootHash": root,
            "treeSize": "1",
            "hashes": [],
            "checkpoint": {"envelope": f"{note}\n— rekor.test {by}\n"},
        },
        "canonicalizedBody": _text(body),
    }


def _canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
