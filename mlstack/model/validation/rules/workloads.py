"""Rules on what makes pods: Deployments, StatefulSets, DaemonSets, Jobs, CronJobs."""

from __future__ import annotations

from mlstack.model.names import nearest
from mlstack.model.validation import syntax
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.rules.cron import wrong_schedule
from mlstack.model.validation.rules.shared import amount, count_or_share, fits, labels, selector, selects
from mlstack.model.validation.rules.table import TEMPLATES, Subject, rule
from mlstack.model.validation.rules.timezones import TIME_ZONES

_SELECTING = ("apps/DaemonSet", "apps/Deployment", "apps/ReplicaSet", "apps/StatefulSet")
_NOT_NEGATIVE = ("minReadySeconds", "replicas", "revisionHistoryLimit")
_JOB_NUMBERS = (
    "activeDeadlineSeconds",
    "backoffLimit",
    "backoffLimitPerIndex",
    "completions",
    "maxFailedIndexes",
    "parallelism",
    "ttlSecondsAfterFinished",
)
_STRICT_SERVICE_NAMES = 36
_MAX_INDEXED = 100_000


@rule(*_SELECTING)
def selector_chooses_the_template(subject: Subject) -> Problems:
    """What makes pods must recognise them: its selector is not empty and matches the template's labels."""
    chosen = subject.spec.at("selector")
    yield from selector(chosen)
    if not chosen:
        return
    if not chosen.at("matchLabels").names and not chosen.at("matchExpressions").items:
        yield chosen.says("must not be empty")
        return
    offered = subject.template.at("metadata", "labels")
    given = offered.value if isinstance(offered.value, dict) else {}
    if not selects(chosen, given):
        yield offered.says(f"must match the selector {shown(chosen.value)}, got {shown(given)}")


@rule(*(kind for kind in TEMPLATES if kind != "Pod"))
def template_labels_fit(subject: Subject) -> Problems:
    """Labels and annotations of the template have the syntax of labels and annotations."""
    yield from labels(subject.template.at("metadata", "labels"))


@rule(*_SELECTING)
def numbers_are_not_negative(subject: Subject) -> Problems:
    """Replicas, seconds and history are 0 and up."""
    for name in _NOT_NEGATIVE:
        yield from subject.spec.at(name).between(0)


@rule(*_SELECTING, "ReplicationController")
def pods_always_restart(subject: Subject) -> Problems:
    """Pods that are kept running restart always and have no deadline."""
    spec = subject.template.at("spec")
    policy = spec.at("restartPolicy")
    if policy.text not in ("", "Always"):
        yield policy.says(f"must be `Always` here, got {shown(policy.value)}")
    if spec.at("activeDeadlineSeconds"):
        yield spec.at("activeDeadlineSeconds").says("must not be set for pods that are kept running")


@rule("apps/Deployment")
def deployment_rolls(subject: Subject) -> Problems:
    """A rolling update can proceed, and its deadline comes after a pod is counted as ready."""
    strategy = subject.spec.at("strategy")
    rolling = strategy.at("rollingUpdate")
    surge, unavailable = rolling.at("maxSurge"), rolling.at("maxUnavailable")
    if strategy.at("type").text == "Recreate" and rolling:
        yield rolling.says("must not be set with `type: Recreate`")
    yield from count_or_share(surge, at_most_all=False)
    yield from count_or_share(unavailable)
    if amount(surge) == 0 and amount(unavailable) == 0:
        yield unavailable.says("must not be 0 when `maxSurge` is 0")
    deadline, ready = subject.spec.at("progressDeadlineSeconds"), subject.spec.at("minReadySeconds")
    yield from deadline.between(0)
    limit = 600 if deadline.number is None else deadline.number
    if limit <= (ready.number or 0):
        yield deadline.says(f"must be above `minReadySeconds` ({ready.number or 0}), got {limit}")


@rule("apps/DaemonSet")
def daemon_set_rolls(subject: Subject) -> Problems:
    """A rolling update replaces pods either before or after it stops them."""
    rolling = subject.spec.at("updateStrategy", "rollingUpdate")
    if subject.spec.at("updateStrategy", "type").text == "OnDelete":
        return
    surge, unavailable = rolling.at("maxSurge"), rolling.at("maxUnavailable")
    for field in (surge, unavailable):
        yield from count_or_share(field)
    surges = bool(amount(surge))
    stops = bool(amount(unavailable)) if unavailable else True
    if surges and stops:
        yield surge.says("must not be set unless `maxUnavailable` is 0")
    elif rolling and not surges and not stops:
        yield unavailable.says("must not be 0 when `maxSurge` is 0")


@rule("apps/StatefulSet")
def stateful_set_fits(subject: Subject) -> Problems:
    """A StatefulSet's Service is a DNS label, its updates have a partition of 0 and up."""
    name = subject.spec.at("serviceName")
    if subject.minor >= _STRICT_SERVICE_NAMES:
        yield from fits(name, syntax.label)
    strategy = subject.spec.at("updateStrategy")
    if strategy.at("type").text == "OnDelete" and strategy.at("rollingUpdate"):
        yield strategy.at("rollingUpdate").says("must not be set with `type: OnDelete`")
    yield from strategy.at("rollingUpdate", "partition").between(0)
    yield from subject.spec.at("ordinals", "start").between(0)


@rule("batch/Job")
def job_fits(subject: Subject) -> Problems:
    """A Job's numbers are 0 and up, and its pods end."""
    yield from _job_spec(subject.spec)
    if subject.spec.at("selector") and subject.spec.at("manualSelector").value is not True:
        yield subject.spec.at("selector").says("is made by the server; leave it out")


def _job_spec(spec: Field) -> Problems:
    for name in _JOB_NUMBERS:
        yield from spec.at(name).between(0)
    policy = spec.at("template", "spec", "restartPolicy")
    allowed = ("Never",) if spec.at("podFailurePolicy") else ("OnFailure", "Never")
    if policy.text not in allowed:
        expected = " or ".join(f"`{one}`" for one in allowed)
        seen = f", got {shown(policy.value)}" if policy.text else ""
        yield policy.says(f"must be {expected} in a Job{seen}")
    yield from _indexed(spec)


def _indexed(spec: Field) -> Problems:
    if spec.at("completionMode").text == "Indexed":
        if spec.at("parallelism"):
            # With neither of both there is one of each.
            yield from spec.at("completions").needed()
        yield from spec.at("parallelism").between(0, _MAX_INDEXED)
        return
    for name in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if spec.at(name):
            yield spec.at(name).says("needs `completionMode: Indexed`")


@rule("batch/CronJob")
def cron_job_fits(subject: Subject) -> Problems:
    """A CronJob has a schedule that can be read, a known time zone and a Job that ends."""
    schedule, zone = subject.spec.at("schedule"), subject.spec.at("timeZone")
    yield from schedule.needed()
    wrong = wrong_schedule(schedule.text) if schedule.text else None
    if wrong:
        yield schedule.says(wrong)
    if zone and zone.text not in TIME_ZONES:
        near = nearest(zone.text, TIME_ZONES)
        hint = f", did you mean `{near}`?" if near else ""
        yield zone.says(f"must be a time zone such as `Europe/Berlin`, got {shown(zone.value)}{hint}")
    for name in ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from subject.spec.at(name).between(0)
    yield from _job_spec(subject.spec.at("jobTemplate", "spec"))
