"""The launcher of tf-cnn as the program it is: real processes, `TF_CONFIG` as the operator writes it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlstack.app import files
from tests.support.processes import free_port
from tests.support.registries import repository

LAUNCHER = files.folder("prototypes") / "tf-job" / "tf-cnn" / "files" / "launcher.py"
BENCHMARK = Path(__file__).with_name("benchmark.py")

PS = ["cnn-ps-0.default.svc:2222", "cnn-ps-1.default.svc:2222"]
WORKERS = ["cnn-worker-0.default.svc:2222", "cnn-worker-1.default.svc:2222"]


def start(tf_config: Any, *command: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    if tf_config is not None:
        environment["TF_CONFIG"] = tf_config if isinstance(tf_config, str) else json.dumps(tf_config)
    return subprocess.Popen(
        [sys.executable, LAUNCHER, *(command or (sys.executable, str(BENCHMARK), "--model=resnet50"))],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def echo(tf_config: Any) -> list[str]:
    """Give the arguments that a command after the launcher gets."""
    process = start(
        tf_config, sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", "a b"
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    arguments: list[str] = json.loads(out)
    return arguments


def tf_config(kind: str, index: int, **cluster: list[str]) -> dict[str, Any]:
    return {"cluster": cluster, "task": {"type": kind, "index": index}, "environment": "cloud"}


@pytest.mark.parametrize(
    "nothing",
    [None, "", "{}", tf_config("worker", 0, worker=WORKERS[:1])],
    ids=["unset", "empty", "{}", "one pod"],
)
def test_a_job_of_one_pod_runs_its_command_unchanged(nothing: Any) -> None:
    assert echo(nothing) == ["a b"]


def flags(job: str, index: int, ps: list[str], workers: list[str]) -> list[str]:
    return [
        "a b",
        f"--job_name={job}",
        f"--task_index={index}",
        f"--ps_hosts={','.join(ps)}",
        f"--worker_hosts={','.join(workers)}",
    ]


CHIEF = ["cnn-chief-0.default.svc:2222"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (tf_config("ps", 1, ps=PS, worker=WORKERS), flags("ps", 1, PS, WORKERS)),
        (tf_config("worker", 1, ps=PS, worker=WORKERS), flags("worker", 1, PS, WORKERS)),
        (tf_config("worker", 0, ps=PS[:1], worker=WORKERS[:1]), flags("worker", 0, PS[:1], WORKERS[:1])),
        (tf_config("worker", 1, worker=WORKERS), flags("worker", 1, [], WORKERS)),
        (tf_config("chief", 0, chief=CHIEF, ps=PS, worker=WORKERS), flags("worker", 0, PS, CHIEF + WORKERS)),
        (tf_config("master", 0, master=CHIEF, worker=WORKERS), flags("worker", 0, [], CHIEF + WORKERS)),
        (tf_config("worker", 1, chief=CHIEF, worker=WORKERS), flags("worker", 2, [], CHIEF + WORKERS)),
        (
            tf_config("worker", 0, ps=["[fd00::1]:2222"], worker=["[fd00::2]:2222"]),
            flags("worker", 0, ["[fd00::1]:2222"], ["[fd00::2]:2222"]),
        ),
    ],
    ids=["ps", "worker", "one each", "no ps", "chief is worker 0", "master too", "workers move up", "IPv6"],
)
def test_the_benchmark_is_told_its_task_and_the_others(config: Any, expected: list[str]) -> None:
    assert echo(config) == expected


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            tf_config("evaluator", 0, ps=PS, worker=WORKERS, evaluator=["cnn-evaluator-0.default.svc:2222"]),
            "the benchmark has no role evaluator",
        ),
        (
            {"cluster": {"ps": PS, "worker": {"1": WORKERS[1]}}, "task": {"type": "worker", "index": 1}},
            "enableDynamicWorker gives a TF_CONFIG without the other workers",
        ),
    ],
    ids=["evaluator", "sparse worker"],
)
def test_what_the_benchmark_cannot_play_is_said_in_one_sentence(config: Any, sentence: str) -> None:
    process = start(config)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (1, "", f"launcher: {sentence}\n")


def test_the_exit_code_is_the_benchmarks() -> None:
    process = start(None, sys.executable, "-c", "raise SystemExit(7)")
    process.communicate(timeout=60)
    assert process.returncode == 7


@pytest.mark.parametrize("chief", [False, True], ids=["workers", "chief and workers"])
def test_all_tasks_of_a_job_find_each_other(chief: bool) -> None:
    cluster = {"ps": addresses(2), "worker": addresses(2), **({"chief": addresses(1)} if chief else {})}
    tasks = [(kind, index) for kind, hosts in cluster.items() for index in range(len(hosts))]
    processes = [start(tf_config(kind, index, **cluster)) for kind, index in tasks]
    ended = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(tasks), ended
    reports = [json.loads(out) for out, _ in ended]
    workers = 3 if chief else 2
    assert sorted((report["job_name"], report["task_index"]) for report in reports) == [
        ("ps", 0),
        ("ps", 1),
        *(("worker", index) for index in range(workers)),
    ]
    assert {(report["ps_hosts"], report["worker_hosts"]) for report in reports} == {
        (",".join(cluster["ps"]), ",".join(cluster.get("chief", []) + cluster["worker"]))
    }
    assert [report["calls"] for report in reports if report["job_name"] == "ps"] == [list(range(workers))] * 2


def test_the_source_comes_into_a_volume_that_is_roots_also_a_second_time(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    revision = repository(source, {"run.py": "pass"})
    (tmp_path / ".gitconfig").write_text(f"[safe]\n  directory = {source}/.git\n")
    settings = {"TARGET": str(target), "REPOSITORY": f"file://{source}", "REVISION": revision}
    other = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}
    for _ in range(2):
        subprocess.run(["sh", "-e", LAUNCHER.with_name("clone.sh")], env={**other, **settings}, check=True)
        assert (target / "run.py").read_text() == "pass"


def addresses(count: int) -> list[str]:
    return [f"127.0.0.1:{free_port()}" for _ in range(count)]
