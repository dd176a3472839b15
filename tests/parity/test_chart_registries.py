"""Chart repositories and charts in OCI registries, on loopback."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.support.builders import Tree, read_tree, write_tree
from tests.support.charts import PLATFORM, STRICT
from tests.support.cli import Runner
from tests.support.oci import real_registry
from tests.support.serving import served
from tests.support.tools import tool


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def packed(name: str, tree: Tree, *, version: str = "") -> bytes:
    """Give a chart as helm packs it: gzip, with a folder around the files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in tree.items():
            content = dedent(str(text))
            if version and path == "Chart.yaml":
                content = content.replace("1.2.0", version)
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size = len(content.encode())
            archive.addfile(member, io.BytesIO(content.encode()))
    return buffer.getvalue()


def release(file: str, data: bytes, **facts: Any) -> dict[str, Any]:
    return {"urls": [file], "digest": hashlib.sha256(data).hexdigest(), "description": "A chart", **facts}


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[str]:
    """A chart repository with `platform` 1.2.0 and 1.10.0, `strict`, a library, and an old chart."""
    folder = tmp_path / "repository"
    archives = {f"platform-{v}.tgz": packed("platform", PLATFORM, version=v) for v in ("1.2.0", "1.10.0")}
    archives["strict.tgz"] = packed("strict", STRICT)
    versions = [
        release(f"platform-{version}.tgz", archives[f"platform-{version}.tgz"], version=version)
        for version in ("1.2.0", "1.10.0")
    ]
    strict = release("strict.tgz", archives["strict.tgz"], version="0.1.0", deprecated=True)
    library = release("lib.tgz", b"", version="1.0.0", type="library")
    index = {"apiVersion": "v1", "entries": {"platform": versions, "strict": [strict], "lib": [library]}}
    write_tree(folder, {"index.yaml": json.dumps(index), **archives})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    with served(server):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def app(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Path:
    run.ok("init shop --skip-default-registries")
    monkeypatch.chdir(tmp_path / "shop")
    return tmp_path / "shop"


@pytest.mark.parametrize("suffix", ["", "/", "/index.yaml"])
def test_r1_an_address_of_charts_is_known_as_such(
    run: Runner, app: Path, repository: str, suffix: str
) -> None:
    run.ok(f"registry add charts {repository}{suffix}")
    (row,) = run("registry list -o json").json["registries"]
    assert row["protocol"] == "helm"


def test_r5_a_chart_repository_offers_packages_pinned_and_restored(
    run: Runner, app: Path, repository: str
) -> None:
    run.ok(f"registry add charts {repository}")
    rows = run("pkg list -o json").json["packages"]
    assert [(row["package"], row["version"]) for row in rows] == [
        ("charts/platform", "1.10.0"),
        ("charts/strict", "0.1.0"),
    ]
    run.ok("pkg install charts/platform@^1.2")
    assert "strict@0.1.0` is deprecated" in run("pkg install charts/strict").err
    lock = (app / "mlstack.lock").read_text()
    assert 'version: "1.10.0"' in lock
    before = read_tree(app / "vendor")
    assert "charts/platform@1.10.0/charts/cache/values.yaml" in before
    for path in sorted((app / "vendor").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    run.ok("pkg install")
    assert (read_tree(app / "vendor"), (app / "mlstack.lock").read_text()) == (before, lock)
    assert "replicas: integer, default 1" in run.ok("prototype describe platform")


def test_r5_an_archive_that_is_not_the_index_ones_changes_nothing(
    run: Runner, app: Path, repository: str, tmp_path: Path
) -> None:
    run.ok(f"registry add charts {repository}")
    before = read_tree(app)
    (tmp_path / "repository/strict.tgz").write_bytes(
        packed("strict", {**STRICT, "values.yaml": "level: 4\n"})
    )
    ran = run("pkg install charts/strict")
    assert ran.code == 5
    assert "is not what the repository's index says" in ran.err
    assert read_tree(app) == before


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("entries: [", "cannot be read"),
        ("a: 1\n", "is no index of charts"),
        ("entries: {x: 5, y: [7, {}, {version: '1', urls: []}], z: [{version: '../..', urls: [a]}]}\n", ""),
    ],
)
def test_r5_a_broken_index_is_told(
    run: Runner, app: Path, repository: str, tmp_path: Path, index: str, said: str
) -> None:
    (tmp_path / "repository/index.yaml").write_text(index)
    ran = run(f"registry add charts {repository}/index.yaml")
    assert (ran.code == 5) == bool(said)
    assert said in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.slow
def test_r5_charts_of_an_oci_registry_are_packages(
    run: Runner, app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tool('helm').parent}{os.pathsep}{os.environ['PATH']}")
    chart = tmp_path / "platform-1.2.0.tgz"
    chart.write_bytes(packed("platform", PLATFORM))
    with real_registry(tmp_path) as host:
        push = ["helm", "push", str(chart), f"oci://{host}/charts", "--plain-http"]
        subprocess.run(push, check=True, capture_output=True)
        run.ok(f"registry add charts oci://{host}/charts --type helm")
        run.ok("pkg install charts/platform")
        assert run("pkg install charts/nothing").code == 4
        run.ok(f"registry add one oci://{host}/charts/platform --type helm")
        (row,) = run("registry describe one -o json").json["packages"]
        assert row["versions"] == ["1.2.0"]
    run.ok("env add dev --offline -n ml")
    run.ok("generate platform web --global.zone eu")
    assert "web-cache" in run.ok("render dev")
