"""The loop of the controller on a cluster in memory: it works, stands by, stops, and says what is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

import pytest

from mlstack.elastic.cache import ClusterCache
from mlstack.elastic.controller import Controller, ControllerSettings, Informer, RequeuePolicy
from mlstack.elastic.reconciler import Pass
from mlstack.errors import LockedError, UnreachableError, WatchExpiredError
from mlstack.kube.client import INITIAL_EVENTS_END, ClientWrapper, WatchEvent
from mlstack.kube.parallel import WatchSource
from tests.support.elastic import numbered, pod, training_job
from tests.support.stage import Stage
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


class Noting:
    """Is told how a controller fares."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []
        self.failures: list[Exception] = []
        self.lines: list[str] = []
        self.led = False
        self.seconds: list[float] = []

    def observe_loop(self, *, is_leading: bool, is_synced: bool) -> None:
        self.led |= is_leading and is_synced

    def observe_pass(self, done: Pass, *, seconds: float) -> None:
        self.passes.append(done)
        self.seconds.append(seconds)

    def observe_failure(self, error: Exception) -> None:
        self.failures.append(error)


@pytest.fixture
def stage() -> Stage:
    stage = Stage("n1")
    stage.clock.now_ms = round(time.time() * 1000)
    return stage


def controller(stage: Stage, noting: Noting, *, cluster: Any = None, **settings: Any) -> Controller:
    now_s = settings.pop("now_s", time.time)
    chosen = ControllerSettings(identity="me", lease_namespace="default", **settings)
    cluster = cluster or stage.memory
    return Controller(cluster, chosen, log=noting.lines.append, metrics=noting, now_s=now_s)


def until(claim: Callable[[], object], *, timeout_s: float = 10.0) -> Callable[[], bool]:
    """Give what ends a loop: the claim, or the time."""
    end_s = time.monotonic() + timeout_s
    return lambda: bool(claim()) or time.monotonic() > end_s


def lease(stage: Stage) -> Any:
    return stage.get("Lease", "mlstack-elastic", "coordination.k8s.io/v1")


def test_it_looks_after_jobs_and_frees_the_lease(stage: Stage) -> None:
    noting = Noting()
    stage.put(training_job(minimum=1, maximum=2))

    controller(stage, noting).run(until(stage.trainers))

    assert stage.trainers() == ["train-trainer-0", "train-trainer-1"]
    assert "holderIdentity" not in lease(stage)["spec"]


def test_the_plan_is_timed_apart_from_the_pass(stage: Stage) -> None:
    noting = Noting()
    stage.put(training_job(minimum=1, maximum=2))

    controller(stage, noting).run(until(stage.trainers))

    assert 0 < noting.passes[0].plan_s < noting.seconds[0]


def test_a_new_job_is_seen_while_it_runs(stage: Stage) -> None:
    noting = Noting()

    def comes_later() -> bool:
        if noting.passes and stage.get("TrainingJob", "train", "paddlepaddle.org/v1") is None:
            stage.put(training_job(minimum=1, maximum=1))
        return bool(stage.trainers())

    controller(stage, noting).run(until(comes_later))

    assert stage.trainers() == ["train-trainer-0"]


def test_a_clock_that_is_set_back_does_not_stop_it(stage: Stage) -> None:
    noting = Noting()
    set_back = lambda: time.time() - 3_600 * bool(noting.passes)  # noqa: E731
    controller(stage, noting, now_s=set_back, tick_ms=100).run(until(lambda: len(noting.passes) > 2))
    assert len(noting.passes) > 2


def test_a_dry_run_leads_nobody_and_writes_nothing(stage: Stage) -> None:
    noting = Noting()
    stage.put(training_job(minimum=1, maximum=2))

    controller(stage, noting, is_dry=True).run(until(lambda: noting.passes))

    assert any(action.verb == "create" for action in noting.passes[0].actions)
    assert stage.trainers() == []
    assert lease(stage) is None


def test_an_exception_from_outside_frees_the_lease(stage: Stage) -> None:
    noting = Noting()

    def interrupt() -> bool:
        if noting.passes:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        controller(stage, noting).run(interrupt)

    assert "holderIdentity" not in lease(stage)["spec"]


