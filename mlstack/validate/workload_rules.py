"""What the API server demands of what makes pods, scales them or stores for them: a table of rules."""

from __future__ import annotations

from collections.abc import Mapping

from mlstack.objects.resources import quantity
from mlstack.validate.checks import (
    Table,
    absolute_path,
    amount_of,
    at,
    between,
    fits,
    joined,
    labels,
    name,
    needed,
    pod_count,
    says,
    selector,
    selects,
)
from mlstack.validate.formats import (
    Field,
    Problems,
    Severity,
    label,
    qualified_name,
    schedule,
    shown,
    subdomain,
    time_zones,
)
from mlstack.validate.schema import did_you_mean

# --- autoscalers and disruption budgets ---

_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_TARGETS = {"AverageValue": "averageValue", "Utilization": "averageUtilization", "Value": "value"}
_STRICT_TARGETS = 36
"""Seen to refuse: 1.36. Older servers take an autoscaler that cannot find what it scales."""


def _autoscaler(spec: Field) -> Problems:
    low, high = spec.at("minReplicas").number, spec.at("maxReplicas")
    if low is not None and high.number is not None and 1 <= high.number < low:
        yield high.says(f"must be at least `minReplicas` ({low}), got {high.number}")
    version = spec.at("scaleTargetRef", "apiVersion")
    group, slash, _ = version.text.partition("/")
    if not (group and slash):
        severity: Severity = "error" if spec.subject.minor >= _STRICT_TARGETS else "warning"
        yield version.says(f"must have a group, as `apps/v1`, got {shown(version.text)}", severity)


def _metric(metric: Field) -> Problems:
    kind = metric.at("type").text
    source = metric.at(_SOURCES.get(kind, ""))
    if kind not in _SOURCES:
        return
    yield from needed(source)
    for other in metric.names:
        if other not in ("type", source.keys[-1]):
            yield metric.at(other).says(f"must not be set with `type: {kind}`")
    if source:
        yield from at("target", at("type", needed), at("averageUtilization", between(1)), _target)(source)
        if kind in ("ContainerResource", "Resource"):
            yield from needed(source.at("name"))


def _target(target: Field) -> Problems:
    if target.at("type").text in _TARGETS:
        yield from needed(target.at(_TARGETS[target.at("type").text]))


def _policies(policies: Field) -> Problems:
    if policies.value == []:
        yield policies.says("is required")


def _budget(spec: Field) -> Problems:
    if spec.at("minAvailable"):
        yield from says("must not be set together with `minAvailable`")(spec.at("maxUnavailable"))


# --- what makes pods: Deployments, StatefulSets, DaemonSets, Jobs, CronJobs ---

# Where the kinds that make pods keep the template of a pod; a Pod is one itself.
TEMPLATES: Mapping[str, str] = {
    "Pod": "",
    "PodTemplate": "template",
    "ReplicationController": "spec.template",
    "apps/DaemonSet": "spec.template",
    "apps/Deployment": "spec.template",
    "apps/ReplicaSet": "spec.template",
    "apps/StatefulSet": "spec.template",
    "batch/CronJob": "spec.jobTemplate.spec.template",
    "batch/Job": "spec.template",
}
_SELECTING = ("apps/DaemonSet", "apps/Deployment", "apps/ReplicaSet", "apps/StatefulSet")
_STRICT_SERVICE_NAMES = 36
_MAX_INDEXED = 100_000


def _chooses_template(spec: Field) -> Problems:
    """What makes pods must recognise them: its selector is not empty and matches the template's labels."""
    chosen, offered = spec.at("selector"), spec.at("template", "metadata", "labels")
    if not chosen:
        return
    if not chosen.at("matchLabels").names and not chosen.at("matchExpressions").items:
        yield chosen.says("must not be empty")
        return
    given = offered.value if isinstance(offered.value, dict) else {}
    if not selects(chosen, given):
        yield offered.says(f"must match the selector {shown(chosen.value)}, got {shown(given)}")


def _restarts_always(policy: Field) -> Problems:
    if policy.text not in ("", "Always"):
        yield policy.says(f"must be `Always` here, got {shown(policy.value)}")


