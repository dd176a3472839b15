"""Webhook configurations: which Services must answer, and for which objects the API server asks them."""

from collections.abc import Iterator, Mapping
from typing import Any

from mlstack.model import ranks
from mlstack.model.kinds import Kind, Kinds
from mlstack.model.objects import Identity, KubeObject

Data = Mapping[str, Any]
_WRITES = {"*", "CREATE", "UPDATE"}


def services(found: KubeObject) -> tuple[Identity, ...]:
    """Give the Services without which the API server refuses what a webhook configuration asks for.

    Webhooks that are named by address, and those whose failure is ignored, need none.
    """
    named = [_service(webhook) for webhook in _strict(found)]
    return tuple(dict.fromkeys(one for one in named if one is not None))


def intercepts(found: KubeObject, other: KubeObject, kinds: Kinds) -> bool:
    """Tell whether the API server asks a webhook before it writes a custom resource.

    Objects of built-in kinds are left out on purpose: what a webhook itself needs in order to start is
    made of them.

    Args:
        found: the webhook configuration.
        other: the object.
        kinds: the kinds of the run.
    """
    if ranks.is_webhook(other.identity) or Kinds.builtin().lookup(other.api_version, other.kind):
        return False
    kind = kinds.lookup(other.api_version, other.kind)
    if kind is None:
        return False
    webhooks = [webhook for webhook in _strict(found) if _labels_match(webhook, other)]
    return any(_rule_matches(rule, kind) for webhook in webhooks for rule in _maps(webhook.get("rules")))


def _strict(found: KubeObject) -> Iterator[Data]:
    webhooks = _maps(found.data.get("webhooks")) if ranks.is_webhook(found.identity) else ()
    yield from (webhook for webhook in webhooks if webhook.get("failurePolicy", "Fail") == "Fail")


def _service(webhook: Data) -> Identity | None:
    config = webhook.get("clientConfig")
    service = config.get("service") if isinstance(config, Mapping) else None
    if not isinstance(service, Mapping):
        return None
    return Identity("", "Service", str(service.get("namespace")), str(service.get("name")))


def _labels_match(webhook: Data, other: KubeObject) -> bool:
    selector = webhook.get("objectSelector")
    wanted = (selector.get("matchLabels") if isinstance(selector, Mapping) else None) or {}
    return all(other.labels.get(key) == value for key, value in wanted.items())


def _rule_matches(rule: Data, kind: Kind) -> bool:
    resources = {str(one).partition("/")[0] for one in rule.get("resources") or () if "/" not in str(one)}
    return bool(
        _WRITES & set(rule.get("operations") or ())
        and {"*", kind.group} & set(rule.get("apiGroups") or ())
        and {"*", kind.plural} & resources
    )


def _maps(found: Any) -> Iterator[Data]:
    yield from (one for one in (found if isinstance(found, list) else ()) if isinstance(one, Mapping))
