"""A stand-in for `tf_cnn_benchmarks.py`: takes its flags, and its tasks must find each other.

A parameter server waits for every worker and ends; a worker calls every parameter server and ends.
"""

import argparse
import json
import socket
import sys
import time


def main() -> None:
    """Play the task that the flags name, and print what the launcher said."""
    parser = argparse.ArgumentParser()
    for flag in ("--job_name", "--ps_hosts", "--worker_hosts", "--model"):
        parser.add_argument(flag, default="")
    parser.add_argument("--task_index", type=int, default=0)
    flags = parser.parse_args()
    servers = [host for host in flags.ps_hosts.split(",") if host]
    workers = [host for host in flags.worker_hosts.split(",") if host]
    calls: list[int] = []
    if flags.job_name == "ps":
        calls = serve(servers[flags.task_index], len(workers))
    elif flags.job_name == "worker":
        for server in servers:
            call(server, flags.task_index)
    json.dump({**vars(flags), "calls": sorted(calls), "rest": sys.argv[1:]}, sys.stdout)


def serve(address: str, callers: int) -> list[int]:
    """Wait until so many workers have called, and give their indices."""
    host, _, port = address.rpartition(":")
    with socket.create_server((host, int(port))) as listener:
        return [heard(listener) for _ in range(callers)]


def heard(listener: socket.socket) -> int:
    """Take one call."""
    connection, _ = listener.accept()
    with connection:
        return int(connection.recv(16))


def call(address: str, index: int) -> None:
    """Tell a parameter server who we are, as soon as it listens."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 30
    while True:
        try:
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(str(index).encode())
                return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


if __name__ == "__main__":
    main()
