"""One controller leads: a Lease on a cluster in memory, and a clock that a test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from queue import Queue
from typing import Any

import pytest

from mlstack.elastic.controller import LeaderElector, NotLeadingError, find_lease_namespace
from mlstack.errors import ForbiddenError, UnreachableError, UsageError
from mlstack.kube.client import ClientWrapper, ObjectRef
from mlstack.kube.parallel import Lease
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.stage import Counting


@dataclass
class Time:
    """A time that a test moves."""

    seconds: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Election:
    """Candidates for one lease."""

    time: Time = field(default_factory=Time)
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = Counting(MemoryCluster(load_schemas("1.36"), clock=self.time))

    def candidate(self, name: str) -> LeaderElector:
        lease = Lease(cluster=self.cluster, namespace="default", name="lock", holder=name, now_s=self.time)
        return LeaderElector(lease, self.time, self.lines.append)

    def lease(self) -> dict[str, object]:
        lease = self.cluster.get(ObjectRef("coordination.k8s.io/v1", "Lease", "default", "lock"))
        assert lease is not None
        return dict(lease["spec"])


@pytest.fixture
def election() -> Election:
    return Election()


def test_the_first_leads_and_the_second_stands_by(election: Election) -> None:
    first, second = election.candidate("a"), election.candidate("b")

    first.attempt()
    second.attempt()

    assert (first.is_leading, second.is_leading) == (True, False)
    with pytest.raises(NotLeadingError):
        second.check()


def test_standing_by_writes_nothing(election: Election) -> None:
    election.candidate("a").attempt()
    second = election.candidate("b")
    before = election.cluster.writes

    for _ in range(5):
        second.attempt()
        election.time.seconds += 2

    assert election.cluster.writes == before


def test_a_leader_renews_every_ten_seconds(election: Election) -> None:
    leader = election.candidate("a")

    for _ in range(4):
        election.time.seconds += leader.attempt()
        assert leader.is_leading

    assert election.cluster.writes == 4
    assert election.lease()["leaseTransitions"] == 0


def test_a_leader_that_died_is_followed(election: Election) -> None:
    election.candidate("a").attempt()
    second, waited_s = election.candidate("b"), 0.0

    while not second.is_leading:
        pause_s = second.attempt()
        if not second.is_leading:
            election.time.seconds += pause_s
            waited_s += pause_s

    assert 15 <= waited_s <= 20
    assert second.transitions == 1


def test_a_leader_that_slept_does_not_write(election: Election) -> None:
    leader = election.candidate("a")
    leader.attempt()

    election.time.seconds += 13

    with pytest.raises(NotLeadingError):
        leader.check()


def test_a_leader_that_slept_too_long_sees_who_leads_now(election: Election) -> None:
    first, second = election.candidate("a"), election.candidate("b")
    first.attempt()
    second.attempt()
    election.time.seconds += 17
    second.attempt()
    assert second.is_leading

    first.attempt()

    assert not first.is_leading
    assert election.lines[-1] == "a does not lead any more: the lease went to b"


def test_a_released_lease_is_taken_at_once_and_goes_on_counting(election: Election) -> None:
    first, second = election.candidate("a"), election.candidate("b")
    first.attempt()

    first.stop()
    second.attempt()

    assert (first.is_leading, second.is_leading) == (False, True)
    assert (first.transitions, second.transitions) == (None, 1)
    with pytest.raises(NotLeadingError):
        first.check()


def test_what_is_in_the_way_is_told_once(election: Election) -> None:
    lease = Lease(cluster=election.cluster, namespace="nowhere", name="lock", holder="a", now_s=election.time)
    candidate = LeaderElector(lease, election.time, election.lines.append)

    for _ in range(3):
        candidate.attempt()
        candidate.report()

    assert len(election.lines) == 1
    assert "nowhere" in election.lines[0]


def test_whoever_goes_on_trying_says_what_is_in_the_way(election: Election) -> None:
    lease = Lease(cluster=election.cluster, namespace="nowhere", name="lock", holder="a", now_s=election.time)
    lines: Queue[str] = Queue()
    candidate = LeaderElector(lease, election.time, lines.put)

    candidate.start()

    assert lines.get(timeout=10).startswith("the lease cannot be had: ")
    candidate.stop()


def test_a_leader_that_is_certainly_gone_is_followed_at_once(election: Election) -> None:
    election.candidate("dead").attempt()
    lease = Lease(cluster=election.cluster, namespace="default", name="lock", holder="b", now_s=election.time)
    second = LeaderElector(lease, election.time, election.lines.append, lambda name: name == "dead")

    second.attempt()

    assert second.is_leading
    assert second.transitions == 1


def test_whoever_stands_by_says_once_who_has_the_lease_and_where(election: Election) -> None:
    first, second, third = (election.candidate(name) for name in "abc")
    first.attempt()
    for _ in range(5):
        third.attempt()
        election.time.seconds += 2
    first.stop()
    second.attempt()
    for _ in range(5):
        third.attempt()
        election.time.seconds += 2

    assert [line for line in election.lines if line.startswith("c ")] == [
        "c stands by: a has the Lease `default/lock`",
        "c stands by: b has the Lease `default/lock`",
    ]


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(load_schemas("1.36"), clock=lambda: 1_700_000_000.0)


def hold(cluster: MemoryCluster, namespace: str, name: str = "mlstack-elastic") -> None:
    Lease(cluster=cluster, namespace=namespace, name=name, holder="pod-0", now_s=lambda: 1.7e9).take()


def find(cluster: Any) -> tuple[str, list[str]]:
    lines: list[str] = []
    return find_lease_namespace(cluster, "mlstack-elastic", default="default", log=lines.append), lines


class Failing(ClientWrapper):
    """A cluster that lists nothing."""

    def __init__(self, cluster: MemoryCluster, error: Exception) -> None:
        super().__init__(cluster)
        self._error = error

    def list(self, *words: Any, **options: Any) -> Any:
        raise self._error


def test_the_lease_that_is_there_is_used(cluster: MemoryCluster) -> None:
    hold(cluster, "kube-system")
    hold(cluster, "kube-public", "another")

    assert find(cluster) == ("kube-system", [])


def test_without_any_the_default_is(cluster: MemoryCluster) -> None:
    assert find(cluster) == ("default", [])


def test_several_are_refused_by_name(cluster: MemoryCluster) -> None:
    hold(cluster, "kube-system")
    hold(cluster, "default")

    with pytest.raises(
        UsageError, match="`default/mlstack-elastic`, `kube-system/mlstack-elastic`"
    ) as caught:
        find(cluster)

    assert "--lease-namespace" in str(caught.value.hint)


def test_whoever_may_not_look_is_told_what_follows(cluster: MemoryCluster) -> None:
    namespace, lines = find(Failing(cluster, ForbiddenError("no")))

    assert namespace == "default"
    [line] = lines
    assert "`default/mlstack-elastic`" in line and "--lease-namespace" in line


def test_a_cluster_that_does_not_answer_is_no_empty_one(cluster: MemoryCluster) -> None:
    with pytest.raises(UnreachableError):
        find(Failing(cluster, UnreachableError("no answer")))
