"""The last words of containers that crashed: asked for once, in the background, and without secrets."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Event, Thread

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.errors import ClusterError, ForbiddenError
from mlstack.model import masking
from mlstack.model.objects import DesiredState, KubeObject
from mlstack.model.readiness.pods import Crash

LINES = 5
PATIENCE_S = 2.0
"""How long a node may keep silent, and how long anybody waits for that altogether."""

_LINE_CHARACTERS = 200
_MOST_BYTES = 16_384
_MOST = 20  # crashes whose logs are read: the reasons of more look alike
_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass
class _Answer:
    came: Event = field(default_factory=Event)
    lines: tuple[str, ...] = ()


class Logs:
    """Reads logs for reasons; where they cannot be read, reasons do without.

    Args:
        cluster: where to ask.
        secrets: texts that nobody is to read.
    """

    def __init__(self, cluster: Cluster, secrets: Iterable[str] = ()) -> None:
        """Begin with nothing read."""
        self._cluster, self._secrets = cluster, tuple(secrets)
        self._answers: dict[Crash, _Answer] = {}
        self._is_patient, self._is_closed = True, False

    @classmethod
    def of_state(cls, cluster: Cluster, state: DesiredState) -> "Logs":
        """Give one that knows the secrets of a set."""
        return cls(cluster, hidden(state.objects, state.secrets))

    def of(self, crash: Crash, *, ask: bool = True) -> Sequence[str]:
        """Give the last lines of a crashed container as far as they are known, the first time within 2 s.

        Args:
            crash: the container.
            ask: whether to ask for what is not known.
        """
        answer = self._answers.get(crash)
        if answer is None:
            if not ask or self._is_closed or len(self._answers) >= _MOST:
                return ()
            answer = self._answers[crash] = _Answer()
            # A silent node holds nobody up who wants to leave.
            Thread(target=self._read, args=(crash, answer), name="mlstack-logs", daemon=True).start()
            if self._is_patient:
                self._is_patient = answer.came.wait(PATIENCE_S)
        return answer.lines

    def _read(self, crash: Crash, answer: _Answer) -> None:
        pod = ObjectRef("v1", "Pod", crash.namespace, crash.pod)
        try:
            text = self._cluster.logs(
                pod,
                crash.container,
                previous=crash.previous,
                lines=LINES,
                most_bytes=_MOST_BYTES,
                timeout_s=PATIENCE_S,
            )
            answer.lines = tuple(self._tidied(text))
        except ForbiddenError:
            self._is_closed = True
        except ClusterError:  # a node that is away, a pod that is gone: the reason is known without
            pass
        finally:
            answer.came.set()

    def _tidied(self, text: str) -> Iterable[str]:
        shown = masking.mask_text(_CONTROLS.sub("", text), self._secrets)
        lines = [line.strip() for line in shown.splitlines() if line.strip()]
        for line in lines[-LINES:]:
            yield line if len(line) <= _LINE_CHARACTERS else f"{line[:_LINE_CHARACTERS]}…"


def hidden(objects: Iterable[KubeObject], secrets: Iterable[str]) -> tuple[str, ...]:
    """Give the texts that must stand in no log: those of secret parameters and of Secrets."""
    held = (
        value
        for one in objects
        if masking.is_secret(one.data)
        for value in masking.values_of_secret(one.data)
    )
    texts = (value if isinstance(value, str) else value.decode("utf-8", "replace") for value in held)
    return tuple(dict.fromkeys((*secrets, *texts)))
