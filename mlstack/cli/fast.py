"""The console script: answers what needs no command line library at once, hands on all the rest."""

import sys


def main() -> int:
    """Run the command line of this process and give its exit code."""
    try:
        return _run(sys.argv[1:])
    except KeyboardInterrupt:  # before the boundary stands: a person may be quicker than the imports
        sys.stderr.write("interrupted\n")
        return 130


def _run(words: list[str]) -> int:
    if words == ["--version"]:
        from mlstack import __version__

        sys.stdout.write(f"mlstack {__version__}\n")
        return 0
    if words and words[0] in ("render", "show"):
        from mlstack.cli import quick

        code = quick.render(words[1:])
        if code is not None:
            return code
    from mlstack.cli.main import main as full

    return full(words)
