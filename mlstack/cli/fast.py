"""The console script: answers what needs no command line library at once, hands on all the rest."""

import gc
import os
import sys

from mlstack.cli import output

TYPE_CHECKING = False  # as in `typing`, which is an import
if TYPE_CHECKING:
    from mlstack.cli.interruption import Interruption


def main() -> int:
    """Run the command line of this process and give its exit code."""
    try:
        from mlstack.cli.interruption import Interruption

        _prepare_streams()
        # A command is short and leaves few cycles: looking for them takes a twentieth of its start.
        gc.set_threshold(50_000, 20, 20)
        interruption = Interruption()
        with interruption:
            code = _ended(interruption)
            if interruption.is_heard:  # whoever asks once more must not meet the interpreter on its way out
                _leave(code)
    except KeyboardInterrupt:  # before or after all this a person may be quicker than Python
        code = 130
    if code == 130:
        _leave_threads()
    # On its way out the interpreter would look through all there is for cycles: 50 ms for nothing.
    gc.freeze()
    return code


def _ended(interruption: "Interruption") -> int:
    """Give the exit code; a signal may come before the boundary of the command line stands."""
    try:
        return _run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write(f"{interruption.word}\n")
        return interruption.exit_code


def _leave_threads() -> None:
    """End here if threads still wait for a server: the interpreter would wait for them."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        _leave(130)


def _leave(code: int) -> None:
    from mlstack.cli.interruption import leave

    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # nobody reads it any more
        leave(code)


def _prepare_streams() -> None:
    """Write UTF-8 whatever the locale, as kubectl does; what was closed leads nowhere.

    A closed stream is opened anew, or the next file that is opened for the app would take its number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 # stays open
        elif mode == "w":
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    output.guard()


def _run(words: list[str]) -> int:
    if words == ["--version"]:
        from mlstack import __version__

        try:
            stdout = output.raw(sys.stdout)
            stdout.write(f"mlstack {__version__}\n")
            stdout.flush()
            return 0
        except OSError:
            pass  # the plain path says why
    if words and words[0] in ("render", "show"):
        from mlstack.cli import quick

        code = quick.render(words[1:])
        if code is not None:
            return code
    from mlstack.cli.main import main as full

    return full(words)