def test_a_pass_that_is_cut_short_is_told_and_done_again(stage: Stage) -> None:
    class Broken(ClientWrapper):
        fails = 1

        def create(self, obj: Any, **options: Any) -> Any:
            if obj["kind"] == "Pod" and self.fails and not options.get("dry_run"):
                self.fails -= 1
                raise UnreachableError("no answer")
            return super().create(obj, **options)

    noting = Noting()
    stage.put(training_job(minimum=1, maximum=1))

    controller(stage, noting, cluster=Broken(stage.memory)).run(until(stage.trainers))

    assert stage.trainers() == ["train-trainer-0"]
    assert [str(error) for error in noting.failures] == ["no answer"]
    assert "no answer; trying again" in noting.lines


def test_one_pass_is_refused_while_another_leads(stage: Stage) -> None:
    noting = Noting()
    first = controller(stage, noting)
    stage.put(training_job(minimum=1, maximum=1))

    def other() -> bool:
        if noting.passes:
            second = Controller(
                stage.memory,
                ControllerSettings(identity="other", lease_namespace="default"),
                log=noting.lines.append,
            )
            with pytest.raises(LockedError):
                second.once()
        return bool(noting.passes)

    first.run(until(other))

    assert noting.led


def test_what_keeps_a_watch_from_going_on_is_told() -> None:
    stage, noting = Stage("n1"), Noting()
    stage.delete_definition()

    controller(stage, noting).run(until(lambda: noting.lines[1:], timeout_s=5))

    assert any("a watch does not go on" in line and "TrainingJob" in line for line in noting.lines)
    assert noting.passes == []


def test_that_all_watches_go_on_again_is_told(stage: Stage) -> None:
    class Late(ClientWrapper):
        refused = 0

        def watch(self, api_version: str, kind: str, **options: Any) -> Any:
            if kind == "PriorityClass" and not self.refused:
                self.refused += 1
                raise UnreachableError("no answer")
            return super().watch(api_version, kind, **options)

    noting = Noting()

    controller(stage, noting, cluster=Late(stage.memory)).run(until(lambda: noting.passes))

    lines = [line for line in noting.lines if "watch" in line]
    assert lines == ["a watch does not go on: no answer", "all watches go on"]


def test_nothing_is_decided_while_a_watch_is_broken(stage: Stage) -> None:
    class Breaking(ClientWrapper):
        is_broken, refused = False, 0

        def watch(self, api_version: str, kind: str, **options: Any) -> Any:
            if self.is_broken and kind == "PriorityClass":
                self.refused += 1
                raise UnreachableError("no answer")
            return super().watch(api_version, kind, **options)

    noting, cluster, trainers = Noting(), Breaking(stage.memory), list[list[str]]()

    def goes_on() -> bool:
        if noting.passes and not trainers:
            cluster.is_broken = True
        if cluster.refused == 1 and stage.get("TrainingJob", "train", "paddlepaddle.org/v1") is None:
            stage.put(training_job(minimum=1, maximum=1))
        if cluster.refused == 3 and cluster.is_broken:
            trainers.append(stage.trainers())
            cluster.is_broken = False
        return bool(stage.trainers())

    controller(stage, noting, cluster=cluster, tick_ms=100).run(until(goes_on, timeout_s=20))

    assert trainers == [[]]
    assert stage.trainers() == ["train-trainer-0"]


# --- watches in threads: what the cache hears, whatever happens to them ---

PODS = WatchSource("v1", "Pod")


def added(name: str, version: int) -> WatchEvent:
    return WatchEvent(type="ADDED", object=numbered(pod(name), version))


def listed(version: int) -> WatchEvent:
    metadata = {"resourceVersion": str(version), "annotations": {INITIAL_EVENTS_END: "true"}}
    return WatchEvent(type="BOOKMARK", object={"metadata": metadata})


class Script:
    """A cluster whose watches are written down: events, errors to raise, moments to wait for."""

    def __init__(self, *watches: list[WatchEvent | Exception | Event]) -> None:
        self._watches = iter(watches)
        self.versions: list[str] = []

    def watch(self, *about: str, resource_version: str = "", **options: Any) -> Iterator[WatchEvent]:
        self.versions.append(resource_version)
        for step in next(self._watches, []):
            if isinstance(step, Exception):
                raise step
            if isinstance(step, Event):
                step.wait(10)
            else:
                yield step


