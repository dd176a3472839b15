"""Policies of ML workloads: what each finds and leaves alone, waivers, sets, an app's own, the formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from mlstack.objects.kube_object import KubeObject
from mlstack.validate.policies import PolicyContext, builtin, check_policies
from tests.support import examples
from tests.support.cli import Runner
from tests.support.policy_cases import CASES, PolicyCase, documents
from tests.support.registry import small_app

ALL = [(policy, case) for policy, cases in CASES.items() for case in cases]


@pytest.mark.parametrize(("policy", "case"), ALL, ids=[f"{policy}-{case.name}" for policy, case in ALL])
def test_a_policy_finds_what_it_is_about_and_nothing_near_it(policy: str, case: PolicyCase) -> None:
    policies = builtin()
    objects = [KubeObject(data=data, component="it") for data in documents(case.objects)]
    stack = PolicyContext(objects, nodes=case.nodes, apis=case.apis)
    faults = check_policies([policies[policy]], stack, known=policies).faults
    assert all(fault.policy == policy and fault.path for fault in faults)
    assert any(case.says in fault.message for fault in faults) if case.says else not faults


def test_every_policy_has_a_stack_that_breaks_it_and_one_that_nearly_does() -> None:
    assert len(builtin()) >= 20
    for name, policy in builtin().items():
        assert {bool(case.says) for case in CASES[name]} == {True, False}, name
        assert policy.reason and policy.fix and policy.sets
        assert not policy.reason.endswith(".")


@pytest.mark.slow
@pytest.mark.parametrize("case", examples.cases(), ids=str)
def test_no_shipped_example_breaks_a_policy(case: examples.Case, shipped: examples.AppDir) -> None:
    policies = builtin()
    stack = PolicyContext(examples.render(shipped, case).objects)
    verdict = check_policies(policies.values(), stack, known=policies)
    assert not verdict.faults


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["training", "serving", "full"])
def test_no_shipped_stack_breaks_a_policy(
    stack: str, tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run.ok(f"init app --stack {stack}")
    monkeypatch.chdir(tmp_path / "app")
    for environment in ("minikube", "gke"):
        assert run(f"validate {environment} --policy -o json").json["faults"] == []


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> examples.AppDir:
    """An app in which every example is a component."""
    return examples.shipped_app(tmp_path_factory.mktemp("shipped") / "app")


BAD = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: bad
  annotations: {{mlstack.dev/waive: "{waiver}"}}
spec:
  selector: {{matchLabels: {{app: bad}}}}
  template:
    metadata: {{labels: {{app: bad}}}}
    spec:
      volumes: [{{name: logs, hostPath: {{path: /var/log}}}}]
      securityContext: {{runAsNonRoot: true, seccompProfile: {{type: RuntimeDefault}}}}
      containers:
      - name: main
        image: nginx:1.29
        resources: {{requests: {{cpu: 1, memory: 1Gi}}}}
        securityContext: {{allowPrivilegeEscalation: false, capabilities: {{drop: [ALL]}}}}
"""
OWN = """\
apiVersion: mlstack.dev/v1
kind: Policy
id: own-registry
reason: images come from where they are scanned
fix: copy the image
each: container
match: {kinds: [apps/Deployment]}
expression: container.image.startsWith("r.example.org/")
"""


