"""How fast a job trains with so many trainers: reported points made concave, or a named model.

Speeds are exact fractions of no particular unit: only ratios between speeds of one job are ever used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from mlstack.elastic.snapshot import Curve, Job

# Reported points are noisy; what is used instead is the lowest concave, non-decreasing curve from the origin
# that no point is above. Beyond the largest measured size the last slope goes on to twice that size, then
# nothing is gained (Pollux, OSDI 2021, limits itself likewise).

Model = Callable[[int], Fraction]
Points = list[tuple[int, Fraction]]

_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?")


class SpecSource(NamedTuple):
    """All that the speed of a job is known from."""

    curve: Curve | None  # as reported, None if nothing was
    speed: str  # name of a model, for a job without a curve
    maximum: int  # most trainers
    pservers: int  # parameter servers


def source(job: Job) -> SpecSource:
    """Give what the speed of a job is known from: few jobs of a cluster differ in it."""
    pservers = sum(role.count for role in job.gang if role.name == "pserver")
    return SpecSource(job.curve, job.speed, job.maximum, pservers)


@lru_cache(maxsize=4096)
def speeds(known: SpecSource) -> tuple[Fraction, ...]:
    """Give the speed with 0 to `maximum` trainers, concave and never falling."""
    points = _usable(known.curve)
    if points:
        return _along(points, known.maximum)
    model = read_speed(known.speed, pservers=known.pservers)
    return tuple(model(count) for count in range(known.maximum + 1))


def _usable(curve: Curve | None) -> Points:
    """Give the points with trainers and speed, one a size: the mean if it was reported twice."""
    reported: dict[int, list[int]] = {}
    for count, speed in curve.points if curve else ():
        if count > 0 and speed >= 0:
            reported.setdefault(count, []).append(speed)
    points = [(count, Fraction(sum(each), len(each))) for count, each in sorted(reported.items())]
    return points if any(speed for _, speed in points) else []


def _along(points: Points, maximum: int) -> tuple[Fraction, ...]:
    blocks = envelope(points)
    width, slope = blocks[-1]
    blocks[-1] = (width + points[-1][0], slope)
    steps = list(islice((slope for width, slope in blocks for _ in range(width)), maximum))
    speeds = [Fraction(0)]
    for step in steps:
        speeds.append(speeds[-1] + step)
    return (*speeds, *[speeds[-1]] * (maximum + 1 - len(speeds)))


def envelope(points: Points) -> list[tuple[int, Fraction]]:
    """Give the concave envelope from the origin as (trainers, gain of each): adjacent violators pooled."""
    blocks: list[tuple[int, Fraction]] = []
    last_count, last_speed = 0, Fraction(0)
    for count, speed in points:
        width, gain = count - last_count, speed - last_speed
        while blocks and gain * blocks[-1][0] > blocks[-1][1] * width:
            wider, more = blocks.pop()
            width, gain = width + wider, gain + more
        blocks.append((width, gain))
        last_count, last_speed = count, speed
    return [(width, max(Fraction(0), gain / width)) for width, gain in blocks]


def read_speed(text: str, *, pservers: int = 0) -> Model:
    """Give the speed model of that name as a function of the number of trainers.

    `linear`; `amdahl:F` with the share F of the work that runs in parallel; `optimus:A,B,C,D` with the
    seconds of a step as A + B·w/p + C·w + D·p for w trainers and p parameter servers (Optimus, EuroSys
    2018, asynchronous).

    Raises:
        ValueError: no model of that name, or numbers that it cannot use (plain decimals, up to nine digits).
    """
    name, _, numbers = text.partition(":")
    parts = numbers.split(",") if numbers else []
    values = [Fraction(each) for each in parts if _NUMBER.fullmatch(each)]
    if len(values) < len(parts):
        raise ValueError(f"`{numbers}` in the speed model `{text}` is not made of plain numbers with commas")
    if name == "linear" and not values:
        return Fraction
    if name == "amdahl" and len(values) == 1 and 0 <= values[0] <= 1:
        return _amdahl(values[0])
    if name == "optimus" and len(values) == 4 and min(values) >= 0 and values[0] > 0:
        return _optimus(values, max(1, pservers))
    raise ValueError(f"no speed model `{text}`; known: `linear`, `amdahl:0.95`, `optimus:1,2.5,0.02,0.1`")


def _amdahl(parallel: Fraction) -> Model:
    def speed(count: int) -> Fraction:
        return count / (count * (1 - parallel) + parallel) if count else Fraction(0)

    return speed


def _optimus(values: list[Fraction], pservers: int) -> Model:
    alone, shared, trainer, pserver = values

    def speed(count: int) -> Fraction:
        return count / (alone + shared * count / pservers + trainer * count + pserver * pservers)

    return speed
