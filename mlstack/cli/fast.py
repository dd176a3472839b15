"""The console script: answers at once what needs no command line library, hands on the rest, hears signals.

What a plain `render` printed before for the same files is printed again, with hardly any import at all.
Anything unusual, and every error, is left to the plain path, which prints the same for the rest.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import stat
import sys
import time
from _blake2 import blake2b  # not from `hashlib`: see `disk_cache`
from contextlib import suppress

from mlstack.cli import output

TYPE_CHECKING = False  # as in `typing`, which is an import
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, NoReturn

    from mlstack.disk_cache import Cache


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
            state = render.load(app, environment, components=components)
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


# --- what a render printed, remembered under the hash of everything it was made from ---
# A render reads the files of the app directory and nothing else, so these, the words of the command and the
# program itself say what it prints. What does not look like an app's ordinary files is not remembered.


LARGEST_BYTES = 32 * 1024 * 1024
"""Longer outputs are not remembered: a few of them would drive out all the rest."""
SETTLED_S = 2.0
"""From this age on a file's inode, size and times stand for its content: no later change can leave them as
they are. While a file is younger all are read, as a clock may tick only every few milliseconds or seconds."""


class Outputs:
    """The outputs of one app directory, kept in `cache`."""

    def __init__(self, root: str | os.PathLike[str], cache: Cache) -> None:
        self._root, self._cache = os.fspath(root), cache
        self._settled_ns = time.time_ns() - int(SETTLED_S * 1e9)

    def key(self, words: Sequence[str]) -> str | None:
        """Give the name of what a command, in one spelling, prints for the app as it is now, if any."""
        from mlstack import disk_cache

        try:
            parts = [
                "\0".join(words).encode("utf-8", "surrogatepass"),
                disk_cache.program_identity().encode(),
            ]
            return f"output:{_digest([*parts, self._content()])}"
        except OSError:
            return None

    def get(self, key: str | None) -> tuple[str, bytes] | None:
        """Give what went to stderr and to stdout, if it is remembered."""
        stored = self._cache.get(key) if key else None
        notes, mark, data = (stored or b"").partition(b"\0")
        with suppress(UnicodeDecodeError):  # nothing that was stored here
            return (notes.decode("utf-8", "surrogatepass"), data) if mark else None
        return None

    def put(self, key: str | None, notes: str, data: bytes) -> None:
        """Remember what goes to stderr (which has no NUL) and to stdout.

        Ask for the key again after the work: files that changed meanwhile give another one.
        """
        stored = b"%b\0%b" % (notes.encode("utf-8", "surrogatepass"), data)
        if key and len(stored) <= LARGEST_BYTES:
            self._cache.put(key, stored)

    def _content(self) -> bytes:
        """Give a hash of the names and bytes of all files; of settled ones it is known by their stamps."""
        entries = self._entries()
        stamps, youngest_ns = [self._root], 0
        for name, facts in entries:
            stamps.append(name)
            if facts is not None:
                changed_ns = max(facts.st_mtime_ns, facts.st_ctime_ns)
                youngest_ns = max(youngest_ns, changed_ns)
                stamps.append(f"{facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}")
        is_settled = youngest_ns < self._settled_ns
        key = f"content:{_digest(_bytes(stamp) for stamp in stamps)}"
        known = self._cache.get(key) if is_settled else None
        if known is None:
            parts = []
            for name, facts in entries:
                parts.append(_bytes(name))
                if facts is not None:
                    parts.append(_read(self._root + name, facts.st_size))
            known = _digest(parts).encode()
            if is_settled:
                self._cache.put(key, known)
        return known

    def _entries(self) -> list[tuple[str, os.stat_result | None]]:
        """Give files with what the system knows of them, and folders; what is not there is left out."""
        from mlstack.app import layout

        entries: list[tuple[str, os.stat_result | None]] = []
        for name in (f"/{layout.APP_FILE}", f"/{layout.LOCK_FILE}", f"/{layout.OVERRIDES}"):
            with suppress(FileNotFoundError):
                entries.append((name, _ordinary(os.lstat(self._root + name))))
        for name in (layout.COMPONENTS, layout.ENVIRONMENTS, layout.VENDOR):
            self._add_below(f"{self._root}/{name}", entries)
        return entries

    def _add_below(self, folder: str, entries: list[tuple[str, os.stat_result | None]]) -> None:
        listed: list[os.DirEntry[str]] = []
        with suppress(FileNotFoundError):
            listed = sorted(os.scandir(folder), key=lambda entry: entry.name)
        for entry in listed:
            name = entry.path[len(self._root) :]
            if entry.is_dir(follow_symlinks=False):
                entries.append((f"{name}/", None))
                self._add_below(entry.path, entries)
            else:
                entries.append((name, _ordinary(entry.stat(follow_symlinks=False))))


def _ordinary(facts: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST_BYTES:
        raise OSError("this is no ordinary file: a link may lead anywhere")
    return facts


def _read(path: str, size: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        data = os.read(descriptor, size + 1)
    finally:
        os.close(descriptor)
    if len(data) != size:
        raise OSError("the file has changed since its size was asked for")
    return data


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _digest(parts: Iterable[bytes]) -> str:
    hashed = blake2b(digest_size=32)
    hashed.update(b"".join([b"%d:%b" % (len(part), part) for part in parts]))
    return hashed.hexdigest()
