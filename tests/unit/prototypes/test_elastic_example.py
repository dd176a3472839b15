"""The training program of `elastic-job` as real processes: they come, go and are killed, no task is lost."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import shutil
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mlstack.app import files
from tests.support.processes import Program
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

EXAMPLE = files.folder("prototypes") / "elastic" / "elastic-job" / "example"
TASKS = 20
PASSES = 6
DONE = re.compile(r"^done pass=(\d+) task=(\d+) ", re.MULTILINE)


class Job:
    """The processes of one job on a loopback address of its own, so that no other test takes its ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.code = shutil.copytree(EXAMPLE, folder / "code", ignore=shutil.ignore_patterns("__pycache__"))
        self.state = folder / "checkpoint"
        pid = os.getpid()
        self._host = f"127.{1 + (pid >> 16) % 200}.{(pid >> 8) % 256}.{pid % 256}"
        self.master = self.program("master", 0)
        self.pservers = [self.program("pserver", index) for index in range(2)]
        self.trainers: list[Program] = []

    def program(self, role: str, index: int, **further: str) -> Program:
        env = {
            "MLSTACK_MASTER_ADDR": f"{self._host}:18080",
            "MLSTACK_PSERVER_ADDRS": f"{self._host}:17164,{self._host}:17165",
            "MLSTACK_INDEX": str(index),
            "MLSTACK_BIND": self._host,
            "MLSTACK_PASSES": str(PASSES),
            "MLSTACK_TASKS": str(TASKS),
            "MLSTACK_LEASE_SECONDS": "1",
            "MLSTACK_TASK_FAILURE_LIMIT": "1000",
            "MLSTACK_CHECKPOINT_DIR": str(self.state),
            "MLSTACK_CHECKPOINT_SECONDS": "0.05",
            **further,
        }
        command = [sys.executable, "-S", "-E", self.code / f"{role}.py"]
        return Program(f"{role}-{index}", command, log=self.folder / f"{role}-{index}.log", env=env)

    def add_trainer(self) -> None:
        self.trainers.append(self.program("trainer", len(self.trainers)))
        self.trainers[-1].start()

    def alive(self) -> list[Program]:
        return [trainer for trainer in self.trainers if trainer.pid]

    def everybody(self) -> list[Program]:
        return [self.master, *self.pservers, *self.alive()]

    def counted(self) -> list[tuple[int, int]]:
        """Every (pass, task) that a master told to be done, in all its lives."""
        text = self.master.log.read_text() if self.master.log.exists() else ""
        return [(int(number), int(task)) for number, task in DONE.findall(text)]

    def answers(self, port: int) -> bool:
        with socket.socket() as trial:
            return trial.connect_ex((self._host, port)) == 0

    def ask(self, port: int, message: dict[str, Any]) -> Any:
        with socket.create_connection((self._host, port)) as connection, connection.makefile("rw") as stream:
            stream.write(json.dumps(message) + "\n")
            stream.flush()
            return json.loads(stream.readline())

    def queue(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.state / "tasks.json").read_text())
        return state

    def wait_for(self, count: int) -> None:
        """Wait until so many tasks were done."""
        wait_until(
            lambda: len(self.counted()) >= count,
            what=f"{count} tasks",
            interval_s=0.01,
            details=lambda: "\n".join(process.log_tail(10) for process in self.everybody()),
        )


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    job = Job(tmp_path)
    try:
        yield job
    finally:
        for program in job.everybody():
            program.kill()


def restart(*programs: Program) -> None:
    for program in programs:
        program.kill()
    for program in programs:
        program.start()


def kill_a_trainer(job: Job, dice: random.Random) -> None:
    dice.choice(job.alive()).kill()
    job.add_trainer()


def stop_a_trainer(job: Job, dice: random.Random) -> None:
    if len(job.alive()) == 1:
        job.add_trainer()
    # The signal itself ends a trainer that does not listen yet; a kubelet calls that 143 too.
    assert dice.choice(job.alive()).terminate() in (143, -signal.SIGTERM)


def add_trainers(job: Job, _dice: random.Random) -> None:
    job.add_trainer()
    job.add_trainer()


def kill_every_pserver(job: Job, _dice: random.Random) -> None:
    restart(*job.pservers)


def kill_the_master(job: Job, _dice: random.Random) -> None:
    restart(job.master)


def kill_everything(job: Job, _dice: random.Random) -> None:
    for trainer in job.alive():
        trainer.kill()
    restart(job.master, *job.pservers)
    job.add_trainer()
    job.add_trainer()


ACTS: list[Callable[[Job, random.Random], None]] = [
    kill_a_trainer,
    add_trainers,
    stop_a_trainer,
    kill_every_pserver,
    kill_a_trainer,
    kill_the_master,
    stop_a_trainer,
    kill_everything,
    kill_a_trainer,
]


