"""What every benchmark needs: byte code that was compiled before."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlstack
from tests.controlplane.recipes import Programs, obtain_all
from tests.support import isolation
from tests.support.cluster import TestCluster
from tests.support.controlplane import ControlPlane


@pytest.fixture(scope="session", autouse=True)
def byte_code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let all commands find their byte code, whatever the Python of the caller writes beside its sources."""
    folder = str(tmp_path_factory.mktemp("bytecode"))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", folder)
        package = Path(mlstack.__file__).parent
        subprocess.run([sys.executable, "-m", "compileall", "-q", package], check=True)
        yield


@pytest.fixture(scope="module")
def programs() -> Programs:
    """The built binaries, in a process that can reach nothing but loopback."""
    built = obtain_all(print)
    try:
        isolation.enter_network_namespace()
    except isolation.NoIsolationError as error:
        pytest.skip(str(error))
    return built


@pytest.fixture(scope="module")
def cluster(programs: Programs) -> Iterator[TestCluster]:
    """A running cluster of three nodes."""
    plane = ControlPlane.start(programs)
    yield plane.clusters["gke"]
    plane.stop()
