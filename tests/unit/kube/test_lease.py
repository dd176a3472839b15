"""A Lease that one process at a time holds."""

from __future__ import annotations

import re

import pytest

from mlstack.kube.parallel import HeldError, Lease, LostError
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster(clock: VirtualClock) -> MemoryCluster:
    return MemoryCluster(load_schemas("1.36"), clock=clock)


def lease(cluster: MemoryCluster, holder: str, clock: VirtualClock, **more: object) -> Lease:
    facts = {"namespace": "default", "name": "lock", "holder": holder, "now_s": clock.now_s, **more}
    return Lease(cluster=cluster, **facts)  # type: ignore[arg-type]


def test_times_have_exactly_six_decimals(cluster: MemoryCluster, clock: VirtualClock) -> None:
    mine = lease(cluster, "ada", clock)
    mine.take()
    live = cluster.get(mine.ref)
    assert live is not None
    for name in ("acquireTime", "renewTime"):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", live["spec"][name])


def test_a_held_lease_is_not_taken(cluster: MemoryCluster, clock: VirtualClock) -> None:
    lease(cluster, "ada", clock).take()
    clock.sleep(5)
    with pytest.raises(HeldError) as refused:
        lease(cluster, "grace", clock).take()
    assert refused.value.term.holder == "ada"
    assert 10 <= refused.value.left_s <= 11


def test_a_renewed_lease_does_not_expire(cluster: MemoryCluster, clock: VirtualClock) -> None:
    mine = lease(cluster, "ada", clock)
    term = mine.take()
    clock.sleep(12)
    mine.renew(term)
    clock.sleep(12)
    with pytest.raises(HeldError):
        lease(cluster, "grace", clock).take()


def test_the_clock_of_another_machine_does_not_matter(cluster: MemoryCluster, clock: VirtualClock) -> None:
    lease(cluster, "ada", clock).take()
    ahead = VirtualClock(clock.now_s() + 3600)
    with pytest.raises(HeldError):
        lease(cluster, "grace", ahead).take()


def test_a_lease_of_a_dead_process_need_not_expire(cluster: MemoryCluster, clock: VirtualClock) -> None:
    lease(cluster, "ada", clock).take()
    grace = lease(cluster, "grace", clock).take(is_gone=lambda name: name == "ada")
    assert grace.holder == "grace"


def test_release_leaves_the_lease_of_another_alone(cluster: MemoryCluster, clock: VirtualClock) -> None:
    mine = lease(cluster, "ada", clock)
    term = mine.take()
    clock.sleep(20)
    other = lease(cluster, "grace", clock)
    other.take()
    mine.release(term)
    held = other.read()
    assert held is not None
    assert held.holder == "grace"


def test_renewing_a_lease_of_another_says_whose_it_is(cluster: MemoryCluster, clock: VirtualClock) -> None:
    mine = lease(cluster, "ada", clock)
    term = mine.take()
    clock.sleep(20)
    lease(cluster, "grace", clock).take()
    with pytest.raises(LostError) as lost:
        mine.renew(term)
    assert lost.value.term is not None
    assert lost.value.term.holder == "grace"


def test_renewing_a_deleted_lease_says_that_it_is_gone(cluster: MemoryCluster, clock: VirtualClock) -> None:
    mine = lease(cluster, "ada", clock)
    term = mine.take()
    cluster.delete(mine.ref, propagation="Background")
    with pytest.raises(LostError) as lost:
        mine.renew(term)
    assert lost.value.term is None


def test_an_emptied_lease_is_free(cluster: MemoryCluster, clock: VirtualClock) -> None:
    mine = lease(cluster, "ada", clock)
    mine.take()
    cluster.patch(mine.ref, {"spec": {"holderIdentity": None}})
    assert mine.read() is None
    assert lease(cluster, "grace", clock).take().holder == "grace"
