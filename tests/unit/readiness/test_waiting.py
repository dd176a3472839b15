"""Waiting for what was applied: on a cluster in memory whose controllers run, stall, or go away."""

import re
from typing import Any

import pytest

from mlstack.errors import ForbiddenError, NotReadyError, TransientError, UnreachableError, WatchExpiredError
from mlstack.kube.client import ObjectRef
from mlstack.readiness.rule import NO_NODE_S, TIMEOUT_ANNOTATION, WAIT_ANNOTATION
from tests.support.deploying import config_map, crd, deployment, tfjob
from tests.support.watched import FaultyCluster, Watched

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
NO_GPU = (
    "0 of 1 pods ready: no node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient nvidia.com/gpu)"
)


@pytest.fixture
def running() -> Watched:
    """A cluster whose controllers run."""
    return Watched()


@pytest.fixture
def still() -> Watched:
    """A cluster in which nothing moves."""
    return Watched(gpus=None)


def annotated(data: dict[str, Any], **annotations: str) -> dict[str, Any]:
    names = {"wait": WAIT_ANNOTATION, "timeout": TIMEOUT_ANNOTATION}
    own = {names[name]: value for name, value in annotations.items()}
    return {**data, "metadata": {**data["metadata"], "annotations": own}}


def test_what_runs_is_ready(running: Watched) -> None:
    web, settings = running.apply(deployment(replicas=3)), running.apply(config_map())
    assert running.wait(web, settings) < 5
    assert {readiness.state for readiness in running.readiness.values()} == {"ready"}
    assert "ConfigMap" not in running.cluster.watches


def test_nothing_is_asked_object_by_object(running: Watched) -> None:
    wanted = [running.apply(deployment(f"web-{number}")) for number in range(8)]
    running.cluster.gets.clear()
    running.wait(*wanted)
    assert running.cluster.gets == []
    assert running.cluster.watches.count("Deployment") < 8


def test_plain_data_needs_no_watch(still: Watched) -> None:
    assert still.wait(still.apply(config_map())) == 0
    assert still.cluster.watches == []


def test_a_pod_without_gpu_is_told_soon_and_late_after_its_own_limit(running: Watched) -> None:
    web = running.apply(deployment(**GPU))
    with pytest.raises(NotReadyError) as caught:
        running.wait(web)
    assert re.match(r"`Deployment ml/web` is not ready after (2 min|12\d s): ", caught.value.message)
    assert caught.value.message.endswith(NO_GPU)
    assert caught.value.exit_code == 7
    assert running.waited_s == pytest.approx(NO_NODE_S, abs=6)
    assert running.messages == [("Deployment ml/web", NO_GPU)]


def test_a_chosen_timeout_holds_for_pods_without_a_node(running: Watched) -> None:
    web = running.apply(deployment(**GPU))
    with pytest.raises(NotReadyError):
        running.wait(web, timeout_s=20)
    assert running.waited_s == pytest.approx(20, abs=6)


def test_a_component_and_an_object_have_timeouts_of_their_own(still: Watched) -> None:
    web = still.apply(deployment())
    with pytest.raises(NotReadyError):
        still.wait(web, timeout_s=100, component_s={"a": 10})
    assert still.waited_s == pytest.approx(10, abs=6)
    own = still.apply(annotated(deployment("own"), timeout="30s"))
    with pytest.raises(NotReadyError):
        still.wait(own, timeout_s=100, component_s={"a": 10})
    assert still.waited_s == pytest.approx(30, abs=6)


@pytest.mark.parametrize("annotations", [{"timeout": "1h"}, {}], ids=["object", "component"])
def test_the_timeout_of_the_run_bounds_what_files_say(still: Watched, annotations: dict[str, str]) -> None:
    own = still.apply(annotated(deployment("own"), **annotations))
    with pytest.raises(NotReadyError):
        still.wait(own, timeout_s=20, component_s={"a": 3600})
    assert still.waited_s == pytest.approx(20, abs=6)


def test_without_a_controller_time_runs_out(still: Watched) -> None:
    with pytest.raises(NotReadyError, match="`Deployment ml/web` is not ready after"):
        still.wait(still.apply(deployment()))
    assert still.waited_s == pytest.approx(300, abs=6)


def break_pod(watched: Watched, reason: str = "ImagePullBackOff") -> None:
    """Let the one pod wait for ever."""
    container = {"name": "main", "state": {"waiting": {"reason": reason, "message": "no such tag"}}}
    for pod in watched.cluster.list("v1", "Pod", namespace="ml").items:
        status = {"phase": "Pending", "containerStatuses": [container], "conditions": []}
        watched.cluster.patch(ObjectRef.of(pod), {"status": status}, subresource="status")


