"""The trainer at which the others of a job meet stays for as long as the job does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlstack.elastic.policy.plan import plan
from mlstack.elastic.policy.state import TrainerSlot
from mlstack.elastic.snapshot import PolicyConfig, Snapshot
from tests.property.elastic.moments import MANY, moments
from tests.property.elastic.test_mutations import breaks, is_sound

MODES = st.sampled_from(["fair", "throughput", "edl"])


@MANY
@given(moments(), MODES, st.sampled_from([0, 25]))
def test_no_plan_takes_the_meeting_point_of_a_job_that_goes_on(
    snapshot: Snapshot, mode: str, headroom: int
) -> None:
    """A job without a master keeps the bound trainer at which the others meet, or goes off whole."""
    found = plan(snapshot, PolicyConfig(mode=mode, headroom_pct=headroom))
    for job in snapshot.jobs:
        decision = found.decisions[job.key]
        first = {trainer.name for trainer in job.trainers if trainer.is_meeting and trainer.node}
        assert not decision.target or not first & set(decision.victims), job.key


def test_a_meeting_point_that_goes_as_any_other_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainerSlot, "is_meeting", property(lambda _: False, lambda *_: None), raising=False)
    assert breaks(is_sound)
