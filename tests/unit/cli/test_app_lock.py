"""Commands that edit an app do so one after the other: none loses what another wrote."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlstack.app import edit
from mlstack.app.app_dir import AppDir
from mlstack.cli.main import main
from tests.support.builders import read_tree, write_tree
from tests.support.cli import Runner
from tests.support.commands import EDITS, READS
from tests.support.registry import small_app
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

# What is edited, by the command line that does it.
VERBS = {
    "param": "param set front tags.t{0} x",
    "registry": "registry add r{0} ../registry",
    "env": "env add e{0} --offline",
    "generate": "generate web c{0} --image nginx",
    "package": "pkg install many/p{0}",
}
EDITOR = """
import sys
from mlstack.cli.main import main
line, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
main(["param", "list"])  # all is imported
print("ready", flush=True)
sys.stdin.readline()
sys.exit(max(main(line.format(number).split()) for number in range(first, first + count)))
"""
HOLDER = """
import sys, time
from pathlib import Path
from mlstack.app.edit import app_lock
with app_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Runner) -> Path:
    """Make an app with a component and an environment, and stand in it."""
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("env add prod --no-preset")
    run.ok("generate web front --image nginx")
    run.ok("param set --env=prod front replicas 2")
    return tmp_path / "demo"


@contextmanager
def held(root: Path) -> Iterator[None]:
    """Hold the lock as another process would."""
    descriptor = os.open(root / ".mlstack/lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"4242\nbuilder-7\n", 0)
        yield
    finally:
        os.close(descriptor)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait long."""
    monkeypatch.setattr(edit, "LOCK_WAIT_S", 0.05)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("line", EDITS)
def test_edit_is_refused_while_another_command_edits(root: Path, run: Runner, line: str) -> None:
    if line.startswith("pkg rm"):
        run.ok("component rm front")  # it needs the package
    with held(root):
        before = read_tree(root)
        ran = run(line)
        assert (ran.code, read_tree(root)) == (3, before), ran
    assert "process 4242 on builder-7 has been editing this app" in ran.err
    assert "hint: wait for it or end it" in ran.err
    assert run(line).code == 0


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("line", READS)
def test_reading_waits_for_nobody(root: Path, run: Runner, line: str) -> None:
    with held(root):
        run.ok(line)


@pytest.mark.usefixtures("impatient")
def test_only_one_init_of_a_folder_goes_on(root: Path, run: Runner) -> None:
    (root / "new/.mlstack").mkdir(parents=True)
    with held(root / "new"):
        assert run("init --dir new new").code == 3
    assert run("init --dir new new").code == 0


def together(root: Path, verb: str, *, processes: int, edits: int) -> None:
    """Let processes edit an app at the same time."""
    started = []
    for number in range(processes):
        command = [sys.executable, "-c", EDITOR, VERBS[verb], str(number * edits), str(edits)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        started.append(subprocess.Popen(command, cwd=root, text=True, **pipes))
    for process in started:
        assert process.stdout is not None
        while process.stdout.readline() != "ready\n":
            assert process.poll() is None
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in started:
        process.communicate(timeout=120)
    assert [process.returncode for process in started] == [0] * processes


def survivors(root: Path, verb: str) -> int:
    """Count what edits of a kind left in an app."""
    app = AppDir(root)
    if verb == "param":
        return len(app.component("front").params["tags"])  # type: ignore[union-attr]
    if verb == "registry":
        return len(app.app.registries) - 1
    if verb == "env":
        return len(app.environment_names) - 1
    if verb == "generate":
        return len(app.component_files) - 1
    names = {pkg.full_name for pkg in app.lock.packages} & {pkg.full_name for pkg in app.app.packages}
    return len(app.vendor.packages()) and len([name for name in names if name.startswith("many/")])


@pytest.mark.parametrize("verb", VERBS)
def test_parallel_edits_all_survive(root: Path, run: Runner, verb: str) -> None:
    packages = {
        f"many/p{number}/package.yaml": f"""\
            apiVersion: mlstack.dev/v1
            kind: Package
            name: p{number}
            version: 1.0.0
            summary: one of many
            """
        for number in range(16)
    }
    write_tree(root.parent, packages)
    if verb == "package":
        run.ok("registry add many ../many")
    together(root, verb, processes=4, edits=4)
    assert survivors(root, verb) == 16


@pytest.mark.slow
def test_fifty_commands_at_once_all_survive(root: Path) -> None:
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "mlstack", "param", "set", "front", f"tags.t{number}", "x"],
            cwd=root,
            stdout=subprocess.DEVNULL,
        )
        for number in range(50)
    ]
    assert [process.wait(300) for process in started] == [0] * 50
    assert survivors(root, "param") == 50


def test_killed_holder_leaves_the_app_free(root: Path, run: Runner) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(root)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    run.ok("param set front color green")


def test_ctrl_c_while_waiting_ends_the_command(root: Path) -> None:
    before = (root / "components/front.yaml").read_bytes()
    with (
        held(root),
        subprocess.Popen(
            [sys.executable, "-m", "mlstack", "param", "set", "front", "color", "green"],
            cwd=root,
            stderr=subprocess.PIPE,
            text=True,
        ) as waiting,
    ):
        opened = Path(f"/proc/{waiting.pid}/fd")
        wait_until(
            lambda: any(os.path.realpath(link).endswith(".mlstack/lock") for link in opened.iterdir()),
            what="the command to stand at the lock",
            timeout_s=30,
            interval_s=0.02,
        )
        waiting.send_signal(signal.SIGINT)
        _, stderr = waiting.communicate(timeout=30)
    assert (waiting.returncode, stderr) == (130, "interrupted\n")
    assert (root / "components/front.yaml").read_bytes() == before


def test_a_long_queue_comes_to_its_end(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit, "LOCK_WAIT_S", 0.4)
    codes: list[int] = []
    waiting = threading.Thread(target=lambda: codes.append(main(["param", "set", "front", "color", "green"])))
    with held(root):
        waiting.start()
        for number in range(9):  # one holder after the other, without a gap for us
            time.sleep(0.1)
            (root / ".mlstack/lock").write_text(f"{number}\nbuilder-7\n")
    waiting.join()
    assert codes == [0]


def test_lock_is_nothing_that_git_would_see(root: Path, run: Runner) -> None:
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=root, check=True)
    (root / ".gitignore").unlink()
    run.ok("env current --set prod")
    status = subprocess.run(
        ["git", "status", "--porcelain", "-uall"], cwd=root, check=True, capture_output=True, text=True
    )
    assert ".mlstack" not in status.stdout


def test_folder_without_a_place_for_the_lock_is_locked_itself(
    root: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".mlstack/lock").unlink()
    real = os.open

    def refusing(path: object, flags: int, *rest: int, **options: int) -> int:
        if str(path).endswith(".mlstack/lock") and flags & os.O_CREAT:
            raise OSError(errno.EACCES, "permission denied")
        return real(path, flags, *rest, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(os, "open", refusing)
    monkeypatch.setattr(edit, "LOCK_WAIT_S", 0.05)
    run.ok("param set front color green")
    descriptor = real(root, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert run("param set front color red").code == 3
    os.close(descriptor)
    run.ok("param set front color red")


def test_a_file_takes_its_place_where_no_locks_are_known(
    root: Path, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", unknown)
    monkeypatch.setattr(edit, "LOCK_WAIT_S", 0.05)
    marker = root / ".mlstack/lock.held"
    run.ok("param set front color green")
    assert not marker.exists()
    with edit.app_lock(root):
        ran = run("param set front color red")
    assert (ran.code, f"process {os.getpid()} on " in ran.err, str(marker) in ran.err) == (3, True, True)
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True
    )
    marker.write_text(f"{dead.stdout.strip()}\n{os.uname().nodename}\n")
    run.ok("param set front color red")


@pytest.mark.parametrize("stands", ["link", "fifo", "linked folder"])
def test_what_a_hostile_app_puts_in_its_place_is_refused(root: Path, run: Runner, stands: str) -> None:
    victim = root.parent / "victim"
    victim.mkdir()
    (victim / "lock").write_text("precious")
    (root / ".mlstack/lock").unlink()
    if stands == "link":
        (root / ".mlstack/lock").symlink_to(victim / "lock")
    elif stands == "fifo":
        os.mkfifo(root / ".mlstack/lock")
    else:
        (root / ".mlstack/.gitignore").unlink()
        (root / ".mlstack").rmdir()
        (root / ".mlstack").symlink_to(victim)
    ran = run("param set front color green")
    assert (ran.code, "the lock of the app must be a plain file" in ran.err) == (3, True)
    assert read_tree(victim) == {"lock": b"precious"}


@pytest.mark.usefixtures("impatient")
def test_what_a_hostile_holder_writes_is_not_repeated(root: Path, run: Runner) -> None:
    with held(root):
        (root / ".mlstack/lock").write_text("1\n\x1b[2Jrm -rf ~\n" * 1000)
        ran = run("param set front color green")
    assert "another command has been editing this app" in ran.err
    assert "\x1b" not in ran.err
