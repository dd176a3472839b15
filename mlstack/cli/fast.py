"""The console script: answers at once what needs no command line library, hands on the rest, hears signals.

What a plain `render` printed before for the same files is printed again, with hardly any import at all.
Anything unusual, and every error, is left to the plain path, which prints the same for the rest.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys

from mlstack.cli import output

TYPE_CHECKING = False  # as in `typing`, which is an import
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn


def main() -> int:
    """Run the command line of this process and give its exit code."""
    try:
        _prepare_streams()
        # A command is short and leaves few cycles: looking for them takes a twentieth of its start.
        gc.set_threshold(50_000, 20, 20)
        interruption = Interruption()
        with interruption:
            try:
                code = _run(sys.argv[1:])
            except KeyboardInterrupt:  # before the boundary of the command line stands
                sys.stderr.write(f"{interruption.word}\n")
                code = interruption.exit_code
            if interruption.heard:  # whoever asks once more must not meet the interpreter on its way out
                _leave(code)
    except KeyboardInterrupt:  # before or after all this a person may be quicker than Python
        code = 130
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        try:
            if code != 130:  # else threads that still wait for a server would be waited for
                threading._shutdown()
        except KeyboardInterrupt:
            code = 130
        _leave(code)  # a prefetch that still runs crashes when the interpreter is taken down under it
    # On its way out the interpreter would look through all there is for cycles: 50 ms for nothing.
    gc.freeze()
    return code


def _leave(code: int) -> None:
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
    code = None
    if words == ["--version"]:
        from mlstack import __version__

        code = _print("", output.as_bytes(f"mlstack {__version__}"))
    elif words in (["--help"], ["-h"], ["help"]) and "_MLSTACK_COMPLETE" not in os.environ:
        from shutil import get_terminal_size

        from mlstack.cli.commands import program_help

        code = _print("", output.as_bytes(program_help(get_terminal_size().columns)))
    elif words and words[0] in ("render", "show"):
        code = render(words[1:])
    if code is not None:
        return code
    from mlstack.cli.main import main as full

    return full(words)


# --- being asked to end ---

INTERRUPTED_EXIT_CODE = 130

_AGAIN_S = 0.01  # until the callback is left
_HANGUP = getattr(signal, "SIGHUP", 0)  # Windows has none
_WORDS = {int(signal.SIGINT): "interrupted", int(signal.SIGTERM): "terminated"}
_WORDS |= {int(_HANGUP): "hung up"} if _HANGUP else {}


class Interruption:
    """Makes a KeyboardInterrupt of the first signal that asks the program to end; the second ends it at once.

    Ctrl-C, SIGTERM (as CI systems and containers send it) and SIGHUP (a terminal was closed) end a command in
    the same way. A signal that is ignored when the program starts, as under nohup, stays ignored.

    It lets no error out that only comes of the signal, as an import that was cut off half-way: compiled
    modules turn the exception into an ImportError of theirs when it meets them while they load.
    """

    def __init__(self) -> None:
        self.heard = 0  # the signal that came
        self.is_told = False
        self._taken: list[list[int]] = []
        self._report = sys.unraisablehook

    @classmethod
    def of_process(cls) -> Interruption:
        """Give the one that listens in this process already, else a new one."""
        owners = (getattr(signal.getsignal(number), "__self__", None) for number in _WORDS)
        return next((owner for owner in owners if isinstance(owner, cls)), None) or cls()

    @property
    def word(self) -> str:
        """Say in a word why the program ends."""
        return _WORDS[self.heard or signal.SIGINT]

    @property
    def exit_code(self) -> int:
        """Give what shells report of a program that a signal ended: 128 and the number of the signal."""
        return 128 + self.heard if self.heard else INTERRUPTED_EXIT_CODE

    def __enter__(self) -> Interruption:
        """Begin to listen, to what nobody else listens to; it may be entered again inside."""
        self._taken.append([])
        for number in _WORDS:
            if signal.getsignal(number) is _usual(number):
                try:
                    signal.signal(number, self._note)
                except ValueError:  # only the main thread hears signals
                    break
                self._taken[-1].append(number)
        if sys.unraisablehook != self._not_raised:
            self._report, sys.unraisablehook = sys.unraisablehook, self._not_raised
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Stop listening; an error after a signal becomes a KeyboardInterrupt."""
        for number in self._taken.pop():
            signal.signal(number, _usual(number))
        if not self._taken:
            sys.unraisablehook = self._report
        if self.heard and isinstance(error, Exception):
            raise KeyboardInterrupt from error

    def _not_raised(self, unraisable: Any) -> None:
        """Let a signal come once more that met Python in a callback (of an import, say), which drops it."""
        if not self.heard or unraisable.exc_type is not KeyboardInterrupt:
            self._report(unraisable)
            return
        from threading import Timer

        number, self.heard = self.heard, 0
        Timer(_AGAIN_S, os.kill, (os.getpid(), number)).start()

    def _note(self, number: int, frame: object) -> None:
        if not self.heard:
            self.heard = number
            raise KeyboardInterrupt
        if number != _HANGUP:  # a closed terminal says so itself, and its shell says it again
            os.write(2, f"{self.word}\n".encode())
            leave(self.exit_code)


