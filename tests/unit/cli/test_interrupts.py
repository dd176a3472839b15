"""Whenever a command is cut off, each file is the old or the new one, and the next command works."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import read_tree, restore_tree
from tests.support.cli import Runner
from tests.support.registry import small_app

pytestmark = pytest.mark.slow

BARE = ("pkg install ours/tools", "pkg rm ours/tools")
COMMANDS = (
    *BARE,
    "init --dir ../demo2 demo2",
    "registry add others ../registry",
    "generate web back --image nginx",
    "component rm front",
    "param set front color green",
    "param set --env=prod front replicas 3",
    "param unset --env=prod front replicas",
    "env add gke",
    "env set prod --namespace other",
    "env set prod --name live",
    "env rm prod",
    "env current --set prod",
    "render prod --out ../made",
    "apply prod",  # the first contact writes the cluster's identity
)
HALF_WAY = {
    "pkg rm ours/tools": "the app is without it, its folder in vendor/ still there",
    "env set prod --name live": "both names are there",
}
"""What a power cut can leave that the command, said again, calls done already."""
CHANGING = ("mkdir", "link", "rename", "replace", "unlink", "rmdir", "open", "write", "fsync")
Tree = Mapping[str, bytes]


class PowerCut(BaseException):
    """Raised in place of the step that never came to pass, and of all that would follow."""


class Steps:
    """Stands before every call that changes something below a folder, and stops one of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let all of them pass."""
        self._folder = str(folder)
        self._taken = 0
        self._stop: type[BaseException] | None = None
        for name in CHANGING:
            monkeypatch.setattr(os, name, self._guarded(name, getattr(os, name)))

    @contextmanager
    def stopped_at(self, number: int, stop: type[BaseException]) -> Iterator[None]:
        """Raise `stop` in place of the step of that number, counted from 1; half of a write is done."""
        self._taken, self._stop = -number, stop
        try:
            yield
        finally:
            self._stop = None

    @property
    def enough(self) -> bool:
        """Tell whether there were as many steps as wanted."""
        return self._taken >= 0

    def _guarded(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if self._stop is None or not self._counts(name, args, options):
                return real(*args, **options)
            self._taken += 1
            if self._taken == 0 and name == "write":
                real(args[0], bytes(args[1])[: len(args[1]) // 2])
            if self._taken == 0 or (self._taken > 0 and self._stop is PowerCut):
                raise self._stop
            return real(*args, **options)

        return call

    def _counts(self, name: str, args: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
        if name in ("write", "fsync"):
            return True
        if name == "open" and not (len(args) > 1 and args[1] & os.O_CREAT):
            return False
        return str(Path(args[0]).absolute()).startswith(self._folder) or options.get("dir_fd") is not None


class Scene:
    """A folder with a registry and an app, which can be put back as it was."""

    def __init__(self, folder: Path, run: Runner, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
        """Make the app that a command finds."""
        self.folder, self.command, self._run = folder, command, run
        small_app(folder, installed=command != BARE[0])
        monkeypatch.chdir(folder / "demo")
        run.ok("env add prod --no-preset")
        if command not in BARE:
            run.ok("generate web front --image nginx")
            run.ok("param set --env=prod front replicas 2")
        self.old: Tree = read_tree(folder)
        run.ok(command)
        self.new: Tree = read_tree(folder)
        self.steps = Steps(folder, monkeypatch)

    def put_back(self) -> None:
        """Put everything back as it was before the command."""
        self._run.clusters.clear()
        restore_tree(self.folder, self.old)
        os.chdir(self.folder / "demo")

    def check_files(self, tree: Tree) -> None:
        """Hold every file to its old or its new content."""
        for name in sorted({*self.old, *self.new, *tree}):
            assert tree.get(name) in (self.old.get(name), self.new.get(name)), name

    def check_next_commands(self) -> None:
        """Look at the app, then repeat the command, which ends what was begun."""
        self._run.ok("component list")
        self._run.ok("env list")
        done = lasting(read_tree(self.folder)) == self.new
        again = self._run(self.command)
        if not done and self.command not in HALF_WAY:
            assert again.code == 0, again
            assert lasting(read_tree(self.folder)) == self.new


@pytest.fixture(params=COMMANDS, ids=lambda command: "-".join(command.split()[:2]))
def scene(
    request: pytest.FixtureRequest, tmp_path: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> Scene:
    """Give the scene of a command that writes files."""
    return Scene(tmp_path / "work", run, monkeypatch, request.param)


def lasting(tree: Tree) -> Tree:
    """Leave out temporary files, which a power cut may leave behind."""
    return {name: data for name, data in tree.items() if not any(p.endswith(".tmp") for p in name.split("/"))}


def test_power_cut_leaves_old_or_new_files_and_the_next_command_works(scene: Scene, run: Runner) -> None:
    trees: list[Tree] = []
    for number in count(1):
        scene.put_back()
        with suppress(PowerCut), scene.steps.stopped_at(number, PowerCut):
            run(scene.command)
        if not scene.steps.enough:
            break
        left = lasting(read_tree(scene.folder))
        if left not in trees:
            trees.append(left)
            scene.check_files(left)
            scene.check_next_commands()
    assert number > 3


def test_ctrl_c_leaves_all_old_or_all_new_files_and_says_one_line(scene: Scene, run: Runner) -> None:
    for number in count(1):
        scene.put_back()
        with scene.steps.stopped_at(number, KeyboardInterrupt):
            ran = run(scene.command)
        if not scene.steps.enough:
            break
        assert (ran.code, ran.err.splitlines()[-1]) == (130, "interrupted")
        left = read_tree(scene.folder)
        assert left in (scene.old, scene.new) or scene.command in HALF_WAY
        scene.check_files(left)
    assert number > 3