@pytest.fixture
def app(tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An app whose component `bad` mounts a folder of its node."""
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("env add minikube")
    write(tmp_path / "demo", "components/bad.yaml", BAD.format(waiver=""))
    return tmp_path / "demo"


def write(app: Path, file: str, text: str) -> None:
    (app / file).parent.mkdir(exist_ok=True)
    (app / file).write_text(text, encoding="utf-8")


def test_policies_are_asked_on_request_and_an_error_is_a_no(app: Path, run: Runner) -> None:
    assert run("validate minikube").code == 0
    result = run("validate minikube --policy")
    assert result.code == 1
    assert "mounts /var/log of the node [host-path] (components/bad.yaml:11)" in " ".join(result.out.split())
    assert "fix: use a claim" in result.out
    assert run("validate minikube --policy=ml,reliability").code == 0
    assert run("validate minikube --policy host-path").code == 1
    assert run("validate --policy --all").code == 1


def test_a_warning_is_no_no(app: Path, run: Runner) -> None:
    waived = BAD.format(waiver="host-path: logs")
    write(app, "components/bad.yaml", waived.replace("runAsNonRoot: true, ", ""))
    warned = run("validate minikube --policy")
    assert warned.code == 0
    assert "may run as root [non-root]" in warned.out


def test_a_waiver_counts_with_its_reason(app: Path, run: Runner) -> None:
    write(app, "components/bad.yaml", BAD.format(waiver="host-path: it reads the logs"))
    waived = run("validate minikube --policy")
    assert waived.code == 0
    assert "no faults" in waived.out
    assert "note: waived with a reason: host-path (1)" in waived.err
    listed = run("validate minikube --policy -o json").json
    assert [fault["waiver"] for fault in listed["waived"]] == ["it reads the logs"]


@pytest.mark.parametrize(
    ("waiver", "message"),
    [("host-path", "waives `host-path` without a reason"), ("hostpath: x", "did you mean `host-path`?")],
)
def test_a_waiver_without_a_reason_or_of_nothing_is_said(
    app: Path, run: Runner, waiver: str, message: str
) -> None:
    write(app, "components/bad.yaml", BAD.format(waiver=waiver))
    result = run("validate minikube --policy -o json")
    assert result.code == 1
    assert any(message in fault["message"] for fault in result.json["faults"])


def test_what_is_no_set_is_told_with_the_nearest(app: Path, run: Runner) -> None:
    refused = run("validate minikube --policy securty")
    assert (refused.code, refused.err.splitlines()[1]) == (2, "hint: did you mean `security`?")
    refused = run("validate --policy minikube")
    assert (refused.code, refused.err.splitlines()[1]) == (2, "hint: mlstack validate minikube --policy")


def test_a_component_alone_is_judged_with_what_stands_beside_it(app: Path, run: Runner) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\n"
    service += "spec: {selector: {app: bad}, ports: [{port: 80}]}\n"
    write(app, "components/front-door.yaml", service)
    alone = run("validate minikube --policy readiness-probe -c bad -o json").json
    assert [fault["policy"] for fault in alone["faults"]] == ["readiness-probe"]
    beside = run("validate minikube --policy readiness-probe -c front-door -o json").json
    assert beside["faults"] == []


def test_an_own_policy_is_asked_in_cel(app: Path, run: Runner) -> None:
    write(app, "policies/registry.yaml", OWN)
    result = run("validate minikube --policy own -o json")
    assert result.code == 1
    assert [(fault["policy"], fault["path"]) for fault in result.json["faults"]] == [
        ("own-registry", "spec.template.spec.containers[0]")
    ]
    assert "own-registry" in run("policy list -o name").out
    write(app, "policies/registry.yaml", OWN.replace("apps/Deployment", "batch/Job"))
    assert run("validate minikube --policy own").code == 0


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("container.image.startWith('r')", "the function `startWith` is not known with 2 arguments"),
        ("image == 'r'", "there is no variable `image`"),
        ("container.image.matches('(?=r)')", "is no pattern that RE2 can read"),
        ("container.?image.hasValue()", "cannot be evaluated"),
        ("container.env.all(e, f.name == 'A')", "there is no variable `f`"),
    ],
)
def test_an_expression_that_is_not_known_is_refused_with_its_place(
    app: Path, run: Runner, expression: str, message: str
) -> None:
    write(app, "policies/registry.yaml", OWN.partition("expression:")[0] + f'expression: "{expression}"\n')
    for line in ("policy list", "validate minikube --policy"):
        refused = run(line)
        assert refused.code == 3
        assert message in refused.err
        assert "policies/registry.yaml:8" in refused.err


def test_an_own_policy_compares_lists_and_says_where_it_has_no_value(app: Path, run: Runner) -> None:
    drop = 'container.securityContext.capabilities.drop == ["ALL"]'
    write(app, "policies/drop.yaml", OWN.partition("expression:")[0] + f"expression: '{drop}'\n")
    assert run("validate minikube --policy own").code == 0
    write(app, "policies/drop.yaml", OWN.partition("expr")[0] + "expression: container.ports.size() == 1\n")
    (fault,) = run("validate minikube --policy own -o json").json["faults"]
    assert "has no value: no such key: ports" in fault["message"]


def test_an_id_is_given_once(app: Path, run: Runner) -> None:
    write(app, "policies/a.yaml", OWN.replace("own-registry", "host-path"))
    refused = run("policy list")
    assert (refused.code, "is a built-in policy already (policies/a.yaml:3)" in refused.err) == (3, True)


def formats(run: Runner, line: str) -> tuple[list[int], list[dict[str, Any]], list[ElementTree.Element]]:
    """Give the exit codes of a command as SARIF and JUnit, the runs of the one, the suites of the other."""
    sarif, junit = (run(f"{line} -o {name}") for name in ("sarif", "junit"))
    log = json.loads(sarif.out)
    assert log["version"] == "2.1.0"
    return [sarif.code, junit.code], log["runs"], [*ElementTree.fromstring(junit.out)]


def test_formats_tell_rule_place_and_waivers(app: Path, run: Runner) -> None:
    codes, (tool_run,), (suite,) = formats(run, "validate minikube --policy")
    rules = [rule["id"] for rule in tool_run["tool"]["driver"]["rules"]]
    (result,) = tool_run["results"]
    assert result["ruleId"] == rules[result["ruleIndex"]] == "host-path"
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == ("components/bad.yaml", 11)
    failed = [case for case in suite if case.find("failure") is not None]
    assert (codes, suite.get("name"), suite.get("failures")) == ([1, 1], "minikube", "1")
    assert [(case.get("file"), case.get("line")) for case in failed] == [("components/bad.yaml", "11")]
    assert "image-tag" in {case.get("name") for case in suite}  # a policy that is kept
    write(app, "components/bad.yaml", BAD.format(waiver="host-path: it reads the logs"))
    _, (tool_run,), _ = formats(run, "validate minikube --policy")
    justified = [{"kind": "inSource", "justification": "it reads the logs"}]
    assert [result["suppressions"] for result in tool_run["results"]] == [justified]


@pytest.mark.parametrize("which", ["gke", "gke minikube --keep-going", "--all --keep-going"])
@pytest.mark.parametrize("file", ["environment.yaml", "params.yaml"])
def test_formats_of_findings_tell_what_failed(app: Path, run: Runner, which: str, file: str) -> None:
    run.ok("env add gke")
    write(app, f"environments/gke/{file}", "x: [\n")
    codes, (failed, *others), suites = formats(run, f"validate {which} --policy")
    place = failed["results"][0]["locations"][0]["physicalLocation"]
    assert (codes, place["region"]) == ([3, 3], {"startLine": 2})
    assert place["artifactLocation"]["uri"] == suites[0][0].get("file") == f"environments/gke/{file}"
    oks = [tool_run["invocations"][0]["executionSuccessful"] for tool_run in (failed, *others)]
    assert [suite.get("errors") == "0" for suite in suites] == oks == [False, True][: len(which.split()[:2])]
