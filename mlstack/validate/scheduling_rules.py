"""What Kueue and Volcano refuse in their webhooks beyond the definitions of their kinds."""

from __future__ import annotations

from collections import Counter

from mlstack.objects.resources import quantity
from mlstack.validate.checks import (
    OperatorRules,
    at,
    between,
    choice,
    fits,
    joined,
    labels,
    name,
    needed,
    not_negative,
    selector,
)
from mlstack.validate.formats import Field, Problems, label_value, qualified_name, shown

# --- Kueue ---

_KUEUE = "kueue.x-k8s.io"
_MAX_FLAVORS = 256
_MAX_COMBINATIONS = 512


def _cluster_queue(spec: Field) -> Problems:
    has_cohort = bool(spec.at("cohortName").text or spec.at("cohort").text)
    yield from _quotas(spec, "cohortName" if not spec.at("cohort") else "cohort", has_parent=has_cohort)
    groups = spec.at("resourceGroups").items
    for group in groups:
        for quota in group.all("flavors[].resources[]"):
            lent, nominal = quantity(quota.at("lendingLimit").value), quantity(quota.at("nominalQuota").value)
            if lent is not None and nominal is not None and lent > nominal:
                yield quota.at("lendingLimit").says(f"must be at most `nominalQuota` ({nominal:f})")
    flavors = [flavor.text for flavor in spec.all("resourceGroups[].flavors[].name")]
    for flavor in spec.all("admissionChecksStrategy.admissionChecks[].onFlavors[]"):
        if flavor.text not in flavors:
            yield flavor.not_as(f"one of the flavors {joined(flavors)}")
    preemption, fungibility = spec.at("preemption"), spec.at("flavorFungibility")
    borrowing = preemption.at("borrowWithinCohort", "policy").text
    if preemption.at("reclaimWithinCohort").text in ("", "Never") and borrowing not in ("", "Never"):
        yield preemption.says("must not have `borrowWithinCohort` with `reclaimWithinCohort: Never`")
    if fungibility.at("preference"):
        yield from choice("TryNextFlavor")(fungibility.at("whenCanBorrow"))
        yield from choice("TryNextFlavor", unset=True)(fungibility.at("whenCanPreempt"))


def _quotas(spec: Field, parent: str, *, has_parent: bool) -> Problems:
    """Resources and flavors stand once, quotas in the order of the resources; limits need a cohort."""
    groups = spec.at("resourceGroups").items
    for what, path in (("resource", "coveredResources[]"), ("flavor", "flavors[].name")):
        times = Counter(field.text for group in groups for field in group.all(path))
        for field in (field for group in groups for field in group.all(path)):
            if field.text and times[field.text] > 1:
                yield field.says(f"{what} {shown(field.value)} is used twice")
        if sum(times.values()) > _MAX_FLAVORS:
            yield spec.at("resourceGroups").says(f"must have at most {_MAX_FLAVORS} {what}s together")
    for group in groups:
        yield from at("coveredResources[]", name(qualified_name))(group)
        covered = [resource.text for resource in group.at("coveredResources").items]
        if len(group.all("flavors[].resources[]")) > _MAX_COMBINATIONS:
            yield group.says(f"must have at most {_MAX_COMBINATIONS} quotas")
        for flavor in group.at("flavors").items:
            for resource, quota in zip(covered, flavor.at("resources").items, strict=False):
                if quota.at("name").text != resource:
                    yield quota.at("name").not_as(f"`{resource}`, in the order of `coveredResources`")
        for quota in group.all("flavors[].resources[]"):
            yield from at("nominalQuota|borrowingLimit|lendingLimit", not_negative)(quota)
            for limit in quota.all("borrowingLimit|lendingLimit?") if not has_parent else ():
                yield limit.says(f"must not be set without `spec.{parent}`")
    weight = quantity(spec.at("fairSharing", "weight").value)
    if weight is not None and (weight < 0 or 0 < weight <= quantity("1n")):  # type: ignore[operator]
        yield spec.at("fairSharing", "weight").not_as("0 or above 1n")


