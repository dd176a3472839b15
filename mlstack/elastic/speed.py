"""How fast a job trains with so many trainers: reported points made concave, or a named model.

Speeds are exact fractions of no particular unit: only ratios between speeds of one job are ever used.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, chain, islice, repeat
from typing import NamedTuple

from mlstack.elastic.snapshot import Curve, Job

Model = Callable[[int], Fraction]
"""Gives the speed with so many trainers."""


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
    reported: dict[int, list[int]] = {}
    for count, speed in known.curve.points if known.curve else ():
        if count > 0 and speed >= 0:
            reported.setdefault(count, []).append(speed)
    # One point a size: the mean if it was reported twice.
    points = [(count, Fraction(sum(speeds), len(speeds))) for count, speeds in sorted(reported.items())]
    if not any(speed for _, speed in points):
        model = read_speed(known.speed, pservers=known.pservers)
        return tuple(model(count) for count in range(known.maximum + 1))
    blocks = _envelope(points)
    # Beyond the largest measured size the last slope goes on to twice that size, then nothing is gained
    # (Pollux, OSDI 2021, limits itself likewise).
    blocks += [(points[-1][0], blocks[-1][1]), (known.maximum, Fraction(0))]
    gains = chain.from_iterable(repeat(gain, width) for width, gain in blocks)
    return tuple(accumulate(islice(gains, known.maximum), initial=Fraction(0)))


def _envelope(points: list[tuple[int, Fraction]]) -> list[tuple[int, Fraction]]:
    """Give what is used instead of reported points, which are noisy, as (trainers, gain of each).

    That is the lowest concave, non-decreasing curve from the origin that no point is above: adjacent
    violators are pooled.
    """
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
    values = [Fraction(part) for part in parts if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", part)]
    if len(values) < len(parts):
        raise ValueError(f"`{numbers}` in the speed model `{text}` is not made of plain numbers with commas")
    match name, values:
        case "linear", []:
            return Fraction
        case "amdahl", [parallel] if parallel <= 1:
            return lambda count: count / (count * (1 - parallel) + parallel) if count else Fraction(0)
        case "optimus", [alone, shared, trainer, pserver] if alone > 0:
            servers = max(1, pservers)
            fixed, each = alone + pserver * servers, shared / servers + trainer
            return lambda count: count / (fixed + each * count)
    raise ValueError(f"no speed model `{text}`; known: `linear`, `amdahl:0.95`, `optimus:1,2.5,0.02,0.1`")
