"""Pushing to OCI registries that fail, lie, redirect or forget, and lists of theirs that do not end."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.errors import RegistryError
from mlstack.registries.oci import place_of
from tests.support.oci import PASSWORD, USER, FakeRegistry, Fault, Reply
from tests.support.packages import COMMON, JOBS, as_files
from tests.support.registries import next_jobs, opened

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pauses")]
Step = Callable[[str, str], bool]


def publish(fake: FakeRegistry) -> str:
    return place_of(f"oci://{fake.host}/ml").publish(as_files(JOBS)).manifest_digest


def replying(reply: Reply, step: Step, times: int = 1000) -> Fault:
    """Give a fault that answers the first requests of a step in this way."""
    left = [None] * times

    def fault(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
        if not step(method, path) or not left:
            return None
        left.pop()
        return reply

    return fault


STEPS: dict[str, Step] = {
    "asking for a blob": lambda method, path: method == "HEAD",
    "beginning an upload": lambda method, path: method == "POST",
    "uploading": lambda method, path: method == "PUT" and "/uploads/" in path,
    "tagging": lambda method, path: method == "PUT" and "ml/jobs/manifests" in path,
    "writing the index": lambda method, path: method == "PUT" and "mlstack-registry/manifests" in path,
}
WRITES = sorted(STEPS.keys() - {"asking for a blob"})


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("status", [429, 502, 503])
def test_a_push_is_tried_again_after_a_pause(
    fake: FakeRegistry, pauses: list[float], step: str, status: int
) -> None:
    fake.fault = replying(Reply(status=status, headers={"Retry-After": "2"}), STEPS[step], times=2)
    digest = publish(fake)
    assert pauses == [2, 2]
    assert opened(f"oci://{fake.host}/ml", fresh=True).at(digest).fetch("jobs") == as_files(JOBS)


@pytest.mark.parametrize("step", WRITES)
@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(status=500), "HTTP 500"),
        (Reply(status=403, body=b'{"errors": [{"code": "DENIED", "message": "quota"}]}'), "does not allow"),
        (Reply(status=401), "does not let us in"),
        (Reply(status=413), "HTTP 413"),
        (Reply(status=200, body=b"<html>sign in</html>"), "HTTP 200"),
    ],
)
def test_a_push_that_fails_is_told_and_can_be_done_again(
    fake: FakeRegistry, step: str, reply: Reply, message: str
) -> None:
    fake.fault = replying(reply, STEPS[step])
    with pytest.raises(RegistryError, match=message) as caught:
        publish(fake)
    assert caught.value.hint
    assert ("ml/mlstack-registry", "index") not in fake.manifests
    fake.fault = replying(reply, lambda method, path: False)
    publish(fake)
    assert opened(f"oci://{fake.host}/ml", fresh=True).fetch("jobs") == as_files(JOBS)


@pytest.mark.parametrize("step", WRITES)
def test_a_push_that_breaks_off_is_told(fake: FakeRegistry, step: str) -> None:
    fake.fault = replying(Reply(status=201, headers={"Content-Length": "9"}, cut=True), STEPS[step])
    with pytest.raises(RegistryError) as caught:
        publish(fake)
    assert caught.value.hint
    fake.fault = replying(Reply(), lambda method, path: False)
    assert publish(fake)


def test_a_registry_that_names_another_digest_is_found_out(fake: FakeRegistry) -> None:
    lie = {"Docker-Content-Digest": "sha256:" + "0" * 64}
    for step in ("uploading", "tagging"):
        fake.fault = replying(Reply(status=201, headers=lie), STEPS[step])
        with pytest.raises(RegistryError, match=r"has the digest sha256:0000"):
            publish(fake)
    assert ("ml/mlstack-registry", "index") not in fake.manifests


def test_an_upload_goes_to_another_host_without_our_login(fake: FakeRegistry) -> None:
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (Path.home() / ".docker").mkdir()
    (Path.home() / ".docker/config.json").write_text(json.dumps({"auths": {fake.host: {"auth": auth}}}))
    with FakeRegistry().running() as storage:

        def fault(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
            if headers.get("Authorization") != f"Basic {auth}":
                return Reply(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})
            running.blobs |= storage.blobs
            place = f"http://{storage.host}{path}1?state=x"
            return Reply(status=202, headers={"Location": place}) if method == "POST" else None

        fake.fault = fault
        digest = publish(fake)
        assert {method for method, _, _ in storage.requests} == {"PUT"}
        assert not [headers for _, _, headers in storage.requests if "Authorization" in headers]
        assert opened(f"oci://{fake.host}/ml", fresh=True).at(digest).fetch("jobs") == as_files(JOBS)


@pytest.mark.parametrize("place", ["http://example.org/x", "file:///etc/passwd", ""])
def test_an_upload_is_not_sent_to_a_place_that_is_none(fake: FakeRegistry, place: str) -> None:
    fake.fault = replying(Reply(status=202, headers={"Location": place}), STEPS["beginning an upload"])
    with pytest.raises(RegistryError):
        publish(fake)
    assert not [path for method, path, _ in fake.requests if method == "PUT"]


def test_a_token_that_runs_out_in_the_middle_is_asked_for_again(fake: FakeRegistry) -> None:
    tokens: list[str] = []
    uses: list[str] = []

    def fault(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
        if path.startswith("/token"):
            tokens.append(f"t{len(tokens)}")
            return Reply(body=json.dumps({"token": tokens[-1]}).encode())
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        uses.append(token)
        if token in tokens and uses.count(token) <= 3:
            return None
        return Reply(status=401, headers={"WWW-Authenticate": f'Bearer realm="http://{running.host}/token"'})

    fake.fault = fault
    digest = publish(fake)
    assert len(tokens) > 2
    assert opened(f"oci://{fake.host}/ml", fresh=True).at(digest).fetch("jobs") == as_files(JOBS)


def test_an_upload_that_the_registry_forgot_is_told(fake: FakeRegistry) -> None:
    unknown = Reply(status=404, body=b'{"errors": [{"code": "BLOB_UPLOAD_UNKNOWN"}]}')
    fake.fault = replying(unknown, STEPS["uploading"])
    with pytest.raises(RegistryError, match="BLOB_UPLOAD_UNKNOWN"):
        publish(fake)


# --- lists ---


def listed(fake: FakeRegistry) -> FakeRegistry:
    """Give a registry of two packages without an index."""
    place = place_of(f"oci://{fake.host}/ml")
    for tree in (COMMON, JOBS, next_jobs()):
        place.publish(as_files(tree))
    del fake.manifests["ml/mlstack-registry", "index"]
    return fake


def catalog(names: list[str], link: str = "") -> Reply:
    headers = {"Link": link} if link else {}
    return Reply(body=json.dumps({"repositories": names}).encode(), headers=headers)


def test_a_list_comes_page_by_page(fake: FakeRegistry) -> None:
    def fault(running: FakeRegistry, method: str, path: str, headers: dict[str, str]) -> Reply | None:
        if "_catalog" in path:
            is_last = "last=" in path
            return catalog(["ml/jobs"] if is_last else ["ml/common"], "" if is_last else LINK)
        return None

    listed(fake).fault = fault
    assert sorted(opened(f"oci://{fake.host}/ml", fresh=True).index.packages) == ["common", "jobs"]


LINK = '</v2/_catalog?last=ml%2Fcommon&n=1>; rel="next"'


def test_a_list_that_leads_back_to_itself_ends(fake: FakeRegistry) -> None:
    listed(fake).fault = replying(catalog(["ml/common"], LINK), lambda method, path: "_catalog" in path)
    assert sorted(opened(f"oci://{fake.host}/ml", fresh=True).index.packages) == ["common"]
    assert len([path for _, path, _ in fake.requests if "_catalog" in path]) < 200


def test_a_list_that_leads_to_another_host_does_not_take_our_login_along(fake: FakeRegistry) -> None:
    with FakeRegistry().running() as other:
        other.fault = lambda running, method, path, headers: catalog(["ml/jobs"])
        link = f'<http://{other.host}/v2/_catalog>; rel="next"'
        listed(fake).fault = replying(catalog(["ml/common"], link), lambda method, path: "_catalog" in path)
        assert opened(f"oci://{fake.host}/ml", fresh=True).index
        assert not [headers for _, _, headers in other.requests if "Authorization" in headers]


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply(body=b'{"tags": ["0.1'), "its list of tags of `ml/jobs` cannot be read"),
        (Reply(body=b"<html>"), "its list of tags of `ml/jobs` cannot be read"),
        (Reply(status=500), "HTTP 500"),
        (Reply(status=403), "does not allow that"),
        (Reply(body=b'{"tags"', headers={"Content-Length": "900"}, cut=True), "the connection broke"),
    ],
)
def test_tags_that_cannot_be_listed_are_told(fake: FakeRegistry, reply: Reply, message: str) -> None:
    listed(fake).fault = replying(reply, lambda method, path: "/tags/list" in path)
    with pytest.raises(RegistryError, match=message) as caught:
        assert opened(f"oci://{fake.host}/ml/jobs", fresh=True).index
    assert caught.value.hint


ODD = ["0.1.0", "../x", "", 7, None, "latest", "0.1.0-" + "x" * 200]


@pytest.mark.parametrize("tags", [ODD, "0.1.0", None], ids=["odd", "text", "none"])
def test_odd_tags_are_passed_over(fake: FakeRegistry, tags: object) -> None:
    reply = Reply(body=json.dumps({"tags": tags}).encode())
    listed(fake).fault = replying(reply, lambda method, path: "/tags/list" in path)
    packages = opened(f"oci://{fake.host}/ml/jobs", fresh=True).index.packages
    assert ("jobs" in packages) == (tags == ODD)
    if tags == ODD:
        assert [entry.version for entry in packages["jobs"].versions] == ["0.1.0"]
