"""Claims of training jobs on a real control plane: made, bound, mounted, and kept or deleted as jobs say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import TestCluster
from tests.support.elastic import training_job
from tests.support.elastic_controller import Jobs, Start, held_to

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]

VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
HOSTNAME = "kubernetes.io/hostname"


class Shelf:
    """Volumes that somebody made by hand, under a class name of their own.

    Attributes:
        name: of the class.
        volumes: names of the volumes.
    """

    def __init__(self, cluster: TestCluster, name: str, folder: Path) -> None:
        self._cluster, self.name, self._folder = cluster, name, folder
        self.volumes: list[str] = []

    def put(self, size: str, *, node: str = "") -> None:
        """Make a volume that all nodes reach, or only one."""
        name = f"{self.name}-{len(self.volumes)}"
        term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [node]}]}
        path = {"path": str(self._folder / name)}
        where: Obj = (
            {"local": path, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
            if node
            else {"hostPath": path}
        )
        spec = {
            "storageClassName": self.name,
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            **where,
        }
        self._cluster.request("POST", VOLUMES, {"metadata": {"name": name}, "spec": spec})
        self.volumes.append(name)

    def wait_for_pods_first(self) -> None:
        """Let claims be bound only where a pod is about to go."""
        content = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        self._cluster.request("POST", CLASSES, {"metadata": {"name": self.name}, **content})

    def clear(self) -> None:
        """Remove the volumes and the class."""
        for name in self.volumes:
            self._cluster.request("DELETE", f"{VOLUMES}/{name}")
        if self._cluster.find(f"{CLASSES}/{self.name}"):
            self._cluster.request("DELETE", f"{CLASSES}/{self.name}")


@pytest.fixture
def shelf(gke: TestCluster, namespace: str, tmp_path: Path) -> Iterator[Shelf]:
    """Volumes of this test alone."""
    shelf = Shelf(gke, f"by-hand-{namespace}", tmp_path)
    yield shelf
    shelf.clear()


def storing_job(name: str, *, pservers: int = 1, with_master: bool = False, **storage: Any) -> Obj:
    """Give a job whose servers have claims of this form."""
    job = training_job(name, minimum=1, maximum=2, pservers=pservers, with_master=with_master)
    job["spec"]["trainer"]["terminationGracePeriodSeconds"] = 1
    for role in ("pserver", "master"):
        job["spec"][role]["storage"] = storage
    return job


def claims(jobs: Jobs) -> dict[str, Obj]:
    """Give the claims of the namespace by name."""
    live = jobs.objects("persistentvolumeclaims").values()
    return {claim["metadata"]["name"]: claim for claim in live}


def bound(jobs: Jobs) -> dict[str, tuple[str, str]]:
    """Give the UID and the volume of every claim that is bound and that nobody has deleted, by name."""
    return {
        name: (claim["metadata"]["uid"], claim["spec"]["volumeName"])
        for name, claim in claims(jobs).items()
        if claim["status"]["phase"] == "Bound" and not claim["metadata"].get("deletionTimestamp")
    }


def mounts(pod: Obj) -> dict[str, str]:
    """Give where the containers of a pod mount the claim that is the pod's own."""
    own = {
        volume["name"]
        for volume in pod["spec"].get("volumes", [])
        if volume.get("persistentVolumeClaim", {}).get("claimName")
        == f"mlstack-state-{pod['metadata']['name']}"
    }
    return {
        container["name"]: ":".join(filter(None, [mount["mountPath"], mount.get("subPath")]))
        for container in pod["spec"]["containers"]
        for mount in container.get("volumeMounts", [])
        if mount["name"] in own
    }


def end(jobs: Jobs, name: str) -> None:
    """Delete a job and wait until nothing is left of it but its claims."""
    jobs.cluster.request("DELETE", jobs.path(name))
    kinds = "trainingjobs,pods,statefulsets"
    jobs.wait_for(lambda: not jobs.objects(kinds), what="the end of the job, its sets and its pods")


def test_each_server_mounts_a_volume_of_the_class_that_its_job_names(
    start: Start, jobs: Jobs, shelf: Shelf
) -> None:
    start()
    for size in ("1Gi", "2Gi", "3Gi"):
        shelf.put(size)
    jobs.create(storing_job("one", pservers=2, with_master=True, size="1Gi", storageClassName=shelf.name))

    jobs.wait_for_phase("one", "Running")
    claims = bound(jobs)
    names = ["one-master-0", "one-pserver-0", "one-pserver-1"]
    assert sorted(claims) == [f"mlstack-state-{name}" for name in names]
    assert sorted(volume for _, volume in claims.values()) == shelf.volumes
    assert [mounts(pod) for pod in jobs.pods("one", "pserver")] == [{"pserver": "/checkpoint"}] * 2
    assert [mounts(pod) for pod in jobs.pods("one", "master")] == [
        {"master": "/var/lib/etcd", "etcd": "/var/lib/etcd:etcd"}
    ]
    assert not any(pod["spec"].get("volumes") for pod in jobs.pods("one", "trainer"))


