"""Virtual time: actions in order, integer milliseconds, chance from one seed."""

from mlstack.simulator.engine import START_MS, Kernel, timestamp


def test_actions_happen_in_the_order_of_their_times() -> None:
    kernel, seen = Kernel(), []
    kernel.after(20, lambda: seen.append("later"))
    kernel.after(10, lambda: seen.append("sooner"))
    kernel.run(START_MS + 20)
    assert seen == ["sooner", "later"]


def test_what_is_due_together_keeps_its_order() -> None:
    kernel, seen = Kernel(), []
    for name in "abc":
        kernel.after(5, lambda name=name: seen.append(name))
    kernel.run(START_MS + 5)
    assert seen == ["a", "b", "c"]


def test_time_stands_where_the_run_ends() -> None:
    kernel = Kernel()
    kernel.after(1_000, lambda: None)
    kernel.run(START_MS + 400)
    assert kernel.elapsed_ms == 400


def test_what_was_due_before_happens_at_once() -> None:
    kernel, seen = Kernel(), []
    kernel.after(100, lambda: kernel.at(START_MS, lambda: seen.append(kernel.elapsed_ms)))
    kernel.run(START_MS + 200)
    assert seen == [100]


def test_generators_of_one_name_and_seed_draw_alike_and_others_do_not() -> None:
    draws = [Kernel(seed).generator(name).random() for seed, name in ((1, "a"), (1, "a"), (1, "b"), (2, "a"))]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


def test_times_are_written_in_whole_seconds() -> None:
    assert timestamp(1_500) == "1970-01-01T00:00:01Z"
