"""Run the real training operator beside a test cluster, as a program outside of it."""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from subprocess import Popen
from urllib.error import URLError
from urllib.request import urlopen

from tests.controlplane.recipes import Programs
from tests.support import broom
from tests.support.api import ApiRefusedError
from tests.support.cluster import TestCluster, User
from tests.support.processes import Program, free_port

SECRET = "training-operator-webhook-cert"

# The operator waits for a file under this name (it stands in its source), but serves the pair that it finds
# in its own temporary directory: the file here only has to exist.
_MARK = Path("/tmp/k8s-webhook-server/serving-certs/tls.crt")


class TrainingOperator:
    """A running operator; `stop` it before its cluster.

    It watches all namespaces for jobs of the kinds that were enabled, whose CRDs must be installed. Its
    certificate lies in a Secret of `namespace`. No webhook calls it unless a test says so by URL.

    Attributes:
        namespace: where it believes to be.
        webhook_port: where its webhook listens at 127.0.0.1.
    """

    def __init__(
        self,
        cluster: TestCluster,
        programs: Programs,
        *,
        schemes: Sequence[str],
        user: User | None = None,
        namespace: str = "training-operator",
        secret: str = SECRET,
        flags: Sequence[str] = (),
    ) -> None:
        """Prepare an operator; `start` starts it.

        Args:
            cluster: where it works.
            programs: where the binaries are.
            schemes: kinds in lower case: `tfjob`, `pytorchjob` …
            user: whose rights it has (default: the admin).
            namespace: made where it does not exist.
            secret: the Secret with its certificate, made where it does not exist.
            flags: further flags.
        """
        self.namespace = namespace
        self.webhook_port = free_port()
        self._cluster = cluster
        self._secret = secret
        self._directory = Path(tempfile.mkdtemp(prefix="mlstack-operator-"))
        self._sweeper: Popen[bytes] = broom.sweep_after_us(self._directory)
        self._probes = f"127.0.0.1:{free_port()}"
        flags = (
            *flags,
            *(f"--enable-scheme={scheme}" for scheme in schemes),
            f"--webhook-secret-name={secret}",
            f"--health-probe-bind-address={self._probes}",
            f"--metrics-bind-address=127.0.0.1:{free_port()}",
            f"--webhook-server-port={self.webhook_port}",
        )
        self._program = Program(
            "training operator",
            [programs.training_operator, *flags],
            log=self._directory / "operator.log",
            env={
                "KUBECONFIG": str(cluster.write_kubeconfig(self._directory / "kubeconfig", user)),
                "MY_POD_NAMESPACE": namespace,
                "MY_POD_NAME": "training-operator-0",
                "TMPDIR": str(self._directory),
            },
        )

    def start(self) -> None:
        """Start the operator and wait until its controllers may work.

        Raises:
            AssertionError: it ended or was not ready in time; the message has the end of its log.
        """
        self._prepare_namespace()
        # Whatever it finds when it comes up first, it must be a pair; its own replaces it in a moment.
        self._write_certificate(*self._cluster.machinery.certificate_pair())
        self._program.start()
        self._program.wait_until(self._take_certificate, what="certificate")
        self._program.wait_until(self._is_ready, what="readiness")

    def stop(self) -> None:
        """Kill the operator, as a lost node would, and remove its files."""
        self._program.kill()
        shutil.rmtree(_MARK.parents[1], ignore_errors=True)
        self._sweeper.communicate()

    def log(self) -> str:
        """Give the end of what it printed."""
        return self._program.log_tail(200)

    def _prepare_namespace(self) -> None:
        secrets = f"/api/v1/namespaces/{self.namespace}/secrets"
        _create(self._cluster, "/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        _create(self._cluster, secrets, {"metadata": {"name": self._secret}})

    def _take_certificate(self) -> bool:
        """Play the kubelet: bring the Secret that the operator has filled to where it is mounted."""
        secret = self._cluster.find(f"/api/v1/namespaces/{self.namespace}/secrets/{self._secret}")
        data = secret.get("data") if secret else None
        if not data:
            return False
        self._write_certificate(base64.b64decode(data["tls.crt"]), base64.b64decode(data["tls.key"]))
        return True

    def _write_certificate(self, certificate: bytes, key: bytes) -> None:
        directory = self._directory / "k8s-webhook-server" / "serving-certs"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "tls.crt").write_bytes(certificate)
        (directory / "tls.key").write_bytes(key)

    def _is_ready(self) -> bool:
        # Again and again: another operator's end may take the mark away.
        _MARK.parent.mkdir(parents=True, exist_ok=True)
        _MARK.touch()
        try:
            with urlopen(f"http://{self._probes}/readyz", timeout=5):
                return True
        except (URLError, OSError):
            return False


def _create(cluster: TestCluster, path: str, body: dict[str, object]) -> None:
    try:
        cluster.request("POST", path, body)
    except ApiRefusedError as error:
        if error.status != 409:  # an earlier operator of this run made it
            raise