def test_claims_that_are_kept_serve_the_next_job_of_the_name(start: Start, jobs: Jobs, shelf: Shelf) -> None:
    start()
    for _ in range(4):
        shelf.put("1Gi")
    job = storing_job("one", with_master=True, size="1Gi", storageClassName=shelf.name)
    jobs.create(job)
    jobs.wait_for_phase("one", "Running")
    before = bound(jobs)
    end(jobs, "one")

    assert bound(jobs) == before
    assert [claim["metadata"].get("ownerReferences") for claim in claims(jobs).values()] == [None, None]
    jobs.create(job)
    jobs.wait_for_phase("one", "Running")
    assert bound(jobs) == before


def test_claims_go_with_a_job_that_says_so_and_with_them_what_the_cluster_provided(
    start: Start, jobs: Jobs
) -> None:
    start()
    jobs.create(storing_job("one", pservers=2, with_master=True, size="1Gi", whenDeleted="Delete"))
    jobs.wait_for_phase("one", "Running")
    provided = [volume for _, volume in bound(jobs).values()]
    assert len(provided) == 3

    end(jobs, "one")

    jobs.wait_for(lambda: not claims(jobs), what="the end of the claims")
    for volume in provided:
        jobs.cluster.wait_until_gone(f"{VOLUMES}/{volume}")


def test_claims_outlast_a_time_without_pods_even_if_they_go_with_the_job(start: Start, jobs: Jobs) -> None:
    start()
    jobs.create(storing_job("one", with_master=True, size="1Gi", whenDeleted="Delete"))
    jobs.wait_for_phase("one", "Running")
    before = bound(jobs)

    suspend(jobs, "one", True)
    jobs.wait_for_phase("one", "Suspended")
    jobs.wait_for(lambda: not jobs.pods(), what="the end of the pods")
    assert bound(jobs) == before
    suspend(jobs, "one", False)

    jobs.wait_for_phase("one", "Running")
    assert bound(jobs) == before
    end(jobs, "one")
    jobs.wait_for(lambda: not claims(jobs), what="the end of the claims")


def suspend(jobs: Jobs, name: str, wanted: bool) -> None:
    jobs.cluster.request("PATCH", jobs.path(name), {"spec": {"suspend": wanted}})


def test_a_server_whose_volume_only_another_node_reaches_goes_there(
    start: Start, jobs: Jobs, shelf: Shelf
) -> None:
    start()
    shelf.wait_for_pods_first()
    jobs.create(storing_job("one", size="1Gi", storageClassName=shelf.name))
    jobs.wait_for(lambda: jobs.pods("one", "pserver"), what="a server")
    first = jobs.pods("one", "pserver")[0]
    planned = held_to(first)
    assert len(planned) == 1

    other = next(name for index in range(3) if (name := f"gke-gpu-{index}") not in planned)
    shelf.put("1Gi", node=other)

    jobs.wait_for_phase("one", "Running", timeout_s=60)
    now = jobs.pods("one", "pserver")[0]
    assert now["spec"]["nodeName"] == other
    assert now["metadata"]["uid"] != first["metadata"]["uid"]
    assert held_to(now) == []


def test_all_pods_share_a_claim_that_is_the_users_own(start: Start, jobs: Jobs) -> None:
    start()
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "shared"}}
    size = {"requests": {"storage": "1Gi"}}
    jobs.create({**claim, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size}})
    volumes = [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "shared"}}]
    where = [{"name": "checkpoints", "mountPath": "/checkpoints"}]
    job = training_job("one", minimum=2, maximum=2, pservers=1, with_master=True)
    job["spec"] |= {"volumes": volumes, "VolumeMounts": where}
    jobs.create(job)

    jobs.wait_for_phase("one", "Running")
    before = bound(jobs)
    assert list(before) == ["shared"]
    for pod in jobs.pods("one"):
        main = pod["spec"]["containers"][0]
        assert where[0] in main["volumeMounts"]
        assert volumes[0] in pod["spec"]["volumes"]
    end(jobs, "one")
    assert bound(jobs) == before
