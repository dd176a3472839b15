"""What typer leaves to us: nearest commands, free options, values with dashes."""

from collections.abc import Sequence
from typing import Any

import pytest

from mlstack.cli.main import DashedValueCommand, Family, FreeOptionsCommand
from mlstack.cli.options import option, word
from mlstack.cli.ports import Session
from mlstack.errors import UsageError


def call(command_class: type[Any], *words: str) -> tuple[list[str], list[str], str | None]:
    group = Family("test")
    calls: list[tuple[list[str], list[str], str | None]] = []

    @group.command(cls=command_class, takes="")
    def run(
        session: Session,
        words: Sequence[str] = word("[WORD]...", "Words."),
        sets: Sequence[str] = option("--set VALUE", "Values."),
        env: str | None = option("--env -e ENV", "Where."),
        force: bool = option("--force", "Whatever."),
    ) -> int:
        calls.append(([*words], [*sets], env))
        return 0

    group.group.main(["run", *words], prog_name="mlstack", standalone_mode=False, obj=Session())
    return calls[0]


@pytest.mark.parametrize("value", ["-1", "--steps=9", "--steps", "-", "-c", "plain", "", "a=b"])
@pytest.mark.parametrize("env", [["--env=gke"], ["--env", "gke"], ["-egke"], ["-e", "gke"]])
def test_last_word_may_look_like_an_option(value: str, env: list[str]) -> None:
    assert call(DashedValueCommand, *env, "cnn", "args", value) == (["cnn", "args", value], [], "gke")
    assert call(DashedValueCommand, "cnn", "args", value, *env) == (["cnn", "args", value], [], "gke")


def test_known_option_as_value_stands_behind_two_dashes() -> None:
    assert call(DashedValueCommand, "cnn", "args", "--", "--env") == (["cnn", "args", "--env"], [], None)


@pytest.mark.parametrize("words", [["--evn=gke", "cnn", "k", "v"], ["--evn=gke"], ["cnn", "--evn=gke", "v"]])
def test_unknown_option_before_the_value_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        call(DashedValueCommand, *words)
    assert caught.value.hint == "did you mean `--env`?"


def test_free_options_become_settings() -> None:
    words = [
        "tf-cnn",
        "--num_gpus",
        "1",
        "cnn",
        "--model_path=gs://a=b",
        "--args",
        "-x",
        "--env",
        "gke",
        "--flag",
    ]
    assert call(FreeOptionsCommand, *words) == (
        ["tf-cnn", "cnn"],
        ["num_gpus=1", "model_path=gs://a=b", "args=-x", "flag"],
        "gke",
    )


def test_free_option_without_value_stays_a_flag() -> None:
    assert call(FreeOptionsCommand, "p", "--installCrds", "--force", "n")[1] == ["installCrds"]


def test_words_behind_two_dashes_are_words() -> None:
    assert call(FreeOptionsCommand, "p", "--", "--odd")[:2] == (["p", "--odd"], [])