def _deployment(spec: Field) -> Problems:
    """A rolling update can proceed, and its deadline comes after a pod is counted as ready."""
    strategy = spec.at("strategy")
    rolling = strategy.at("rollingUpdate")
    surge, unavailable = rolling.at("maxSurge"), rolling.at("maxUnavailable")
    if strategy.at("type").text == "Recreate" and rolling:
        yield rolling.says("must not be set with `type: Recreate`")
    yield from pod_count(most=None)(surge)
    yield from pod_count()(unavailable)
    if amount_of(surge) == 0 and amount_of(unavailable) == 0:
        yield unavailable.says("must not be 0 when `maxSurge` is 0")
    deadline, ready = spec.at("progressDeadlineSeconds"), spec.at("minReadySeconds").number or 0
    yield from between(0)(deadline)
    limit = 600 if deadline.number is None else deadline.number
    if limit <= ready:
        yield deadline.says(f"must be above `minReadySeconds` ({ready}), got {limit}")


def _daemon_set(strategy: Field) -> Problems:
    """A rolling update replaces pods either before or after it stops them."""
    rolling = strategy.at("rollingUpdate")
    if strategy.at("type").text == "OnDelete":
        return
    surge, unavailable = rolling.at("maxSurge"), rolling.at("maxUnavailable")
    yield from at("maxSurge|maxUnavailable", pod_count())(rolling)
    surges = bool(amount_of(surge))
    stops = bool(amount_of(unavailable)) if unavailable else True
    if surges and stops:
        yield surge.says("must not be set unless `maxUnavailable` is 0")
    elif rolling and not surges and not stops:
        yield unavailable.says("must not be 0 when `maxSurge` is 0")


def _stateful_set(spec: Field) -> Problems:
    if spec.subject.minor >= _STRICT_SERVICE_NAMES:
        yield from fits(label)(spec.at("serviceName"))
    strategy = spec.at("updateStrategy")
    if strategy.at("type").text == "OnDelete":
        yield from says("must not be set with `type: OnDelete`")(strategy.at("rollingUpdate"))


def _job(spec: Field) -> Problems:
    policy = spec.at("template", "spec", "restartPolicy")
    allowed = ("Never",) if spec.at("podFailurePolicy") else ("OnFailure", "Never")
    if policy.text not in allowed:
        got = f", got {shown(policy.value)}" if policy.text else ""
        yield policy.says(f"must be {joined(allowed, ' or ')} in a Job{got}")
    if spec.at("completionMode").text == "Indexed":
        if spec.at("parallelism"):
            # With neither of both there is one of each.
            yield from needed(spec.at("completions"))
        yield from between(0, _MAX_INDEXED)(spec.at("parallelism"))
    else:
        indexed = "backoffLimitPerIndex|maxFailedIndexes|successPolicy"
        yield from at(indexed, says("needs `completionMode: Indexed`"))(spec)


_JOB_NUMBERS = (
    "activeDeadlineSeconds|backoffLimit|backoffLimitPerIndex|completions|maxFailedIndexes|parallelism"
    "|ttlSecondsAfterFinished"
)
_JOB = at("", at(_JOB_NUMBERS, between(0)), _job)


def _own_selector(spec: Field) -> Problems:
    if spec.at("manualSelector").value is not True:
        yield from says("is made by the server; leave it out")(spec.at("selector"))


def _cron_job_name(own_name: Field) -> Problems:
    # Its Jobs append a time.
    if len(own_name.text) > 52:
        yield own_name.says(f"must have at most 52 characters, got {len(own_name.text)}")


def _time_zone(zone: Field) -> Problems:
    if zone and zone.text not in time_zones():
        hint = did_you_mean(zone.text, time_zones())
        yield zone.says(f"must be a time zone such as `Europe/Berlin`, got {shown(zone.value)}{hint}")


# --- storage: claims, volumes and classes ---

_NO_SOURCE = frozenset(
    {"accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy"}
    | {"storageClassName", "volumeAttributesClassName", "volumeMode"}
)


def _access_modes(modes: Field) -> Problems:
    yield from needed(modes)
    if len(modes.items) > 1 and "ReadWriteOncePod" in [mode.text for mode in modes.items]:
        yield modes.says("must not have `ReadWriteOncePod` together with another mode")


