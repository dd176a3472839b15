"""Jobs that are to have exactly so many trainers: `scaling: Manual`."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from mlstack.elastic.policy.plan import plan
from mlstack.elastic.snapshot import Job, PolicyConfig, Snapshot
from tests.property.elastic.moments import MANY, moments
from tests.support import elastic_laws


def manual(job: Job) -> Job:
    """Let a job want all that it may have, and go on with one trainer."""
    return replace(job, priority=0, minimum=job.maximum, floor=min(1, job.maximum))


@MANY
@given(moments(jobs=8))
def test_a_job_of_fixed_size_that_runs_goes_on_with_what_it_has(snapshot: Snapshot) -> None:
    jobs = tuple(
        manual(job) if number % 2 else replace(job, priority=0) for number, job in enumerate(snapshot.jobs)
    )
    lacking = {demand.job for demand in snapshot.demands}
    moment = replace(snapshot, jobs=jobs)
    found = plan(moment, PolicyConfig())
    elastic_laws.check_targets(moment, found)
    for job in jobs:
        seated = [trainer.name for trainer in job.trainers if trainer.node]
        runs = job.state == "admitted" and len(seated) == len(job.trainers) and job.key not in lacking
        if job.floor is not None and runs and job.floor <= len(seated) <= job.maximum:
            assert found.decisions[job.key].is_admitted, job.key
            assert not set(seated) & set(found.decisions[job.key].victims), job.key
