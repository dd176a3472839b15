"""Files are written whole, together, or not at all."""

import errno
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlstack.app.edit import write_files
from mlstack.errors import ConfigError


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_new_and_changed_files_are_written_and_others_deleted(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text("old")
    (tmp_path / "gone.yaml").write_text("gone")
    files = {tmp_path / "old.yaml": "new ü\r\n", tmp_path / "a" / "b" / "new.yaml": b"\x00\xff"}
    write_files(files, delete=[tmp_path / "gone.yaml", tmp_path / "never-there"])
    assert tree(tmp_path) == {"old.yaml": "new ü\r\n".encode(), "a/b/new.yaml": b"\x00\xff"}


def test_mode_of_a_file_is_kept_and_new_files_follow_the_umask(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("old")
    script.chmod(0o751)
    before = os.umask(0o027)
    try:
        write_files({script: "new", tmp_path / "fresh": "x"})
    finally:
        os.umask(before)
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o640


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "real.yaml").write_text("old")
    link = tmp_path / "app.yaml"
    link.symlink_to(Path("shared") / "real.yaml")
    write_files({link: "new"})
    assert link.is_symlink()
    assert (tmp_path / "shared" / "real.yaml").read_text() == "new"


def failing(code: int, at: int) -> Callable[..., Any]:
    """Wrap a function of `os`, so that it fails when it is called for the nth time."""

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        def call(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(code, os.strerror(code))
            return real(*args, **options)

        return call

    return wrap


@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("step", ["open", "write", "fsync", "replace", "rename"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES], ids=["full", "broken", "refused"])
def test_when_a_step_fails_nothing_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, at: int
) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_text(f"old {name}")
    before = tree(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(os, step, failing(code, at)(getattr(os, step)))
        files = {tmp_path / "a": "1", tmp_path / "new" / "x": "2", tmp_path / "b": "3"}
        with pytest.raises(ConfigError, match="nothing was changed"):
            write_files(files, delete=[tmp_path / "c", tmp_path / "d", tmp_path / "b"])
    assert tree(tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "d"]


def test_a_full_disk_is_told_with_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", failing(errno.ENOSPC, 1)(os.write))
    with pytest.raises(ConfigError) as caught:
        write_files({tmp_path / "app.yaml": "x"})
    assert str(caught.value) == f"cannot write `{tmp_path}/app.yaml`: the disk is full; nothing was changed"
    assert caught.value.hint == "free some space, then run the command again"


def test_an_interrupted_write_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("old")
    real = os.fsync
    flushed = 0

    def interrupt(descriptor: int) -> None:
        nonlocal flushed
        flushed += 1
        if flushed == 3:  # both files stand, their folder is not flushed yet
            raise KeyboardInterrupt
        real(descriptor)

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_files({tmp_path / "a": "new", tmp_path / "b": "new"})
    assert tree(tmp_path) == {"a": b"old"}


def test_an_interruption_while_cleaning_up_leaves_the_new_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")
    real, stops = os.unlink, [KeyboardInterrupt]

    def unlink(*args: Any, **options: Any) -> None:
        if stops:
            raise stops.pop()
        real(*args, **options)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(KeyboardInterrupt):
        write_files({tmp_path / "a": "new"})
    assert tree(tmp_path) == {"a": b"new"}


def test_a_deletion_that_never_began_is_not_called_undoable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")

    def read_only(*args: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "rename", read_only)
    with pytest.raises(ConfigError, match="the file system is read-only; nothing was changed"):
        write_files({}, delete=[tmp_path / "a"])


def test_a_file_that_could_not_be_put_back_is_named_and_its_copy_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").write_text("old")
    real = os.replace
    replaced = 0

    def fail_from_the_second_on(source: Path, target: Path) -> None:
        nonlocal replaced
        replaced += 1
        if replaced > 1:
            raise OSError(errno.EIO, "input/output error")
        real(source, target)

    monkeypatch.setattr(os, "replace", fail_from_the_second_on)
    with pytest.raises(ConfigError, match=r"`.*/b` could not be put back"):
        write_files({tmp_path / "a": "new", tmp_path / "b": "new"})
    copies = [path for path in tmp_path.glob(".a.*.tmp") if path.read_text() == "old"]
    assert len(copies) == 1


def test_a_file_system_without_links_or_folder_flush_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(os, "link", failing(errno.EPERM, 1)(os.link))
    monkeypatch.setattr(os, "fsync", failing(errno.EINVAL, 3)(os.fsync))
    write_files({tmp_path / "a": "new"})
    assert tree(tmp_path) == {"a": b"new"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [("folder", "a folder stands in its place"), ("file/x", "a file stands where a folder is needed")],
)
def test_what_stands_in_the_way_is_told(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match=reason):
        write_files({tmp_path / "other": "x", tmp_path / name: "y"})
    assert tree(tmp_path) == {"file": b"x"}


def test_a_name_at_the_limit_is_written_and_one_beyond_it_refused(tmp_path: Path) -> None:
    write_files({tmp_path / ("ü" * 127): "x"})
    with pytest.raises(ConfigError, match="the name is too long"):
        write_files({tmp_path / ("x" * 256): "x"})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(ConfigError, match="permission denied; nothing was changed"):
            write_files({tmp_path / "a": "new"})
    finally:
        tmp_path.chmod(0o755)
    assert tree(tmp_path) == {"a": b"old"}


IN_A_NAMESPACE = """
import pathlib, sys
from mlstack.errors import ConfigError
from mlstack.app.edit import write_files
folder = pathlib.Path(sys.argv[1])
try:
    write_files({folder / "a": "new", folder / "b": "x" * int(sys.argv[2])})
except ConfigError as error:
    print(error)
print(sorted((path.name, path.read_text()[:9]) for path in folder.iterdir()))
"""


@pytest.mark.parametrize(
    ("options", "size", "reason"),
    [("size=64k", 100_000, "the disk is full"), ("ro", 1, "the file system is read-only")],
)
def test_a_real_disk_that_is_full_or_read_only(tmp_path: Path, options: str, size: int, reason: str) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not on PATH")
    mount = f'mount -t tmpfs none "$1" && printf old > "$1"/a && mount -o remount,{options} "$1"'
    script = f'{mount} && exec "$2" -c "$0" "$1" {size}'
    arguments = [script, IN_A_NAMESPACE, str(tmp_path), sys.executable]
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("no file systems may be mounted here")
    assert f"{reason}; nothing was changed" in done.stdout, done.stderr
    assert done.stdout.endswith("[('a', 'old')]\n")


KILLED = """
import os, pathlib, sys
from mlstack.app.edit import write_files

def dying(real):
    def call(*args, **options):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        return real(*args, **options)
    return call

def work(folder):
    for name in ("open", "write", "fsync", "link", "replace", "rename", "mkdir", "unlink", "close"):
        setattr(os, name, dying(getattr(os, name)))
    write_files({folder / "a": "new" * 9, folder / "b": "new" * 9, folder / "c" / "d": "new" * 9})
    os._exit(0)

step = code = 1
while code:
    folder = pathlib.Path(sys.argv[1], str(step))
    folder.mkdir(parents=True)
    for name in ("a", "b"):
        (folder / name).write_text("old")
    left = step
    child = os.fork()
    if child == 0:
        work(folder)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(step, code)
    step += 1
"""


@pytest.mark.slow
def test_killed_at_any_step_every_file_is_the_old_or_the_new_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *killed, finished = [line.split() for line in done.stdout.splitlines()]
    assert len(killed) > 20
    assert {code for _, code in killed} == {"9"}
    assert finished[1] == "0"
    for step, _ in [*killed, finished]:
        files = {name: text for name, text in tree(tmp_path / step).items() if ".tmp" not in name}
        assert files.pop("a") in (b"old", b"new" * 9)
        assert files.pop("b") in (b"old", b"new" * 9)
        assert files.pop("c/d", b"new" * 9) == b"new" * 9
        assert files == {}