@dataclass
class Following:
    """An informer on a script, and its cache; its time stands still."""

    script: Script
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.cache = ClusterCache()
        self.informer = Informer(self.script, self.cache, (PODS,), lambda: self.now_s)  # type: ignore[arg-type]
        self.informer.start()

    def until(self, claim: Callable[[], object]) -> None:
        def holds() -> bool:
            self.informer.update(timeout_s=0.01)
            return bool(claim())

        wait_until(holds, what="the claim", timeout_s=10, interval_s=0.01)

    def pods(self) -> set[str]:
        return {pod.name for pod in self.cache.pods.values()}


@pytest.fixture
def follow() -> Iterator[Callable[..., Following]]:
    started: list[Following] = []

    def start(*watches: list[Any]) -> Following:
        started.append(Following(Script(*watches)))
        return started[-1]

    yield start
    for following in started:
        following.informer.stop()


def test_everything_is_known_once_the_list_has_ended(follow: Callable[..., Following]) -> None:
    over = Event()
    following = follow([added("a", 1), added("b", 2), over, listed(5), added("c", 6)])
    following.until(lambda: following.pods() == {"a", "b"})
    assert following.informer.missing == {PODS}

    over.set()

    following.until(lambda: following.pods() == {"a", "b", "c"})
    assert not following.informer.missing


@pytest.mark.parametrize(
    ("watches", "versions", "pods"),
    [
        ([[added("a", 1), listed(5), added("b", 6)], [added("c", 7)]], ["", "6"], {"a", "b", "c"}),
        (
            [[added("a", 1), listed(5)], [WatchExpiredError("gone")], [added("b", 9), listed(9)]],
            ["", "5", ""],
            {"b"},
        ),
        ([[added("a", 1), UnreachableError("no answer")], [added("b", 4), listed(5)]], ["", ""], {"b"}),
    ],
    ids=["ended: goes on where it was", "expired: lists again", "cut off: begins anew"],
)
def test_a_watch_that_is_over_is_taken_up(
    follow: Callable[..., Following], watches: list[Any], versions: list[str], pods: set[str]
) -> None:
    following = follow(*watches)

    following.until(lambda: following.pods() == pods and not following.informer.missing)

    assert following.script.versions[: len(versions)] == versions


@pytest.mark.parametrize("trouble", [UnreachableError("no answer"), WatchExpiredError("gone")])
def test_a_watch_that_broke_off_is_not_heard_until_it_is_back(
    follow: Callable[..., Following], trouble: Exception
) -> None:
    held = Event()
    following = follow([listed(5)], [trouble], [held, listed(9)])
    following.until(following.informer.is_deaf)

    held.set()

    following.until(lambda: not following.informer.is_deaf())


def test_a_watch_that_goes_on_in_silence_has_nothing_to_tell(follow: Callable[..., Following]) -> None:
    over = Event()
    following = follow([listed(5)], [UnreachableError("no")], [over])
    following.until(lambda: len(following.script.versions) > 2)
    assert following.informer.is_deaf()

    following.now_s += 2

    following.until(lambda: not following.informer.is_deaf())
    over.set()


def test_an_error_is_kept_until_the_watch_goes_on(follow: Callable[..., Following]) -> None:
    following = follow([UnreachableError("no answer")], [listed(5)])

    following.until(lambda: [str(error) for error in following.informer.errors()] == ["no answer"])
    following.until(lambda: not following.informer.errors())


# --- when the next pass is due ---


@pytest.mark.parametrize(
    ("started", "changes", "due"),
    [
        (None, (), 0),
        ((1000, None), (), 6000),
        ((1000, None), (2000, 2900), 3000),
        ((1000, 2500), (), 2500),
        ((1000, 500), (), 1001),
    ],
    ids=["first at once", "tick", "news are gathered", "known time", "what was due makes no busy loop"],
)
def test_when_the_next_pass_is_due(started: Any, changes: tuple[int, ...], due: int) -> None:
    requeue = RequeuePolicy()
    if started:
        requeue.started(*started)
    for now_ms in changes:
        requeue.changed(now_ms)

    assert requeue.next_ms == due
