"""Wait at the gates of a run: until what others depend on works, and a webhook's Service answers."""

from collections.abc import Callable, Sequence

from mlstack.cluster.api import Cluster
from mlstack.engine.inspect import inspect
from mlstack.errors import ForbiddenError, NotReadyError, ObjectNotFoundError
from mlstack.model.clock import Clock
from mlstack.model.objects import Identity, KubeObject

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_SERVICE_LABEL = "kubernetes.io/service-name"


class Gates:
    """Waits for one run.

    Args:
        cluster: where to look.
        clock: for pauses, and to give up.
        timeout_s: how long one gate may take.
    """

    def __init__(self, cluster: Cluster, *, clock: Clock, timeout_s: float) -> None:
        """Hold the parts."""
        self._cluster, self._clock, self._timeout_s = cluster, clock, timeout_s

    def ready(self, name: str, wanted: Sequence[KubeObject]) -> None:
        """Return when all these objects work.

        Raises:
            NotReadyError: one failed for good, or the time is over; names what is not ready, with the reason.
        """
        said: list[str] = []

        def works() -> bool:
            seen, _ = inspect(wanted, self._cluster, now_s=self._clock.now_s(), wait_for_load_balancer=False)
            said[:] = [
                f"`{one.wanted.identity}`: {one.readiness.reason or one.readiness.state}"
                for one in seen
                if not one.readiness.is_fine
            ]
            if any(one.readiness.state == "failed" for one in seen):
                raise NotReadyError(f"{name} does not work: {'; '.join(said)}", reasons=said)
            return not said

        if not self._until(works):
            raise NotReadyError(
                f"{name} was not ready within {self._timeout_s:.0f} s, and other objects depend on it: "
                f"{'; '.join(said)}",
                reasons=said,
            )

    def endpoint(self, service: Identity) -> None:
        """Return when a Service leads to a pod that is ready.

        Raises:
            NotReadyError: it does not in time.
        """
        if not self._until(lambda: self._has_endpoint(service)):
            raise NotReadyError(
                f"`{service}` has no ready endpoint after {self._timeout_s:.0f} s, so its webhook is not set"
                " up: the API server would refuse all that it asks it about",
                hint=f"kubectl get endpointslices -n {service.namespace} -l {_SERVICE_LABEL}={service.name}",
            )

    def _has_endpoint(self, service: Identity) -> bool:
        labels = f"{_SERVICE_LABEL}={service.name}"
        try:
            slices = self._cluster.list(
                "discovery.k8s.io/v1", "EndpointSlice", namespace=service.namespace, labels=labels
            )
        except (ForbiddenError, ObjectNotFoundError):  # whoever may not look cannot wait either
            return True
        endpoints = [one for found in slices.items for one in found.get("endpoints") or ()]
        return any((one.get("conditions") or {}).get("ready", True) for one in endpoints)

    def _until(self, holds: Callable[[], bool]) -> bool:
        deadline, pause = self._clock.now_s() + self._timeout_s, _FIRST_PAUSE_S
        while not holds():
            if self._clock.now_s() >= deadline:
                return False
            self._clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
        return True
