"""Wait at the gates of a run: until what others depend on works, and a webhook's Service answers."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from mlstack.cluster.api import Cluster, ObjectRef
from mlstack.engine.waiting.judge import SERVICE_LABEL, has_endpoint
from mlstack.engine.waiting.logs import Logs
from mlstack.engine.waiting.lookout import Lookout
from mlstack.engine.waiting.ready import until_ready
from mlstack.errors import ForbiddenError, NotReadyError, ObjectNotFoundError
from mlstack.model.clock import Clock
from mlstack.model.events import STILL_S, Event, OnEvent
from mlstack.model.objects import Identity, KubeObject
from mlstack.model.readiness.assess import assess
from mlstack.model.readiness.base import Facts
from mlstack.model.readiness.terms import Terms
from mlstack.model.readyrules import ReadyRules

TermsOf = Callable[[KubeObject], Terms]

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_SAY_AFTER_S = 2.0


class Gates:
    """Waits for one run.

    Args:
        cluster: where to look.
        clock: for pauses, and to give up; ends every wait once the run is stopped.
        on_event: told what is waited for.
        terms: on what terms an object is waited for.
        rules: the app's own readiness rules.
        secrets: texts that must stand in no reason.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        clock: Clock,
        on_event: OnEvent,
        terms: TermsOf,
        rules: ReadyRules | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        """Hold the parts."""
        self._rules, self._logs = rules, Logs(cluster, secrets)
        self._cluster, self._clock, self._on_event, self._terms = cluster, clock, on_event, terms

    def ready(self, name: str, wanted: Sequence[KubeObject]) -> None:
        """Return when all these objects work, and Jobs among them have ended well.

        Raises:
            NotReadyError: one failed for good, or its time is over; names what is not ready, with the reason.
        """
        terms = {one.identity: self._terms(one) for one in wanted}
        looked_at = [one for one in wanted if terms[one.identity].policy != "none"]
        try:
            lookout = Lookout(self._cluster, looked_at, clock=self._clock, rules=self._rules, logs=self._logs)
            until_ready(lookout, terms, clock=self._clock, on_event=self._on_event)
            for one in looked_at:
                if (one.group, one.kind) == ("batch", "Job"):
                    self._ended(one, terms[one.identity].timeout_s)
        except NotReadyError as error:
            error.message = f"{name} is not ready, and other objects depend on it: {error.message}"
            error.args = (error.message,)
            raise

    def endpoint(self, service: Identity, webhooks: Sequence[KubeObject]) -> None:
        """Return when a Service leads to a pod that is ready.

        Args:
            service: the Service.
            webhooks: what is set up after that; it says how long to wait.

        Raises:
            NotReadyError: it does not in time.
        """
        timeout_s = max(self._terms(one).timeout_s for one in webhooks)
        told = Event("pending", service, "has no ready endpoint yet; its webhook is set up after that")
        if not self._until(lambda: self._has_endpoint(service), timeout_s, told):
            raise NotReadyError(
                f"`{service}` has no ready endpoint after {timeout_s:.0f} s, so its webhook is not set"
                " up: the API server would refuse all that it asks it about",
                hint=f"kubectl get endpointslices -n {service.namespace} -l {SERVICE_LABEL}={service.name}",
            )

    def _has_endpoint(self, service: Identity) -> bool:
        try:
            return has_endpoint(self._cluster, service.namespace, service.name)
        except (ForbiddenError, ObjectNotFoundError):  # whoever may not look cannot wait either
            return True

    def _ended(self, job: KubeObject, timeout_s: float) -> None:
        def ended() -> bool:
            live = self._cluster.get(ObjectRef.of(job.data))
            found = assess(Facts(data=live or {}, now_s=self._clock.now_s()), self._rules)
            if live is None or found.state == "failed":
                raise NotReadyError(f"`{job.identity}` failed: {found.reason or 'it is gone'}")
            return found.state in ("done", "suspended")

        told = Event("pending", job.identity, "has not ended yet, and other objects depend on it")
        if not self._until(ended, timeout_s, told):
            raise NotReadyError(f"`{job.identity}` did not end within {timeout_s:.0f} s")

    def _until(self, holds: Callable[[], bool], timeout_s: float, told: Event) -> bool:
        begun_s = self._clock.now_s()
        pause, due_s = _FIRST_PAUSE_S, _SAY_AFTER_S
        while not holds():
            waited_s = self._clock.now_s() - begun_s
            if waited_s >= timeout_s:
                return False
            if waited_s >= due_s:
                self._on_event(told if due_s == _SAY_AFTER_S else replace(told, kind="still"))
                due_s = waited_s + STILL_S
            self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
        return True