def _storage(storage: Field) -> Problems:
    amount = quantity(storage.value)
    if not storage:
        yield storage.says("is required")
    if amount is not None and amount <= 0:
        yield storage.says(f"must be above 0, got {shown(storage.value)}")


CLAIM = at(
    "",
    at("accessModes", _access_modes),
    at("selector", selector),
    at("storageClassName", fits(subdomain)),
    at("resources.requests.storage", _storage),
)


def _volume(spec: Field) -> Problems:
    """A volume has a size, access modes and one source."""
    yield from needed(spec.at("capacity"))
    if spec.at("capacity").names:
        yield from _storage(spec.at("capacity", "storage"))
    for resource, amount in spec.at("capacity").entries:
        if resource != "storage" and spec.at("capacity").names:
            yield amount.says("must be `storage`, the only resource of a volume")
    sources = [source for source in spec.names if source not in _NO_SOURCE]
    if len(sources) != 1:
        yield spec.says(f"must have one source, got {joined(sources, ' and ') or 'none'}")


# --- the table ---

_KEPT_RUNNING = at(
    "spec.template.spec",
    at("restartPolicy", _restarts_always),
    at("activeDeadlineSeconds", says("must not be set for pods that are kept running")),
)
WORKLOAD_RULES: Table = (
    (
        ("autoscaling/HorizontalPodAutoscaler",),
        (
            at("spec.minReplicas|maxReplicas|targetCPUUtilizationPercentage", between(1)),
            at("spec.scaleTargetRef.kind|name", needed),
            at("spec", _autoscaler),
            at("spec.metrics[]", at("type", needed), _metric),
            at(
                "spec.behavior.scaleUp|scaleDown",
                at("stabilizationWindowSeconds", between(0, 3600)),
                at("policies", _policies),
                at("policies[]", at("type", needed), at("value", between(1))),
                at("policies[].periodSeconds", between(1, 1800)),
            ),
        ),
    ),
    (
        ("policy/PodDisruptionBudget",),
        (
            at("spec", _budget, at("minAvailable|maxUnavailable", pod_count())),
            at("spec.selector", selector),
        ),
    ),
    (
        _SELECTING,
        (
            at("spec.selector", selector),
            at("spec", _chooses_template),
            at("spec.minReadySeconds|replicas|revisionHistoryLimit", between(0)),
        ),
    ),
    ((*_SELECTING, "ReplicationController"), (_KEPT_RUNNING,)),
    (("apps/Deployment",), (at("spec", _deployment),)),
    (("apps/DaemonSet",), (at("spec.updateStrategy", _daemon_set),)),
    (
        ("apps/StatefulSet",),
        (
            at("spec", _stateful_set),
            at("spec.updateStrategy.rollingUpdate.partition", between(0)),
            at("spec.ordinals.start", between(0)),
            # Older versions leave that to the claim itself.
            at("spec.volumeClaimTemplates[].spec", CLAIM),
        ),
    ),
    (("batch/Job",), (at("spec", _JOB, _own_selector),)),
    (
        ("batch/CronJob",),
        (
            at("metadata.name", _cron_job_name),
            at("spec.schedule", name(schedule)),
            at("spec.timeZone", _time_zone),
            at("spec.startingDeadlineSeconds|successfulJobsHistoryLimit|failedJobsHistoryLimit", between(0)),
            at("spec.jobTemplate.spec", _JOB),
        ),
    ),
    (("PersistentVolumeClaim",), (at("spec", CLAIM),)),
    (
        ("PersistentVolume",),
        (
            at("spec", _volume, at("accessModes", _access_modes), at("storageClassName", fits(subdomain))),
            at("spec.nfs?", at("server|path", needed), at("path", fits(absolute_path))),
        ),
    ),
    (
        ("storage.k8s.io/StorageClass",),
        (at("provisioner", name(lambda text: qualified_name(text.lower()))),),
    ),
    *(
        ((kind,), (at(f"{path}.metadata.labels", labels),))
        for kind, path in TEMPLATES.items()
        if kind != "Pod"
    ),
)
