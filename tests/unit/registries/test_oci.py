"""Packages in OCI registries: published, fetched by digest, with logins, from servers that misbehave."""

import base64
import json
import shutil
import stat
import time
from pathlib import Path, PurePosixPath

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.errors import NotFoundError, RegistryError
from mlstack.operations import app as apps
from mlstack.operations import packages
from mlstack.operations import registries as operations
from mlstack.registries.distribution import credentials
from mlstack.registries.oci import Published, place_of
from mlstack.registries.registry import Registry
from tests.support import registries
from tests.support.builders import read_tree
from tests.support.cli import Runner
from tests.support.oci import PASSWORD, USER, FakeRegistry, Fault, Reply, real_registry
from tests.support.packages import COMMON, JOBS, as_files
from tests.support.registries import next_jobs


def opened(host: str, path: str = "/ml", *, fresh: bool = False) -> Registry:
    return registries.opened(f"oci://{host}{path}", fresh=fresh)


def publish(host: str, tree: dict[PurePosixPath, bytes]) -> Published:
    return place_of(f"oci://{host}/ml").publish(tree)


def log_in(host: str, user: str = USER, password: str = PASSWORD) -> None:
    """Write what `docker login` writes."""
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    folder = Path.home() / ".docker"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"auths": {host: {"auth": auth}}}))


def round_trip(host: str) -> None:
    """Publish three packages and have each of them again."""
    first = publish(host, as_files(JOBS))
    publish(host, as_files(COMMON))
    second = publish(host, as_files(next_jobs()))
    again = publish(host, as_files(JOBS))
    assert (first.is_new, again.is_new, again.manifest_digest) == (True, False, first.manifest_digest)
    own = opened(host)
    index = own.index
    assert (index.known_as, list(index.packages)) == ("own", ["common", "jobs"])
    assert [entry.version for entry in index.packages["jobs"].versions] == ["0.1.0", "0.10.0"]
    assert index.version("jobs").revision == second.manifest_digest
    assert own.fetch("jobs") == as_files(next_jobs())
    assert own.fetch("jobs", "0.1.0") == as_files(JOBS)
    for reference in (first.manifest_digest, "0.1.0"):
        assert own.at(reference).index.package("jobs").newest.version == "0.1.0"
        assert own.at(reference).fetch("jobs") == as_files(JOBS)


@pytest.mark.slow
def test_what_was_published_is_had_again(fake: FakeRegistry) -> None:
    round_trip(fake.host)
    assert {path for _, path, _ in fake.requests if "mlstack-registry/manifests" in path} == {
        "/v2/ml/mlstack-registry/manifests/index"
    }


@pytest.mark.slow
def test_a_real_registry_holds_packages(tmp_path: Path) -> None:
    with real_registry(tmp_path) as host:
        round_trip(host)


@pytest.mark.slow
def test_a_real_registry_wants_a_login(tmp_path: Path) -> None:
    with real_registry(tmp_path, login=True) as host:
        with pytest.raises(RegistryError, match="does not let us in") as caught:
            assert opened(host).index
        assert caught.value.hint == f"docker login {host}"
        log_in(host, password="wrong")
        with pytest.raises(RegistryError, match="does not let us in"):
            publish(host, as_files(JOBS))
        log_in(host)
        round_trip(host)


@pytest.mark.slow
def test_a_real_registry_wants_a_login_that_a_helper_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = json.dumps({"ServerURL": "x", "Username": USER, "Secret": PASSWORD})
    helper(tmp_path, monkeypatch, f"read host; test -n \"$host\" && echo '{answer}'")
    with real_registry(tmp_path, login=True) as host:
        configure({"credHelpers": {host: "tests"}})
        round_trip(host)


def configure(config: object) -> None:
    (Path.home() / ".docker").mkdir(exist_ok=True)
    (Path.home() / ".docker/config.json").write_text(json.dumps(config))


def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    file = tmp_path / "bin/docker-credential-tests"
    file.parent.mkdir()
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{file.parent}:/usr/bin:/bin")


# --- what is there ---


