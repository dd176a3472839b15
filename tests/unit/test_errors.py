"""Errors format themselves and carry the exit code of who can mend them."""

import pytest

from mlstack import errors


def test_describe_puts_the_place_and_the_hint_where_people_look() -> None:
    error = errors.ParamError(
        "`num_workers` must be 1 to 64, got 0",
        where="environments/gke/params.yaml:12",
        hint="mlstack param set --env=gke cnn num_workers 1",
    )
    assert error.describe() == (
        "error: `num_workers` must be 1 to 64, got 0 (environments/gke/params.yaml:12)\n"
        "hint: mlstack param set --env=gke cnn num_workers 1"
    )


def test_describe_is_one_line_without_place_and_hint() -> None:
    assert errors.RegistryError("no answer").describe() == "error: no answer"


def test_str_is_the_message_alone() -> None:
    assert str(errors.YamlError("bad indentation", where="a.yaml:3", hint="use spaces")) == "bad indentation"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.UsageError, 2),
        (errors.ConfigError, 3),
        (errors.SchemaError, 3),
        (errors.ParamError, 3),
        (errors.TemplateError, 3),
        (errors.YamlError, 3),
        (errors.NotFoundError, 4),
        (errors.RegistryError, 5),
        (errors.ClusterError, 6),
        (errors.WrongClusterError, 6),
        (errors.UnreachableError, 6),
        (errors.ForbiddenError, 6),
        (errors.ConflictError, 6),
        (errors.InvalidError, 6),
        (errors.ObjectNotFoundError, 6),
        (errors.NotReadyError, 7),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_exit_code_of_each_branch(kind: type[errors.MlstackError], code: int) -> None:
    assert kind("x").exit_code == code


def test_not_found_offers_the_nearest_name() -> None:
    assert errors.NotFoundError("no component `cn`", near="cnn").hint == "did you mean `cnn`?"


def test_not_found_keeps_a_hint_that_was_given() -> None:
    assert errors.NotFoundError("no component `cn`", near="cnn", hint="mlstack component list").hint == (
        "mlstack component list"
    )


def test_conflict_and_not_ready_carry_their_facts() -> None:
    assert errors.ConflictError("`spec.replicas`", managers=["hpa"]).managers == ("hpa",)
    assert errors.NotReadyError("cnn", reasons=["no GPU"]).reasons == ("no GPU",)
