"""The quick path of `render` prints what the plain path prints, or leaves it to that."""

from pathlib import Path

import pytest

from mlstack.cli import fast, quick
from tests.support.cli import Runner
from tests.support.registry import small_app


@pytest.fixture
def run(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("generate web front --image nginx --size big")
    run.ok("generate web shop.cart --image caddy")
    run.ok("env add gke --no-preset")
    return run


@pytest.mark.parametrize(
    "words", ["gke", "gke -c front", "-c front gke -c shop.cart", "--component=shop gke", "gke -c front,shop"]
)
def test_both_paths_print_the_same(run: Runner, capsys: pytest.CaptureFixture[str], words: str) -> None:
    plain = run(f"render {words}")
    capsys.readouterr()
    assert quick.render(words.split()) == plain.code == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (plain.out, plain.err)
    assert plain.out


@pytest.mark.parametrize(
    "words",
    [
        "",
        "gke gke",
        "gke -o json",
        "gke -cfront",
        "gke --set a=b",
        "-c",
        "gke -c",
        "gke --help",
        "gke --",
        "gke -c front,",
    ],
)
def test_unusual_forms_are_left_to_the_plain_path(run: Runner, words: str) -> None:
    assert quick.render(words.split()) is None


@pytest.mark.parametrize("words", ["gek", "gke -c fornt"])
def test_errors_are_left_to_the_plain_path(
    run: Runner, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    capsys.readouterr()
    assert quick.render(words.split()) is None
    captured = capsys.readouterr()
    assert captured.out == ""


def test_console_script_takes_the_quick_path(
    run: Runner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = run.ok("render gke -c front")
    monkeypatch.setattr("sys.argv", ["mlstack", "render", "gke", "-c", "front"])
    monkeypatch.setattr("mlstack.cli.main.main", lambda *words: pytest.fail("the plain path was taken"))
    assert fast.main() == 0
    assert capsys.readouterr().out == expected
