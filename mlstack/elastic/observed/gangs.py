"""Which jobs wait for pods that run: EDL's definition of pending, and ours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mlstack.elastic.observed.jobs import JobFacts
from mlstack.elastic.observed.picture import state_of
from mlstack.elastic.observed.pods import PodFacts

Lack = Literal["", "gang", "trainer"]


def lack(job: JobFacts, pods: Sequence[PodFacts]) -> Lack:
    """Say what a job waits for.

    Returns:
        `trainer` where none of its trainers runs (EDL calls this job pending), `gang` where one does but its
        whole gang does not; nothing where that does, or where a trainer has found no work left.
    """
    if state_of(job, [pod for pod in pods if pod.role == "trainer"]) == "finishing":
        return ""
    running = [pod.role for pod in pods if pod.is_live and pod.node and pod.phase == "Running"]
    trainers = running.count("trainer")
    if not trainers:
        return "trainer"
    is_whole = trainers >= (job.trainer.count if job.trainer else 1) and all(
        running.count(kind.role) >= kind.count for kind in job.servers
    )
    return "" if is_whole else "gang"
