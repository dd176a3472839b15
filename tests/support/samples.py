"""Samples of a cluster for tests of what is measured."""

from __future__ import annotations

from mlstack.simulator.measures import JobSample, Sample, ServiceSample


def job(name: str, trainers: int, **facts: int | str | None) -> JobSample:
    """Give a job with so many running trainers, complete unless said otherwise."""
    defaults: dict[str, object] = {
        "minimum": 2,
        "maximum": 60,
        "target": trainers,
        "phase": "Running",
        "bound": trainers,
        "unbound": 0,
        "servers": 3,
        "needed": 3,
        "pods": trainers + 3,
        **facts,
    }
    return JobSample(key=f"default/{name}", trainers=trainers, **defaults)  # type: ignore[arg-type]


def sample(
    second: int,
    *jobs: JobSample,
    running: int = 0,
    service: tuple[int, int] | None = None,
    created: int = 0,
    deleted: int = 0,
) -> Sample:
    """Give a moment of a cluster of 100 cores."""
    web = (ServiceSample(key="default/web", target=service[0], running=service[1]),) if service else ()
    return Sample(
        at_ms=second * 1000,
        allocatable={"cpu": 100_000},
        running={"cpu": running * 1000},
        background={},
        useful={"cpu": running * 500},
        requested={},
        stranded={},
        crowded=(),
        jobs=jobs,
        services=web,
        created=created,
        deleted=deleted,
    )
