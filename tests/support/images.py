"""Images for tests: small ones with several platforms, pushed to a registry."""

from __future__ import annotations

import json
from typing import Any

from mlstack.registries.distribution import MANIFEST, Distribution, canonical_json, digest_of

INDEX = "application/vnd.oci.image.index.v1+json"


def push_image(host: str, name: str, tag: str, *architectures: str, layer: bytes = b"") -> str:
    """Push an image for some architectures, of one without a list of platforms; gives its digest."""
    registry = Distribution(host)
    entries = []
    for architecture in architectures:
        config = json.dumps({"architecture": architecture, "os": "linux"}).encode()
        blobs = (config, layer or f"{name} {architecture}".encode())
        config_at, layer_at = (_descriptor(registry.push_blob(name, data), data) for data in blobs)
        value: dict[str, Any] = {"schemaVersion": 2, "mediaType": MANIFEST}
        value |= {"config": config_at, "layers": [layer_at]}
        if len(architectures) == 1:
            return registry.push_manifest(name, tag, canonical_json(value))
        data = json.dumps(value, indent=1).encode()  # other bytes than we would write
        digest = registry.push_manifest(name, digest_of(data), data)
        platform = {"os": "linux", "architecture": architecture}
        entries.append({**_descriptor(digest, data), "mediaType": MANIFEST, "platform": platform})
    data = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}, indent=2).encode()
    return registry.push_manifest(name, tag, data, media_type=INDEX)


def _descriptor(digest: str, data: bytes) -> dict[str, Any]:
    return {"digest": digest, "size": len(data)}
