"""What pods request and nodes have; which nodes take a pod, and what quotas and limit ranges say to it.

Amounts are integers: thousandths of a core, bytes, pieces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

from mlstack.dataclass import dataclass

Amounts = Mapping[str, int]

_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_DECIMAL = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_MAX_EXPONENT = 1000
_HOST_PORT = "hostport:"  # begins the name of a port of a node among resources: `hostport:7164:TCP`


def quantity(value: Any) -> Decimal | None:
    """Read a Kubernetes quantity (`500m`, `1.5Gi`, `2`), None where it is none."""
    match = _QUANTITY.fullmatch(str(value))
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not match:
        return None
    number, unit = Decimal(match[1]), match[2] or ""
    if unit in _BINARY:
        return number * Decimal(1024) ** _BINARY[unit]
    exponent = _DECIMAL[unit] if unit in _DECIMAL else int(unit[1:])
    return number.scaleb(exponent) if abs(exponent) <= _MAX_EXPONENT else None


@lru_cache(maxsize=8192)
def amount(resource: str, text: str) -> int:
    """Read a quantity of a resource, rounded up; what is no quantity counts as nothing."""
    number = quantity(text) or 0
    return ceil(number * 1000) if resource == "cpu" else ceil(number)


def amounts(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    """Read quantities by resource."""
    return {name: amount(name, str(value)) for name, value in (quantities or {}).items()}


def requests(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give what the scheduler reserves for a pod, itself (`pods`) included.

    Containers and sidecars (init containers that are always restarted) add up; each other init container runs
    alone beside the sidecars that were started before it, so that the most of these counts; overhead comes on
    top. Requests of the pod as a whole replace the sum. See Kubernetes' pages on init containers, sidecars
    and pod overhead. A port of the node is a thing that each node has one of.
    """
    asked = total(_of_pod(spec, "limits", "requests"), amounts(spec.get("overhead")))
    return {**{name: value for name, value in asked.items() if value}, **_host_ports(spec), "pods": 1}


def limits(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give the most that a pod may take, as far as its containers have limits."""
    overhead = amounts(spec.get("overhead"))
    return {name: value + overhead.get(name, 0) for name, value in _of_pod(spec, "limits").items() if value}


def _of_pod(spec: Mapping[str, Any], *kinds: str) -> dict[str, int]:
    """Add up what the containers of a pod have of these kinds; of one resource the last kind counts."""

    def read(holder: Mapping[str, Any]) -> dict[str, int]:
        resources = holder.get("resources") or {}
        return amounts({name: value for kind in kinds for name, value in (resources.get(kind) or {}).items()})

    sidecars: dict[str, int] = {}
    most: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        beside = total(sidecars, read(container))
        most = larger(most, beside)
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    running = total(*map(read, spec.get("containers") or ()), sidecars)
    return {**larger(running, most), **read(spec)}


def is_device(resource: str) -> bool:
    """Tell resources of device plug-ins, as GPUs: whole pieces, of which a pod has as many as it asks for."""
    return "/" in resource and "kubernetes.io/" not in resource


def _host_ports(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give the ports that a pod takes of its node: on the node's network all that its containers name.

    Of one address (`hostIP`) or of all is the same here: jobs serve on all of them.
    """
    started_first = spec.get("initContainers") or ()
    sidecars = [container for container in started_first if container.get("restartPolicy") == "Always"]
    ports: dict[str, int] = {}
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else None)
            if number:
                ports[f"{_HOST_PORT}{number}:{port.get('protocol') or 'TCP'}"] = 1
    return ports


def total(*parts: Amounts) -> dict[str, int]:
    """Add amounts up by name."""
    amounts_by_name: dict[str, int] = {}
    for part in parts:
        for name, value in part.items():
            amounts_by_name[name] = amounts_by_name.get(name, 0) + value
    return amounts_by_name


