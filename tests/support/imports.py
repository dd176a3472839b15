"""Which modules a command line loads in its process."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import atexit, sys
sys.argv = ["mlstack", *sys.argv[1:]]
from mlstack.cli.fast import main
atexit.register(lambda: print("\\nMODULES", *sorted(sys.modules), flush=True))  # however the process ends
sys.exit(main())
"""


def modules(folder: Path, *words: str, **environ: str) -> set[str]:
    """Run a command line in a folder, which must succeed, and give the names of the modules."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.rpartition("\nMODULES ")[2].split())


def own(imported: set[str]) -> int:
    """Count those of mlstack, its packages among them."""
    return sum(name.startswith("mlstack") for name in imported)
