"""A job that is deleted and made again under its name is another job."""

from __future__ import annotations

from tests.support.elastic import training_job
from tests.support.stage import JOBS, Stage


def test_what_was_decided_about_a_job_is_not_written_to_its_namesake() -> None:
    stage = Stage("n1", "n2")
    stage.put(training_job(minimum=1, maximum=1))
    stage.settle()
    stage.end("train-trainer-0", phase="Succeeded")
    stage.hear()

    stage.delete("TrainingJob", "train", JOBS)
    stage.put(training_job(minimum=1, maximum=1))
    stage.reconciler.reconcile(stage.clock.now_ms)  # nothing of that was heard yet

    assert stage.status() == {}
    stage.settle()
    assert stage.status()["phase"] == "Running"
