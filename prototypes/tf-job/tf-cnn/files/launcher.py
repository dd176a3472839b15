"""Start the TensorFlow CNN benchmark with the addresses that the training operator gives.

    launcher.py COMMAND [ARGUMENT ...]

The operator describes a job in the environment variable `TF_CONFIG`; the benchmark knows only flags.
This program adds `--job_name`, `--task_index`, `--ps_hosts` and `--worker_hosts` to the command and becomes
it. A job of one pod has no `TF_CONFIG`: its command runs unchanged. The chief (the operator also says
`master`) is worker 0, and the other workers move up by one.
"""

import json
import os
import sys

ROLES = ("chief", "master", "worker", "ps")


def benchmark_flags(config: dict) -> list[str]:
    """Translate a `TF_CONFIG` into the benchmark's flags; none for a job of one pod.

    Raises:
        SystemExit: this pod has a role that the benchmark does not know, or cannot know the others.
    """
    cluster, task = config.get("cluster") or {}, config.get("task") or {}
    chiefs = cluster.get("chief") or cluster.get("master") or []
    workers, servers = cluster.get("worker") or [], cluster.get("ps") or []
    role, index = task.get("type"), int(task.get("index", 0))
    if not role or not (servers or len(chiefs) + len(workers) > 1):
        return []
    if not isinstance(workers, list):
        sys.exit("launcher: enableDynamicWorker gives a TF_CONFIG without the other workers")
    if role not in ROLES:
        sys.exit(f"launcher: the benchmark has no role {role}")
    return [
        f"--job_name={'ps' if role == 'ps' else 'worker'}",
        f"--task_index={index + len(chiefs) if role == 'worker' else index}",
        f"--ps_hosts={','.join(servers)}",
        f"--worker_hosts={','.join(chiefs + workers)}",
    ]


def main(command: list[str]) -> None:
    """Become the command, with the flags of this pod's role."""
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    command = [*command, *benchmark_flags(config)]
    # Nothing stays between Kubernetes' signals, the exit code and the benchmark.
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
