"""What kwok does in an experiment: as in the tests, but with the times that kubelets take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.support.machinery import STAGES

_GRACE_OVER = {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": ".metadata.deletionTimestamp"}}


def write_stages(path: Path, start_ms: tuple[int, int]) -> Path:
    """Write the stages of a run: pods start after a while, and take their whole grace to end."""
    least, most = start_ms
    delays = {
        "pod-run": {"durationMilliseconds": least, "jitterDurationMilliseconds": most},
        "pod-terminate": _GRACE_OVER,
    }
    stages: list[dict[str, Any]] = [stage for stage in yaml.safe_load_all(STAGES.read_text()) if stage]
    for stage in stages:
        if stage["metadata"]["name"] in delays:
            stage["spec"]["delay"] = delays[stage["metadata"]["name"]]
    path.write_text(yaml.safe_dump_all(stages))
    return path
