"""Many requests at once: work done for many items, and work begun before its result is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from threading import Event, Thread
from typing import TypeVar

from mlstack.errors import MlstackError, NotReadyError, UnreachableError
from mlstack.names import listed

T = TypeVar("T")
R = TypeVar("R")

# Measured against a local API server and at 10 ms of round trip: more threads give nothing.
WORKERS = 16
LIST_FROM = 5
"""From so many objects of one kind and namespace on, one list is cheaper than asking for each."""
GRACE_S = 5.0
"""How long a person who interrupts waits for requests that are under way: long for a server that answers."""


def run(work: Callable[[T], R], items: Sequence[T]) -> list[R | MlstackError]:
    """Do `work` for every item, in several threads, and give results or errors in the order of the items.

    Nothing more is begun once the server stops answering (UnreachableError), or after an interrupt: what had
    begun then gets `GRACE_S` to end, and a second one ends that too.
    """
    stop = Event()

    def attempt(item: T) -> R | MlstackError:
        if stop.is_set():
            return MlstackError("not begun")
        try:
            return work(item)
        except UnreachableError:
            stop.set()
            raise
        except MlstackError as error:
            return error

    if len(items) <= 1:
        return [attempt(item) for item in items]
    pool = ThreadPoolExecutor(max_workers=min(WORKERS, len(items)), thread_name_prefix="mlstack")
    futures: list[Future[R | MlstackError]] = []
    try:
        for item in items:
            futures.append(pool.submit(attempt, item))
        for future in as_completed(futures):
            future.result()
    except BaseException as error:  # whatever it is, the others must not go on
        stop.set()
        is_interrupt = isinstance(error, KeyboardInterrupt)
        pool.shutdown(wait=not is_interrupt, cancel_futures=True)
        if is_interrupt:
            wait([future for future in futures if not future.cancelled()], timeout=GRACE_S)
        raise
    pool.shutdown()
    return [future.result() for future in futures]


def whole(results: Sequence[R | MlstackError]) -> list[R]:
    """Give results that all came; else all their errors are raised as one."""
    if failures := [result for result in results if isinstance(result, MlstackError)]:
        raise together(failures)
    return [result for result in results if not isinstance(result, MlstackError)]


def together(errors: Sequence[MlstackError]) -> MlstackError:
    """Make one error of several: the first one's kind, all places, and what is said of whom, each once."""
    first = errors[0]
    if len(errors) == 1:
        return first
    subjects: dict[str, list[str]] = {}
    for error in errors:
        name, colon, text = error.message.partition(": ") if error.message.startswith("`") else ("", "", "")
        names = subjects.setdefault(text or error.message, [])
        names += [name.removesuffix(" is refused")] if colon else []
    ended = "did not get there in time" if isinstance(first, NotReadyError) else "were refused"
    lines = [f"{len(errors)} objects {ended}"]
    for text, names in subjects.items():
        lines.append(f"  {listed(names)}: {text}" if names else f"  {text}")
    hints = list(dict.fromkeys(error.hint for error in errors if error.hint))
    joined = MlstackError.__new__(type(first))
    joined.__dict__.update(first.__dict__)
    joined.message, joined.hint = "\n".join(lines), "\n      ".join(hints) or None
    joined.where = ", ".join(dict.fromkeys(error.where for error in errors if error.where)) or None
    return joined


PendingResult = Callable[..., T]
"""Waits so many seconds at most for the end of some work (TimeoutError), and gives its result or raises."""


def prefetch(work: Callable[[], T]) -> PendingResult[T]:
    """Begin work in a thread of its own; what is given waits for its end and gives its result, or raises.

    The thread does not hold up the end of the process, should nobody wait for it: a server may be silent.
    """
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # whoever waits gets it, whatever it is
            result.set_exception(error)

    Thread(target=run, name="mlstack-ahead", daemon=True).start()
    return result.result
