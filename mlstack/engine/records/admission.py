"""Webhooks and policies before the records of an environment: waited for, and named when they refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from typing import Any

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.cluster.patient import PatientCluster
from mlstack.errors import ClusterError, ForbiddenError, InvalidError, TransientError
from mlstack.model import objects
from mlstack.model.clock import Clock
from mlstack.model.events import Event, OnEvent

WEBHOOK_S = 120.0
"""How long a webhook is waited for: it starts as its pod does, with an image to be pulled."""

_API = "admissionregistration.k8s.io/v1"
_KINDS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
_WEBHOOK = re.compile(r'admission webhook [`"]([^`"]+)[`"](?: denied the request)?:? ?')
_EXEMPT = f"let it pass what has the label {objects.MANAGED_BY_LABEL}={objects.MANAGER}"


def patient(cluster: Cluster, *, clock: Clock, on_event: OnEvent, timeout_s: float = inf) -> Cluster:
    """Give a cluster whose webhooks are waited for while they start, as with any other object."""
    return PatientCluster(
        cluster,
        clock=clock,
        told=lambda text: on_event(Event("waiting", None, text)),
        answered=True,
        webhook_s=WEBHOOK_S,
        timeout_s=timeout_s,
        still=lambda text: on_event(Event("still", None, text)),
    )


@dataclass(frozen=True, kw_only=True)
class Record:
    """Something that mlstack keeps of an environment.

    Attributes:
        ref: its address.
        what: what it is: `inventory`, `lock`.
        app: name of the app.
        environment: name of the environment.
    """

    ref: ObjectRef
    what: str
    app: str
    environment: str

    @contextmanager
    def explained(self, cluster: Cluster, *, so: str) -> Iterator[None]:
        """Say plainly that a record is what was refused, by which webhook, and what to do.

        Args:
            cluster: where the webhook is looked up.
            so: what follows from it for the run.

        Raises:
            ClusterError: what was raised inside, in better words.
        """
        try:
            yield
        except (ForbiddenError, InvalidError, TransientError) as error:
            webhook = _WEBHOOK.search(error.message)
            if webhook is None and not _is_policy(error):
                raise
            said = error.message.removeprefix(f"`{self.ref}`: ").removeprefix(f"`{self.ref}` is refused: ")
            who, hint = "a policy of the cluster", f"{_EXEMPT}, then run the command again"
            if webhook is not None:
                found = self._configuration(cluster, webhook[1])
                who, hint = f"admission webhook `{webhook[1]}`{_place(found)}", self._hint(error, found)
                said = said.replace(webhook[0], "", 1)
            is_silent = isinstance(error, TransientError)
            why = f"cannot be written: {who} {said}" if is_silent else f"is refused by {who}: {said}"
            error.message = f"the {self.what} of environment `{self.environment}`, `{self.ref}`, {why}; {so}"
            error.hint, error.args = hint, (error.message,)
            raise

    def _configuration(self, cluster: Cluster, webhook: str) -> Mapping[str, Any] | None:
        """Give the configuration of a webhook, None if nobody may look."""
        with suppress(ClusterError):
            for kind in _KINDS:
                for found in cluster.list(_API, kind).items:
                    if any(one.get("name") == webhook for one in found.get("webhooks") or ()):
                        return found
        return None

    def _hint(self, error: ClusterError, found: Mapping[str, Any] | None) -> str:
        again = "then run the command again"
        if isinstance(error, TransientError) and found is None:
            return f"see that the service behind the webhook runs, or {_EXEMPT} (objectSelector), {again}"
        if found is None or not self._is_own(found):
            wait = "wait until its service runs, or " if isinstance(error, TransientError) else ""
            return f"{wait}{_EXEMPT} (objectSelector), {again}"
        name = f"{found['kind'].lower()} {found['metadata']['name']}"
        return (
            f"it is a webhook of this environment: {_EXEMPT} (objectSelector); to get on now, take it away:"
            f" kubectl delete {name}; the next apply sets it up again"
        )

    def _is_own(self, found: Mapping[str, Any]) -> bool:
        marks = objects.marks(app=self.app, environment=self.environment, component="")
        labels = found["metadata"].get("labels") or {}
        return all(labels.get(key) == marks[key] for key in (objects.APP_LABEL, objects.ENVIRONMENT_LABEL))


def _is_policy(error: ClusterError) -> bool:
    return "ValidatingAdmissionPolicy" in error.message or (
        isinstance(error, ForbiddenError) and error.why == "policy"
    )


def _place(found: Mapping[str, Any] | None) -> str:
    return f" ({found['kind']} `{found['metadata']['name']}`)" if found is not None else ""