@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5))])
def test_no_task_is_lost_or_counted_twice_whoever_is_killed(job: Job, seed: int) -> None:
    dice = random.Random(seed)
    for program in [job.master, *job.pservers]:
        program.start()
    job.add_trainer()
    job.add_trainer()
    for number, act in enumerate(dice.sample(ACTS, len(ACTS)), start=1):
        job.wait_for(number * TASKS * PASSES // (len(ACTS) + 2))
        act(job, dice)
    for trainer in job.alive():
        trainer.wait_until_finished(timeout_s=30)
    history = job.queue()["history"]
    assert [(entry["pass"], entry["done"], entry["left_out"]) for entry in history] == [
        (number, TASKS, 0) for number in range(PASSES)
    ]
    # A master may be killed after it put a task on record and before it told of it: twice at most here.
    counts = Counter(job.counted())
    assert set(counts.values()) == {1}
    assert len(counts) >= TASKS * PASSES - 2
    assert history[-1]["loss"] < history[0]["loss"] / 2


def test_a_trainer_that_comes_late_finds_no_work_and_says_so(job: Job) -> None:
    state = {"tasks": 1, "passes": 1, "number": 1, "pending": {}, "done": {}, "failures": {}}
    job.state.mkdir()
    (job.state / "tasks.json").write_text(json.dumps(state))
    job.master.start()
    job.add_trainer()
    job.trainers[0].wait_until_finished(timeout_s=30)


def test_a_pserver_saves_when_it_is_told_to_go(job: Job) -> None:
    server = job.pservers[0]
    server.start()
    server.wait_until(lambda: job.answers(17164), what="start")
    file = job.state / "parameters-0.json"
    assert (file.exists(), server.terminate()) == (False, 143)
    assert json.loads(file.read_text()) == {"values": [0.0] * 4, "updates": 0}


def test_a_pserver_goes_on_from_its_checkpoint(job: Job) -> None:
    job.state.mkdir()
    (job.state / "parameters-1.json").write_text(json.dumps({"values": [1.0, 2.0, 3.0, 4.0], "updates": 9}))
    server = job.pservers[1]
    server.start()
    server.wait_until(lambda: job.answers(17165), what="start")
    assert job.ask(17165, {"changes": [1, 1, 1, 1]}) == {"values": [2.0, 3.0, 4.0, 5.0]}


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_pserver_that_is_told_no_address_answers_by_ipv4_and_ipv6(job: Job) -> None:
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    server = job.program("pserver", 0, MLSTACK_BIND="", MLSTACK_PSERVER_ADDRS=f"localhost:{port}")
    server.start()
    try:
        server.wait_until(lambda: job.answers(port), what="start")
        with socket.create_connection(("::1", port), timeout=5):
            pass
    finally:
        server.terminate()


def test_a_new_state_is_on_disk_under_its_name_before_saving_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []
    file = tmp_path / "tasks.json"
    with loaded("settings"), loaded("wire") as wire:
        monkeypatch.setattr(os, "fsync", lambda number: synced.append((path_of(number), file.exists())))
        wire.save(file, {"number": 1})
        assert (wire.load(file), synced) == (
            {"number": 1},
            [(str(file.with_suffix(".new")), False), (str(tmp_path), True)],
        )


def path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


@pytest.fixture(scope="module")
def tasks() -> Iterator[ModuleType]:
    """The module of the task queue, which is no part of a package."""
    with loaded("tasks") as module:
        yield module


@contextmanager
def loaded(name: str) -> Iterator[ModuleType]:
    """Give a module of the example under its own name for as long as it is needed."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    assert name not in sys.modules
    sys.modules[name] = module
    is_writing, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.dont_write_bytecode = is_writing
        del sys.modules[name]


def queue(tasks: ModuleType, *, count: int = 1, passes: int = 1, failure_limit: int = 3) -> Any:
    return tasks.TaskQueue.start(tasks=count, passes=passes, failure_limit=failure_limit)


def test_only_the_lease_that_holds_a_task_can_end_it(tasks: ModuleType) -> None:
    line = queue(tasks)
    task, first = line.lease()
    assert line.fail(task, first)
    _, second = line.lease()
    assert not line.finish(task, first, loss=1)
    assert line.finish(task, second, loss=2)
    assert not line.finish(task, second, loss=3)
    assert line.history == [{"pass": 0, "done": 1, "left_out": 0, "loss": 2}]


def test_a_task_that_fails_too_often_waits_for_the_next_pass(tasks: ModuleType) -> None:
    line = queue(tasks, passes=2, failure_limit=1)
    for _ in range(2):
        line.fail(*line.lease())
    assert (line.number, line.history[0]["left_out"]) == (1, 1)
    assert line.finish(*line.lease(), loss=0)
    assert line.is_over


def test_a_task_given_back_has_not_failed_and_goes_first(tasks: ModuleType) -> None:
    line = queue(tasks, count=2, failure_limit=0)
    task, lease = line.lease()
    line.give_back(task, lease)
    assert line.lease()[0] == task
    assert line.failures == {}


def test_a_queue_comes_back_from_its_record_as_it_was(tasks: ModuleType) -> None:
    line = queue(tasks, count=4, passes=2)
    line.finish(*line.lease(), loss=0.5)
    line.fail(*line.lease())
    line.lease()
    restored = tasks.TaskQueue.restore(json.loads(json.dumps(line.snapshot())))
    assert restored == line