def _cohort(spec: Field) -> Problems:
    parent = "parent" if spec.at("parent") else "parentName"
    yield from _quotas(spec, parent, has_parent=bool(spec.at(parent).text))


def _taints(taints: Field) -> Problems:
    keys = Counter((taint.at("key").text, taint.at("effect").text) for taint in taints.items)
    for taint in taints.items:
        yield from name(qualified_name)(taint.at("key"))
        yield from fits(label_value)(taint.at("value"))
        if keys[taint.at("key").text, taint.at("effect").text] > 1:
            yield taint.says(f"taint {shown(taint.at('key').value)} is used twice with the same effect")


def _toleration(toleration: Field) -> Problems:
    operator = toleration.at("operator").text
    yield from fits(qualified_name)(toleration.at("key"))
    if not toleration.at("key").text and operator != "Exists":
        yield toleration.at("operator").not_as("`Exists` without a key")
    if operator == "Exists" and toleration.at("value").text:
        yield toleration.at("value").says("must not be set with `operator: Exists`")
    if toleration.at("tolerationSeconds") and toleration.at("effect").text != "NoExecute":
        yield toleration.at("effect").not_as("`NoExecute` with `tolerationSeconds`")


# --- Volcano ---

_EVENTS = (
    "*",
    "PodFailed",
    "PodEvicted",
    "PodPending",
    "Unknown",
    "TaskCompleted",
    "TaskFailed",
    "JobUpdated",
)
_ACTIONS = (
    *("AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob"),
    *("CompleteJob", "ResumeJob"),
)
_HIERARCHY = ("volcano.sh/hierarchy", "volcano.sh/hierarchy-weights")


def _topology(topology: Field) -> Problems:
    if topology.at("highestTierAllowed") and topology.at("highestTierName").text:
        yield topology.says("must not have both `highestTierAllowed` and `highestTierName`")


def _queue(root: Field) -> Problems:
    """What is guaranteed is deserved, and what is deserved fits into the capability."""
    spec, own_name = root.at("spec"), root.at("metadata", "name").text
    for amounts in (spec.at("capability"), spec.at("deserved"), spec.at("guarantee", "resource")):
        for _, amount in amounts.entries:
            yield from not_negative(amount)
    for resource, guaranteed in spec.at("guarantee", "resource").entries:
        deserved = spec.at("deserved", resource)
        if (quantity(deserved.value) or 0) < (quantity(guaranteed.value) or 0):
            yield deserved.says(f"must be at least what is guaranteed ({guaranteed.value})")
    for resource, deserved in spec.at("deserved").entries:
        most = quantity(spec.at("capability", resource).value)
        if most is not None and (quantity(deserved.value) or 0) > most:
            yield deserved.says(f"must be at most the `capability` ({spec.at('capability', resource).value})")
    if own_name and spec.at("parent").text == own_name:
        yield spec.at("parent").says("must be another queue")
    yield from _hierarchy(*(root.at("metadata", "annotations", key) for key in _HIERARCHY))


def _hierarchy(path: Field, weights: Field) -> Problems:
    if not path.text and not weights.text:
        return
    if path.text.count("/") != weights.text.count("/"):
        yield weights.says(f"must have as many parts as `{_HIERARCHY[0]}`, got {shown(weights.value)}")
    for weight in weights.text.split("/"):
        if not weight.replace(".", "", 1).isdecimal() or float(weight) <= 0:
            yield weights.not_as("numbers above 0 between slashes")
            return


