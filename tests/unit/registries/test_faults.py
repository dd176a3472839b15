"""Installation under faults: killed at any step, on a full disk, on a read-only one, with odd caches."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.operations import package_changes, packages, registries
from tests.support.builders import Tree, read_tree
from tests.support.registries import repository
from tests.support.registry import REGISTRY, small_app

STEPS = ("open", "write", "fsync", "link", "replace", "rename", "mkdir", "unlink", "close")
KILLED = 9


def install(root: Path) -> None:
    packages.install_packages(AppDir(root), ["ours/tools"])


def restore(root: Path) -> None:
    packages.restore_packages(AppDir(root))


def update(root: Path) -> None:
    package_changes.update_packages(AppDir(root))


def remove(root: Path) -> None:
    packages.remove_packages(AppDir(root), ["ours/tools"])


Command = Callable[[Path], None]
COMMANDS: tuple[Command, ...] = (install, restore, update, remove)


def begun(folder: Path, command: Command) -> Path:
    """Make an app in which a command has something to do."""
    app = small_app(folder, installed=command is not install)
    if command is restore:
        shutil.rmtree(app.root / "vendor")
    if command is update:
        head = folder / "registry/tools/package.yaml"
        head.write_text(head.read_text().replace("1.2.0", "1.3.0"))
        registries.index_registry(folder / "registry")
    return app.root


def files_of(root: Path) -> Tree:
    """Give an app's files, without what a killed command may leave and nobody reads."""
    return {
        path: text for path, text in read_tree(root).items() if not path.endswith((".tmp", ".mlstack/lock"))
    }


def dying_at(step: int, command: Command, root: Path) -> int:
    """Run a command in a process that is gone at the step; give its exit code."""
    child = os.fork()
    if child == 0:
        left = [step]

        def dying(real: Callable[..., object]) -> Callable[..., object]:
            def call(*args: object, **options: object) -> object:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*args, **options)

            return call

        try:
            for name in STEPS:
                setattr(os, name, dying(getattr(os, name)))
            command(root)
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_killed_at_any_step_the_same_command_again_does_it(tmp_path: Path, command: Command) -> None:
    undisturbed = begun(tmp_path / "undisturbed", command)
    command(undisturbed)
    expected, step, code = files_of(undisturbed), 1, -KILLED
    while code == -KILLED:
        step += 3
        root = begun(tmp_path / str(step), command)
        code = dying_at(step, command, root)
        # What was removed before its files were is not there to be removed again.
        (restore if command is remove and not AppDir(root).lock.packages else command)(root)
        assert files_of(root) == expected, step
        assert package_changes.verify_packages(AppDir(root)).ok
    assert (code, step > 40) == (0, True)


# --- disks ---

IN_A_NAMESPACE = """
import pathlib, sys
from mlstack.app.app_dir import AppDir
from mlstack.errors import ConfigError
from mlstack.operations import packages
app = AppDir(pathlib.Path(sys.argv[1]) / "demo")
try:
    packages.install_packages(app, ["ours/tools"])
except ConfigError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "mount", "message"),
    [
        ("vendor", "mount -t tmpfs -o size=8k,nr_inodes=6 none", "the disk is full; nothing was changed"),
        ("vendor", "mount -t tmpfs -o ro none", "the file system is read-only; nothing was changed"),
        (".", "mount --bind -o ro", "the file system is read-only; nothing was changed"),
    ],
    ids=["full", "vendor", "app"],
)
def test_what_cannot_be_written_is_not_begun(tmp_path: Path, place: str, mount: str, message: str) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("unshare is not on PATH")
    root = small_app(tmp_path, installed=False).root
    (root / "vendor").mkdir()
    before, folder = files_of(root), root / place
    script = f'{mount} {folder if "bind" in mount else ""} "{folder}" && exec "$1" -c "$0" "$2"'
    arguments = [script, IN_A_NAMESPACE, sys.executable, str(tmp_path)]
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip("no file systems may be mounted here")
    assert message in done.stdout, done
    assert files_of(root) == before
    install(root)
    assert package_changes.verify_packages(AppDir(root)).ok


@pytest.mark.slow
@pytest.mark.parametrize("odd", ["open to others", "somebody else's", "a file", "full of other things"])
def test_an_odd_cache_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache = tmp_path / "cache/mlstack"
    cache.mkdir(parents=True, mode=0o700)
    if odd == "open to others":
        cache.chmod(0o777)
    elif odd == "somebody else's":
        if os.geteuid() != 0:
            pytest.skip("only root may give a folder away")
        os.chown(cache, 12345, 12345)
    elif odd == "a file":
        cache.rmdir()
        cache.write_text("x")
    else:
        (cache / "git").write_text("x")
    app = small_app(tmp_path / "work", installed=False)
    repository(tmp_path / "repo", {path[9:]: text for path, text in REGISTRY.items()})
    registries.add_registry(app, "far", f"file://{tmp_path}/repo#main")
    packages.install_packages(AppDir(app.root), ["far/tools"])
    assert package_changes.verify_packages(AppDir(app.root)).ok
