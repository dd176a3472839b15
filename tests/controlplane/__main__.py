"""Build everything that the slow and the cluster tests run, saying what is done."""

from __future__ import annotations

import sys

from tests.controlplane.artifacts import BuildError, cache_root
from tests.controlplane.recipes import TOOLS, obtain_all, obtain_tool


def main() -> int:
    """Build what the cache lacks; give the exit code."""
    try:
        obtain_all(say=_say)
        for tool in TOOLS:
            obtain_tool(tool, _say)
    except BuildError as error:
        _say(f"error: {error}")
        return 1
    _say(f"everything that the tests run is in {cache_root()}")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
