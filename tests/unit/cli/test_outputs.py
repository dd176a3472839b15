"""A remembered output belongs to the files, the command and the program it came from, and to no others."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack import disk_cache
from mlstack.cli import fast
from mlstack.cli.fast import Outputs
from mlstack.disk_cache import Cache
from tests.support.builders import Tree

WORDS = ("render", "gke")
TREE: Tree = {
    "mlstack.lock": "lock",
    "components/cnn.yaml": "cnn",
    "components/shop/cart.yaml": "cart",
    "environments/gke/environment.yaml": "gke",
    "vendor/kubeflow/core@0.1.0/package.yaml": "core",
}
Build = Callable[[Tree | None], Path]


@pytest.fixture
def root(app: Build) -> Path:
    return app(TREE)


def key(root: Path, words: tuple[str, ...] = WORDS) -> str | None:
    return Outputs(root, Cache(root / "cache")).key(words)


def test_the_same_files_have_the_same_key_wherever_they_lie(root: Path, tmp_path: Path) -> None:
    first = key(root)
    assert first is not None
    assert key(root.rename(tmp_path / "moved")) == first


@pytest.mark.parametrize("file", ["README.md", ".mlstack/current-environment", ".git/HEAD"])
def test_files_that_a_render_does_not_read_are_no_part_of_it(root: Path, file: str) -> None:
    first = key(root)
    (root / file).parent.mkdir(exist_ok=True)
    (root / file).write_text("new")
    assert key(root) == first


@pytest.mark.parametrize("file", ["app.yaml", *TREE])
def test_every_file_that_a_render_reads_is_part_of_it(root: Path, file: str) -> None:
    before = (root / file).stat()
    first = key(root)
    (root / file).write_text((root / file).read_text()[:-1] + "!")
    os.utime(root / file, ns=(before.st_atime_ns, before.st_mtime_ns))
    second = key(root)
    (root / file).unlink()
    assert len({first, second, key(root)}) == 3


def renamed(root: Path) -> None:
    (root / "components/cnn.yaml").rename(root / "components/dnn.yaml")


def moved(root: Path) -> None:
    (root / "components/cnn.yaml").rename(root / "components/shop/cnn.yaml")


def split(root: Path) -> None:
    (root / "components/cnn.yaml").write_text("cn")
    (root / "components/cnnn.yaml").write_text("n")


def module(root: Path) -> None:
    (root / "components/empty").mkdir()


def without_components(root: Path) -> None:
    (root / "components").rename(root / "elsewhere")


@pytest.mark.parametrize("change", [renamed, moved, split, module, without_components])
def test_names_and_folders_are_part_of_it(root: Path, change: Callable[[Path], None]) -> None:
    first = key(root)
    change(root)
    assert key(root) not in (first, None)


def test_the_words_of_the_command_are_part_of_it(root: Path) -> None:
    commands = [WORDS, ("render", "minikube"), (*WORDS, "a", "b"), (*WORDS, "ab"), (*WORDS, "b", "a")]
    assert len({key(root, words) for words in commands}) == len(commands)


def test_the_program_is_part_of_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = key(root)
    monkeypatch.setattr(disk_cache, "program_identity", lambda: "another")
    assert key(root) not in (first, None)


def linked_file(root: Path) -> None:
    (root / "components/other.yaml").symlink_to(root / "app.yaml")


def linked_folder(root: Path) -> None:
    (root / "components/other").symlink_to(root / "environments")


def pipe(root: Path) -> None:
    os.mkfifo(root / "components/other.yaml")


def folder_for_a_file(root: Path) -> None:
    (root / "mlstack.lock").unlink()
    (root / "mlstack.lock").mkdir()


@pytest.mark.parametrize("change", [linked_file, linked_folder, pipe, folder_for_a_file])
def test_what_is_no_ordinary_file_has_no_key(root: Path, change: Callable[[Path], None]) -> None:
    change(root)
    assert key(root) is None


@pytest.mark.parametrize(
    ("notes", "data"), [("", b"a: 1\n"), ("note: \udce9\nnote: y", b"a: \0\xff"), ("", b"")]
)
def test_both_streams_come_back(root: Path, notes: str, data: bytes) -> None:
    outputs = Outputs(root, Cache(root / "cache"))
    assert outputs.get("k") is None
    outputs.put("k", notes, data)
    assert outputs.get("k") == (notes, data)


def test_without_a_key_nothing_is_kept(root: Path) -> None:
    outputs = Outputs(root, Cache(root / "cache"))
    outputs.put(None, "", b"a: 1\n")
    assert outputs.get(None) is None
    assert not (root / "cache").exists()


def test_long_outputs_are_not_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "LARGEST_BYTES", 10)
    outputs = Outputs(root, Cache(root / "cache"))
    outputs.put("k", "", b"a" * 10)
    assert outputs.get("k") is None


def test_a_settled_file_is_not_read_and_known_again_by_its_stamp(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "SETTLED_S", -1.0)
    first = key(root)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"read {path}"))
        assert key(root) == first
    file = root / "components/cnn.yaml"
    before = file.stat()
    time.sleep(0.02)  # more than a tick of the clock
    file.write_text("dnn")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert key(root) not in (first, None)
