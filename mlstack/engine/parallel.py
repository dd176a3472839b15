"""Do the same thing to many objects at once, and keep what each gave."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event
from typing import Generic, TypeVar

from mlstack.errors import MlstackError, UnreachableError

T = TypeVar("T")
R = TypeVar("R")

# Measured against a local API server and at 10 ms of round trip: more threads give nothing.
WORKERS = 16


def run(
    work: Callable[[T], R], items: Sequence[T], *, workers: int = WORKERS, stopped: Event | None = None
) -> list[R | MlstackError]:
    """Do `work` for every item and give results or errors, in the order of the items.

    Args:
        work: called with one item, in several threads.
        items: what to do it for.
        workers: how many at once.
        stopped: set when nothing more is to be begun; what waits should look at it.

    Raises:
        UnreachableError: the server stopped answering; what had not begun is not begun.
        KeyboardInterrupt: likewise, once what had begun is finished.
    """
    attempts = _Attempts(work, stopped or Event())
    if len(items) <= 1:
        return [attempts.make(item) for item in items]
    pool = ThreadPoolExecutor(max_workers=min(workers, len(items)), thread_name_prefix="mlstack")
    futures = [pool.submit(attempts.make, item) for item in items]
    try:
        for future in as_completed(futures):
            future.result()
    except BaseException:  # also an interruption: whatever it is, the others must not go on
        attempts.stop()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return [future.result() for future in futures]


class _Attempts(Generic[T, R]):
    """Makes attempts until one of them shows that no other can succeed."""

    def __init__(self, work: Callable[[T], R], stopped: Event) -> None:
        self._work, self._stopped = work, stopped

    def stop(self) -> None:
        """Begin nothing any more."""
        self._stopped.set()

    def make(self, item: T) -> R | MlstackError:
        """Give the result of an item, or its error."""
        if self._stopped.is_set():
            return MlstackError("not begun")
        try:
            return self._work(item)
        except UnreachableError:
            self.stop()
            raise
        except MlstackError as error:
            return error


def together(errors: Sequence[MlstackError]) -> MlstackError:
    """Make one error of several: the first one's kind, place and hint, everybody's message."""
    if len(errors) == 1:
        return errors[0]
    first = errors[0]
    lines = [f"{len(errors)} objects were refused", *(f"  {error.message}" for error in errors)]
    hints = list(dict.fromkeys(error.hint for error in errors if error.hint))
    joined = MlstackError.__new__(type(first))
    joined.__dict__.update(first.__dict__)
    joined.message, joined.hint = "\n".join(lines), "\n      ".join(hints) or None
    joined.args = (joined.message,)
    return joined
