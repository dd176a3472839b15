"""What is measured from samples: means over time, waits with censoring, fairness, services that grow."""

import pytest

from mlstack.simulator import measures
from tests.support.samples import job, sample

WEB = "default/web"


def test_mean_over_time_weighs_each_sample_by_how_long_it_stood() -> None:
    samples = [sample(0, running=100), sample(1, running=0), sample(10, running=50)]
    assert measures.over_time(samples, measures.utilisation) == pytest.approx(10)
    assert measures.mean(map(measures.utilisation, samples)) == pytest.approx(50)


def test_waits_count_from_the_first_sample_of_a_job_and_to_the_end_if_in_vain() -> None:
    samples = [
        sample(0, job("a", 0)),
        sample(5, job("a", 3), job("b", 0)),
        sample(9, job("a", 3), job("b", 0)),
    ]
    found = measures.waits_for_trainer(samples)
    assert found.seconds == {"default/a": 5, "default/b": 4}
    assert found.censored == 1
    assert found.mean == 4.5


def test_a_job_that_is_deleted_waits_no_longer() -> None:
    samples = [sample(0, job("a", 0)), sample(3, job("a", 0)), sample(60)]
    found = measures.waits_for_trainer(samples)
    assert found.seconds == {"default/a": 3}
    assert found.never == ("default/a",)


def test_a_gang_is_whole_with_all_servers_and_the_least_trainers() -> None:
    samples = [
        sample(0, job("a", 2, servers=2)),
        sample(3, job("a", 1)),
        sample(7, job("a", 2)),
    ]
    assert measures.waits_for_gang(samples).seconds == {"default/a": 7}


@pytest.mark.parametrize(
    ("counts", "index"), [([5, 5, 5], 1.0), ([9, 0, 0], 1 / 3), ([0, 0], 1.0), ([4, 2], 36 / 40)]
)
def test_jains_index(counts: list[int], index: float) -> None:
    assert measures.jain(counts) == pytest.approx(index)


def test_percentile_is_the_smallest_value_that_enough_do_not_exceed() -> None:
    assert measures.percentile([4, 1, 3, 2], 50) == 2
    assert measures.percentile(range(1, 21), 95) == 19
    assert measures.percentile([], 95) == 0


def test_below_minimum_counts_after_a_job_was_whole_and_not_when_it_is_taken_off() -> None:
    short = {"servers": 3, "bound": 1}
    samples = [
        sample(0, job("a", 1, bound=1)),
        sample(1, job("a", 2)),
        sample(2, job("a", 1, **short)),
        sample(3, job("a", 0, target=0)),
        sample(4, job("a", 0, bound=0)),
    ]
    assert measures.below_minimum(samples) == [(2_000, "default/a")]


def test_last_change_is_of_pods_made_deleted_or_running() -> None:
    samples = [sample(0, job("a", 2)), sample(1, job("a", 3), created=1), sample(2, job("a", 3), created=1)]
    assert measures.last_change_s(samples) == 1


def test_turns_count_changes_of_direction() -> None:
    targets = [2, 5, 5, 3, 3, 4, 6, 6]
    samples = [sample(second, job("a", target)) for second, target in enumerate(targets)]
    assert measures.turns(samples) == {"default/a": 2}


def test_jobs_that_come_later_begin_with_no_trainers() -> None:
    samples = [
        sample(0, job("a", 4)),
        sample(1, job("a", 4), job("b", 3)),
        sample(2, job("a", 2), job("b", 3)),
    ]
    assert measures.scalings(samples) == {"default/a": (0, 1), "default/b": (1, 0)}


def test_the_end_of_a_job_is_no_turn() -> None:
    samples = [
        sample(0, job("a", 2)),
        sample(1, job("a", 5)),
        sample(2, job("a", 0, phase="Completing")),
        sample(3, job("a", 0, phase="Succeeded")),
    ]
    assert measures.turns(samples) == {"default/a": 0}


def test_a_service_is_measured_while_it_grows() -> None:
    samples = [
        sample(0, service=(100, 100)),
        *(sample(second, service=(200, min(200, 100 + 20 * (second - 10)))) for second in range(10, 20)),
    ]
    assert measures.served_after_s(samples, WEB) == [5]
    assert measures.shortfall(samples, WEB) == pytest.approx(300 / 9)


def test_a_target_that_is_never_reached_takes_the_whole_plateau() -> None:
    samples = [sample(0, service=(10, 10)), sample(1, service=(20, 10)), sample(31, service=(20, 19))]
    assert measures.served_after_s(samples, WEB) == [30]


def test_what_a_service_frees_is_used_again() -> None:
    loads = [90, 70, 75, 80, 89] + [90] * 60
    samples = [
        sample(second, running=load, service=(100 if second == 0 else 50, 50))
        for second, load in enumerate(loads)
    ]
    assert measures.restored_after_s(samples, WEB) == [3]
