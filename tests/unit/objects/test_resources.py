"""What LimitRanges refuse, and which nodes a pod may go to, as the server and the scheduler decide it."""

from typing import Any

import pytest

from mlstack.objects.resources import NodePlace, is_eligible, limits_in


def refused(rule: dict[str, Any], *containers: dict[str, dict[str, str]]) -> str:
    metadata, spec = {"name": "team", "namespace": "ml"}, {"limits": [rule]}
    limits = limits_in("ml", [{"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": spec}])
    return "".join(limits.admitted({"containers": [{"resources": row} for row in containers]})[1])


@pytest.mark.parametrize(
    ("rule", "containers", "reason"),
    [
        ({"min": {"cpu": "2"}}, [{"requests": {"cpu": "1"}}], ", but request is 1"),
        ({"min": {"cpu": "2"}}, [{}], ""),  # the least is what is asked for, if nothing is
        ({"type": "Pod", "min": {"cpu": "2"}}, [{}], ". No request is specified"),
        (
            {"type": "Pod", "min": {"cpu": "2"}},
            [{"requests": {"cpu": "3"}}, {"limits": {"cpu": "1"}}],
            ", but limit is 1",
        ),
        ({"max": {"cpu": "2"}}, [{"limits": {"cpu": "3"}}], ", but limit is 3"),
        ({"type": "Pod", "max": {"cpu": "2"}}, [{"requests": {"cpu": "1"}}], ". No limit is specified"),
        (
            {"type": "Pod", "max": {"cpu": "2"}},
            [{"requests": {"cpu": "3"}}, {"limits": {"cpu": "1"}}],
            ", but request is 4",
        ),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, [{}], ", but no request is specified or request is 0"),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            [{"requests": {"cpu": "1"}}],
            ", but no limit is specified or limit is 0",
        ),
        (
            {"maxLimitRequestRatio": {"cpu": "2"}},
            [{"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}],
            ", but provided ratio is 3.000000",
        ),
        ({"maxLimitRequestRatio": {"cpu": "2"}}, [{"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}], ""),
    ],
)
def test_a_limit_range_refuses_what_the_api_server_refuses(
    rule: dict[str, Any], containers: list[dict[str, dict[str, str]]], reason: str
) -> None:
    text = refused({"type": "Container", **rule}, *containers)
    assert text.endswith(reason) and bool(text) == bool(reason)


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "other", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "zone", "operator": "DoesNotExist"}, False),
        ({"key": "gpus", "operator": "Gt", "values": ["3"]}, True),
        ({"key": "gpus", "operator": "Lt", "values": ["4"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["3"]}, False),
        ({"key": "other", "operator": "Lt", "values": ["4"]}, False),
    ],
)
def test_required_affinity_chooses_nodes_by_their_labels(expression: dict[str, Any], fits: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert is_eligible({"affinity": required}, NodePlace("n1", {"zone": "a", "gpus": "4"})) is fits


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        ({}, False),
        ({"operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "operator": "Equal", "value": "no"}, False),
        ({"key": "tpu", "operator": "Exists"}, False),
    ],
)
def test_a_toleration_lets_a_pod_onto_a_tainted_node(toleration: dict[str, Any], fits: bool) -> None:
    taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
    assert is_eligible({"tolerations": [toleration]}, NodePlace("n1", {}, (taint,))) is fits
