"""TrainingJobs as EDL's users wrote them, and smaller ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlstack.elastic.training_job import spellings


def edl_job(name: str = "example", **spec: Any) -> dict[str, Any]:
    """Write a job in the shape of EDL's documentation: `passes` in the wrong place included."""
    small = {"cpu": "200m", "memory": "200Mi"}
    server = {"limits": {"cpu": "800m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "600Mi"}}
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "image": "registry.example.org/train:1",
            "port": 7164,
            "ports_num": 1,
            "ports_num_for_sparse": 1,
            "fault_tolerant": True,
            "trainer": {
                "entrypoint": "python /workspace/train.py",
                "workspace": "/workspace",
                "passes": 50,
                "min-instance": 2,
                "max-instance": 10,
                "resources": {"limits": small, "requests": small},
            },
            "pserver": {"min-instance": 2, "max-instance": 2, "resources": server},
            "master": {"resources": server},
            **spec,
        },
    }


def small_job(name: str = "small", *, minimum: int = 1, maximum: int = 3, **spec: Any) -> dict[str, Any]:
    """Write a job of trainers alone."""
    trainer = {
        "entrypoint": "train",
        "min-instance": minimum,
        "max-instance": maximum,
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    return {
        "apiVersion": "paddlepaddle.org/v1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "default", "uid": "0-1"},
        "spec": {
            "image": "registry.example.org/train:1",
            "fault_tolerant": minimum < maximum,
            "trainer": trainer,
            "master": {"enabled": False},
            **spec,
        },
    }


def in_camel_case(data: Mapping[str, Any]) -> dict[str, Any]:
    """Write a job, or a patch of one, with every field in camel case."""
    return {**data, "spec": _camel(data["spec"])}


def _camel(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        spellings(name)[-1]: _camel(value) if name in ("trainer", "pserver", "master") and value else value
        for name, value in fields.items()
    }
