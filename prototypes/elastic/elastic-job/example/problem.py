"""What is trained: a line through synthetic points, by gradient descent. Put your own model here."""

from __future__ import annotations

import random

WIDTH = 8
"""Parameters of the model."""

SAMPLES = 64
"""Points of one task."""

RATE = 0.05
Sample = tuple[list[float], float]


def data(task: int) -> list[Sample]:
    """Give the points of a task: always the same, on every machine."""
    dice = random.Random(task)
    truth = [each - WIDTH / 2 for each in range(WIDTH)]
    samples = []
    for _ in range(SAMPLES):
        inputs = [dice.gauss(0, 1) for _ in range(WIDTH)]
        output = sum(weight * value for weight, value in zip(truth, inputs, strict=True))
        samples.append((inputs, output + dice.gauss(0, 0.1)))
    return samples


def step(values: list[float], samples: list[Sample]) -> tuple[float, list[float]]:
    """Give the mean squared error of a model and the change that makes it smaller."""
    loss, changes = 0.0, [0.0] * WIDTH
    for inputs, output in samples:
        error = sum(weight * value for weight, value in zip(values, inputs, strict=True)) - output
        loss += error * error / len(samples)
        for each, value in enumerate(inputs):
            changes[each] -= 2 * RATE * error * value / len(samples)
    return loss, changes
