"""Rendered objects on stdout and in a folder."""

from pathlib import Path

import pytest

from tests.support.builders import read_tree
from tests.support.cli import Runner
from tests.support.registry import small_app


@pytest.fixture
def run(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("env add gke --no-preset")
    run.ok("generate web shop.front --image nginx --token x")
    return run


def test_folder_gets_one_file_an_object(run: Runner, tmp_path: Path) -> None:
    stream = run.ok("render gke")
    run.ok("render", "gke", "--out", str(tmp_path / "out"))
    files = read_tree(tmp_path / "out")
    assert list(files) == [
        "shop.front/configmap_default_front.yaml",
        "shop.front/secret_default_front.yaml",
    ]
    assert b"---\n".join(files.values()).decode() == stream


def test_folder_can_hold_json(run: Runner, tmp_path: Path) -> None:
    run.ok("render", "gke", "--out", str(tmp_path / "out"), "-o", "json")
    assert all(name.endswith(".json") for name in read_tree(tmp_path / "out"))


def test_names_cannot_be_written_to_a_folder(run: Runner, tmp_path: Path) -> None:
    assert run("render", "gke", "--out", str(tmp_path / "out"), "-o", "name").code == 2
    assert not (tmp_path / "out").exists()


def test_data_is_on_stdout_and_notes_on_stderr(run: Runner) -> None:
    run.ok("generate web old --image nginx --size big")
    ran = run("render gke -c old")
    assert "deprecated" in ran.err
    assert "deprecated" not in ran.out


def test_command_works_from_any_folder_of_the_app_and_by_dir(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run.ok("render gke")
    monkeypatch.chdir(tmp_path / "demo/components/shop")
    assert run.ok("render gke") == expected
    monkeypatch.chdir(tmp_path)
    assert run.ok("render gke --dir demo") == run.ok("--dir demo render gke") == expected
    assert run("render gke").code == 4


def test_current_environment_counts_when_none_is_named(run: Runner) -> None:
    expected = run.ok("render gke")
    assert run("render").code == 2
    run.ok("env current --set gke")
    assert run.ok("render") == expected


def test_two_environments_are_an_error(run: Runner) -> None:
    assert run("render gke gke").code == 2
