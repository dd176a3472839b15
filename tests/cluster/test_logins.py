"""Who one is by a kubeconfig, and whether the server is trusted: as kubectl has it, with the same file."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.cli import adapters
from mlstack.errors import ClusterError
from mlstack.model.rights import Right
from tests.controlplane.recipes import Programs
from tests.support.certificates import self_signed
from tests.support.cluster import TestCluster

pytestmark = pytest.mark.cluster

Parts = Mapping[str, Any]
Variant = Callable[[TestCluster, Path], tuple[Parts, Parts, Parts]]
"""Gives user, cluster and environment variables of a login; may put files beside the kubeconfig."""


def trusted(cluster: TestCluster, **more: Any) -> Parts:
    ca = base64.b64encode(cluster.ca_pem.encode()).decode()
    return {"server": cluster.server, "certificate-authority-data": ca, **more}


def as_admin(cluster: TestCluster, **more: Any) -> Parts:
    return {"token": cluster.admin.token, **more}


def token_file(cluster: TestCluster, folder: Path) -> tuple[Parts, Parts, Parts]:
    (folder / "token").write_text(f"{cluster.viewer.token}\n")
    return {"tokenFile": "token", "token": cluster.admin.token}, trusted(cluster), {}


def ca_file(cluster: TestCluster, folder: Path) -> tuple[Parts, Parts, Parts]:
    (folder / "ca.pem").write_text(cluster.ca_pem)
    return as_admin(cluster), {"server": f"{cluster.server}/", "certificate-authority": "ca.pem"}, {}


def plugin(cluster: TestCluster, folder: Path) -> tuple[Parts, Parts, Parts]:
    version = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": cluster.viewer.token}}
    program = folder / "plugin"
    program.write_text(f"#!/bin/sh\necho WARNING: old >&2\necho '{json.dumps(answer)}'\n")
    program.chmod(0o700)
    command = {"apiVersion": version, "command": "./plugin", "interactiveMode": "Never"}
    return {"exec": command}, trusted(cluster), {}


def another_authority(cluster: TestCluster, folder: Path) -> tuple[Parts, Parts, Parts]:
    (folder / "ca.pem").write_text(self_signed("127.0.0.1").certificate)
    return as_admin(cluster), {"server": cluster.server, "certificate-authority": "ca.pem"}, {}


VARIANTS: dict[str, Variant] = {
    "token": lambda c, _: (as_admin(c), trusted(c), {}),
    "wrong token": lambda c, _: ({"token": "wrong"}, trusted(c), {}),
    "token file": token_file,
    "authority beside": ca_file,
    "another authority": another_authority,
    "no authority": lambda c, _: (as_admin(c), {"server": c.server}, {}),
    "unverified": lambda c, _: (as_admin(c), {"server": c.server, "insecure-skip-tls-verify": True}, {}),
    "server name": lambda c, _: (as_admin(c), trusted(c, **{"tls-server-name": "kubernetes"}), {}),
    "wrong server name": lambda c, _: (as_admin(c), trusted(c, **{"tls-server-name": "example.org"}), {}),
    "plug-in": plugin,
    "as": lambda c, _: (as_admin(c, **{"as": "viewer"}), trusted(c), {}),
    "as groups": lambda c, _: (
        as_admin(c, **{"as": "ada", "as-groups": ["dev", "system:masters"], "as-user-extra": {"a/b": ["c"]}}),
        trusted(c),
        {},
    ),
    "as without right": lambda c, _: ({"token": c.viewer.token, "as": "admin"}, trusted(c), {}),
    "provider": lambda c, _: ({"auth-provider": {"name": "azure"}}, trusted(c), {}),
    "proxy for others": lambda c, _: (as_admin(c), trusted(c), {"HTTPS_PROXY": "http://127.0.0.1:1"}),
    "dead proxy": lambda c, _: (as_admin(c), trusted(c, **{"proxy-url": "http://127.0.0.1:1"}), {}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_kubeconfig_means_what_it_means_to_kubectl(
    name: str, minikube: TestCluster, programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, cluster, environ = VARIANTS[name](minikube, tmp_path)
    file = tmp_path / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
    }
    file.write_text(json.dumps(content))
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    assert ours(str(file)) == kubectls(programs, str(file))


def ours(file: str) -> str:
    """Say whether we may create a ConfigMap; nothing if the server cannot be asked."""
    right = Right(verb="create", group="", resource="configmaps", namespace="default")
    try:
        return "yes" if adapters.connect("test", file).may(right) else "no"
    except ClusterError:
        return ""


def kubectls(programs: Programs, file: str) -> str:
    """Let kubectl say it."""
    asked = [str(programs.kubectl), "--kubeconfig", file, "--context", "test", "auth", "can-i"]
    run = subprocess.run(
        [*asked, "create", "configmaps", "-n", "default"],
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return run.stdout.strip()
