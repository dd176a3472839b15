"""Going back on a cluster in memory: what comes back, what goes, what stays, what is said."""

import base64
import gzip
import hashlib
import json
import time
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from mlstack.deploy import history
from mlstack.deploy.history import History
from mlstack.errors import (
    ClusterError,
    ForbiddenError,
    MlstackError,
    NotFoundError,
    UnreachableError,
    UsageError,
    WrongClusterError,
)
from mlstack.kube.client import ObjectRef
from mlstack.operations.status import list_history
from mlstack.testing.cluster import MemoryCluster
from tests.support.cut import CutCluster
from tests.support.deploying import Stack, config_map, secret

Clusters = dict[str, MemoryCluster]


def claim(name: str = "data", size: str = "1Gi") -> dict[str, Any]:
    """Build a volume claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}},
    }


def live(clusters: Clusters, kind: str, name: str) -> Any:
    return clusters["minikube"].get(ObjectRef("v1", kind, "ml", name))


def outcomes(stack: Stack, number: int | None = None, **options: Any) -> dict[str, str]:
    return {row.object: row.outcome for row in stack.rollback(number, **options).objects}


@pytest.fixture
def twice(stack: Stack) -> Stack:
    """An app that was applied with `a: 1`, then with `a: 2` and one more object."""
    stack.deploy("a", config_map(a="1"))
    stack.deploy("a", config_map(a="2"), config_map("later"))
    return stack


def test_going_back_makes_a_revision_of_its_own(twice: Stack) -> None:
    twice.rollback(1, who="ada@laptop")
    newest, _, first = twice.revisions()
    assert (newest.number, newest.what, newest.who) == (3, "rollback to 1", "ada@laptop")
    assert newest.digest == first.digest


def test_a_named_revision_comes_back_and_forth(twice: Stack, clusters: Clusters) -> None:
    twice.rollback(1)
    twice.rollback(2)
    assert live(clusters, "ConfigMap", "settings")["data"] == {"a": "2"}
    assert live(clusters, "ConfigMap", "later") is not None


def test_the_files_say_something_else_is_said(twice: Stack) -> None:
    twice.rollback(1)
    assert "undoes this; see `mlstack diff minikube`" in twice.notes[-1]
    assert not twice.diff().ok


def test_nothing_is_said_when_the_files_say_the_same(twice: Stack) -> None:
    twice.write("a", config_map(a="1"))
    twice.rollback(1)
    assert twice.notes == []
    assert twice.diff().ok


def test_files_that_do_not_render_stand_in_no_way(twice: Stack, clusters: Clusters) -> None:
    twice.write_text("components/a.yaml", "kind: [")
    twice.rollback(1)
    assert "cannot be rendered" in twice.notes[0]
    assert live(clusters, "ConfigMap", "settings")["data"] == {"a": "1"}


def stateful(retention: str, name: str = "db") -> dict[str, Any]:
    """Build a StatefulSet whose claims go with it, or stay."""
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "db:1"}]}}
    spec = {
        "serviceName": "db",
        "selector": {"matchLabels": labels},
        "template": pod,
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": retention, "whenScaled": "Retain"},
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(("retention", "outcome"), [("Delete", "kept"), ("Retain", "deleted")])
def test_what_would_take_its_claims_along_is_kept(stack: Stack, retention: str, outcome: str) -> None:
    stack.deploy("a", config_map(a="1"))
    names = [f"db{number}" for number in range(8)]  # so many are listed, not read one by one
    stack.deploy("a", config_map(a="2"), *(stateful(retention, name) for name in names))
    results = outcomes(stack, 1, allow_large_prune=True)
    assert {results[f"StatefulSet ml/{name}"] for name in names} == {outcome}


def test_a_claim_that_grew_keeps_its_size_and_it_is_said(stack: Stack, clusters: Clusters) -> None:
    stack.deploy("a", claim(size="1Gi"), config_map(a="1"))
    stack.deploy("a", claim(size="5Gi"), config_map(a="2"))
    stack.rollback(1)
    obj = live(clusters, "PersistentVolumeClaim", "data")
    assert obj["spec"]["resources"]["requests"]["storage"] == "5Gi"
    assert stack.notes[0].startswith("PersistentVolumeClaim ml/data stays as it is")


def test_a_component_applied_alone_leaves_others_in_the_revision(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", config_map(a="1"))
    stack.deploy("b", config_map("other", b="1"))
    stack.write("b", config_map("other", b="2"))
    stack.apply(components=["b"])
    stack.write("a", config_map(a="3"))
    stack.deploy("b", config_map("other", b="3"))
    assert [revision.what for revision in stack.revisions()] == ["apply", "apply -c b", "apply"]
    stack.rollback(2)
    assert live(clusters, "ConfigMap", "settings")["data"] == {"a": "1"}
    assert live(clusters, "ConfigMap", "other")["data"] == {"b": "2"}


def test_secrets_come_back_too(stack: Stack, clusters: Clusters) -> None:
    stack.deploy("a", secret(token="one"))
    before = live(clusters, "Secret", "keys")["data"]
    stack.deploy("a", secret(token="two"))
    stack.rollback()
    assert live(clusters, "Secret", "keys")["data"] == before


def test_a_dry_run_writes_nothing(twice: Stack, clusters: Clusters) -> None:
    twice.rollback(1, dry_run=True)
    assert live(clusters, "ConfigMap", "settings")["data"] == {"a": "2"}
    assert len(twice.revisions()) == 2


def test_more_than_half_goes_only_when_it_is_meant(stack: Stack) -> None:
    stack.deploy("a", config_map(a="1"))
    stack.deploy("a", config_map(a="1"), *(config_map(f"later-{number}") for number in range(9)))
    with pytest.raises(UsageError, match="more than half"):
        stack.rollback(1)
    assert list(outcomes(stack, 1, allow_large_prune=True).values()).count("deleted") == 9


def test_another_cluster_is_refused(twice: Stack, clusters: Clusters) -> None:
    clusters["minikube"] = clusters["gke"]
    with pytest.raises(WrongClusterError):
        twice.rollback(1)


@pytest.mark.parametrize(("applied", "reason"), [(0, "no history"), (1, "only revision 1")])
def test_there_must_be_something_to_go_back_to(stack: Stack, applied: int, reason: str) -> None:
    stack.write("a", config_map(a="1"))
    for _ in range(applied):
        stack.apply()
    with pytest.raises(NotFoundError, match=f"has nothing to go back to: {reason}"):
        stack.rollback()


def test_after_a_deletion_of_a_component_it_does_not_come_back(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", config_map(a="1"))
    stack.deploy("b", config_map("other"))
    stack.delete(components=["b"])
    assert [revision.what for revision in stack.revisions()] == ["delete -c b", "apply"]
    stack.write("a", config_map(a="2"))
    stack.apply(components=["a"])
    stack.rollback(2)
    assert live(clusters, "ConfigMap", "settings")["data"] == {"a": "1"}
    assert live(clusters, "ConfigMap", "other") is None


def test_a_component_that_the_files_no_longer_have_leaves_the_history_when_it_is_deleted(
    stack: Stack,
) -> None:
    stack.write("a", config_map(a="1"))
    stack.deploy("b", config_map("other"))
    stack.remove("b")
    stack.delete(components=["b"])
    revision = stack.revisions()[0]
    assert (revision.number, revision.objects, revision.components) == (2, 1, ("b",))


def test_an_apply_after_a_kill_before_the_revision_was_written_makes_up_for_it(
    twice: Stack, clusters: Clusters
) -> None:
    clusters["minikube"].delete(ObjectRef("v1", "Secret", "ml", "mlstack-demo.minikube.r2"))
    twice.apply(wait=True)
    twice.apply(wait=True)
    assert [(revision.number, revision.counts) for revision in twice.revisions()] == [
        (2, {"unchanged": 2}),
        (1, {"created": 2}),
    ]


def test_a_history_that_cannot_be_written_is_a_note_and_no_failure(
    stack: Stack, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = clusters["minikube"].create

    def create(obj: Any, **options: Any) -> Any:
        if obj["kind"] == "Secret":
            raise ForbiddenError("`ada` may not create secrets")
        return original(obj, **options)

    monkeypatch.setattr(clusters["minikube"], "create", create)
    stack.write("a", config_map(a="1"))
    assert stack.apply().ok
    assert stack.notes[-1] == "the history of this run is incomplete: `ada` may not create secrets"
    assert stack.apply(wait=True).ok
    assert stack.notes == []


@pytest.mark.slow
@pytest.mark.parametrize("answered", [True, False], ids=["answered", "unanswered"])
def test_wherever_a_run_is_cut_off_the_next_one_leaves_its_set_as_the_newest_revision(
    stack: Stack, clusters: Clusters, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    monkeypatch.setattr(history, "encode", partial(history.encode, part_bytes=300))
    whole = clusters["minikube"]
    for writes in range(14):
        stack.write("a", *(config_map(f"m{number}", value=f"{writes}") for number in range(3)))
        stack.opener = lambda context, writes=writes: CutCluster(whole, writes=writes, answered=answered)  # type: ignore[misc]
        with suppress(MlstackError):
            stack.apply()
        stack.opener = lambda context: whole
        stack.clock.sleep(60)  # nobody holds the lock of a dead run any more
        stack.apply(wait=True)
        newest = stack.revisions()[0]
        assert newest.is_good
        revisions = History.of("demo", stack.target().place(), whole)
        values = {obj.data["data"]["value"] for obj in revisions.load(newest).objects}
        assert values == {f"{writes}"}, f"cut off after {writes} writes"
        parts = sum(revision.parts for revision in stack.revisions())
        assert len(whole.list("v1", "Secret", namespace="ml").items) == parts


def test_a_server_that_is_gone_is_not_asked_for_the_history_too(stack: Stack, clusters: Clusters) -> None:
    stack.write("a", *(config_map(f"m{number}") for number in range(3)))
    stack.opener = lambda context: CutCluster(clusters["minikube"], writes=4, answered=True)  # type: ignore[return-value]
    with pytest.raises(UnreachableError):
        stack.apply()
    assert not any("history" in note for note in stack.notes)


def test_a_damaged_newest_revision_does_not_stand_in_the_way(twice: Stack, clusters: Clusters) -> None:
    ref = ObjectRef("v1", "Secret", "ml", "mlstack-demo.minikube.r2")
    metadata = clusters["minikube"].get(ref)["metadata"]  # type: ignore[index]
    clusters["minikube"].delete(ref)
    bare = {key: metadata[key] for key in ("name", "namespace", "labels", "annotations")}
    clusters["minikube"].create({"apiVersion": "v1", "kind": "Secret", "metadata": bare})
    twice.rollback(1)
    assert live(clusters, "ConfigMap", "settings")["data"] == {"a": "1"}
    assert any("revision 2 is damaged" in note for note in twice.notes)


def planted(clusters: Clusters, number: int = 3, content: bytes | None = None, **facts: Any) -> None:
    """Write a revision as somebody can who may write Secrets, and has read one."""
    secrets = clusters["minikube"].list("v1", "Secret", namespace="ml").items
    first = next(item for item in secrets if item["metadata"]["name"] == "mlstack-demo.minikube.r1")
    original = json.loads(first["metadata"]["annotations"][history.FACTS])
    metadata = {
        "name": f"mlstack-demo.minikube.r{number}",
        "namespace": "ml",
        "labels": {**first["metadata"]["labels"], history.REVISION_LABEL: str(number)},
        "annotations": {history.FACTS: json.dumps({**original, **facts})},
    }
    data = first["data"] if content is None else {history.CONTENT: base64.b64encode(content).decode()}
    obj = {"apiVersion": "v1", "kind": "Secret", "type": history.TYPE, "metadata": metadata, "data": data}
    clusters["minikube"].create(obj)


BOMB = gzip.compress(b"0" * 60_000_000, mtime=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "facts",
    [
        {"parts": 10**9},
        {"parts": -1},
        {"parts": "many"},
        {"size_bytes": 10**15},
        {"size_bytes": -1},
        {"counts": {"created": "many"}},
        {"counts": []},
        {"objects": 10**40},
        {"planned": None},
        {"size_bytes": 50_000_000, "content": BOMB},
        {"size_bytes": 200_000, "content": gzip.compress(b"[" * 200_000, mtime=0)},
    ],
    ids=lambda facts: " ".join(f"{name}={value}"[:30] for name, value in facts.items() if name != "content"),
)
def test_numbers_that_nobody_wrote_end_at_once_with_one_message(
    twice: Stack, clusters: Clusters, facts: dict[str, Any]
) -> None:
    content = facts.get("content")
    digest = {"digest": f"sha256:{hashlib.sha256(gzip.decompress(content)).hexdigest()}"} if content else {}
    planted(clusters, **{**facts, **digest})
    begun_s = time.monotonic()
    with pytest.raises(ClusterError, match="revision 3 is damaged: its Secrets are not what was written"):
        twice.rollback(3)
    assert time.monotonic() - begun_s < 2
    listed = list_history(twice.target(), opener=twice.opener)
    assert (len(listed.notes) == 1) == (content is None)
    twice.write("a", config_map(a="3"))
    assert twice.apply().ok
    assert twice.revisions()[0].number == 4
