"""Waiting on the command line: exit code 7 with the reasons, lines as they change, `status --watch`."""

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

from mlstack.cli import page, ports, run_reporter
from mlstack.cli.commands.program import StandingClock
from mlstack.cli.page import Page, TextLine
from mlstack.clock import Clock
from mlstack.deploy import lock
from mlstack.errors import ConflictError, TransientError, UnreachableError
from mlstack.kube import api_server
from mlstack.kube.client import ClientWrapper, Cluster, ObjectRef
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from mlstack.yaml import write as emit
from tests.support.builders import write_tree
from tests.support.cli import Runner
from tests.support.deploying import config_map, crd, deployment
from tests.support.registry import small_app

GPU = {"resources": {"limits": {"nvidia.com/gpu": 1}}}
REASON = (
    "0 of 1 pods ready: no node of this cluster has nvidia.com/gpu (0/1 nodes: Insufficient nvidia.com/gpu)"
)


@pytest.fixture
def run(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("env add minikube --no-preset")
    return run


def write(*objects: dict[str, object]) -> None:
    write_tree(Path.cwd(), {"components/model.yaml": emit.to_yaml_documents(objects)})


def test_apply_of_what_runs_gives_0_and_says_little(run: Runner) -> None:
    write(deployment(), config_map())
    run.play("apply minikube | 0 | !waiting")


def test_apply_of_what_cannot_run_gives_7_with_the_reason_unless_nobody_waits(run: Runner) -> None:
    write(deployment(**GPU))
    ran = run("apply minikube --timeout 100s")
    assert (ran.code, ran.err.count(f"waiting: Deployment default/web: {REASON}\n")) == (7, 4)
    assert "error: `Deployment default/web` is not ready after " in ran.err
    assert "hint: mlstack status minikube" in ran.err
    assert "1 created" in ran.out
    run.play("apply minikube --no-wait\napply minikube --timeout 5s | 7")


def test_json_holds_state_and_reason_of_each_object(run: Runner) -> None:
    write(deployment(**GPU), config_map())
    ran = run("apply minikube --timeout 30s -o json")
    rows = {row["name"]: (row["state"], row["reason"]) for row in json.loads(ran.out)["objects"]}
    assert rows == {"web": ("waiting", REASON), "settings": ("ready", "")}
    assert json.loads(ran.out)["ok"] is False


def test_a_component_has_a_timeout_of_its_own(run: Runner) -> None:
    run.ok("generate web front --image nginx")
    file = Path("components/front.yaml")
    file.write_text(file.read_text() + "timeout: soon\n")
    assert "is no duration" in run("render minikube").err or run("render minikube").code == 3
    file.write_text(file.read_text().replace("soon", "90s"))
    assert run("render minikube").code == 0


@pytest.mark.parametrize(
    ("annotation", "code", "message"),
    [
        ("mlstack.dev/wait: maybe", 3, "annotation `mlstack.dev/wait` is `maybe`"),
        ("mlstack.dev/timeout: soon", 3, "`soon` is no duration"),
        ("mlstack.dev/wait: optional", 0, "not waited for"),
        ("mlstack.dev/timeout: 30s", 7, "is not ready after "),
    ],
)
def test_annotations(run: Runner, annotation: str, code: int, message: str) -> None:
    name, value = annotation.split(": ")
    data = deployment(**GPU)
    write({**data, "metadata": {**data["metadata"], "annotations": {name: value}}})
    ran = run("apply minikube")
    assert ran.code == code
    assert message in ran.err


def broken_cluster(name: str) -> MemoryCluster:
    """Make a cluster whose one Deployment has a pod that cannot pull its image; its clock stands still."""
    cluster = MemoryCluster(load_schemas("1.36"), name=name, clock=StandingClock().now_s)
    state = {"waiting": {"reason": "ImagePullBackOff", "message": ""}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "main", "state": state}]}

    def make_pod() -> None:
        live = cluster.get(ObjectRef("apps/v1", "Deployment", "default", "web"))
        ref = ObjectRef("v1", "Pod", "default", "web-1")
        if live is None or cluster.get(ref) is not None:
            return
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": live["metadata"]["uid"]}
        metadata = {"name": "web-1", "namespace": "default", "ownerReferences": [owner]}
        spec = {"containers": [{"name": "main", "image": "a"}]}
        cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        cluster.patch(ref, {"status": status}, subresource="status")

    cluster.on_idle = make_pod
    return cluster


