"""What becomes of training jobs that have ended, on a real control plane."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import pytest

from tests.support.elastic import training_job
from tests.support.elastic_controller import Jobs, Start
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster

Obj = dict[str, Any]

KINDS = "trainingjobs,pods,statefulsets,services,poddisruptionbudgets,persistentvolumeclaims"
TTL_S = 4


def short_job(name: str, *, ttl_s: int | None = None, fault_tolerant: bool = True) -> Obj:
    """Give a job of two trainers with all that a job can have around them."""
    lifetime = {} if ttl_s is None else {"ttlSecondsAfterFinished": ttl_s}
    job = training_job(
        name, minimum=2, maximum=2, pservers=1, with_master=True, fault_tolerant=fault_tolerant, **lifetime
    )
    job["spec"]["pserver"]["storage"] = {"size": "1Gi", "whenDeleted": "Delete"}
    return job


def finish(jobs: Jobs, name: str, code: int) -> None:
    """Let the trainers of a job end, the first alone if it fails, and wait until the job has ended."""
    for index in range(1 if code else 2):
        jobs.exit(f"{name}-trainer-{index}", code)
    jobs.wait_for_phase(name, "Failed" if code else "Succeeded")


def ended_s(jobs: Jobs, name: str) -> float:
    """Give when a job ended, in seconds since 1970."""
    return datetime.fromisoformat(jobs.status(name)["completionTime"]).timestamp()


def left(jobs: Jobs, name: str) -> list[str]:
    """Give what is left of a job: `kind/name`."""
    rows = jobs.objects(KINDS, f"mlstack.dev/training-job={name}")
    return [*rows, *(["the job"] if jobs.cluster.find(jobs.path(name)) else [])]


def test_jobs_that_ended_go_after_their_time_with_all_that_they_had(start: Start, jobs: Jobs) -> None:
    start()
    ends = {"well": 0, "badly": 1}
    for end, code in ends.items():
        jobs.create(short_job(f"kept-{end}", fault_tolerant=code == 0))
        jobs.create(short_job(f"brief-{end}", ttl_s=TTL_S, fault_tolerant=code == 0))
    for end, code in ends.items():
        lasting, brief = f"kept-{end}", f"brief-{end}"
        for name in (lasting, brief):
            jobs.wait_for_phase(name, "Running")
        assert len(left(jobs, brief)) == 2 + 2 + 2 + 3 + 3 + 1 + 1  # the rows of KINDS, in another order
        finish(jobs, lasting, code)
        finish(jobs, brief, code)
        due_s = ended_s(jobs, brief) + TTL_S
        wait_until(lambda name=brief: jobs.cluster.find(jobs.path(name)) is None, what="the end of the job")
        assert time.time() >= due_s
        wait_until(  # the garbage collector of Kubernetes looks for new kinds every 30 s
            lambda name=brief: not left(jobs, name), what="the end of all that it had", timeout_s=90
        )
        assert "the job" in left(jobs, lasting)
        assert f"pods/{lasting}-trainer-0" in left(jobs, lasting)  # to be read by people


def test_a_job_whose_time_ran_out_while_nobody_led_goes_with_the_next_leader(
    start: Start, jobs: Jobs
) -> None:
    first = start(is_named=False)
    jobs.create(short_job("brief", ttl_s=TTL_S))
    jobs.wait_for_phase("brief", "Running")
    finish(jobs, "brief", 0)
    first.program.kill()
    due_s = ended_s(jobs, "brief") + TTL_S
    wait_until(lambda: time.time() > due_s, what="the end of its time")
    assert jobs.cluster.find(jobs.path("brief"))

    start("second", is_named=False)

    jobs.wait_for(lambda: left(jobs, "brief") == [], what="the end of the job and all that it had")
