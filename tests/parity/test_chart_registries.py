"""Chart repositories and charts in OCI registries, on loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import read_tree, write_tree
from tests.support.certificates import self_signed, tls_server
from tests.support.charts import PLATFORM, STRICT, packed
from tests.support.cli import Runner
from tests.support.oci import FakeRegistry, real_registry
from tests.support.serving import served
from tests.support.tools import tool


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, once `password` is set to `ada` with it alone."""

    password = ""

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        login = base64.b64encode(f"ada:{self.password}".encode()).decode()
        if self.password and self.headers["Authorization"] != f"Basic {login}":
            self.send_error(401)
        else:
            super().do_GET()


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


def test_r5_an_index_may_lead_to_an_oci_registry(
    run: Runner, app: Path, repository: str, tmp_path: Path
) -> None:
    head = "{apiVersion: v2, name: strict, version: 0.1.0, maintainers: 5, keywords: 7}"
    archive = packed("strict", {**STRICT, "Chart.yaml": head})
    entry = release("", archive, version="0.1.0")
    layer = {"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip"}
    with FakeRegistry().running() as oci:
        layer["digest"] = f"sha256:{entry['digest']}"
        oci.blobs[layer["digest"]] = archive
        oci.manifests["up/strict", "0.1.0"] = json.dumps({"schemaVersion": 2, "layers": [layer]}).encode()
        entry["urls"] = [f"oci://{oci.host}/up/strict:0.1.0"]  # as Bitnami's does
        (tmp_path / "repository/index.yaml").write_text(json.dumps({"entries": {"strict": [entry]}}))
        run.ok(f"registry add charts {repository}")
        run.ok("pkg install charts/strict")
    assert (app / "vendor/charts/strict@0.1.0/values.yaml").is_file()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("entries: [", "cannot be read"),
        ("a: 1\n", "is no index of charts"),
        ("entries: {x: 5, y: [7, {}, {version: '1', urls: []}], z: [{version: '../..', urls: [a]}]}\n", ""),
    ],
)
def test_r5_a_broken_index_is_told(
    run: Runner, app: Path, repository: str, tmp_path: Path, index: str, message: str
) -> None:
    (tmp_path / "repository/index.yaml").write_text(index)
    ran = run(f"registry add charts {repository}/index.yaml")
    assert (ran.code == 5) == bool(message)
    assert message in ran.err
    assert "Traceback" not in ran.err


def helm_knows(url: str, password: str, **more: Any) -> None:
    """Write what `helm repo add ours URL --username ada` writes."""
    entry = {"name": "ours", "url": url, "username": "ada", "password": password, **more}
    content = {"apiVersion": "", "repositories": [{"name": "other", "url": "https://x.example"}, entry]}
    write_tree(Path.home() / ".config/helm", {"repositories.yaml": json.dumps(content)})


def test_r5_the_login_that_helm_has_opens_a_repository(
    run: Runner, app: Path, repository: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Quiet, "password", "not-a-secret")
    before = read_tree(app)
    ran = run(f"registry add charts {repository}/index.yaml")
    assert (ran.code, "wants to know who asks (status 401)" in ran.err) == (5, True)
    assert f"hint: helm repo add NAME {repository} --username USER --password-stdin" in ran.err
    helm_knows(repository, "wrong")
    assert "does not take the login that helm has" in run(f"registry add charts {repository}/index.yaml").err
    host = repository.removeprefix("http://")
    ran = run(f"registry add charts http://ada:not-a-secret@{host}/index.yaml")
    assert (ran.code, "holds a login" in ran.err, "not-a-secret" in ran.err) == (5, True, False)
    assert read_tree(app) == before
    helm_knows(f"{repository}/", "not-a-secret")
    run.ok(f"registry add charts {repository}")
    run.ok("pkg install charts/platform")
    assert not [path for path, data in read_tree(app).items() if "not-a-secret" in str(data)]


@pytest.mark.parametrize(("more", "code"), [({}, 5), ({"pass_credentials_all": True}, 0)])
def test_r5_a_login_goes_to_its_own_server_alone(
    run: Runner,
    app: Path,
    repository: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: dict[str, Any],
    code: int,
) -> None:
    monkeypatch.setattr(Quiet, "password", "not-a-secret")
    data = packed("strict", STRICT)
    other = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "repository")))
    with served(other):
        entry = release(f"http://127.0.0.1:{other.server_port}/strict.tgz", data, version="0.1.0")
        write_tree(tmp_path / "repository", {"index.yaml": json.dumps({"entries": {"strict": [entry]}})})
        helm_knows(repository, "not-a-secret", **more)
        run.ok(f"registry add charts {repository}")
        assert run("pkg install charts/strict").code == code


