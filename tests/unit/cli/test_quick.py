"""The quick path of `render` prints what the plain path prints, or leaves it to that."""

import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.cli import fast
from mlstack.objects.kube_object import DesiredState
from mlstack.render import render as operation
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
    assert fast.render(words.split()) == plain.code == 0
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
    assert fast.render(words.split()) is None


@pytest.mark.parametrize("words", ["gek", "gke -c fornt"])
def test_errors_are_left_to_the_plain_path(
    run: Runner, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    capsys.readouterr()
    assert fast.render(words.split()) is None
    captured = capsys.readouterr()
    assert captured.out == ""


def printed(capsys: pytest.CaptureFixture[str], words: str) -> tuple[str, str]:
    capsys.readouterr()
    assert fast.render(words.split()) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> DesiredState:
        raise RuntimeError("rendered again")

    monkeypatch.setattr(operation, "load", refuse)


def test_what_was_printed_is_printed_again_without_work(
    run: Runner, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run.ok("param set front size 2")
    first = printed(capsys, "gke")
    assert "deprecated" in first[1]
    no_work(monkeypatch)
    assert printed(capsys, "gke") == first
    assert fast.render(["gke", "-c", "front"]) is None


def test_a_change_is_seen(run: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    first = printed(capsys, "gke")
    run.ok("param set --env=gke front color green")
    second = printed(capsys, "gke")
    assert "green" not in first[0]
    assert "green" in second[0]
    run.ok("param unset --env=gke front color")
    assert printed(capsys, "gke") == first


def test_secrets_are_not_kept(
    run: Runner, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run.ok("param set front token hunter2")
    secret = b64encode(b"hunter2").decode()
    assert secret in printed(capsys, "gke")[0]
    cache = Path(os.environ["XDG_CACHE_HOME"])
    assert not [file for file in cache.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()]
    no_work(monkeypatch)
    assert fast.render(["gke"]) is None


def test_files_that_change_meanwhile_are_not_mixed_up(
    run: Runner, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    params = tmp_path / "demo/environments/gke/params.yaml"
    before = "apiVersion: mlstack.dev/v1\nkind: EnvironmentParams\n"
    params.write_text(before)
    render = operation.load

    def edit_and_render(app: AppDir, *words: Any, **options: Any) -> DesiredState:
        params.write_text(before + "components:\n  front:\n    color: green\n")
        return render(app, *words, **options)

    with monkeypatch.context() as patch:
        patch.setattr(operation, "load", edit_and_render)
        assert "green" in printed(capsys, "gke")[0]
    params.write_text(before)
    assert "green" not in printed(capsys, "gke")[0]


def test_console_script_takes_the_quick_path(
    run: Runner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = run.ok("render gke -c front")
    monkeypatch.setattr("sys.argv", ["mlstack", "render", "gke", "-c", "front"])
    monkeypatch.setattr("mlstack.cli.main.main", lambda *words: pytest.fail("the plain path was taken"))
    monkeypatch.setattr("threading.active_count", lambda: 1)  # with threads it ends the process
    assert fast.main() == 0
    assert capsys.readouterr().out == expected


def test_interpreter_is_not_taken_down_under_a_prefetch() -> None:
    program = """if True:
        import os, sys, time
        from mlstack.cli import fast
        from mlstack.kube.parallel import prefetch

        class Kept:
            def __del__(self, write=os.write):
                write(1, b"taken down")

        sys.kept = Kept()
        fast._run = lambda words: prefetch(lambda: time.sleep(60)) and print("said") or 4
        sys.exit(fast.main())
    """
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (4, "said\n", "")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_a_callback_drops_comes_again(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    class Callback:
        def __del__(self) -> None:
            signal.raise_signal(signal.Signals[name])

    usual = sys.unraisablehook
    interruption = fast.Interruption()
    with pytest.raises(KeyboardInterrupt), interruption:
        Callback()
        time.sleep(30)
    assert interruption.exit_code == 128 + signal.Signals[name]
    assert sys.unraisablehook == usual
    assert capsys.readouterr().err == ""
