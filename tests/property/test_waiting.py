"""Laws of waiting: what verdicts may be, what an index of relatives holds, what a broken watch may lose."""

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlstack import clock
from mlstack.errors import ConflictError, ObjectNotFoundError, UnreachableError, WatchExpiredError
from mlstack.kube.client import ObjectRef
from mlstack.objects.kube_object import KubeObject
from mlstack.readiness.rule import SURE_S, Readiness, Relatives, Terms
from tests.support.deploying import deployment
from tests.support.watched import FaultyCluster, Watched

moments = st.floats(0, 10_000)
states = st.sampled_from(["ready", "waiting", "failed", "done", "suspended", "terminating", "missing"])
findings = st.builds(Readiness, state=states, queue=st.sampled_from(["", "node", "new-node", "quota"]))
terms = st.builds(
    Terms,
    policy=st.sampled_from(["required", "optional", "none"]),
    brief=st.booleans(),
    timeout_s=moments,
    no_node_s=moments,
)


@given(terms, findings, moments, moments)
def test_only_what_is_required_fails_a_run_and_only_what_is_not_fine(
    agreed: Terms, readiness: Readiness, waited_s: float, held_s: float
) -> None:
    verdict = agreed.verdict(readiness, waited_s=waited_s, held_s=held_s)
    if readiness.is_fine or agreed.policy == "none":
        assert verdict == "fine"
    if verdict == "failed":
        assert agreed.policy == "required"
        assert readiness.state in ("failed", "missing")
        assert held_s >= SURE_S
    if verdict == "late":
        assert not agreed.brief


@given(terms, findings, moments, moments, moments)
def test_a_verdict_is_not_taken_back_by_time_alone(
    agreed: Terms, readiness: Readiness, waited_s: float, held_s: float, more_s: float
) -> None:
    now = agreed.verdict(readiness, waited_s=waited_s, held_s=held_s)
    later = agreed.verdict(readiness, waited_s=waited_s + more_s, held_s=held_s + more_s)
    assert later == now or now == "wait"


@given(terms, findings)
def test_no_wait_is_for_ever(agreed: Terms, readiness: Readiness) -> None:
    assert agreed.verdict(readiness, waited_s=20_000, held_s=20_000) != "wait"


@given(st.integers(0, 9), st.integers(0, 59), st.integers(0, 59))
def test_durations_are_read_as_they_are_written(hours: int, minutes: int, seconds: int) -> None:
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    text = "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"
    assert clock.seconds(text) == hours * 3600 + minutes * 60 + seconds


@given(st.text(max_size=8))
def test_any_text_is_a_duration_or_refused_in_one_way(text: str) -> None:
    try:
        assert clock.seconds(text) >= 0
    except ValueError as error:
        assert "is no duration" in str(error)


def pod(name: str, owner: str, version: int) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "namespace": "ml", "ownerReferences": [{"uid": owner}]}
    return {"kind": "Pod", "metadata": metadata, "status": {"version": version}}


moves = st.tuples(
    st.booleans(), st.sampled_from(["p1", "p2", "p3"]), st.sampled_from(["a", "b"]), st.integers(0, 3)
)


@given(st.lists(moves))
def test_an_index_holds_what_is_there_however_it_came_to_be(
    history: list[tuple[bool, str, str, int]],
) -> None:
    relatives, there = Relatives(), {}
    for puts, name, owner, version in history:
        data = pod(name, owner, version)
        if puts:
            relatives.put(data)
            there[name] = data
        else:
            relatives.drop(data)
            there.pop(name, None)
    for owner in ("a", "b"):
        live = {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"uid": owner}}
        mine = [pod for pod in there.values() if pod["metadata"]["ownerReferences"][0]["uid"] == owner]
        assert relatives.pods_of(live) == sorted(mine, key=lambda pod: pod["metadata"]["name"])


class Actor:
    """Changes a cluster while it is watched, one thing a round, and breaks its watches in between."""

    def __init__(self, watched: Watched, deeds: list[tuple[str, int]]) -> None:
        self.watched, self.deeds = watched, list(deeds)

    def act(self) -> None:
        if not self.deeds:
            return
        deed, number = self.deeds.pop(0)
        cluster, name = self.watched.cluster, f"web-{number}"
        if deed == "apply":
            cluster.apply(placed(name, replicas=len(self.deeds)))
        elif deed == "delete":
            with suppress(ObjectNotFoundError, ConflictError):
                cluster.delete(ObjectRef("apps/v1", "Deployment", "ml", name), propagation="Background")
        elif deed == "expire":
            cluster.compact()
            cluster.faults.append(_expire)
        else:
            cluster.faults.append(_break)


def _expire(cluster: FaultyCluster, kind: str) -> None:
    raise WatchExpiredError("too old")


def _break(cluster: FaultyCluster, kind: str) -> None:
    raise UnreachableError("no answer")


def placed(name: str, *, replicas: int = 1) -> dict[str, Any]:
    data = deployment(name, replicas=replicas)
    return {**data, "metadata": {"name": name, "namespace": "ml"}}


deeds = st.tuples(st.sampled_from(["apply", "delete", "expire", "break"]), st.integers(0, 2))


@given(history=st.lists(deeds, max_size=12))
def test_whatever_becomes_of_watches_the_last_look_is_the_truth(history: list[tuple[str, int]]) -> None:
    watched = Watched(gpus=None)
    actor = Actor(watched, history)
    names = [f"web-{number}" for number in range(3)]
    wanted = [KubeObject(data=placed(name)) for name in names]
    with watched.lookout(wanted, everything=True) as lookout:
        rounds = lookout.rounds()
        while actor.deeds:
            next(rounds)
            actor.act()
        last = [next(rounds) for _ in range(12)][-1]
    for standing in last:
        live = watched.cluster.get(ObjectRef.of(standing.desired.data))
        assert (standing.live or {}).get("metadata") == (live or {}).get("metadata"), standing.desired.name