def test_a_clock_that_stands_wrong_takes_no_grace_away(run: Runner) -> None:
    write(deployment(image="nginx"))
    run.clock.sleep(3600)  # ours is an hour ahead of the cluster's
    run.new_cluster = broken_cluster
    ran = run("apply minikube")
    assert ran.code == 7
    assert "failed: 0 of 1 pods ready: container main: ImagePullBackOff" in ran.err
    assert run.clock.now_s() - StandingClock().now_s() > 3600 + 25


def test_wrong_options(run: Runner) -> None:
    run.play("apply minikube --timeout soon | 2\nstatus minikube --timeout 5s | 2")


def test_watching_in_a_pipe_gives_a_line_a_change_and_as_json_the_end_alone(run: Runner) -> None:
    write(deployment(**GPU), config_map())
    run.ok("apply minikube --no-wait")
    ran = run("status minikube --watch --timeout 20s")
    lines = ran.out.splitlines()
    assert (ran.code, lines[0]) == (1, "ready    ConfigMap default/settings")
    assert f"waiting  Deployment default/web: {REASON}" in lines
    assert lines[-1] == "`minikube` (context minikube, namespace default): not everything works"
    write(deployment(), config_map())
    run.ok("apply minikube --no-wait --yes")
    run.play("status minikube --watch | 0 | : everything works")
    assert run("status minikube --watch -o json").json["kind"] == "StatusResult"


def test_what_the_files_no_longer_bring_is_shown(run: Runner) -> None:
    write(config_map("one"), config_map("two"))
    run.ok("apply minikube")
    write(config_map("one"))
    surplus = "no longer in the files:\n  surplus  ConfigMap default/two (of component model)"
    out = run.ok("status minikube")
    assert surplus in out and "hint: mlstack apply minikube deletes what is surplus" in out


def test_on_a_terminal_the_page_is_drawn_in_the_place_of_the_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"COLUMNS": "40", "TERM": "xterm-256color", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    with page.redrawing() as redraw:
        redraw(Page((TextLine("waiting [web]", "change"), TextLine("x"))))
        redraw(Page((TextLine("ready    [web]", "add"), TextLine("x"))))
    text = capsys.readouterr().out
    assert "waiting [web]" in text
    assert "\x1b[1A" in text  # one line up again


RULE = """\
readiness:
- kind: example.com/Widget
  ready: {condition: Usable}
  failed: {field: status.phase, value: Broken}
"""
WIDGET = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}}
WHERE = ObjectRef("example.com/v1", "Widget", "default", "w")


