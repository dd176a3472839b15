"""Commands about environments: which ones, asking their clusters, one list of results for several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from mlstack.cli import page
from mlstack.cli.fast import INTERRUPTED_EXIT_CODE
from mlstack.cli.output import document, emit, plain, say, write
from mlstack.cli.ports import Session
from mlstack.errors import MlstackError, NotFoundError, UsageError

Result = TypeVar("Result")

_PATTERN = frozenset("*?[")


def environments(session: Session, words: Sequence[str] | None = None) -> list[str] | None:
    """Give the environments that a command is about, each once; None if it is about one as always.

    Several are asked for by more than one word, by a pattern as in a shell, or by `--all`.

    Raises:
        UsageError: names and `--all`.
        NotFoundError: nothing fits a pattern, or there is no such environment.
    """
    words = (session.options.get("envs") or ()) if words is None else words
    known = session.app.environment_names if len(words) > 1 or _has_pattern(words) or _every(session) else ()
    if _every(session):
        if words:
            raise UsageError("`--all` and names exclude each other", hint="leave one of them out")
        if not known:
            raise NotFoundError("the app has no environment", hint="mlstack env add NAME")
        return list(known)
    if not (len(words) > 1 or _has_pattern(words)):
        return None
    chosen: dict[str, None] = {}
    for word in words:
        fitting = [name for name in known if fnmatchcase(name, word)] if _has_pattern([word]) else [word]
        if not fitting:
            raise NotFoundError(f"no environment fits `{word}`", hint="mlstack env list")
        for name in fitting:
            session.app.environment(name)
        chosen |= dict.fromkeys(fitting)
    return list(chosen)


def _has_pattern(words: Sequence[str]) -> bool:
    return any(_PATTERN & {*word} for word in words)


def _every(session: Session) -> bool:
    return bool(session.options.get("every"))


def only(session: Session) -> str | None:
    """Give the environment of a command that is about one, None for the chosen one.

    Raises:
        UsageError: there are several.
    """
    words = session.options.get("envs") or ()
    return words[0] if words else None


class Results:
    """The results for several environments: told one after the other, or printed as one list at the end."""

    def __init__(self, session: Session) -> None:
        self._format: str = session.options["output"]
        self._keeps_going = bool(session.options.get("keep_going"))
        self._items: list[Any] = []
        self._code = 0

    @property
    def prints(self) -> bool:
        """Tell whether they are told one after the other."""
        return self._format == "table"

    @contextmanager
    def of(self, environment: str, *, quiet: bool = False) -> Iterator[None]:
        """Work for one environment; what fails is kept, and raised again unless the others are to go on.

        Its name stands above what is told of it, unless that is `quiet`.
        """
        if self.prints and not quiet:
            write(f"--- {environment} ---")
        try:
            yield
        except (MlstackError, KeyboardInterrupt) as error:
            self._items.append(_failed(environment, error))
            if isinstance(error, KeyboardInterrupt) or not self._keeps_going:
                self._print()
                raise
            say(*error.messages())
            self._code = self._code or error.exit_code

    def add(self, result: object, show: Callable[[Any, str], int] | None = emit) -> None:
        """Take a result; as a table it is printed at once, as `show` prints it."""
        self._items.append(result)
        if self.prints and show is not None:
            code = show(result, "table")
            self._code = self._code or code
        else:
            self._code = self._code or (0 if getattr(result, "ok", True) else 1)

    def end(self) -> int:
        """Print the list and give the exit code: of the first that failed, else 1 if one says no."""
        self._print()
        return self._code

    def _print(self) -> None:
        if self.prints:
            return
        if self._format == "name":
            for item in self._items:
                if not isinstance(item, dict):
                    emit(item, "name")
            return
        from mlstack.deploy.result import ResultList

        is_ok = all(
            item["ok"] if isinstance(item, dict) else getattr(item, "ok", True) for item in self._items
        )
        emit(ResultList(ok=is_ok, items=tuple(document(item) for item in self._items)), self._format)


def _failed(environment: str, error: MlstackError | KeyboardInterrupt) -> dict[str, Any]:
    """Give what the list holds of an environment that failed, with what was done until then."""
    fault: dict[str, Any] = {"message": "interrupted", "exitCode": INTERRUPTED_EXIT_CODE}
    if isinstance(error, MlstackError):
        facts = {"message": error.message, "where": error.where, "hint": error.hint}
        fault = {**{key: fact for key, fact in facts.items() if fact}, "exitCode": error.exit_code}
    partial = getattr(error, "partial", None)
    done = {} if partial is None else {"partial": plain(partial)}
    return {"environment": environment, "ok": False, "error": fault, **done}


def each(session: Session, work: Callable[[str | None], object]) -> object:
    """Give the result of `work` for the environment that is asked for, or print those of several."""
    names = environments(session)
    if names is None:
        return work(only(session))
    results = Results(session)
    for name in names:
        with results.of(name):
            results.add(work(name))
    return results.end()


def from_cluster(
    session: Session,
    read: Callable[..., Result],
    *args: Any,
    doing: str = "comparing with the cluster",
    env: str | None = None,
    **options: Any,
) -> Result:
    """Call an operation that reads the cluster of an environment, and say on terminals what is going on."""
    target = session.target(env)
    with page.waiting(doing):
        return read(target, *args, opener=session.opener(), **options)
