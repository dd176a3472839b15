"""What every benchmark needs: byte code that was compiled before."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlstack


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
