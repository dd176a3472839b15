"""Draw samples: utilisation, trainers of each job, pending jobs and missing pods (only door to matplotlib).

Matplotlib is an extra (`pip install 'mlstack[plot]'`); it takes about half a second to be imported.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from mlstack.elastic import measures
from mlstack.errors import UsageError

if TYPE_CHECKING:
    from mlstack.elastic.measures import Samples

_LEGEND = 12
"""Most jobs that are named beside their lines."""


def draw(samples: Samples, title: str) -> str:
    """Draw samples as SVG, the same for the same samples.

    Raises:
        UsageError: matplotlib is not installed.
    """
    matplotlib = library()
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "mlstack", "font.size": 9}):
        figure = Figure(figsize=(10, 8), layout="constrained")
        room, trainers, waiting = figure.subplots(3, 1, sharex=True)
        seconds = [sample.at_ms / 1000 for sample in samples]
        _room(room, seconds, samples)
        _trainers(trainers, seconds, samples)
        _waiting(waiting, seconds, samples)
        waiting.set_xlabel("seconds")
        figure.suptitle(title)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def library() -> Any:
    """Give matplotlib.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(
            "plots need matplotlib, which is not installed", hint="pip install 'mlstack[plot]'"
        ) from error
    return matplotlib


def _room(axes: Any, seconds: list[float], samples: Samples) -> None:
    axes.plot(seconds, [sample.share(sample.requested) for sample in samples], label="requested", lw=0.8)
    axes.plot(seconds, [measures.utilisation(sample) for sample in samples], label="running", lw=1.6)
    axes.plot(seconds, [measures.useful(sample) for sample in samples], label="useful", lw=1.2)
    axes.plot(seconds, [sample.share(sample.stranded) for sample in samples], label="stranded", lw=0.8)
    for name in measures.resources(samples)[1:]:
        shares = [measures.utilisation(sample, name) for sample in samples]
        axes.plot(seconds, shares, label=f"running, {name}", lw=0.8, ls="--")
    axes.set_ylabel("% of cores, or as named")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right", ncols=4)


def _trainers(axes: Any, seconds: list[float], samples: Samples) -> None:
    jobs = sorted({job.key for sample in samples for job in sample.jobs})
    for key in jobs:
        known = [next((job.trainers for job in sample.jobs if job.key == key), None) for sample in samples]
        axes.plot(seconds, known, lw=1.0, label=key.partition("/")[2])
    axes.set_ylabel("trainers")
    axes.set_ylim(bottom=0)
    if 0 < len(jobs) <= _LEGEND:
        axes.legend(loc="upper right", ncols=3)


def _waiting(axes: Any, seconds: list[float], samples: Samples) -> None:
    axes.step(seconds, [measures.pending(sample) for sample in samples], label="pending jobs", where="post")
    missing = [
        sum(max(0, service.target - service.running) for service in sample.services) for sample in samples
    ]
    if any(missing):
        axes.step(seconds, missing, label="missing pods of services", where="post")
    axes.set_ylabel("waiting")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")