def larger(one: Amounts, other: Amounts) -> dict[str, int]:
    """Give of each resource the larger amount."""
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in {**one, **other}}


def is_gpu(resource: str) -> bool:
    """Tell whether a resource is a GPU, or a part of one."""
    return resource.endswith("/gpu") or "/mig-" in resource


def written(resource: str, value: int) -> str:
    """Write an amount as people do: `0.5`, `8`, `64Gi`; of a port of the node its words."""
    if resource == "cpu":
        return f"{value / 1000:g}"
    if is_host_port(resource):
        number, _, protocol = resource.removeprefix(_HOST_PORT).partition(":")
        return f"{'host port' if value == 1 else f'{value} host ports'} {number}/{protocol}"
    if resource in ("memory", "ephemeral-storage", "storage") or resource.startswith("hugepages-"):
        for unit, size in (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20)):
            if value >= size:
                return f"{value / size:.4g}{unit}"
    return str(value)


def is_host_port(resource: str) -> bool:
    """Tell whether a resource is a port of the node: each node has one of it, unsaid."""
    return resource.startswith(_HOST_PORT)


# --- LimitRanges: what they write into the containers of a namespace, and which pods they refuse ---


@dataclass(frozen=True)
class NamespaceLimits:
    """What limits the pods of one namespace."""

    rules: Sequence[Mapping[str, Any]]  # of all its LimitRanges
    quotas: Sequence[QuotaFacts]

    def admitted(self, spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
        """Give a pod with its defaults, and in the API server's words why it is refused, if it is."""
        lists = {name: list(spec[name]) for name in ("initContainers", "containers") if spec.get(name)}
        for rule in self.rules:
            if rule.get("type") == "Container":
                lists = {name: [_filled(row, rule) for row in rows] for name, rows in lists.items()}
        spec = {**spec, **lists}
        refusals = [text for rule in self.rules for text in _refusals(spec, rule)][:1]
        missing = [(quota.name, unspecified(quota, spec)) for quota in self.quotas]
        return spec, [*refusals, *(f"failed quota: {name}: {text}" for name, text in missing if text)]


def limits_in(
    namespace: str, objects: Iterable[Mapping[str, Any]], quotas: Iterable[QuotaFacts] = ()
) -> NamespaceLimits:
    """Give what limits a namespace of the LimitRanges and ResourceQuotas among objects; of one name the last.

    `quotas` are those that its cluster has: what is used of one stays used where an object changes it.
    """
    core = [obj for obj in objects if obj["apiVersion"] == "v1"]
    own = [obj for obj in core if obj["metadata"].get("namespace") == namespace]
    ranges = {obj["metadata"]["name"]: obj for obj in own if obj["kind"] == "LimitRange"}
    known = {quota.name: quota for quota in quotas if quota.namespace == namespace}
    for quota in (parse_quota(obj) for obj in own if obj["kind"] == "ResourceQuota"):
        known[quota.name] = replace(quota, used=known.get(quota.name, quota).used)
    rules = [rule for obj in ranges.values() for rule in (obj.get("spec") or {}).get("limits") or ()]
    return NamespaceLimits(rules, [*known.values()])


def _filled(container: Mapping[str, Any], rule: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give a container with the defaults of a rule, and those that follow from its bounds."""
    resources = container.get("resources") or {}
    own = resources.get("limits") or {}
    default = {**(rule.get("max") or {}), **(rule.get("default") or {})}
    asked = {**(rule.get("min") or {}), **default, **(rule.get("defaultRequest") or {})}
    # What has a limit of its own and no request requests its limit.
    asked |= {**own, **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "limits": {**default, **own}, "requests": asked}}


def _refusals(spec: Mapping[str, Any], rule: Mapping[str, Any]) -> Iterator[str]:
    kind = rule.get("type")
    if kind == "Pod":
        yield from _outside(requests(spec), limits(spec), rule)
    elif kind == "Container":
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            resources = container.get("resources") or {}
            yield from _outside(amounts(resources.get("requests")), amounts(resources.get("limits")), rule)


def _outside(asked: Mapping[str, int], most: Mapping[str, int], rule: Mapping[str, Any]) -> Iterator[str]:
    # The sums of a pod may be the other way round: containers need not have both a request and a limit.
    kind = rule.get("type")
    for name, text in (rule.get("min") or {}).items():
        words, least = f"minimum {name} usage per {kind} is {text}", amount(name, str(text))
        if name not in asked:
            yield f"{words}. No request is specified"
        elif asked[name] < least:
            yield f"{words}, but request is {written(name, asked[name])}"
        elif most.get(name, least) < least:
            yield f"{words}, but limit is {written(name, most[name])}"
    for name, text in (rule.get("max") or {}).items():
        words, highest = f"maximum {name} usage per {kind} is {text}", amount(name, str(text))
        if name not in most:
            yield f"{words}. No limit is specified"
        elif most[name] > highest:
            yield f"{words}, but limit is {written(name, most[name])}"
        elif asked.get(name, 0) > highest:
            yield f"{words}, but request is {written(name, asked[name])}"
    for name, text in (rule.get("maxLimitRequestRatio") or {}).items():
        words = f"{name} max limit to request ratio per {kind} is {text}, but"
        if not asked.get(name):
            yield f"{words} no request is specified or request is 0"
        elif not most.get(name):
            yield f"{words} no limit is specified or limit is 0"
        elif (ratio := most[name] / asked[name]) > float(quantity(text) or 0):
            yield f"{words} provided ratio is {ratio:f}"


# --- ResourceQuotas: what they leave a namespace, and which priority classes they grant it ---


Scope = tuple[str, str, frozenset[str]]
"""Name of a scope, operator, values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class QuotaFacts:
    """What is known of a ResourceQuota."""

    namespace: str
    name: str
    hard: Amounts  # what the namespace may have in all, as its controller has taken note of it
    used: Amounts  # what it has
    scopes: tuple[Scope, ...]  # which pods count; all of them have to hold

    @property
    def classes(self) -> frozenset[str]:
        """Give the priority classes that it names and leaves something for: the namespace may use them."""
        if not any(self.hard.values()):
            return frozenset()
        named = [values for *scope, values in self.scopes if scope == ["PriorityClass", "In"]]
        return frozenset[str]().union(*named)


def parse_quota(obj: Mapping[str, Any]) -> QuotaFacts:
    """Read a ResourceQuota."""
    metadata, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    scopes: list[Scope] = [(str(name), "Exists", frozenset()) for name in spec.get("scopes") or ()]
    for row in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        values = frozenset(map(str, row.get("values") or ()))
        scopes.append((str(row.get("scopeName") or ""), str(row.get("operator") or ""), values))
    hard, used = (
        {str(name): amount(_resource(name), str(value)) for name, value in (quantities or {}).items()}
        for quantities in (status.get("hard") or spec.get("hard"), status.get("used"))
    )
    place = {"namespace": str(metadata.get("namespace")), "name": str(metadata["name"])}
    return QuotaFacts(**place, hard=hard, used=used, scopes=tuple(scopes))


def _resource(name: str) -> str:
    """Give the resource that an entry of a quota is about: `cpu` for `requests.cpu`."""
    return name.removeprefix("requests.").removeprefix("limits.")


class Excess(NamedTuple):
    """A quota that leaves too little."""

    text: str  # which, and how much it lacks
    is_for_good: bool  # whether it would be too small with nothing used of it


def excess(
    quotas: Iterable[QuotaFacts], pods: Iterable[tuple[Mapping[str, Any], int]], others: Amounts
) -> Excess | None:
    """Give the first quota that leaves too little for all these objects together, None where none does.

    One pod alone is weighed by the API server; it does not know that others of the gang follow.
    """
    weighed = [(pod.get("spec") or {}, count) for pod, count in pods]
    for quota in sorted(quotas, key=lambda quota: (quota.namespace, quota.name)):
        needed = usage_in(quota, weighed, others)
        short = exceeded(quota, needed)
        if short:
            text = f"exceeded quota: {quota.name}, for the whole gang: {lack(quota, needed)}"
            return Excess(text, is_for_good=any(needed[name] > quota.hard[name] for name in short))
    return None


def usage_in(
    quota: QuotaFacts, pods: Iterable[tuple[Mapping[str, Any], int]], others: Amounts
) -> dict[str, int]:
    """Give what pods, by specification and number, and other objects count for in a quota."""
    needed = {} if quota.scopes else dict(others)
    for spec, count in pods:
        if all(_is_in(scope, spec) for scope in quota.scopes):
            for name, value in _usage(spec).items():
                needed[name] = needed.get(name, 0) + count * value
    return needed


def unspecified(quota: QuotaFacts, spec: Mapping[str, Any]) -> str:
    """Say what a quota wants said of each container of a pod and is not, in the API server's words.

    A quota of processors or memory refuses pods that do not say what they take of it: `Constraints` in
    pkg/quota/v1/evaluator/core/pods.go. What has a limit requests it, if nothing else.
    """
    if spec.get("resources") or not all(_is_in(scope, spec) for scope in quota.scopes):
        return ""
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    missing: dict[str, list[str]] = {}
    for name in sorted(_COMPUTE & quota.hard.keys()):
        for container in containers:
            resources = container.get("resources") or {}
            asked = {**(resources.get("limits") or {})}
            asked |= {} if name.startswith("limits.") else resources.get("requests") or {}
            if _resource(name) not in asked:
                missing.setdefault(name, []).append(str(container.get("name")))
    rows = (f"{name} for: {','.join(sorted(names))}" for name, names in missing.items())
    return f"must specify {'; '.join(rows)}" if missing else ""


_COMPUTE = frozenset(f"{kind}{name}" for kind in ("", "requests.", "limits.") for name in ("cpu", "memory"))


def exceeded(quota: QuotaFacts, needed: Amounts) -> list[str]:
    """Give the entries of a quota that leave less than is needed."""
    return [
        name
        for name, hard in sorted(quota.hard.items())
        if needed.get(name, 0) > 0 and quota.used.get(name, 0) + needed[name] > hard
    ]


def lack(quota: QuotaFacts, needed: Amounts) -> str:
    """Say of each entry of a quota that leaves too little how much is needed and used."""
    texts = []
    for name in exceeded(quota, needed):
        values = (needed[name], quota.used.get(name, 0), quota.hard[name])
        more, used, hard = (written(_resource(name), value) for value in values)
        texts.append(f"{name}: {more} more, {used} of {hard} used")
    return "; ".join(texts)


def _usage(spec: Mapping[str, Any]) -> dict[str, int]:
    """Give what a pod uses up, by all the names that quotas have for it (pkg/quota/v1/evaluator/core).

    Some stand alone too, without `requests.` before them; extended resources have the prefix always.
    """
    usage = {"pods": 1, "count/pods": 1, **{f"limits.{name}": value for name, value in limits(spec).items()}}
    for name, value in requests(spec).items():
        if name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-"):
            usage[name] = value
        if name != "pods":
            usage[f"requests.{name}"] = value
    return usage


def _is_in(scope: Scope, spec: Mapping[str, Any]) -> bool:
    """Tell whether a pod counts in a scope; in one that nobody here knows none does."""
    name, operator, values = scope
    if name == "PriorityClass":
        has_class = str(spec.get("priorityClassName") or "")
        answers = {"In": has_class in values, "NotIn": has_class not in values, "Exists": bool(has_class)}
        return answers.get(operator, not has_class)
    asked = (*requests(spec).items(), *limits(spec).items())
    is_best_effort = not any(value for resource, value in asked if resource in ("cpu", "memory"))
    is_bounded = spec.get("activeDeadlineSeconds") is not None
    return {
        "Terminating": is_bounded,
        "NotTerminating": not is_bounded,
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
    }.get(name, False)


# --- which nodes a pod may go to, room aside: selectors, affinity and taints, as kube-scheduler filters ---


@dataclass(frozen=True)
class NodePlace:
    """What a node tells pods that look for a place."""

    name: str  # of the node
    labels: Mapping[str, str]  # of the node
    taints: tuple[Mapping[str, Any], ...] = ()  # that keep pods away, as the node has them


def node_place(node: Mapping[str, Any]) -> NodePlace:
    """Read what a Node tells pods; taints that only advise against it are left out."""
    metadata, taints = node["metadata"], (node.get("spec") or {}).get("taints") or ()
    hard = tuple(taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute"))
    return NodePlace(str(metadata["name"]), metadata.get("labels") or {}, hard)


def is_node_ready(node: Mapping[str, Any]) -> bool:
    """Tell whether a node is Ready and is to stay."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    is_ready = any(row.get("type") == "Ready" and row.get("status") == "True" for row in conditions)
    return is_ready and not node["metadata"].get("deletionTimestamp")


def is_eligible(spec: Mapping[str, Any], place: NodePlace) -> bool:
    """Tell whether a pod may go to a node, room aside; `required` is its required node affinity."""
    return is_selected(spec, place) and untolerated(spec, place) is None


def is_selected(spec: Mapping[str, Any], place: NodePlace) -> bool:
    """Tell whether a node has what a pod's selector and required affinity ask for."""
    selector: Mapping[str, str] = spec.get("nodeSelector") or {}
    required = spec.get("required") or required_affinity(spec)
    return all(place.labels.get(name) == value for name, value in selector.items()) and (
        not required or any(_matches(term, place) for term in required.get("nodeSelectorTerms") or ())
    )


def required_affinity(spec: Mapping[str, Any]) -> Any:
    """Give the node affinity that a pod insists on."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution")


def untolerated(spec: Mapping[str, Any], place: NodePlace) -> Mapping[str, Any] | None:
    """Give the first taint of a node that keeps a pod away, None where none does."""
    tolerations = spec.get("tolerations") or ()
    for taint in place.taints:
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            return taint
    return None


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, Any]) -> bool:
    """Tell whether a label selector is about something with these labels; without one it is about nothing."""
    if selector is None:
        return False
    rows: Sequence[Mapping[str, Any]] = selector.get("matchExpressions") or ()
    return (selector.get("matchLabels") or {}).items() <= labels.items() and all(
        _holds(row, labels) for row in rows
    )


def _matches(term: Mapping[str, Any], place: NodePlace) -> bool:
    """Tell whether a node fits one term; a term without any expression fits none."""
    labels: Sequence[Mapping[str, Any]] = term.get("matchExpressions") or ()
    fields: Sequence[Mapping[str, Any]] = term.get("matchFields") or ()
    pairs = [(expression, place.labels) for expression in labels]
    pairs += [(expression, {"metadata.name": place.name}) for expression in fields]
    return bool(pairs) and all(_holds(expression, values) for expression, values in pairs)


def _holds(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    value, operator = values.get(str(expression.get("key"))), expression.get("operator")
    choices: Sequence[str] = expression.get("values") or ()
    match operator:
        case "In":
            return value in choices
        case "NotIn":
            return value not in choices
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                difference = int(value or "") - int(choices[0])
            except (ValueError, IndexError):
                return False
            return difference > 0 if operator == "Gt" else difference < 0
    return False


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Tell whether a toleration is for a taint; without a key it is for all of them."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    key = toleration.get("key")
    if key and key != taint.get("key"):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == (taint.get("value") or "")