def with_widget(run: Runner) -> None:
    """Deploy a kind of the app's own without waiting, with a rule for it."""
    definition = crd(group="example.com")
    definition["spec"]["versions"][0]["subresources"] = {"status": {}}
    properties = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["status"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    write(definition, WIDGET)
    app = Path("app.yaml")
    app.write_text(app.read_text() + RULE)
    run.ok("apply minikube --no-wait")


def tell(run: Runner, **status: object) -> None:
    """Write a status as a controller does."""
    run.cluster("minikube").patch(WHERE, {"status": status}, subresource="status")


def test_a_rule_of_the_app_decides_in_apply_and_status(run: Runner) -> None:
    with_widget(run)
    late = run("apply minikube --timeout 5s")
    assert late.code == 7
    assert "waiting: Widget default/w: has no condition `Usable` yet" in late.err
    tell(run, conditions=[{"type": "Usable", "status": "False", "message": "7 of 9 parts"}])
    assert "7 of 9 parts" in run("apply minikube --timeout 5s").err
    assert (run("status minikube").code, "7 of 9 parts" in run("status minikube").out) == (1, True)
    assert "Widget default/w: 7 of 9 parts" in run("status minikube --watch --timeout 5s").out
    tell(run, phase="Broken")
    broken = run("apply minikube --timeout 60s")
    assert (broken.code, "`Widget default/w` failed: `status.phase` is Broken" in broken.err) == (7, True)
    tell(run, phase="Up", conditions=[{"type": "Usable", "status": "True"}])
    assert run("apply minikube").code == 0
    assert run("status minikube").code == 0


def test_a_rule_of_the_app_decides_when_dependants_are_written(run: Runner) -> None:
    after = {"config.kubernetes.io/depends-on": "example.com/namespaces/default/Widget/w"}
    settings = config_map()
    bound = {**settings, "metadata": {**settings["metadata"], "annotations": after}}
    with_widget(run)
    tell(run, conditions=[{"type": "Usable", "status": "False"}])
    write_tree(Path.cwd(), {"components/more.yaml": emit.to_yaml_documents([bound])})
    early = run("apply minikube --no-wait --timeout 5s")
    assert early.code == 7
    assert "skipped   ConfigMap default/settings: depends on `Widget default/w`" in early.out
    tell(run, conditions=[{"type": "Usable", "status": "True"}])
    run.ok("apply minikube --no-wait")


def test_a_plan_tells_that_a_rule_of_the_app_makes_wait(run: Runner) -> None:
    app = Path("app.yaml")
    write(config_map("one"), config_map("two", state="set"))
    app.write_text(
        app.read_text() + "readiness: [{kind: ConfigMap, ready: {field: data.state, value: set}}]\n"
    )
    planned = json.loads(run("plan minikube -o json").out)
    assert [row["object"] for row in planned["waits"]] == ["ConfigMap default/one"]


def test_a_wrong_rule_ends_the_run_before_anything_is_done(run: Runner) -> None:
    app = Path("app.yaml")
    app.write_text(app.read_text() + RULE.replace("ready:", "redy:"))
    ran = run("apply minikube")
    assert (ran.code, "did you mean `ready`?" in ran.err, "app.yaml:" in ran.err) == (3, True, True)


@pytest.mark.parametrize("words", ["delete minikube", "apply minikube"])
def test_a_deletion_that_takes_too_long_gives_7_and_a_line_every_30_s_in_a_log(
    run: Runner, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    held = config_map("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    write(held, config_map())
    run.ok("apply minikube")
    write(config_map())
    for on_terminal in (False, True):
        monkeypatch.setattr(run_reporter, "is_terminal", lambda stream, answer=on_terminal: answer)
        begun_s = run.clock.now_s()
        ran = run(f"{words} --yes --timeout 70s")
        assert ran.code == 7
        assert 70 <= run.clock.now_s() - begun_s < 75
        reason = "`ConfigMap default/held`: was not gone within 70 s; its finalizers are still there"
        assert f"error: {reason}: example.com/hold (component model)\n" in ran.err
        again = "waiting: ConfigMap default/held: until it is gone: its finalizers are still there"
        assert ran.err.count(f"{again}: example.com/hold\n") == (0 if on_terminal else 2)


def test_who_does_not_wait_is_told_what_is_still_going(run: Runner) -> None:
    held = config_map("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    write(held)
    run.ok("apply minikube")
    begun_s = run.clock.now_s()
    out = " ".join(run.ok("delete minikube --yes --no-wait").split())
    assert "terminating ConfigMap default/held: its finalizers are still there: example.com/hold" in out
    assert run.clock.now_s() == begun_s


# --- a server that goes away while a run writes ---


class Away(ClientWrapper):
    """A cluster that does not answer for `gone_s` from the first write of an object on."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        super().__init__(cluster)
        self.clock, self.gone_s, self.begun_s = clock, inf, inf
        self.asked_s = 0.0  # how long it was away when the run asked it last

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        if verb == "apply" and not named.get("dry_run") and args[0]["metadata"]["name"] == "settings":
            self.begun_s = min(self.begun_s, self.clock.now_s())
        return self.unless_away(verb, *args, **named)

    def unless_away(self, verb: str, *args: Any, **named: Any) -> Any:
        away_s = self.clock.now_s() - self.begun_s
        if verb != "delete":  # of the lock, when the run has ended
            self.asked_s = away_s
        if 0 <= away_s < self.gone_s:
            raise UnreachableError("no answer from the API server")
        return super()._call(verb, *args, **named)


@pytest.fixture
def away(run: Runner, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Away:
    """Give a cluster that goes away, opened as a real one is."""
    kind: type[Away] = getattr(request, "param", Away)
    cluster = kind(run.cluster("minikube"), run.clock)
    monkeypatch.setattr(api_server, "connect", lambda context, kubeconfig: cluster)
    monkeypatch.setattr(ports, "SystemClock", lambda: run.clock)
    run.clusters["minikube"] = ports.connect("minikube", None)
    write(config_map())
    return cluster


@pytest.mark.parametrize("on_terminal", [True, False], ids=["terminal", "log"])
def test_an_outage_is_said_once_when_it_begins_and_ends(
    run: Runner, away: Away, monkeypatch: pytest.MonkeyPatch, on_terminal: bool
) -> None:
    monkeypatch.setattr(run_reporter, "is_terminal", lambda stream: on_terminal)
    monkeypatch.setattr(lock, "_RENEWALS", 1500)  # the lock is renewed all the time, by a thread
    away.gone_s = 40
    ran = run("apply minikube")
    assert (ran.code, "waiting" in ran.out) == (0, False)
    assert [line for line in ran.err.splitlines() if "API server" in line] == [
        "waiting: the API server does not answer; trying again for 60 s",
        *([] if on_terminal else ["waiting: until the API server answers"]),
        "waiting: the API server answers again",
    ]


@pytest.mark.parametrize(("words", "limit_s"), [("", 60), ("--timeout 10s", 10)], ids=["usual", "chosen"])
def test_a_server_that_stays_away_is_waited_for_as_long_as_was_said(
    run: Runner, away: Away, words: str, limit_s: float
) -> None:
    ran = run(f"apply minikube {words}")
    assert (ran.code, "1 failed" in ran.out, "error: no answer" in ran.err) == (6, True, True)
    assert limit_s <= away.asked_s < limit_s + 2
    assert ran.err.count(f"waiting: the API server does not answer; trying again for {limit_s} s\n") == 1
    assert ran.err.count("does not answer;") == 1


class Deaf(Away):
    """A cluster that does not answer any more once a Deployment is written."""

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        answer = self.unless_away(verb, *args, **named)
        if verb == "apply" and not named.get("dry_run") and args[0]["kind"] == "Deployment":
            self.begun_s = self.clock.now_s()
        return answer


class Moving(Away):
    """A cluster in which somebody changes what is written, and which does not answer from then on."""

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        if verb == "apply" and named == {"force": True} and self.begun_s == inf:
            self.begun_s = self.clock.now_s()
            raise ConflictError("`ConfigMap settings` changed or was replaced in the meantime")
        return self.unless_away(verb, *args, **named)


class Busy(Away):
    """A cluster that is too busy for a second revision."""

    def _call(self, verb: str, *args: Any, **named: Any) -> Any:
        if verb == "create" and args[0]["metadata"]["name"].endswith(".r2"):
            self.begun_s = min(self.begun_s, self.clock.now_s())
            self.asked_s = self.clock.now_s() - self.begun_s
            raise TransientError("too many requests")
        return ClientWrapper._call(self, verb, *args, **named)


@pytest.mark.parametrize("is_said", [False, True], ids=["usual", "chosen"])
@pytest.mark.parametrize(
    ("away", "usual_s", "message"),
    [
        (Deaf, 300, "the API server has not answered for"),
        (Moving, 60, "error: no answer"),
        (Busy, 120, "the history of this run is incomplete: too many requests"),
    ],
    indirect=["away"],
)
def test_every_wait_of_a_run_is_as_long_as_was_said(
    run: Runner, away: Away, usual_s: float, message: str, is_said: bool
) -> None:
    write(config_map(key="old"))
    run.ok("apply minikube")
    write(config_map(key="new"), deployment(**GPU))
    assert message in run(f"apply minikube {'--timeout 10s' if is_said else ''}").err
    limit_s = 10 if is_said else usual_s
    assert limit_s <= away.asked_s < limit_s + 2
