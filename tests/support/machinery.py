"""The programs of one Kubernetes cluster, started step by step: etcd, API server, controllers, kwok."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from tests.controlplane.recipes import Programs
from tests.support.api import ApiClient
from tests.support.isolation import ADVERTISED
from tests.support.processes import Program, answers, free_port

STAGES = Path(__file__).parents[1] / "controlplane" / "stages.yaml"


class Machinery:
    """Programs that stay up together, one set a cluster, with their files in one directory.

    Call the steps in their order: `launch`, `wait_until_certified`, `wait_until_serving`,
    `launch_controllers`. Each one but the waits returns at once, so that two clusters can take the same step
    side by side.

    Attributes:
        server: URL of the API server.
        store: URL of etcd, once launched.
    """

    def __init__(self, programs: Programs, directory: Path) -> None:
        """Choose ports; nothing is started.

        Args:
            programs: where the binaries are.
            directory: made by `launch`; gets data, keys, certificates and logs.
        """
        self._programs = programs
        self._directory = directory
        self._port = free_port()
        self._running: dict[str, Program] = {}
        self.server = f"https://127.0.0.1:{self._port}"
        self.store = ""

    @property
    def pids(self) -> list[int]:
        """The process ids of the programs that run."""
        return [program.pid for program in self._running.values() if program.pid is not None]

    def pid_of(self, name: str) -> int:
        """The process id of one program that runs: `etcd`, `kube-apiserver` and so on."""
        pid = self._running[name].pid
        assert pid is not None, f"{name} does not run"
        return pid

    @contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """Let one program do nothing for a while; its connections stay open, and nobody is answered."""
        pid = self.pid_of(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def launch(self, tokens: Iterable[str]) -> None:
        """Start etcd and the API server.

        Args:
            tokens: lines of the API server's token file, which it reads once.
        """
        self._directory.mkdir()
        (self._directory / "tokens.csv").write_text("".join(f"{line}\n" for line in tokens))
        peers, clients = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.store = clients
        self._start("etcd", *self._etcd_flags(peers, clients))
        keys = self._start("keys", self._directory)
        keys.wait_until_finished(timeout_s=30)
        self._start("kube-apiserver", *self._apiserver_flags(clients))

    def wait_until_certified(self) -> str:
        """Wait until the API server has signed its own certificate, and give it.

        Clients check the server by it.
        """
        certificate = self._certificates / "apiserver.crt"
        self._running["kube-apiserver"].wait_until(
            lambda: answers(self._port) and certificate.is_file(), what="the certificate"
        )
        return certificate.read_text()

    def certificate_pair(self) -> tuple[bytes, bytes]:
        """Give the API server's certificate and key, for others that need a pair to start with."""
        certificate, key = (self._certificates / name for name in ("apiserver.crt", "apiserver.key"))
        return certificate.read_bytes(), key.read_bytes()

    def wait_until_serving(self, api: ApiClient) -> None:
        """Wait until the API server says that it is ready."""
        self._running["kube-apiserver"].wait_until(api.is_ready, what="readiness")

    def launch_controllers(self, kubeconfig: Path, stages: Path = STAGES) -> None:
        """Start the controller-manager, the scheduler and kwok, all with the rights of that kubeconfig.

        Args:
            kubeconfig: who they are.
            stages: what kwok does in the place of kubelets.
        """
        common = _controller_flags(kubeconfig)
        self._start("kube-controller-manager", *common, *self._manager_flags())
        self._start("kube-scheduler", *common)
        flags = (
            f"--kubeconfig={kubeconfig}",
            f"--config={stages}",
            "--manage-all-nodes=true",
            "--node-lease-duration-seconds=40",
            "--node-ip=10.88.0.1",
            f"--server-address=127.0.0.1:{free_port()}",
        )
        self._start_program("kwok", [self._programs.kwok, *flags])

    def kill_apiserver(self) -> None:
        """Kill the API server as a power cut would; etcd lives on with all objects."""
        self._running["kube-apiserver"].kill()

    def start_apiserver(self) -> None:
        """Start the killed API server again with the same address and certificate."""
        self._running["kube-apiserver"].start()

    def restart_controllers(self) -> None:
        """Let the controller-manager, the scheduler and kwok begin anew, knowing nothing."""
        for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
            self._running[name].kill()
            self._running[name].start()

    def forget_history(self) -> None:
        """Let etcd forget all that was before now; the API server still knows it until it is restarted."""
        header = self._ask_store("/v3/kv/range", {"key": "AA=="})["header"]
        self._ask_store("/v3/kv/compaction", {"revision": header["revision"], "physical": True})

    def _ask_store(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        request = Request(f"{self.store}{path}", json.dumps(body).encode(), method="POST")
        with urlopen(request, timeout=10) as answer:
            return dict(json.load(answer))

    def stop(self) -> None:
        """Kill every program, the last started first."""
        for program in reversed(self._running.values()):
            program.kill()

    def log(self, program: str, lines: int = 50) -> str:
        """Give the end of what a program printed: `kube-apiserver`, `kwok` and so on."""
        return self._running[program].log_tail(lines)

    @property
    def _certificates(self) -> Path:
        return self._directory / "certificates"

    def _start(self, name: str, *arguments: str | Path) -> Program:
        return self._start_program(name, [self._programs.controlplane, name, *arguments])

    def _start_program(self, name: str, command: list[str | Path]) -> Program:
        program = Program(name, command, log=self._directory / f"{name}.log", cwd=self._directory)
        self._running[name] = program
        program.start()
        return program

    def _etcd_flags(self, peers: str, clients: str) -> list[str]:
        return [
            f"--data-dir={self._directory / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            "--log-level=warn",
        ]

    def _apiserver_flags(self, etcd: str) -> list[str]:
        return [
            f"--etcd-servers={etcd}",
            f"--advertise-address={ADVERTISED}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--cert-dir={self._certificates}",
            f"--token-auth-file={self._directory / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-signing-key-file={self._directory / 'sa.key'}",
            f"--service-account-key-file={self._directory / 'sa.pub'}",
            "--service-cluster-ip-range=10.96.0.0/16",
        ]

    def _manager_flags(self) -> list[str]:
        return [
            f"--service-account-private-key-file={self._directory / 'sa.key'}",
            f"--root-ca-file={self._certificates / 'apiserver.crt'}",
            # Claims get volumes (empty directories of this machine): without one, its pod is never scheduled.
            "--enable-hostpath-provisioner=true",
        ]


def _controller_flags(kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--secure-port=0",
        # With the default of 20 requests a second a thousand pods take a minute.
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]
