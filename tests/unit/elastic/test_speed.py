"""Speeds by trainers: what reported points and named models become."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlstack.elastic.snapshot import GangRole, Job, read_speed, source, speeds


def job(*points: tuple[int, int], most: int = 8, speed: str = "linear", pservers: int = 0) -> Job:
    role = GangRole(name="pserver", count=pservers, request=(1,))
    return Job(
        key="default/a",
        minimum=1,
        maximum=most,
        trainer=(1,),
        gang=(role,),
        curve=points or None,
        speed=speed,
    )


def speeds_of(job: Job) -> tuple[Fraction, ...]:
    return speeds(source(job))


@pytest.mark.parametrize(
    ("points", "most", "speeds"),
    [
        pytest.param([(1, 10), (2, 18), (3, 24), (4, 28)], 4, (0, 10, 18, 24, 28), id="concave: kept"),
        pytest.param([(1, 10), (3, 20)], 3, (0, 10, 15, 20), id="rises evenly between two points"),
        pytest.param([(1, 10), (2, 12), (3, 26)], 3, (0, 10, 18, 26), id="below its neighbours: pulled up"),
        pytest.param([(1, 10), (2, 18), (3, 12)], 4, (0, 10, 18, 18, 18), id="falling: flat"),
        pytest.param(
            [(1, 10), (2, 16)], 6, (0, 10, 16, 22, 28, 28, 28), id="goes on to twice the largest size"
        ),
        pytest.param([(1, 10), (1, 13)], 1, (0, Fraction(23, 2)), id="twice one size: the mean"),
        pytest.param([(10**15, 10**15)], 3, (0, 1, 2, 3), id="absurdly many trainers cost nothing"),
    ],
)
def test_reported_points_become_a_curve(
    points: list[tuple[int, int]], most: int, speeds: tuple[Fraction, ...]
) -> None:
    assert speeds_of(job(*points, most=most)) == speeds


def test_the_order_of_the_points_does_not_matter() -> None:
    assert speeds_of(job((3, 24), (1, 10), (2, 18))) == speeds_of(job((1, 10), (2, 18), (3, 24)))


@pytest.mark.parametrize(
    "points", [(), ((1, 0), (2, 0)), ((0, 5), (-1, 4))], ids=["none", "zeros", "no sizes"]
)
def test_without_a_usable_point_the_named_model_counts(points: tuple[tuple[int, int], ...]) -> None:
    assert speeds_of(job(*points, most=2, speed="amdahl:0.5")) == (0, 1, Fraction(4, 3))


def test_optimus_shares_its_parameter_servers() -> None:
    """Seconds of a step with 2 trainers and 4 servers: 1 + 2*2/4 + 0.5*2 + 0.25*4 = 4."""
    assert speeds_of(job(most=2, speed="optimus:1,2,0.5,0.25", pservers=4))[2] == Fraction(2, 4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "fast",
        "linear:1",
        "amdahl",
        "amdahl:1.5",
        "amdahl:-1",
        "amdahl:1e9",
        "amdahl:1/0",
        "optimus:0,1,1,1",
    ],
)
def test_other_models_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="speed model"):
        read_speed(text)


POINTS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10**6)), max_size=12)
NAMES = st.sampled_from(["linear", "amdahl:0", "amdahl:0.9", "amdahl:1", "optimus:1,2,0.5,0.25"])


@given(POINTS, NAMES, st.integers(1, 60))
def test_every_curve_is_concave_and_never_falls(points: list[tuple[int, int]], speed: str, most: int) -> None:
    speeds = speeds_of(job(*points, most=most, speed=speed, pservers=3))
    gains = [after - before for before, after in pairwise(speeds)]
    assert len(speeds) == most + 1
    assert speeds[0] == 0
    assert all(before >= after >= 0 for before, after in pairwise(gains))


@given(POINTS)
def test_no_reported_point_is_above_the_curve(points: list[tuple[int, int]]) -> None:
    mean = {size: [speed for trainers, speed in points if trainers == size] for size, _ in points}
    curve = speeds_of(job(*points, most=40))
    if any(speed for _, speed in points):
        assert all(Fraction(sum(speeds), len(speeds)) <= curve[size] for size, speeds in mean.items())