def test_a_broken_image_ends_the_wait_after_its_grace(still: Watched) -> None:
    web = still.apply(deployment())
    own = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-1", "ownerReferences": [owner(still, web)]},
    }
    still.apply(own | {"spec": {"containers": [{"name": "main", "image": "a"}]}})
    break_pod(still)
    with pytest.raises(NotReadyError) as caught:
        still.wait(web)
    text = "0 of 1 pods ready: container main: ImagePullBackOff: no such tag"
    assert caught.value.message == f"`Deployment ml/web` failed: {text}"
    assert 30 < still.waited_s < 50
    assert caught.value.reasons == (f"Deployment ml/web: {text}",)


def owner(watched: Watched, wanted: Any) -> dict[str, Any]:
    uid = watched.uids[wanted.identity]
    return {
        "apiVersion": wanted.api_version,
        "kind": wanted.kind,
        "name": wanted.name,
        "uid": uid,
        "controller": True,
    }


def test_one_failure_ends_the_wait_and_names_the_others(still: Watched) -> None:
    kind = "Failed"
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}}
    job |= {
        "spec": {
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}
        }
    }
    wanted = still.apply(job)
    status = {"conditions": [{"type": kind, "status": "True", "message": "too many retries"}]}
    still.cluster.patch(ObjectRef("batch/v1", "Job", "ml", "once"), {"status": status}, subresource="status")
    with pytest.raises(NotReadyError) as caught:
        still.wait(wanted, still.apply(deployment()))
    assert still.waited_s < 10
    assert caught.value.message == (
        "1 object failed, 1 more not ready yet\n  Job ml/once: too many retries\n"
        "  Deployment ml/web: 0 of 1 pods ready"
    )


def test_a_job_that_queues_is_told_and_left(still: Watched) -> None:
    still.cluster.create(crd("tfjobs", "TFJob", group="kubeflow.org"))
    job = still.apply(tfjob())
    assert 10 <= still.wait(job) < 20
    kind, text = still.messages[-1]
    assert (kind, still.events[-1].kind) == ("TFJob ml/cnn", "note")
    assert text.startswith("not waited for: ")


def test_a_job_can_be_waited_for(still: Watched) -> None:
    still.cluster.create(crd("tfjobs", "TFJob", group="kubeflow.org"))
    job = still.apply(tfjob())
    with pytest.raises(NotReadyError, match="no training operator has picked it up"):
        still.wait(job, wait_for_jobs=True, timeout_s=30)


def test_an_optional_object_never_fails_the_run(still: Watched) -> None:
    web = still.apply(annotated(deployment(), wait="optional"))
    assert 10 <= still.wait(web) < 20
    assert still.messages[-1] == ("Deployment ml/web", "not waited for: 0 of 1 pods ready")


def test_an_object_that_nobody_waits_for_is_not_waited_for(still: Watched) -> None:
    assert still.wait(still.apply(annotated(deployment(), wait="none"))) < 5


def test_a_load_balancer_is_waited_for_only_where_asked(still: Watched) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    wanted = still.apply(
        service | {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"a": "b"}}}
    )
    assert still.wait(wanted) == 0
    with pytest.raises(NotReadyError, match="the load balancer has no address yet"):
        still.wait(wanted, balancer=True)


def test_an_object_that_somebody_made_anew_fails(still: Watched) -> None:
    web = still.apply(deployment())
    ref = ObjectRef.of(web.data)

    def recreate(cluster: FaultyCluster, kind: str) -> None:
        cluster.delete(ref, propagation="Background")
        cluster.apply(web.data)

    still.cluster.faults.append(recreate)
    with pytest.raises(NotReadyError, match="its UID changed"):
        still.wait(web)
    assert still.waited_s < 10


def test_an_object_that_somebody_deleted_fails(still: Watched) -> None:
    web = still.apply(deployment())

    def delete(cluster: FaultyCluster, kind: str) -> None:
        cluster.delete(ObjectRef.of(web.data), propagation="Background")

    still.cluster.faults += [lambda cluster, kind: None, delete]
    with pytest.raises(NotReadyError, match="somebody deleted it while it was waited for"):
        still.wait(web)
    assert still.waited_s < 15


def test_a_job_that_ended_and_was_removed_is_done(still: Watched) -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"}}
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
    wanted = still.apply(job | {"spec": {"ttlSecondsAfterFinished": 0, "template": {"spec": pod}}})

    def delete(cluster: FaultyCluster, kind: str) -> None:
        cluster.delete(ObjectRef.of(wanted.data), propagation="Background")

    still.cluster.faults += [lambda cluster, kind: None, delete]
    still.wait(wanted)
    assert still.readiness[wanted.identity].state == "done"


