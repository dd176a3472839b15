"""`footprint`: what an environment takes of a cluster, component by component, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlstack.app.environment import Prices
from mlstack.app.params import Overrides
from mlstack.app.reader import AppReader
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.resources import Amounts, is_gpu
from mlstack.readiness.footprint import footprint
from mlstack.render import render
from mlstack.render.template import CodeStore

_NO_OVERRIDES = Overrides()
_HOURS = 730  # of a month, as cloud providers count


@dataclass(frozen=True, kw_only=True)
class ComponentFootprint:
    """What a component's objects take, by amount.

    Amounts are `pods`, `requests.cpu` (thousandths of a core), `requests.memory` (bytes) and so on by
    resource, the same of `limits`, `gpus.PRODUCT`, `storage.CLASS` (bytes; the cluster's own class has no
    name) and `loadbalancers`.
    """

    component: str  # full name; empty for all together
    takes: Amounts  # by amount
    monthly_cost: float | None = None  # in the currency of the prices; None without prices


@dataclass(frozen=True, kw_only=True)
class FootprintResult:
    """What an environment takes of a cluster."""

    environment: str
    components: tuple[ComponentFootprint, ...]  # by name
    total: ComponentFootprint  # of all components together
    least: ComponentFootprint  # where controllers scale pods by themselves: the least
    most: ComponentFootprint  # and the most
    per_node: Amounts  # what comes on top for each node of the cluster
    currency: str = ""  # of the prices
    uncounted: tuple[str, ...] = ()  # objects that make pods which nobody can count beforehand
    notes: tuple[str, ...] = ()


def footprint_of(
    app: AppReader,
    environment: str,
    *,
    components: Sequence[str] = (),
    overrides: Overrides = _NO_OVERRIDES,
    store: CodeStore | None = None,
) -> FootprintResult:
    """Add up what an environment takes; arguments as of `render.load`.

    Raises:
        ConfigError: a file, parameter or template is wrong.
    """
    prices = app.prices(environment)
    state = render.load(
        app, environment, components=components, overrides=overrides, store=store, stand_ins=True
    )
    by_component: dict[str, list[KubeObject]] = {}
    for obj in state.objects:
        by_component.setdefault(obj.component, []).append(obj)
    # An autoscaler may stand in another component than what it scales: the sum is of all objects together.
    whole = footprint(state.objects)
    amounts = {name: footprint(by_component[name]).now for name in sorted(by_component)}
    unknown = [name for name in sorted(whole.now) if prices and _price(name, prices) is None]
    notes = [f"no price for {', '.join(unknown)}"] if unknown else []
    return FootprintResult(
        environment=environment,
        components=tuple(_row(name, takes, prices) for name, takes in amounts.items() if takes),
        total=_row("", whole.now, prices),
        least=_row("", whole.least, prices),
        most=_row("", whole.most, prices),
        per_node=whole.per_node,
        currency=prices.currency if prices else "",
        uncounted=whole.uncounted,
        notes=(*state.notes, *notes),
    )


def _row(component: str, takes: Amounts, prices: Prices | None) -> ComponentFootprint:
    cost = sum((_price(name, prices) or 0) * value for name, value in takes.items()) if prices else None
    return ComponentFootprint(
        component=component, takes=takes, monthly_cost=None if cost is None else round(cost, 2)
    )


def _price(name: str, prices: Prices) -> float | None:
    """Give what one unit of an amount costs a month, None if the prices do not say."""
    kind, _, rest = name.partition(".")
    unit = {"cpu": 1 / 1000, "memory": 1 / 2**30, "ephemeral-storage": 1 / 2**30}.get(rest, 1)
    match kind:
        case "requests" if is_gpu(rest):
            return 0  # by product
        case "requests":
            price = prices.requests.get(rest)
            return None if price is None else price * unit * _HOURS
        case "gpus":
            price = prices.gpus.get(rest, prices.gpus.get("*"))
            return None if price is None else price * _HOURS
        case "storage":
            price = prices.storage.get(rest, prices.storage.get("*"))
            return None if price is None else price / 2**30
        case "loadbalancers":
            return prices.load_balancers
    return 0
