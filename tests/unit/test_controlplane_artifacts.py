"""What cluster tests need is built once, whole or not at all, and again when its sources change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controlplane.artifacts import Artifact, BuildError, obtain, run


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mlstack-tests"


def test_second_time_takes_what_the_first_has_built(cache: Path) -> None:
    log: list[str] = []
    artifact = Artifact(name="tool", version="1", build=lambda place: (place / "tool").touch())
    first, second = obtain(artifact, log.append), obtain(artifact, log.append)
    assert first == second
    assert first.parent == cache
    assert (first / "tool").is_file()
    assert log[0] == "building tool (1) ..."
    assert len(log) == 2


def test_changed_source_is_built_elsewhere(tmp_path: Path) -> None:
    source = tmp_path / "main.go"
    source.write_text("package main")
    artifact = Artifact(name="tool", version="1", sources=(source,), build=Path.rmdir)
    before = artifact.directory
    source.write_text("package other")
    assert artifact.directory != before


def test_failed_build_leaves_nothing_and_shows_its_output(cache: Path, tmp_path: Path) -> None:
    def build(place: Path) -> None:
        (place / "half").touch()
        run(["sh", "-c", "echo the disk is full; exit 3"], cwd=tmp_path)

    artifact = Artifact(name="tool", version="1", build=build)
    log: list[str] = []
    with pytest.raises(BuildError, match="exited 3:\nthe disk is full"):
        obtain(artifact, log.append)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="cannot run `no-such-program`"):
        run(["no-such-program"], cwd=tmp_path)
