"""One run at a time on an environment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.environment import Environment
from mlstack.deploy import lock
from mlstack.deploy.changes import RunEvent
from mlstack.deploy.lock import readable_holder
from mlstack.deploy.target import Holder
from mlstack.deploy.write import WEBHOOK_S
from mlstack.errors import ClusterError, ForbiddenError, InvalidError, LockedError, TransientError
from mlstack.kube.client import Applied, ClientWrapper, Cluster, ObjectRef
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import Stack, VirtualClock, config_map, existing

ADA, GRACE = Holder(name="ada@laptop/4711/a1"), Holder(name="grace@ci/7/b2")
PLACE = Environment(name="prod/eu", context="gke", namespace="default")
LEASE = ObjectRef("coordination.k8s.io/v1", "Lease", "default", "mlstack-demo.prod.eu")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster(clock: VirtualClock) -> MemoryCluster:
    return MemoryCluster(load_schemas("1.36"), clock=clock)


def a_write(name: str = "a") -> dict[str, object]:
    manifest = config_map(name)
    return {**manifest, "metadata": {"name": name, "namespace": "default"}}


class Holding:
    """Takes the lock of one environment."""

    def __init__(self, cluster: MemoryCluster, clock: VirtualClock) -> None:
        self.cluster, self.clock, self.events = cluster, clock, list[RunEvent]()

    def __call__(self, holder: Holder, timeout_s: float = 0.0):  # type: ignore[no-untyped-def]
        return lock.hold(
            self.cluster,
            PLACE,
            "demo",
            holder=holder,
            clock=self.clock,
            on_event=self.events.append,
            timeout_s=timeout_s,
        )

    @property
    def messages(self) -> list[str]:
        return [event.text for event in self.events]


@pytest.fixture
def held(cluster: MemoryCluster, clock: VirtualClock) -> Holding:
    return Holding(cluster, clock)


def test_the_lock_is_there_while_it_is_held(cluster: MemoryCluster, held: Holding) -> None:
    with held(ADA):
        live = existing(cluster, LEASE)
        assert live["spec"]["holderIdentity"] == ADA.name
        assert live["metadata"]["labels"]["mlstack.dev/environment"] == "prod.eu"
        assert "mlstack.dev/component" not in live["metadata"]["labels"]
    assert cluster.get(LEASE) is None


def test_a_failing_run_releases_the_lock(cluster: MemoryCluster, held: Holding) -> None:
    with pytest.raises(ValueError, match="oops"), held(ADA):
        raise ValueError("oops")
    assert cluster.get(LEASE) is None


def test_a_lock_whose_taking_was_cut_off_is_released(
    cluster: MemoryCluster, held: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = cluster.create

    def unheard(*args: Any, **how: Any) -> Applied:
        create(*args, **how)
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "create", unheard)
    with pytest.raises(KeyboardInterrupt), held(ADA):
        pass
    assert cluster.get(LEASE) is None


def test_who_is_cut_off_leaves_the_lock_of_another(held: Holding, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(seconds: float) -> None:
        raise KeyboardInterrupt

    with held(GRACE):
        monkeypatch.setattr(held.clock, "sleep", cut_off)
        with pytest.raises(KeyboardInterrupt), held(ADA, timeout_s=10):
            pass
        live = existing(held.cluster, LEASE)
        assert live["spec"]["holderIdentity"] == GRACE.name


def test_an_interruption_of_the_release_does_not_stop_it(
    cluster: MemoryCluster, held: Holding, monkeypatch: pytest.MonkeyPatch
) -> None:
    join, joined = threading.Thread.join, list[str]()

    def interrupted(thread: threading.Thread, timeout: float | None = None) -> None:
        joined.append(thread.name)
        if len(joined) == 1:
            raise KeyboardInterrupt
        join(thread, timeout)

    with pytest.raises(KeyboardInterrupt), held(ADA):
        monkeypatch.setattr(threading.Thread, "join", interrupted)
    assert joined == ["mlstack-unlock"] * 2
    assert cluster.get(LEASE) is None


def test_another_run_is_refused_at_once(held: Holding) -> None:
    with held(ADA), pytest.raises(LockedError) as refused, held(GRACE):
        pass
    assert refused.value.exit_code == 6
    assert refused.value.message.startswith(
        "environment `prod/eu` is locked: held by ada@laptop (pid 4711) since 2027-01-15 08:00:00 UTC,"
        " expires in "
    )
    assert "mlstack unlock prod/eu" in (refused.value.hint or "")
    assert "--lock-timeout" in (refused.value.hint or "")


def test_a_run_waits_for_a_lock_that_expires(held: Holding, clock: VirtualClock) -> None:
    with held(ADA), held(GRACE, timeout_s=30):
        pass
    assert held.messages[0].startswith("until environment `prod/eu` is free: held by ada@laptop (pid 4711)")
    assert held.messages[1].startswith("took over the lock of ada@laptop (pid 4711)")
    assert len(held.messages) == 2
    assert clock.now_s() - 1_800_000_000 <= 17


def test_a_run_waits_no_longer_than_it_is_told(held: Holding, clock: VirtualClock) -> None:
    with held(ADA), pytest.raises(LockedError), held(GRACE, timeout_s=7):
        pass
    assert clock.now_s() - 1_800_000_000 == 7


def test_the_lock_of_a_process_that_is_gone_is_taken_at_once(held: Holding, clock: VirtualClock) -> None:
    knowing = Holder(name=GRACE.name, is_gone=lambda name: name == ADA.name)
    with held(ADA), held(knowing):
        pass
    assert clock.now_s() == 1_800_000_000


def test_writes_go_through_while_the_lock_is_held(cluster: MemoryCluster, held: Holding) -> None:
    with held(ADA) as fenced:
        fenced.apply(a_write())
        fenced.delete(ObjectRef("v1", "ConfigMap", "default", "a"))
    assert cluster.get(ObjectRef("v1", "ConfigMap", "default", "a")) is None


def test_a_run_that_lost_its_lock_writes_nothing_more(
    cluster: MemoryCluster, held: Holding, clock: VirtualClock
) -> None:
    with held(ADA) as first:
        first.apply(a_write("before"))
        clock.sleep(20)  # as a laptop that slept
        with held(GRACE):
            with pytest.raises(LockedError) as lost:
                first.apply(a_write("after"))
            assert first.apply(a_write("after"), dry_run=True)
        with pytest.raises(LockedError):
            first.apply(a_write("later"))
    assert "grace@ci (pid 7)" in lost.value.message
    names = [obj["metadata"]["name"] for obj in cluster.list("v1", "ConfigMap", namespace="default").items]
    assert names == ["before"]


def test_a_run_that_slept_goes_on_when_nobody_took_its_lock(held: Holding, clock: VirtualClock) -> None:
    with held(ADA) as fenced:
        clock.sleep(3600)
        assert fenced.apply(a_write()).created


def test_a_deleted_lock_stops_the_run(cluster: MemoryCluster, held: Holding, clock: VirtualClock) -> None:
    with held(ADA) as fenced:
        cluster.delete(LEASE, propagation="Background")
        clock.sleep(10)
        with pytest.raises(LockedError, match="lost the lock"):
            fenced.apply(a_write())


def test_a_namespace_that_goes_takes_the_lock_along_and_is_told(
    cluster: MemoryCluster, held: Holding, clock: VirtualClock
) -> None:
    with held(ADA) as fenced:
        cluster.delete(ObjectRef("v1", "Namespace", "", "default"))
        clock.sleep(10)
        with pytest.raises(LockedError, match="namespace `default` is being deleted"):
            fenced.apply(a_write())


def test_a_run_may_delete_the_namespace_of_its_lock(
    cluster: MemoryCluster, held: Holding, clock: VirtualClock
) -> None:
    with held(ADA) as fenced:
        fenced.delete(ObjectRef("v1", "Namespace", "", "default"))
        clock.sleep(60)
        fenced.delete(ObjectRef("v1", "Namespace", "", "kube-public"))


@pytest.mark.parametrize("failures", [0, 3])
def test_a_lock_is_renewed_while_its_run_does_nothing(
    cluster: MemoryCluster, held: Holding, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    renewed, faults = threading.Event(), [TransientError("too many requests")] * failures
    whole = cluster.replace

    def replace(*args: object, **more: object) -> object:
        if faults:
            raise faults.pop()
        renewed.set()
        return whole(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(lock, "_RENEWALS", 1500)
    monkeypatch.setattr(cluster, "replace", replace)
    with held(ADA):
        assert renewed.wait(10)


@pytest.mark.parametrize(
    ("name", "readable"),
    [
        ("ada@laptop/4711/x", "ada@laptop (pid 4711)"),
        ("helm", "helm"),
        ("a/b", "a/b"),
        ("a@b/7", "a@b (pid 7)"),
    ],
)
def test_holders_are_named_as_people_do(name: str, readable: str) -> None:
    assert readable_holder(name) == readable


@pytest.mark.parametrize(
    ("holder", "passed_s", "stays"),
    [
        (GRACE, 0.0, True),
        (GRACE, 60.0, False),
        (Holder(name=GRACE.name, is_gone=lambda name: name == ADA.name), 0.0, False),
    ],
    ids=["alive", "expired", "gone"],
)
def test_who_has_nothing_to_lock_takes_away_what_a_killed_run_left(
    cluster: MemoryCluster, clock: VirtualClock, holder: Holder, passed_s: float, stays: bool
) -> None:
    lock.lease_of(cluster, PLACE, "demo", holder=ADA, clock=clock).take()
    clock.sleep(passed_s)
    lock.release_stale(cluster, PLACE, "demo", holder=holder, clock=clock)
    assert (cluster.get(LEASE) is not None) == stays


# --- webhooks before what is kept of an environment ---

NAME = "mlstack-demo.minikube"
WEBHOOK = "a.example.com"
EXEMPT = "let it pass what has the label app.kubernetes.io/managed-by=mlstack (objectSelector)"


def configuration(**labels: str) -> dict[str, Any]:
    webhook = {
        "name": WEBHOOK,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": "default", "name": "web"}},
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gate", "labels": labels},
        "webhooks": [webhook],
    }


class Gated(ClientWrapper):
    """A cluster that refuses some kinds of records."""

    def __init__(self, cluster: Cluster, kind: str, refusal: Callable[[str], ClusterError | None]) -> None:
        super().__init__(cluster)
        self._kind, self._refusal = kind, refusal

    def apply(self, obj: Mapping[str, Any], **how: Any) -> Applied:
        """Apply, unless it is refused."""
        self._gate(obj)
        return super().apply(obj, **how)

    def create(self, obj: Mapping[str, Any], **how: Any) -> Applied:
        """Create, unless it is refused."""
        self._gate(obj)
        return super().create(obj, **how)

    def _gate(self, obj: Mapping[str, Any]) -> None:
        if (obj["kind"], obj["metadata"]["name"]) == (self._kind, NAME):
            error = self._refusal(f"`{self._kind} default/{NAME}`")
            if error is not None:
                raise error


def denied(subject: str) -> ClusterError:
    return ForbiddenError(
        f'{subject}: admission webhook "{WEBHOOK}" denied the request: no team', why="policy"
    )


def silent(subject: str) -> ClusterError:
    text = f"{subject}: admission webhook `{WEBHOOK}` does not answer: connection refused"
    return TransientError(text, webhook=WEBHOOK)


@pytest.fixture
def stack(tmp_path: Path, clock: VirtualClock) -> Stack:
    cluster = MemoryCluster(load_schemas("1.36"), clock=clock)
    stack = Stack(tmp_path / "app", namespace="default", opener=lambda context: cluster, clock=clock)
    stack.write("web", config_map(a="1"))
    return stack


def gate(stack: Stack, refusal: Callable[[str], ClusterError | None], kind: str = "ConfigMap") -> Cluster:
    """Put a gate before the cluster of the app; gives the cluster behind it."""
    cluster = stack.opener("minikube")
    stack.opener = lambda context: Gated(cluster, kind, refusal)
    return cluster


def refused(stack: Stack) -> ClusterError:
    with pytest.raises(ClusterError) as caught:
        stack.apply()
    return caught.value


def test_a_refused_inventory_is_named_with_its_webhook_and_what_to_do(stack: Stack) -> None:
    cluster = gate(stack, denied)
    cluster.create(configuration())
    error = refused(stack)
    assert error.message == (
        f"the inventory of environment `minikube`, `ConfigMap default/{NAME}`, is refused by"
        f" admission webhook `{WEBHOOK}` (ValidatingWebhookConfiguration `gate`): no team;"
        " nothing was written"
    )
    assert error.hint == f"{EXEMPT}, then run the command again"
    assert [obj["metadata"]["name"] for obj in cluster.list("v1", "ConfigMap").items] == []


def test_a_webhook_of_the_environment_itself_may_be_taken_away(stack: Stack) -> None:
    labels = {"mlstack.dev/app": "demo", "mlstack.dev/environment": "minikube"}
    gate(stack, denied).create(configuration(**labels))
    assert "kubectl delete validatingwebhookconfiguration gate; the next apply sets it up" in str(
        refused(stack).hint
    )


def test_an_inventory_refused_at_the_end_takes_nothing_back(stack: Stack) -> None:
    subjects: list[str] = []

    def later(subject: str) -> ClusterError | None:
        subjects.append(subject)
        return denied(subject) if len(subjects) > 1 else None

    cluster = gate(stack, later)
    assert refused(stack).message.endswith(": no team; all the rest of this run is done")
    assert any(obj["metadata"]["name"] == "settings" for obj in cluster.list("v1", "ConfigMap").items)


def test_a_refused_lock_is_named_too(stack: Stack) -> None:
    gate(stack, denied, "Lease")
    message = refused(stack).message
    assert message.startswith(f"the lock of environment `minikube`, `Lease default/{NAME}`, is refused by")
    assert message.endswith("nothing was written")


@pytest.mark.parametrize("kind", ["ConfigMap", "Lease"])
def test_a_webhook_that_starts_is_waited_for(stack: Stack, clock: VirtualClock, kind: str) -> None:
    begun_s = clock.now_s()
    gate(stack, lambda subject: silent(subject) if clock.now_s() - begun_s < 60 else None, kind)
    assert stack.apply().ok
    waits = [event.text for event in stack.events if event.kind == "pending"]
    assert waits == [
        f"`{kind} default/{NAME}`: admission webhook `{WEBHOOK}` does not answer: connection refused"
    ]


def test_a_webhook_that_never_answers_is_given_up(stack: Stack, clock: VirtualClock) -> None:
    gate(stack, silent)
    begun_s = clock.now_s()
    error = refused(stack)
    assert WEBHOOK_S <= clock.now_s() - begun_s < WEBHOOK_S + 10
    assert f"cannot be written: admission webhook `{WEBHOOK}` does not answer: connection" in error.message
    assert str(error.hint).startswith("see that the service behind the webhook runs")


@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError(
            "`x`: ValidatingAdmissionPolicy 'P' with binding 'B' denied request: no", why="policy"
        ),
        InvalidError("`x` is refused: ValidatingAdmissionPolicy 'P' with binding 'B' denied request: no"),
    ],
    ids=["forbidden", "invalid"],
)
def test_a_policy_is_named_as_well(stack: Stack, error: ClusterError) -> None:
    gate(stack, lambda subject: error)
    refusal = refused(stack)
    assert refusal.message.startswith("the inventory of environment `minikube`")
    assert "ValidatingAdmissionPolicy 'P'" in refusal.message


def test_other_refusals_say_what_is_not_kept(stack: Stack) -> None:
    gate(stack, lambda subject: ForbiddenError(f"{subject}: exceeded quota", why="quota", hint="see it"))
    error = refused(stack)
    inventory = f"the inventory of environment `minikube`, `ConfigMap default/{NAME}`"
    assert error.message == f"{inventory}, cannot be written: exceeded quota; nothing was written"
    assert error.hint == "see it"
