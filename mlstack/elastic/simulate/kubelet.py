"""Kubelets: pods start a few seconds after they are bound and go when their grace is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlstack.cluster.api import WatchEvent
from mlstack.elastic.simulate.admission import ENDED, with_condition
from mlstack.elastic.simulate.kernel import Kernel, timestamp
from mlstack.elastic.simulate.store import Store, changed


@dataclass(frozen=True, kw_only=True)
class KubeletSettings:
    """How long pods take.

    Attributes:
        start_ms: shortest and longest time from being bound to running.
    """

    start_ms: tuple[int, int] = (2_000, 5_000)


class Kubelets:
    """The kubelets of all nodes.

    Args:
        store: the cluster's objects.
        kernel: the time.
        settings: how long pods take.
    """

    def __init__(self, store: Store, kernel: Kernel, settings: KubeletSettings) -> None:
        """Begin to watch."""
        self._store = store
        self._kernel = kernel
        self._settings = settings
        self._chance = kernel.generator("kubelet")
        self._starting: set[str] = set()
        self._ending: set[str] = set()
        self._dead: set[str] = set()
        store.watch(["Pod"], self._hear, name="kubelet")

    def stop(self, node: str) -> None:
        """Let a kubelet, and all that runs on its node, fall silent."""
        self._dead.add(node)

    def resume(self, node: str) -> None:
        """Let a kubelet go on; pods deleted meanwhile end now."""
        self._dead.discard(node)
        for pod in self._store.all("Pod"):
            if pod["spec"].get("nodeName") == node:
                self._look(pod)

    def exit(self, pod: Mapping[str, Any], code: int) -> None:
        """Let the containers of a pod end by themselves, for good."""
        live = self._store.current(pod)
        if live is None or live["status"].get("phase") != "Running":
            return
        self._finish(live, "Succeeded" if code == 0 else "Failed", code)

    def _finish(self, live: Mapping[str, Any], phase: str, code: int) -> None:
        now = timestamp(self._kernel.now_ms)
        ready = {"type": "Ready", "status": "False", "lastTransitionTime": now}
        containers = [
            {
                "name": each["name"],
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "finishedAt": now}},
            }
            for each in live["spec"].get("containers") or ()
        ]
        status = {
            "phase": phase,
            "conditions": with_condition(live, ready),
            "containerStatuses": containers,
        }
        self._store.write(changed(live, status=status))

    def _hear(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._starting.discard(event.object["metadata"]["uid"])
            self._ending.discard(event.object["metadata"]["uid"])
        else:
            self._look(event.object)

    def _look(self, pod: Mapping[str, Any]) -> None:
        node, metadata = pod["spec"].get("nodeName"), pod["metadata"]
        if not node or node in self._dead:
            return
        if "deletionTimestamp" in metadata:
            self._end(pod)
        elif pod["status"].get("phase") == "Pending" and metadata["uid"] not in self._starting:
            self._starting.add(metadata["uid"])
            self._kernel.after(self._chance.randint(*self._settings.start_ms), lambda: self._start(pod))

    def _start(self, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is None or live["spec"]["nodeName"] in self._dead:
            self._starting.discard(pod["metadata"]["uid"])
            return
        if "deletionTimestamp" in live["metadata"] or live["status"].get("phase") != "Pending":
            return
        now = timestamp(self._kernel.now_ms)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        status = {"phase": "Running", "startTime": now, "conditions": with_condition(live, ready)}
        self._store.write(changed(live, status=status))

    def _end(self, pod: Mapping[str, Any]) -> None:
        """Take a pod away when its grace is over; what ended before is gone at once."""
        uid = pod["metadata"]["uid"]
        if uid in self._ending:
            return
        self._ending.add(uid)
        has_ended = pod["status"].get("phase") in ENDED
        grace_s = 0 if has_ended else pod["metadata"]["deletionGracePeriodSeconds"]
        self._kernel.after(grace_s * 1000, lambda: self._remove(pod))

    def _remove(self, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is not None and live["spec"]["nodeName"] not in self._dead:
            self._store.remove(live)
        self._ending.discard(pod["metadata"]["uid"])