def test_a_server_whose_watches_a_proxy_refuses_is_asked_for_each_object(still: Watched) -> None:
    def refuse(cluster: FaultyCluster, kind: str) -> None:
        raise TransientError("a watch is no request")

    still.cluster.faults += [refuse] * 1000
    with pytest.raises(NotReadyError, match="0 of 1 pods ready"):  # so it was looked at
        still.wait(still.apply(deployment()))


def test_an_object_whose_labels_were_taken_is_still_seen(running: Watched) -> None:
    web = running.apply(deployment())
    assert running.wait(web, labels="mlstack.dev/app=demo") < 10


def test_a_watch_that_breaks_or_expires_goes_on(running: Watched) -> None:
    def drop(cluster: FaultyCluster, kind: str) -> None:
        cluster.compact()
        raise WatchExpiredError("too old")

    def silence(cluster: FaultyCluster, kind: str) -> None:
        raise UnreachableError("no answer")

    running.cluster.faults += [silence, drop, silence, drop, drop]
    assert running.wait(running.apply(deployment())) < 30


def test_what_goes_while_the_watch_is_away_is_noticed(still: Watched) -> None:
    web = still.apply(deployment())

    def lose(cluster: FaultyCluster, kind: str) -> None:
        cluster.delete(ObjectRef.of(web.data), propagation="Background")
        cluster.compact()

    still.cluster.faults += [lambda cluster, kind: None, lose]
    with pytest.raises(NotReadyError, match="somebody deleted it"):
        still.wait(web)


def test_an_outage_is_told_and_outlived(running: Watched) -> None:
    web = running.apply(deployment())
    running.cluster.silent = UnreachableError("no answer from the API server")
    passed, sleep = [], running.clock.sleep

    def sleeping(seconds: float) -> None:
        sleep(seconds)
        passed.append(seconds)
        if sum(passed) > 20:
            running.cluster.silent = None

    running.clock.sleep = sleeping  # type: ignore[method-assign]
    running.wait(web)
    assert running.messages == [
        ("", "no answer from the API server; waiting goes on"),
        ("", "the API server answers again"),
    ]


def test_an_outage_without_end_says_so(running: Watched) -> None:
    web = running.apply(deployment())
    running.cluster.silent = UnreachableError("no answer")
    with pytest.raises(NotReadyError, match=r"the API server has not answered for (5 min|30\d s)"):
        running.wait(web, timeout_s=300)


def test_refused_credentials_end_the_wait(running: Watched) -> None:
    web = running.apply(deployment())
    running.cluster.silent = ForbiddenError("the token has expired", why="credentials")
    with pytest.raises(ForbiddenError, match="expired"):
        running.wait(web)
    assert running.waited_s < 60


def test_who_may_not_watch_asks_instead(running: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    web = running.apply(deployment())
    for _ in range(3):
        running.cluster.on_idle()

    def refuse(*words: Any, **options: Any) -> Any:
        raise ForbiddenError("`ada` may not watch")
        yield

    monkeypatch.setattr(running.cluster, "watch", refuse)
    for _ in range(10):
        running.cluster.on_idle()
    assert running.wait(web) < 10
    assert running.messages == []


def test_who_may_not_watch_is_told_that_reasons_may_be_missing(
    still: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = still.apply(deployment())

    def refuse(*words: Any, **options: Any) -> Any:
        raise ForbiddenError("`ada` may not watch")
        yield

    monkeypatch.setattr(still.cluster, "watch", refuse)
    with pytest.raises(NotReadyError, match="0 of 1 pods ready"):
        still.wait(web, timeout_s=20)
    assert still.events[-1].text == "reasons may be missing: `ada` may not watch"


def test_many_objects_with_one_reason_share_a_line(running: Watched) -> None:
    wanted = [running.apply(deployment(f"web-{number}", **GPU)) for number in range(5)]
    with pytest.raises(NotReadyError):
        running.wait(*wanted, timeout_s=20)
    some = "Deployment ml/web-0, Deployment ml/web-1, Deployment ml/web-2"
    assert running.messages == [("", f"5 objects ({some} …): {NO_GPU}")]


def test_objects_of_many_namespaces_share_a_watch(running: Watched) -> None:
    wanted = []
    for number in range(7):
        name = f"ns-{number}"
        running.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        data = deployment()
        wanted.append(running.apply({**data, "metadata": {"name": "web", "namespace": name}}))
    with running.lookout(wanted) as lookout:
        assert lookout._sources[wanted[0].identity].namespace is None
    running.wait(*wanted)
