"""How a service beside training jobs fares: when it has its pods, and when others use what it frees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mlstack.elastic.measures import Samples, mean, over_time, utilisation, window
from mlstack.elastic.sampling import Sample, ServiceSample

SERVED = 0.99


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """A time during which a service asked for the same number of pods.

    Attributes:
        target: the number.
        before: the number asked for before, 0 if it is the first.
        samples: of this time.
    """

    target: int
    before: int
    samples: Samples

    @property
    def grows(self) -> bool:
        """Tell whether more is asked for than before."""
        return 0 < self.before < self.target

    @property
    def shrinks(self) -> bool:
        """Tell whether less is asked for than before."""
        return self.before > self.target


@dataclass(frozen=True, kw_only=True)
class Raise:
    """A target of a service that was above the one before.

    Attributes:
        target: the pods asked for.
        seconds: how long it took until 99 % of them ran; as long as it stood, if they never did.
        is_served: whether they did.
    """

    target: int
    seconds: float
    is_served: bool


def service_of(sample: Sample, key: str) -> ServiceSample | None:
    """Give one service of a sample, None while there is none."""
    return next((service for service in sample.services if service.key == key), None)


def plateaus(samples: Samples, key: str) -> list[Plateau]:
    """Give the times between changes of what a service asks for."""
    found: list[tuple[int, list[Sample]]] = []
    for sample in samples:
        service = service_of(sample, key)
        if service is None:
            continue
        if not found or found[-1][0] != service.target:
            found.append((service.target, []))
        found[-1][1].append(sample)
    befores = [0, *(target for target, _ in found)]
    return [
        Plateau(target=target, before=before, samples=part)
        for (target, part), before in zip(found, befores, strict=False)
    ]


def missing(sample: Sample, key: str) -> int:
    """Count the pods that a service asks for and does not have."""
    service = service_of(sample, key)
    return max(0, service.target - service.running) if service else 0


def lacking(samples: Samples, key: str) -> float:
    """Give how many pods a service missed on average over the whole time."""
    return over_time(samples, lambda one: missing(one, key))


def shortfall(samples: Samples, key: str) -> float:
    """Give how many pods a service missed on average while it was growing."""
    parts = [(plateau, _length_s(plateau)) for plateau in plateaus(samples, key) if plateau.grows]
    whole = sum(seconds for _, seconds in parts)
    lacking = sum(over_time(part.samples, lambda one: missing(one, key)) * each for part, each in parts)
    return lacking / whole if whole else 0.0


def served_after_s(samples: Samples, key: str) -> list[float]:
    """Give for each raised target how long it took until 99 % of it ran, at most the whole plateau."""
    return [each.seconds for each in raises(samples, key)]


def raises(samples: Samples, key: str) -> list[Raise]:
    """Give the targets above the ones before, and how long each took to be served."""
    return [_raise(plateau, key) for plateau in plateaus(samples, key) if plateau.grows]


def _raise(plateau: Plateau, key: str) -> Raise:
    served = [one for one in plateau.samples if missing(one, key) <= (1 - SERVED) * plateau.target]
    until = served[0] if served else plateau.samples[-1]
    seconds = (until.at_ms - plateau.samples[0].at_ms) / 1000
    return Raise(target=plateau.target, seconds=seconds, is_served=bool(served))


def restored_after_s(samples: Samples, key: str, *, points: float = 1.0) -> list[float]:
    """Give for each lowered target how long the utilisation was further below its plateau than `points`.

    The plateau is the mean over the last 20 s of this target.
    """
    return [_settling_s(plateau, points) for plateau in plateaus(samples, key) if plateau.shrinks]


def _settling_s(plateau: Plateau, points: float) -> float:
    begin_ms, end_ms = plateau.samples[0].at_ms, plateau.samples[-1].at_ms
    level = mean(map(utilisation, window(plateau.samples, end_ms / 1000 - 20)))
    far = [one.at_ms for one in plateau.samples if utilisation(one) < level - points]
    return (far[-1] + 1000 - begin_ms) / 1000 if far else 0.0


def _length_s(plateau: Plateau) -> float:
    return (plateau.samples[-1].at_ms - plateau.samples[0].at_ms) / 1000


def ends(samples: Samples, key: str) -> Iterator[Sample]:
    """Give the last sample of each plateau."""
    return (plateau.samples[-1] for plateau in plateaus(samples, key))
