"""What the server had against objects: asked about in time, and told of each without hiding the others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlstack.engine import parallel
from mlstack.engine.comparing import refusals
from mlstack.engine.comparing.look import Look
from mlstack.engine.comparing.making import Making
from mlstack.engine.comparing.otherwise import Otherwise
from mlstack.engine.comparing.outlook import Outlook
from mlstack.engine.comparing.surroundings import Surroundings
from mlstack.errors import ClusterError, InvalidError, MlstackError
from mlstack.model.diff import Change
from mlstack.model.kinds import kinds_of_crd
from mlstack.model.objects import KubeObject

_FEW = parallel.WORKERS  # they are asked about at once


def tried(
    results: list[Change | MlstackError],
    everything: Sequence[KubeObject],
    outlook: Outlook,
    *,
    hasty: bool,
) -> list[Change | MlstackError]:
    """Ask about new objects too: what is wrong with them is better told before anything is written.

    It costs a request each, so many are asked about only where something else is wrong. Only what the server
    says of fields counts: other objects of the run may be all that a webhook or a quota waits for.

    Args:
        results: what was found of each object.
        everything: the objects.
        outlook: what holds for the run as a whole.
        hasty: whether the environment is new, so that most of its objects are.
    """
    new = [
        place
        for place, found in enumerate(results)
        if isinstance(found, Change) and found.action == "create" and not kinds_of_crd(everything[place].data)
    ]
    wrong = any(not isinstance(found, Change) or found.refusal for found in results)
    if not new or not (wrong or (len(new) <= _FEW and not hasty)):
        return results
    asking = replace(outlook, check_new=True)
    looks = parallel.run(lambda place: Look(asking, everything[place]).change(), new)
    faults = {
        place: answer
        for place, answer in zip(new, looks, strict=True)
        if isinstance(answer, InvalidError) and answer.causes and "webhook" not in answer.message
    }
    return [faults.get(place, found) for place, found in enumerate(results)]


def answered(
    results: Sequence[Change | MlstackError], everything: Sequence[KubeObject], world: Surroundings
) -> Iterator[Change]:
    """Give a change for every object, for one that the server does not accept a change that is refused.

    Raises:
        MlstackError: something is not the fault of one object.
    """
    others = [
        found for found in results if not isinstance(found, Change) and not refusals.is_of_object(found)
    ]
    if others:
        raise parallel.together(others)
    for result, found in zip(results, everything, strict=True):
        if isinstance(result, Change):
            yield result
        else:
            yield refusals.invalid(found, _live(found, world), result)


def _live(found: KubeObject, world: Surroundings) -> Mapping[str, Any] | None:
    try:
        return world.live(found) if world.is_reachable(found) else None
    except ClusterError:  # what is wrong is known already
        return None


def with_redefined(
    results: Sequence[Change | MlstackError], everything: Sequence[KubeObject], outlook: Outlook
) -> list[Change | MlstackError]:
    """Look without the server at objects that only a new version of their definition may let pass."""
    redefined = {
        (kind.group, kind.kind)
        for result in results
        if isinstance(result, Change) and result.writes and not result.refusal and result.desired
        for kind in kinds_of_crd(result.desired.data)
    }
    return [
        Otherwise(Making(outlook, found)).unasked()
        if isinstance(result, InvalidError) and (found.group, found.kind) in redefined
        else result
        for result, found in zip(results, everything, strict=True)
    ]
