"""Remove a directory when the process that started this program ends, however it ends.

Run as a program with the directory as its argument and a pipe as its standard input: the pipe closes when the
process at its other end is gone, even when it was killed and could tidy up nothing itself.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path


def sweep_after_us(directory: Path) -> subprocess.Popen[bytes]:
    """Start the program; closing its standard input (or dying) lets it sweep. Wait for it to see it done."""
    return subprocess.Popen(
        [sys.executable, "-S", __file__, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _main() -> None:
    directory = Path(sys.argv[1])
    sys.stdin.read()
    # Programs that die with the same parent may still be writing for a moment.
    for _ in range(100):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.05)


if __name__ == "__main__":
    _main()
