"""The law of a Lease: nobody takes it while somebody else may still rely on it."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from mlstack.kube.parallel import LEASE_S, HeldError, Lease, LostError, Term
from mlstack.objects.kube_object import Schemas
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock

PEOPLE = ("ada", "grace", "joan")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(PEOPLE), st.sampled_from(["take", "take", "renew", "release"])),
        st.tuples(st.just("time"), st.sampled_from([1, 4, 8, LEASE_S - 1, LEASE_S, LEASE_S + 2])),
    ),
    min_size=8,
    max_size=40,
)


@cache
def schemas() -> Schemas:
    return load_schemas("1.36")


@given(STEPS)
def test_a_lease_is_taken_only_from_nobody_or_from_somebody_whose_time_is_over(
    steps: list[tuple[str, str | int]],
) -> None:
    clock = VirtualClock()
    cluster = MemoryCluster(schemas(), clock=clock)
    leases = {
        who: Lease(cluster=cluster, namespace="default", name="lock", holder=who, now_s=clock.now_s)
        for who in PEOPLE
    }
    terms: dict[str, Term] = {}
    heard_s: dict[str, float] = {}
    for who, what in steps:
        if isinstance(what, int):
            clock.sleep(what)
            continue
        others = {name: at_s for name, at_s in heard_s.items() if name != who}
        try:
            if what == "take":
                terms[who] = leases[who].take()
                assert all(clock.now_s() - at_s > LEASE_S for at_s in others.values()), others
                heard_s = {who: clock.now_s()}
            elif what == "renew" and who in terms:
                terms[who] = leases[who].renew(terms[who])
                assert who in heard_s  # whoever was overtaken never holds it again without taking it
                heard_s[who] = clock.now_s()
            elif what == "release" and who in terms:
                leases[who].release(terms.pop(who))
                heard_s.pop(who, None)
        except HeldError as refused:
            assert refused.term.holder in others
        except LostError:
            assert who not in heard_s
            terms.pop(who)
