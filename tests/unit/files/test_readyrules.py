"""Readiness rules in `app.yaml`: read into the model, and refused with file and line where they are wrong."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.app.app import ConditionSign, FieldSign, ReadyRule
from mlstack.app.app_dir import AppDir
from mlstack.errors import ConfigError
from mlstack.objects import managed_fields
from tests.support.builders import Tree

Build = Callable[[Tree], Path]
HEAD = "apiVersion: mlstack.dev/v1\nkind: App\nname: x\nreadiness:\n"


def rules(app: Build, text: str) -> tuple[ReadyRule, ...]:
    return AppDir(app({"app.yaml": HEAD + text})).app().readiness


def test_an_app_without_rules_has_none(app: Build) -> None:
    assert AppDir(app({"app.yaml": HEAD.removesuffix("readiness:\n")})).app().readiness == ()


def test_conditions_and_fields(app: Build) -> None:
    text = """\
- kind: example.com/Widget
  ready: {condition: Ready}
  failed: {condition: Ready, status: False, reason: Broken}
  done: {field: status.phase, values: [Sold, 1, true]}
  observedGeneration: true
- kind: Pod
  ready: {field: 'status.parts[*].state', value: ok}
"""
    assert rules(app, text) == (
        ReadyRule(
            kind="example.com/Widget",
            ready=ConditionSign(condition="Ready"),
            failed=ConditionSign(condition="Ready", status="False", reason="Broken"),
            done=FieldSign(path=managed_fields.read("status.phase"), values=("Sold", 1, True)),
            observed_generation=True,
        ),
        ReadyRule(
            kind="Pod", ready=FieldSign(path=managed_fields.read("status.parts[*].state"), values=("ok",))
        ),
    )


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("{kind: a.com/W, ready: {condition: R}, faild: {condition: F}}", "did you mean `failed`?"),
        ("{kind: a.com/W, ready: {conditon: R}}", "did you mean `condition`?"),
        ("{kind: a.com/W, failed: {condition: F}}", "`readiness.0.ready` is required"),
        ("{ready: {condition: R}}", "`readiness.0.kind` is required"),
        ("{kind: a.com/v1/W, ready: {condition: R}}", "`readiness.0.kind` is no kind: `a.com/v1/W`"),
        ("{kind: W.a.com, ready: {condition: R}}", "is no kind: `W.a.com`"),
        ("{kind: a.com/W, ready: {}}", "`readiness.0.ready` needs `condition` or `field`"),
        ("{kind: a.com/W, ready: {condition: R, field: a.b, value: c}}", "has both `condition` and `field`"),
        ("{kind: a.com/W, ready: {condition: R, value: c}}", "`readiness.0.ready.value` does not go with"),
        ("{kind: a.com/W, ready: {field: a.b, status: 'True', value: c}}", "does not go with `field`"),
        ("{kind: a.com/W, ready: {condition: R, status: Yes!}}", "must be one of `True`, `False`, `Unknown`"),
        ("{kind: a.com/W, ready: {field: a.b}}", "needs `value` or `values`"),
        ("{kind: a.com/W, ready: {field: a.b, value: c, values: [d]}}", "has both `value` and `values`"),
        ("{kind: a.com/W, ready: {field: 'a[', value: c}}", "`readiness.0.ready.field` is no path"),
        ("{kind: a.com/W, ready: {field: a.b, values: []}}", "must"),
        ("{kind: a.com/W, ready: {field: a.b, value: {c: d}}}", "must be"),
        ("{kind: a.com/W, ready: R}", "must be a map"),
        ("{kind: a.com/W, ready: {condition: R}, observedGeneration: often}", "must be true or false"),
    ],
)
def test_a_wrong_rule_is_told_with_its_line(app: Build, rule: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules(app, f"- {rule}\n")
    assert caught.value.exit_code == 3
    assert told in caught.value.describe()
    assert "app.yaml:5" in caught.value.describe()


def test_two_rules_for_one_kind_are_refused(app: Build) -> None:
    one = "- kind: a.com/W\n  ready: {condition: R}\n"
    with pytest.raises(ConfigError, match=r"has a rule already: `a\.com/W`") as caught:
        rules(app, one + one)
    assert "(app.yaml:7)" in caught.value.describe()