def _volcano_job(root: Field) -> Problems:
    spec, tasks = root.at("spec"), root.at("spec", "tasks")
    yield from needed(tasks)
    yield from fits(qualified_name)(root.at("metadata", "name"))
    replicas, names = 0, [task.at("name").text for task in tasks.items]
    for index, task in enumerate(tasks.items):
        count = task.at("replicas").number
        replicas += 1 if count is None else count
        if names[index] and names[index] in names[:index]:
            yield task.at("name").says(f"task {shown(names[index])} is used twice")
        yield from between(0, 1 if count is None else count)(task.at("minAvailable"))
        if wrong := qualified_name(
            f"{root.at('metadata', 'name').text}-{names[index] or 'default0'}-{index}"
        ):
            yield task.at("name").says(f"name of its pod: {wrong}")
        yield from _policies(task.at("policies"))
        for dependency in task.all("dependsOn.name[]"):
            if dependency.text not in names:
                yield dependency.not_as(f"one of the tasks {joined(names)}")
    if (least := spec.at("minAvailable")) and (least.number or 0) > replicas:
        yield least.says(f"must be at most the tasks' replicas together ({replicas}), got {least.number}")
    yield from _policies(spec.at("policies"))
    paths = Counter(path.text for path in spec.all("volumes[].mountPath"))
    for volume in spec.at("volumes").items:
        path, claim = volume.at("mountPath"), volume.at("volumeClaim")
        yield from needed(path)
        if path.text and paths[path.text] > 1:
            yield path.says(f"mount path {shown(path.value)} is used twice")
        if bool(claim) == bool(volume.at("volumeClaimName").text):
            yield volume.says("needs either `volumeClaim` or `volumeClaimName`")


def _policies(policies: Field) -> Problems:
    """A policy is for events or an exit code; each stands once, and `*` alone."""
    events: Counter[str] = Counter()
    for policy in policies.items:
        own = [field for field in (policy.at("event"), *policy.at("events").items) if field.text]
        code = policy.at("exitCode")
        if bool(own) == bool(code):
            yield policy.says("needs either `event` or `exitCode`")
        for event in own:
            yield from choice(*_EVENTS)(event)
        if own:
            yield from choice(*_ACTIONS)(policy.at("action"))
        if code.number == 0:
            yield code.says("must not be 0")
        events.update({event.text for event in own} or ([f"exit code {code.number}"] if code else ()))
    for occasion, times in events.items():
        if times > 1:
            yield policies.says(f"{shown(occasion)} stands in two policies")
    if "*" in events and any(not occasion.startswith(("*", "exit code")) for occasion in events):
        yield policies.says("must not have other events beside `*`")


# --- the table ---

_KUEUE_SOURCE = "kubernetes-sigs/kueue v0.19.2, pkg/webhooks"
_VOLCANO_SOURCE = "volcano-sh/volcano v1.15.1, pkg/webhooks/admission"
SCHEDULING_RULES = (
    OperatorRules(
        "Kueue 0.19",
        f"{_KUEUE_SOURCE}/clusterqueue_webhook.go",
        (f"{_KUEUE}/ClusterQueue",),
        (at("spec", _cluster_queue, at("namespaceSelector", selector)),),
    ),
    OperatorRules(
        "Kueue 0.19", f"{_KUEUE_SOURCE}/cohort_webhook.go", (f"{_KUEUE}/Cohort",), (at("spec", _cohort),)
    ),
    OperatorRules(
        "Kueue 0.19",
        f"{_KUEUE_SOURCE}/resourceflavor_webhook.go",
        (f"{_KUEUE}/ResourceFlavor",),
        (
            at("spec.nodeLabels", labels),
            at("spec.nodeTaints", _taints),
            at("spec.tolerations[]", _toleration),
        ),
    ),
    OperatorRules(
        "Volcano 1.15",
        f"{_VOLCANO_SOURCE}/podgroups/validate",
        ("scheduling.volcano.sh/PodGroup",),
        (at("spec.networkTopology", _topology), at("spec.subGroupPolicy[].networkTopology", _topology)),
    ),
    OperatorRules(
        "Volcano 1.15", f"{_VOLCANO_SOURCE}/queues/validate", ("scheduling.volcano.sh/Queue",), (_queue,)
    ),
    OperatorRules(
        "Volcano 1.15",
        f"{_VOLCANO_SOURCE}/jobs/validate",
        ("batch.volcano.sh/Job",),
        (_volcano_job, at("spec.networkTopology", _topology)),
    ),
)
