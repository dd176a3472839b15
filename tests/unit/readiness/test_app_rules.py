"""Rules of an app for kinds of its own: what is ready, failed, done, and why the rest waits."""

from typing import Any

import pytest

from mlstack.app.app import ConditionSign, FieldSign, ReadyRule
from mlstack.objects import managed_fields
from mlstack.readiness.evaluate import assess
from mlstack.readiness.rule import UNSEEN, Facts

KIND = "example.com/Widget"
RULE = ReadyRule(
    kind=KIND,
    ready=ConditionSign(condition="Usable"),
    failed=ConditionSign(condition="Usable", status="False", reason="Broken"),
    done=FieldSign(path=managed_fields.read("status.phase"), values=("Melted", "Sold")),
)


def widget(generation: int | None = None, **status: Any) -> dict[str, Any]:
    metadata = {"name": "w"} | ({} if generation is None else {"generation": generation})
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "status": status}


def usable(status: str, reason: str = "", message: str = "", **more: Any) -> dict[str, Any]:
    condition = {"type": "Usable", "status": status, "reason": reason, "message": message, **more}
    return {"conditions": [condition]}


def judged(data: dict[str, Any], rule: ReadyRule = RULE) -> tuple[str, str]:
    readiness = assess(Facts(data=data), {rule.kind: rule})
    return readiness.state, readiness.reason


def field_rule(path: str, *values: str | int | float | bool) -> ReadyRule:
    return ReadyRule(kind=KIND, ready=FieldSign(path=managed_fields.read(path), values=values))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (usable("True"), ("ready", "")),
        (usable("False", "Broken", "the axle is bent"), ("failed", "the axle is bent")),
        (usable("False", "Broken"), ("failed", "Broken")),
        (usable("False", "Building", "7 of 9 parts"), ("waiting", "7 of 9 parts")),
        (usable("Unknown"), ("waiting", "condition `Usable` is Unknown")),
        ({"phase": "Melted"}, ("done", "")),
        ({"phase": "Sold", **usable("False", "Broken", "late")}, ("failed", "late")),
        ({"phase": "New"}, ("waiting", "has no condition `Usable` yet")),
        ({}, ("waiting", "has no condition `Usable` yet")),
        ({"conditions": {"Usable": "True"}}, ("waiting", "cannot be judged: status.conditions is no list")),
    ],
)
def test_failed_comes_before_done_before_ready_and_the_rest_waits(
    status: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert judged(widget(**status)) == expected


@pytest.mark.parametrize(
    ("rule", "status", "expected"),
    [
        (field_rule("status.phase", "Up", "Idle"), {"phase": "Idle"}, ("ready", "")),
        (field_rule("status.phase", "Up"), {"phase": "Down"}, ("waiting", "`status.phase` is Down")),
        (field_rule("status.phase", "Up"), {}, ("waiting", "has no `status.phase` yet")),
        (
            field_rule("status.phase", "Up"),
            {"phase": "Down", "message": "no power"},
            ("waiting", "`status.phase` is Down: no power"),
        ),
        (field_rule("status.on", True), {"on": True}, ("ready", "")),
        (field_rule("status.on", True), {"on": 1}, ("waiting", "`status.on` is 1")),
        (field_rule("status.on", "true"), {"on": True}, ("waiting", "`status.on` is true")),
        (field_rule("status.parts", 3), {"parts": 3.0}, ("ready", "")),
        (field_rule("status.parts[wheel].state", "ok"), {"parts": [{"name": "wheel", "state": "ok"}]}, None),
        (field_rule("status.parts[1].state", "ok"), {"parts": [{}, {"state": "ok"}]}, None),
        (field_rule("status.parts[*].state", "ok"), {"parts": {"a": {"state": "ok"}, "b": 1}}, None),
        (
            field_rule("status.parts[wheel].state", "ok"),
            {"parts": [{"name": "axle", "state": "ok"}]},
            ("waiting", "has no `status.parts[wheel].state` yet"),
        ),
    ],
)
def test_fields(rule: ReadyRule, status: dict[str, Any], expected: tuple[str, str] | None) -> None:
    assert judged(widget(**status), rule) == (expected or ("ready", ""))


def test_a_failed_field_tells_the_message_of_the_status() -> None:
    failed = FieldSign(path=managed_fields.read("status.phase"), values=("Error",))
    rule = ReadyRule(kind=KIND, ready=ConditionSign(condition="Usable"), failed=failed)
    verdict = judged(widget(phase="Error", message="no such part"), rule)
    assert verdict == ("failed", "`status.phase` is Error: no such part")


@pytest.mark.parametrize(
    ("generation", "status", "state"),
    [
        (2, usable("True"), "waiting"),
        (2, {"observedGeneration": 1, **usable("True")}, "waiting"),
        (2, {"observedGeneration": 2, **usable("True")}, "ready"),
        (2, usable("True", observedGeneration=1), "waiting"),
        (2, usable("True", observedGeneration=2), "ready"),
        (2, usable("False", "Broken"), "waiting"),
        (None, usable("True"), "ready"),
    ],
)
def test_the_newest_generation_must_have_been_seen_where_the_rule_says_so(
    generation: int | None, status: dict[str, Any], state: str
) -> None:
    rule = ReadyRule(kind=KIND, ready=RULE.ready, failed=RULE.failed, observed_generation=True)
    assert judged(widget(generation, **status), rule) == (state, UNSEEN if state == "waiting" else "")


def test_what_is_not_of_the_newest_generation_counts_for_no_rule() -> None:
    assert judged(widget(2, observedGeneration=1, **usable("True"))) == ("waiting", UNSEEN)
    assert judged(widget(2, **usable("True"))) == ("ready", "")


def test_a_rule_of_the_app_comes_before_the_one_built_in() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "status": {"active": 1}}
    rule = ReadyRule(
        kind="batch/Job", ready=FieldSign(path=managed_fields.read("status.succeeded"), values=(1,))
    )
    assert judged(job, rule) == ("waiting", "has no `status.succeeded` yet")
    assert judged({**job, "status": {"succeeded": 1}}, rule)[0] == "ready"


def test_a_rule_holds_for_its_kind_alone() -> None:
    other = {**widget(), "kind": "Gadget"}
    assert judged({**other, "status": usable("Unknown")})[0] == "ready"
    assert judged({**widget(**usable("Unknown")), "apiVersion": "other.com/v1"})[0] == "ready"


def test_what_is_being_deleted_is_not_ready_by_any_rule() -> None:
    data = widget(**usable("True"))
    data["metadata"]["deletionTimestamp"] = "2027-01-15T07:00:00Z"
    assert judged(data)[0] == "terminating"
