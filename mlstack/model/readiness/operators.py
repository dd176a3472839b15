"""Signs of life of an operator: whether anybody looks at a custom resource at all."""

from mlstack.model.readiness.base import Facts, Readiness, waiting

# After this time without a sign of life the operator is most likely not there.
UNSEEN_S = 10.0


def unseen(facts: Facts, operator: str) -> Readiness | None:
    """Say that no operator has looked at an object; None if one has, or it is too early to tell."""
    if facts.status or facts.events or facts.pods or facts.age_s <= UNSEEN_S:
        return None
    return waiting(f"no {operator} has picked it up after {int(facts.age_s)} s")
