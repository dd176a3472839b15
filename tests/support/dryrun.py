"""Ask a real API server what it says of an object: server-side apply, strict, nothing stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mlstack.objects.kube_object import Kinds
from tests.support.api import ApiRefusedError
from tests.support.cluster import TestCluster
from tests.support.waiting import wait_until

_QUERY = "fieldManager=test&force=true&fieldValidation=Strict&dryRun=All"


def refusal(cluster: TestCluster, data: Mapping[str, Any], kinds: Kinds) -> str | None:
    """Give the words with which the API server refuses an object, None if it takes it.

    Args:
        cluster: whom to ask.
        data: the object; without a namespace of its own it is meant for `default`.
        kinds: built-in kinds and those of the definitions that are installed.
    """
    try:
        answer(cluster, data, kinds)
    except ApiRefusedError as error:
        if error.status in (401, 404, 429) or error.status > 500:
            raise
        return str(error.body.get("message") or error.body)
    return None


def answer(cluster: TestCluster, data: Mapping[str, Any], kinds: Kinds) -> list[str]:
    """Give the API server's warnings about an object that it takes; one that it refuses is an error."""
    address = f"{_address(data, kinds)}?{_QUERY}"
    return cluster.api.request_with_warnings(
        "PATCH", address, data, content_type="application/apply-patch+yaml"
    )[1]


def _address(data: Mapping[str, Any], kinds: Kinds) -> str:
    kind = kinds.lookup(data["apiVersion"], data["kind"])
    assert kind is not None, f"{data['apiVersion']} {data['kind']}"
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    place = f"namespaces/{data['metadata'].get('namespace') or 'default'}/" if kind.namespaced else ""
    return f"{root}/{place}{kind.plural}/{quote(str(data['metadata']['name']), safe='')}"


def install(cluster: TestCluster, files: Iterable[Path]) -> None:
    """Install CustomResourceDefinitions and wait until their kinds are served."""
    flags = [word for file in files for word in ("-f", str(file))]
    if not flags:
        return
    apply = ("apply", "--server-side", "--force-conflicts", *flags)
    if cluster.kubectl(*apply, check=False).returncode != 0:
        cluster.kubectl(*apply)  # a busy server publishes so many schemas so slowly that it gave up on one
    wait = ("wait", "--for=condition=Established", *flags, "--timeout=180s")
    wait_until(  # kubectl fails where a definition has no conditions yet
        lambda: cluster.kubectl(*wait, check=False).returncode == 0, what="definitions", timeout_s=200
    )


def remove(*definitions: tuple[TestCluster, Iterable[Path]]) -> None:
    """Remove CustomResourceDefinitions; the servers, which take seconds for each, do it at the same time."""
    flags = [
        (cluster, [word for file in files for word in ("-f", str(file))]) for cluster, files in definitions
    ]
    for wait in ("false", "true"):
        for cluster, words in flags:
            if words:
                cluster.kubectl("delete", *words, "--ignore-not-found", f"--wait={wait}")