@pytest.mark.slow
@pytest.mark.parametrize(
    "chart", ["{repository}/strict.tgz", "strict --repo {repository}", "ours/strict", "file"]
)
def test_c25_a_chart_is_imported_from_where_helm_would_pull_it(
    run: Runner, app: Path, repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chart: str
) -> None:
    monkeypatch.setenv("PATH", str(tool("helm").parent))
    helm_knows(repository, "any")
    place = (
        str(tmp_path / "repository/strict.tgz") if chart == "file" else chart.format(repository=repository)
    )
    ran = run(f"import helm {place} --set owner=ada -o json")
    assert (ran.code, ran.json["summary"]) == (0, "1 of 1 objects equal")


@pytest.mark.slow
@pytest.mark.parametrize(("version", "code"), [("^1.2", 0), ("1.2.0", 0), ("9.9.9", 4)])
def test_c25_a_version_of_a_chart_is_chosen_as_helm_does(
    run: Runner, app: Path, repository: str, monkeypatch: pytest.MonkeyPatch, version: str, code: int
) -> None:
    monkeypatch.setenv("PATH", str(tool("helm").parent))
    ran = run(f"import helm platform --repo {repository} --version {version} --set global.zone=eu")
    assert ran.code == code, ran.err
    assert "known versions: 1.2.0, 1.10.0" in ran.err or not code


def test_c25_an_archive_that_leads_out_of_itself_is_refused(run: Runner, app: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.tgz").write_bytes(packed("strict", {**STRICT, "../../x": "y"}))
    (tmp_path / "none.tgz").write_bytes(packed("strict", {"values.yaml": "a: 1\n"}))
    before = read_tree(tmp_path)
    for file, reason in (("bad", "a path that leads out of it"), ("none", "holds no chart")):
        ran = run(f"import helm ../{file}.tgz")
        assert (ran.code, reason in ran.err) == (5, True), ran.err
    assert read_tree(tmp_path) == before


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


@pytest.mark.slow
def test_r5_a_chart_repository_is_trusted_as_helm_was_told(
    run: Runner, app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELM_REPOSITORY_CONFIG", str(tmp_path / "repositories.yaml"))
    monkeypatch.setenv("PATH", f"{tool('helm').parent}{os.pathsep}{os.environ['PATH']}")
    us = self_signed("ada", seed="client")
    certificate_file, own = us.write(tmp_path, "client")
    tls, certificate = tls_server(tmp_path)
    tls.load_verify_locations(certificate_file)
    tls.verify_mode = ssl.CERT_REQUIRED
    archive = packed("strict", STRICT)
    entries = {"strict": [release("strict.tgz", archive, version="0.1.0")]}
    write_tree(tmp_path / "secure", {"index.yaml": json.dumps({"entries": entries}), "strict.tgz": archive})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "secure")))
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    url = f"https://127.0.0.1:{server.server_port}"

    def configure(**facts: object) -> None:
        entry = {"name": "secure", "url": url, **facts}
        (tmp_path / "repositories.yaml").write_text(json.dumps({"repositories": [entry]}))

    client = {"certFile": str(certificate_file), "keyFile": str(own)}
    with served(server):
        for facts, reason in (
            (client, "TLS fails: self-signed certificate"),
            ({**client, "caFile": str(certificate_file)}, "TLS fails"),
            ({**client, "caFile": str(tmp_path / "none.crt")}, "none.crt`"),
            ({"insecure_skip_tls_verify": True}, "does not answer"),  # it wants to know who we are
        ):
            configure(**facts)
            ran = run(f"registry add secure {url} --type helm")
            assert (ran.code, reason in ran.err) == (5, True), (facts, ran.err)
        configure(**client, insecure_skip_tls_verify=True)
        run.ok(f"registry add blind {url}")  # it is known for charts by its index
        configure(**client, caFile=str(certificate))
        run.ok(f"registry add secure {url}")
        run.ok("pkg install secure/strict")
        refused = run(f"import helm {url}/strict.tgz --name other")
        assert "the chart refuses its values" in refused.err  # it was fetched