def leave(code: int) -> NoReturn:
    """End the process here: no thread is waited for, but secrets in temporary files are removed."""
    try:
        atexit._run_exitfuncs()
    finally:
        os._exit(code)


def _usual(number: int) -> Any:
    return signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL


# --- the plain forms of `render` ---


def render(words: Sequence[str]) -> int | None:
    """Run `render ENV [-c NAME]…` and give its exit code, or None to let the plain path do it."""
    environments, components = [], []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in ("-c", "--component") and rest and not rest[0].startswith("-"):
            components += rest.pop(0).split(",")
        elif word.startswith("--component="):
            components += word.removeprefix("--component=").split(",")
        elif word.startswith("-"):
            return None
        else:
            environments.append(word)
    if len(environments) != 1 or not all(components):
        return None
    try:
        notes, data = _rendered(environments[0], components)
    except Exception:  # whatever it is, the plain path meets it again and tells it at its boundary
        return None
    return _print(notes, data)


def _rendered(environment: str, components: Sequence[str]) -> tuple[str, bytes]:
    """Give what goes to stderr and to stdout: as remembered, else rendered."""
    from mlstack import disk_cache
    from mlstack.app import layout
    from mlstack.render.outputs import Outputs

    root = layout.root_of(os.getcwd())  # noqa: PTH109 # `pathlib` is not loaded for what is stored
    if root is None:
        raise FileNotFoundError(layout.APP_FILE)
    store = disk_cache.of_user(os.environ)
    outputs, words = Outputs(root, store), ("render", environment, *components)
    key = outputs.key(words)
    remembered = outputs.get(key)
    if remembered is not None:
        return remembered
    from pathlib import Path

    from mlstack.app.reader import AppReader
    from mlstack.objects import masking
    from mlstack.render import render

    gc.disable()  # looking for cycles, of which there are few, takes a tenth of a large render
    try:
        with masking.collecting():
            app = AppReader(Path(root), store=store, environ=os.environ)
            state = render.load(app, environment, components=components, store=store)
            if state.has_secrets and sys.stdout.isatty():
                raise PermissionError("on a terminal secrets are hidden")
            notes = output.scrubbed(output.notes_text(state))
            printed = notes, output.as_bytes(output.objects_yaml(state.objects))
    finally:
        gc.enable()
    if not (state.has_secrets or state.uses_programs) and outputs.key(words) == key:
        outputs.put(key, *printed)
    return printed


def _print(notes: str, data: bytes) -> int:
    try:
        if notes:
            output.say(*notes.split("\n"))
        output.write_bytes(data)
    except output.ClosedOutputError:
        return output.stop_writing()
    except Exception as error:
        from mlstack.errors import ConfigError

        if not isinstance(error, ConfigError):
            raise
        output.say(*error.messages())
        return error.exit_code
    return 0