def test_the_same_version_with_other_content_is_refused(fake: FakeRegistry) -> None:
    publish(fake.host, as_files(JOBS))
    changed = {**as_files(JOBS), PurePosixPath("README.md"): b"new"}
    before = dict(fake.manifests)
    with pytest.raises(RegistryError, match=r"ml/jobs:0\.1\.0` is there with other content"):
        publish(fake.host, changed)
    assert fake.manifests == before


def test_an_artifact_has_the_same_digest_wherever_it_is_published(fake: FakeRegistry) -> None:
    with FakeRegistry().running() as other:
        assert publish(fake.host, as_files(JOBS)) == publish(other.host, as_files(JOBS))


@pytest.mark.parametrize("moment", ["at once", "later"])
def test_an_index_that_another_publisher_overwrote_is_written_again(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    publish(fake.host, as_files(COMMON))
    key = ("ml/mlstack-registry", "index")
    stale, lost = fake.manifests[key], []

    def lose(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
        if path.endswith("/index") and method == "PUT" and not lost:
            lost.append(path)
            return Reply(status=201)  # somebody else's index took its place
        return None

    def lose_later(pause_s: float) -> None:
        fake.manifests[key] = fake.manifests[key] if lost else stale
        lost.append("later")

    if moment == "later":
        monkeypatch.setattr("time.sleep", lose_later)
    else:
        fake.fault = lose
    publish(fake.host, as_files(JOBS))
    assert (fake.manifests[key] != stale, lost != []) == (True, True)
    assert list(opened(fake.host, fresh=True).index.packages) == ["common", "jobs"]


def catalog(reply: Reply) -> Fault:
    """Make a registry answer this where it is asked what it holds."""
    return lambda registry, method, path, headers: reply if path.startswith("/v2/_catalog") else None


def test_nothing_published_is_told(fake: FakeRegistry) -> None:
    fake.fault = catalog(Reply(body=b'{"repositories": []}'))
    with pytest.raises(RegistryError, match="nothing was published there") as caught:
        assert opened(fake.host).index
    assert str(caught.value.hint).startswith(
        f"mlstack pkg publish DIR oci://{fake.host}/ml; charts: --type helm"
    )


@pytest.mark.parametrize("address", ["oci://", "oci://u:p@host/x", "oci://host:x/y", "oci://ho st/y"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(RegistryError):
        place_of(address).index(fresh=True)


@pytest.mark.parametrize("reference", ["9.9.9", "../x", "sha256:" + "0" * 64])
def test_what_is_not_there_is_not_found(fake: FakeRegistry, reference: str) -> None:
    publish(fake.host, as_files(COMMON))
    with pytest.raises((NotFoundError, RegistryError)):
        opened(fake.host).at(reference).index.package("jobs")


# --- the cache ---


def test_what_was_had_is_not_asked_for_again(fake: FakeRegistry) -> None:
    publish(fake.host, as_files(JOBS))
    opened(fake.host).fetch("jobs")
    fake.requests.clear()
    assert opened(fake.host).fetch("jobs") == as_files(JOBS)
    assert fake.requests == []
    publish(fake.host, as_files(next_jobs()))
    assert opened(fake.host).index.package("jobs").newest.version == "0.10.0"


def test_a_registry_that_is_away_is_the_one_that_was_asked_last(
    fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    revision = publish(fake.host, as_files(JOBS)).manifest_digest
    opened(fake.host).fetch("jobs")
    fake.fault = lambda *request: Reply(status=503)
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + 601)
    index = opened(fake.host).index
    assert list(index.packages) == ["jobs"]
    assert "HTTP 503; what it said on 20" in index.note
    assert opened(fake.host).at(revision).fetch("jobs", "0.1.0") == as_files(JOBS)
    with pytest.raises(RegistryError, match="HTTP 503"):
        assert opened(fake.host, fresh=True).index


# --- servers that misbehave ---


def empty_cache() -> None:
    shutil.rmtree(Path.home() / ".cache", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manifests/sha256", "blobs"])
def test_a_registry_that_lies_about_a_digest_is_found_out(fake: FakeRegistry, kind: str) -> None:
    publish(fake.host, as_files(JOBS))
    empty_cache()

    def lie(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
        return Reply(body=b'{"schemaVersion": 2}') if f"jobs/{kind}" in path else None

    fake.fault = lie
    with pytest.raises(RegistryError, match="has the digest sha256:"):
        opened(fake.host).fetch("jobs")


def test_an_artifact_with_a_hostile_archive_is_refused(fake: FakeRegistry) -> None:
    from tests.unit.app.test_archive import archive, member

    place = place_of(f"oci://{fake.host}/ml")
    data = archive(member("../../x", content=b"x"))
    digest = place._push("jobs", "evil", data, "application/vnd.mlstack.package.v1", {})
    for reference in ("evil", digest):
        with pytest.raises(RegistryError, match="a path that leads out of it"):
            opened(fake.host).at(reference).fetch("jobs")


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(status=500), "HTTP 500"),
        (Reply(status=429, body=b'{"errors": [{"code": "TOOMANYREQUESTS"}]}'), "TOOMANYREQUESTS"),
        (Reply(status=403), "does not allow that"),
        (Reply(status=401), "does not let us in"),
        (Reply(status=401, headers={"WWW-Authenticate": "Negotiate"}), "does not let us in"),
        (Reply(body=b"<html>"), "is no manifest"),
        (Reply(body=b"[1]"), "is no manifest"),
        (Reply(body=b"[" * 100_000), "is no manifest"),
        (Reply(body=b'{"schemaVersion": 2, "layers": 7}'), "is no index of mlstack's"),
        (Reply(status=307, headers={"Location": "/v2/x"}), "again and again"),
        (Reply(status=307, headers={"Location": "http://example.org/x"}), "plain http"),
        (Reply(status=307, headers={"Location": "file:///etc/passwd"}), "no address of the web"),
    ],
)
def test_a_registry_that_fails_is_told_in_a_sentence(
    fake: FakeRegistry, pauses: list[float], reply: Reply, message: str
) -> None:
    fake.fault = lambda *request: reply
    with pytest.raises(RegistryError) as caught:
        assert opened(fake.host).index
    assert message in str(caught.value)
    assert caught.value.hint


def test_a_registry_that_is_not_there_is_told() -> None:
    with pytest.raises(RegistryError, match="connection refused"):
        assert opened("127.0.0.1:1").index


# --- tokens, redirects, logins ---


def tokens(fake: FakeRegistry, *, basic: str = "") -> None:
    """Let a registry want a token, which it gives to everybody, or to one who has the login."""

    def want(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
        if path.startswith("/token"):
            is_known = not basic or headers.get("Authorization") == f"Basic {basic}"
            scope = path.rpartition("scope=")[2]
            return Reply(body=json.dumps({"token": f"T-{scope}"}).encode()) if is_known else Reply(status=401)
        name = path.removeprefix("/v2/").partition("/manifests")[0].partition("/blobs")[0]
        right = [f"Bearer T-repository:{name.replace('/', '%2F')}:pull{more}" for more in ("", "%2Cpush")]
        if headers.get("Authorization") in right:
            return None
        challenge = f'Bearer realm="http://{running.host}/token",service="tests"'
        return Reply(status=401, headers={"WWW-Authenticate": challenge})

    fake.fault = want


@pytest.mark.slow
def test_a_token_is_had_without_a_login(fake: FakeRegistry) -> None:
    tokens(fake)
    round_trip(fake.host)
    logins = [headers for _, path, headers in fake.requests if "/token" in path]
    assert logins
    assert not [headers for headers in logins if "Authorization" in headers]


@pytest.mark.slow
def test_a_token_is_had_with_the_login_and_only_for_it(fake: FakeRegistry) -> None:
    tokens(fake, basic=base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode())
    with pytest.raises(RegistryError, match="does not let us in"):
        assert opened(fake.host).index
    log_in(fake.host)
    round_trip(fake.host)
    paths = [path for _, path, headers in fake.requests if "Basic" in headers.get("Authorization", "")]
    assert paths
    assert all(path.startswith("/token") for path in paths)


def test_a_blob_that_lies_elsewhere_is_had_without_our_login(fake: FakeRegistry) -> None:
    publish(fake.host, as_files(JOBS))
    empty_cache()
    tokens(fake)
    wants = fake.fault
    with FakeRegistry().running() as storage:
        storage.blobs = fake.blobs

        def lead(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
            reply = wants(running, method, path, headers)
            if reply is None and "/blobs/" in path:
                return Reply(status=307, headers={"Location": f"http://{storage.host}{path}"})
            return reply

        fake.fault = lead
        assert opened(fake.host).fetch("jobs") == as_files(JOBS)
        assert storage.requests
        assert not [headers for _, _, headers in storage.requests if "Authorization" in headers]


@pytest.mark.parametrize("host", ["example.org", "https://example.org/v1/", "https://example.org"])
def test_credentials_are_found_however_docker_writes_the_host(host: str) -> None:
    log_in(host)
    login = credentials("example.org").get("")
    assert login is not None
    assert (login.user, login.password) == (USER, PASSWORD)
    assert PASSWORD not in repr(login)


def test_an_identity_token_is_taken_from_a_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper(tmp_path, monkeypatch, """echo '{"Username": "<token>", "Secret": "long"}'""")
    configure({"credsStore": "tests"})
    login = credentials("example.org").get("")
    assert login is not None
    assert (login.identity_token, login.password) == ("long", "")


@pytest.mark.parametrize(
    ("script", "message"),
    [("exit 1", None), ("echo x", "gives no credentials that can be read"), (None, "cannot be had")],
)
def test_a_helper_that_knows_nothing_is_passed_over_and_one_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, message: str | None
) -> None:
    configure({"credsStore": "tests"})
    if script:
        helper(tmp_path, monkeypatch, script)
    if message is None:
        assert credentials("example.org") == {}
        return
    with pytest.raises(RegistryError, match=message):
        credentials("example.org")


@pytest.mark.parametrize("config", ["[", "[]", '{"auths": []}', '{"auths": {"example.org": {"auth": "%%"}}}'])
def test_a_broken_configuration_of_docker_gives_no_login(config: str) -> None:
    configure({})
    (Path.home() / ".docker/config.json").write_text(config)
    if config == "[":
        with pytest.raises(RegistryError, match="are no JSON"):
            credentials("example.org")
    else:
        assert credentials("example.org") == {}


def test_plain_http_goes_to_this_machine_alone() -> None:
    from mlstack.registries.distribution import Distribution

    assert Distribution("localhost:5000")._base == "http://localhost:5000/v2"
    assert Distribution("registry.example.org:5000")._base == "https://registry.example.org:5000/v2"


# --- patience ---


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(status=429, headers={"Retry-After": "3"}), [3, 3]),
        (Reply(status=429), [0.5, 1]),
        (Reply(status=503), [0.5, 1]),
        (Reply(status=503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), [0.1, 0.1]),
    ],
)
def test_a_registry_that_asks_for_patience_gets_it(
    fake: FakeRegistry, pauses: list[float], reply: Reply, expected: list[float]
) -> None:
    publish(fake.host, as_files(JOBS))
    answers = [reply, reply]
    fake.fault = lambda *request: answers.pop() if answers else None
    assert opened(fake.host, fresh=True).fetch("jobs") == as_files(JOBS)
    assert pauses == expected


def test_patience_ends_and_a_time_that_is_too_far_is_told(fake: FakeRegistry, pauses: list[float]) -> None:
    fake.fault = lambda *request: Reply(status=503)
    with pytest.raises(RegistryError, match="HTTP 503"):
        assert opened(fake.host).index
    assert pauses == [0.5, 1, 2, 4]
    pauses.clear()
    fake.fault = lambda *request: Reply(status=429, headers={"Retry-After": "3600"})
    with pytest.raises(RegistryError, match="HTTP 429") as caught:
        assert opened(fake.host).index
    assert (caught.value.hint, pauses) == ("try again in 60 min", [])


@pytest.mark.parametrize("status", [500, 404, 200])
def test_a_place_of_tokens_that_fails_is_told(fake: FakeRegistry, status: int) -> None:
    challenge = {"WWW-Authenticate": f'Bearer realm="http://{fake.host}/token"'}
    fake.fault = lambda running, method, path, headers: (
        Reply(status=status, body=b"<html>")
        if path.startswith("/token")
        else Reply(status=401, headers=challenge)
    )
    with pytest.raises(RegistryError, match=rf"sends us to for a token gives none \(HTTP {status}\)"):
        assert opened(fake.host).index


def test_a_blob_that_ends_early_is_asked_for_again_once(fake: FakeRegistry) -> None:
    publish(fake.host, as_files(JOBS))
    empty_cache()
    cut: list[str] = []

    def end_early(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
        digest = path.rpartition("/")[2]
        if "jobs/blobs" not in path or len(cut) == 3:
            return None
        cut.append(path)
        return Reply(body=running.blobs[digest][:100], headers={"Content-Length": "9999"}, cut=True)

    fake.fault = end_early
    with pytest.raises(RegistryError, match="the connection broke"):
        opened(fake.host).fetch("jobs")
    assert opened(fake.host).fetch("jobs") == as_files(JOBS)
    assert len(cut) == 3


# --- logins of others than docker ---


def auths(**entries: str) -> str:
    pairs = {key.replace("__", "/").replace("_", "."): text for key, text in entries.items()}
    encoded = {key: {"auth": base64.b64encode(text.encode()).decode()} for key, text in pairs.items()}
    return json.dumps({"auths": encoded})


@pytest.mark.parametrize(
    ("variable", "file"),
    [
        ("REGISTRY_AUTH_FILE", "own.json"),
        ("XDG_RUNTIME_DIR", "containers/auth.json"),
        ("XDG_CONFIG_HOME", "containers/auth.json"),
        ("HOME", ".config/containers/auth.json"),
        ("HELM_CONFIG_HOME", "registry/config.json"),
    ],
)
def test_logins_are_found_where_podman_and_helm_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, file: str
) -> None:
    place = tmp_path / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(auths(example_org="ada:all", example_org__ml__jobs="ada:jobs"))
    monkeypatch.setenv(variable, str(place if variable == "REGISTRY_AUTH_FILE" else tmp_path))
    logins = credentials("example.org")
    assert {path: login.password for path, login in logins.items()} == {"": "all", "ml/jobs": "jobs"}
    assert credentials("other.org") == {}


def test_the_login_of_a_path_is_for_that_path(fake: FakeRegistry) -> None:
    host = fake.host.replace(".", "_")
    folder = Path.home() / ".config/containers"
    folder.mkdir(parents=True)
    entries = {f"{host}__ml__jobs": "ada:jobs", host: "ada:all"}
    (folder / "auth.json").write_text(auths(**entries))
    sent: dict[str, str] = {}

    def note(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
        if "Authorization" not in headers:
            return Reply(status=401, headers={"WWW-Authenticate": "Basic"})
        user = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
        sent["jobs" if "/jobs/" in path else "else"] = user
        return None

    fake.fault = note
    publish(fake.host, as_files(JOBS))
    assert sent == {"jobs": "ada:jobs", "else": "ada:all"}


def test_an_identity_token_is_exchanged_for_others(fake: FakeRegistry) -> None:
    configure(
        {"auths": {fake.host: {"auth": base64.b64encode(b"<token>:").decode(), "identitytoken": "long"}}}
    )
    requests: list[str] = []

    def want(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
        if path == "/token":
            requests.append(f"{method} {headers.get('Authorization')}")
            return Reply(body=b'{"access_token": "short"}')
        if headers.get("Authorization") == "Bearer short":
            return None
        challenge = f'Bearer realm="http://{running.host}/token",service="tests"'
        return Reply(status=401, headers={"WWW-Authenticate": challenge})

    fake.fault = want
    publish(fake.host, as_files(JOBS))
    assert set(requests) == {"POST None"}
    assert any(b"refresh_token=long" in body for body in fake.bodies)


# --- without an index: packages are found by the tags of their repositories ---


def publish_all(host: str) -> None:
    """Publish packages, and beside them an artifact of another kind."""
    place = place_of(f"oci://{host}/ml")
    for tree in (COMMON, JOBS, next_jobs()):
        place.publish(as_files(tree))
    place._push("image", "1.0.0", b"x", "application/vnd.mlstack.registry.v1", {})


@pytest.mark.slow
def test_a_path_without_an_index_is_a_registry_of_what_lies_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner
) -> None:
    with real_registry(tmp_path) as host:
        publish_all(host)
        (index,) = tmp_path.rglob("repositories/ml/mlstack-registry")
        shutil.rmtree(index)
        shutil.rmtree(Path.home() / ".cache")
        monkeypatch.chdir(tmp_path)
        run.ok("init demo --skip-default-registries")
        monkeypatch.chdir(tmp_path / "demo")
        run.ok(f"registry add own oci://{host}/ml")
        offered = run("registry describe own -o json").json["packages"]
        assert [(row["name"], row["versions"]) for row in offered] == [
            ("common", ["0.1.0"]),
            ("jobs", ["0.1.0", "0.10.0"]),
        ]
        assert [row["package"] for row in run("pkg list -o json").json["packages"]] == [
            "own/common",
            "own/jobs",
        ]
        assert "own/jobs" in run("prototype search tf-cnn").out
        run.ok("pkg install own/jobs@^0.1 own/jobs@0.1.0")
        run.ok("pkg verify")
        shutil.rmtree(tmp_path / "demo/vendor")
        run.ok("pkg install --frozen")
        run.ok(f"registry add alone oci://{host}/ml/common")
        run.ok("pkg install alone/common")
        assert run(f"registry add none oci://{host}/ml/image").code == 5
        assert "nothing was published there" in run(f"registry add none oci://{host}/other").err


@pytest.mark.slow
def test_one_package_is_had_where_nobody_may_ask_for_more() -> None:
    """Some registries answer with a refusal for what is not there, and list no repositories."""
    with FakeRegistry().running() as fake:
        publish_all(fake.host)

        def refuse(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
            return None if path.startswith("/v2/ml/jobs/") and "index" not in path else Reply(status=403)

        fake.fault = refuse
        own = opened(fake.host, "/ml/jobs")
        assert [entry.version for entry in own.index.packages["jobs"].versions] == ["0.1.0", "0.10.0"]
        assert own.fetch("jobs", "0.1.0") == as_files(JOBS)
        with pytest.raises(RegistryError, match="does not allow that"):
            assert opened(fake.host, "/ml/common").index


def test_a_version_whose_archive_is_refused_is_left_out_and_told_where_it_is_asked_for() -> None:
    with FakeRegistry().running() as fake:
        place = place_of(f"oci://{fake.host}/ml")
        place._push("jobs", "0.2.0", b"no archive", "application/vnd.mlstack.package.v1", {})
        place.publish(as_files(JOBS))
        del fake.manifests["ml/mlstack-registry", "index"]
        own = opened(fake.host, "/ml/jobs")
        assert [entry.version for entry in own.index.packages["jobs"].versions] == ["0.1.0"]
        with pytest.raises(RegistryError, match="its archive cannot be read"):
            own.at("0.2.0").index.package("jobs")


def test_what_has_a_digest_is_had_without_an_index() -> None:
    with FakeRegistry().running() as fake:
        revision = place_of(f"oci://{fake.host}/ml").publish(as_files(JOBS)).manifest_digest
        del fake.manifests["ml/mlstack-registry", "index"]
        assert opened(fake.host).at(revision).fetch("jobs", "0.1.0") == as_files(JOBS)


@pytest.mark.slow
@pytest.mark.parametrize("status", [401, 404, 405])
def test_packages_of_a_registry_that_lists_nothing_are_had_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner, status: int
) -> None:
    fake = FakeRegistry()
    fake.fault = lambda registry, method, path, headers: (
        Reply(status=status) if path.startswith("/v2/_catalog") else None
    )
    monkeypatch.chdir(tmp_path)
    run.ok("init demo --skip-default-registries")
    monkeypatch.chdir(tmp_path / "demo")
    with fake.running():
        publish_all(fake.host)
        for key in [key for key in fake.manifests if key[0] == "ml/mlstack-registry"]:
            del fake.manifests[key]
        shutil.rmtree(Path.home() / ".cache")
        note = f"{fake.host} lists neither packages nor repositories: name packages"
        for command in (f"registry add own oci://{fake.host}/ml", "registry describe own", "pkg list"):
            ran = run(command)
            assert (ran.code, note in ran.out + ran.err) == (0, True), (command, ran.out, ran.err)
        assert note in run("prototype search tf-cnn").err
        run.ok("pkg install own/jobs@0.1.0")  # with what it requires
        assert [row["package"] for row in run("pkg list --installed -o json").json["packages"]] == [
            "own/common",
            "own/jobs",
        ]
        assert "0.10.0" in run.ok("pkg outdated")
        assert run("pkg install own/nothing").code == 4
        shutil.rmtree(tmp_path / "demo/vendor")
        run.ok("pkg install --frozen")


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["9.9.9", "nightly", "sha256:" + "0" * 64])
def test_a_tag_or_digest_that_is_not_there_installs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner, reference: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run.ok("init demo --skip-default-registries")
    monkeypatch.chdir(tmp_path / "demo")
    with FakeRegistry().running() as fake:
        publish_all(fake.host)
        run.ok(f"registry add own oci://{fake.host}/ml")
        before = read_tree(tmp_path / "demo")
        ran = run(f"pkg install own/jobs@{reference}")
        assert (ran.code, read_tree(tmp_path / "demo")) == (4, before)
        assert f"package `jobs` has no version `{reference}`" in ran.err
        assert "known versions: 0.1.0, 0.10.0" in ran.err
        fake.manifests["ml/jobs", "nightly"] = fake.manifests["ml/jobs", "0.1.0"]
        run.ok("pkg install own/jobs@nightly")
        installed = {row["package"]: row["installed"] for row in run("pkg list -o json").json["packages"]}
        assert installed == {"own/jobs": ["0.1.0"], "own/common": ["0.1.0"]}


# --- packages in an app: chosen by range or digest, locked, and had again ---


def new_app(tmp_path: Path, host: str) -> AppDir:
    apps.init(tmp_path / "demo", "demo", default_registry=False)
    app = AppDir(tmp_path / "demo")
    operations.add_registry(app, "own", f"oci://{host}/ml")
    return app


@pytest.mark.slow
def test_what_is_locked_comes_again_after_newer_versions(fake: FakeRegistry, tmp_path: Path) -> None:
    publish(fake.host, as_files(COMMON))
    first = publish(fake.host, as_files(JOBS))
    app = new_app(tmp_path, fake.host)
    packages.install_packages(app, ["own/jobs@^0.1"])
    revisions = {p.full_name: p.revision for p in AppDir(app.root).lock.packages}
    assert revisions["own/jobs"] == first.manifest_digest
    before = read_tree(app.root)
    publish(fake.host, as_files(next_jobs()))
    shutil.rmtree(app.root / "vendor")
    packages.restore_packages(AppDir(app.root))
    assert read_tree(app.root) == before


@pytest.mark.slow
def test_a_package_is_named_by_its_digest(fake: FakeRegistry, tmp_path: Path) -> None:
    publish(fake.host, as_files(COMMON))
    first = publish(fake.host, as_files(JOBS))
    publish(fake.host, as_files(next_jobs()))
    app = new_app(tmp_path, fake.host)
    packages.install_packages(app, ["own/jobs", f"own/jobs@{first.manifest_digest}"])
    versions = [p.version for p in AppDir(app.root).lock.packages if p.name == "jobs"]
    assert versions == ["0.1.0", "0.10.0"]
    assert [str(ref) for ref in AppDir(app.root).app.packages] == ["own/jobs", "own/jobs@0.1.0"]
