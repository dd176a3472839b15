"""What the control plane does about nodes: evicts from those that are silent, cleans up after others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlstack.cluster.api import WatchEvent
from mlstack.elastic.observed.placement import Place, is_eligible
from mlstack.elastic.simulate.admission import end, with_condition
from mlstack.elastic.simulate.kernel import Kernel, timestamp
from mlstack.elastic.simulate.kubelet import Kubelets
from mlstack.elastic.simulate.store import Store, changed

SILENT_MS = 40_000
"""How long a node may be silent before the control plane gives it up (node-monitor-grace-period)."""

_COLLECT_MS = 20_000
_UNREACHABLE = "node.kubernetes.io/unreachable"


class NodeLifecycle:
    """Makes nodes fail and heal, with all that follows.

    Args:
        store: the cluster's objects.
        kernel: the time.
        kubelets: what runs on the nodes.
        silent_ms: how long a node may be silent.
    """

    def __init__(
        self, store: Store, kernel: Kernel, kubelets: Kubelets, *, silent_ms: int = SILENT_MS
    ) -> None:
        """Begin to watch."""
        self._store = store
        self._kernel = kernel
        self._kubelets = kubelets
        self._silent_ms = silent_ms
        self._down: set[str] = set()
        store.watch(["Node"], self._hear, name="nodes")

    def fail(self, node: str) -> None:
        """Let a node fall silent."""
        self._down.add(node)
        self._kubelets.stop(node)
        self._kernel.after(self._silent_ms, lambda: self._give_up(node))

    def heal(self, node: str) -> None:
        """Let a node come back."""
        self._down.discard(node)
        live = self._store.get("Node", node)
        if live is not None:
            self._store.write(
                changed(live, spec={"taints": []}, status={"conditions": self._ready(live, "True")})
            )
        self._kubelets.resume(node)

    def cordon(self, node: str, *, is_closed: bool) -> None:
        """Keep new pods away from a node, or let them come again."""
        live = self._store.get("Node", node)
        if live is not None:
            self._store.write(changed(live, spec={"unschedulable": is_closed}))

    def remove(self, node: str) -> None:
        """Take a node away for good, with its machine."""
        self._kubelets.stop(node)
        live = self._store.get("Node", node)
        if live is not None:
            self._store.remove(live)

    def _ready(self, live: Mapping[str, Any], status: str) -> list[Mapping[str, Any]]:
        now = timestamp(self._kernel.now_ms)
        return with_condition(live, {"type": "Ready", "status": status, "lastTransitionTime": now})

    def _give_up(self, node: str) -> None:
        live = self._store.get("Node", node)
        if live is None or node not in self._down:
            return
        taints = [{"key": _UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        self._store.write(
            changed(live, spec={"taints": taints}, status={"conditions": self._ready(live, "Unknown")})
        )
        for pod in self._on(node):
            self._kernel.after(_patience_ms(pod["spec"]), lambda pod=pod: self._evict(node, pod))  # type: ignore[misc]  # bound now

    def _on(self, node: str) -> list[dict[str, Any]]:
        return [pod for pod in self._store.all("Pod") if pod["spec"].get("nodeName") == node]

    def _evict(self, node: str, pod: Mapping[str, Any]) -> None:
        live = self._store.current(pod)
        if live is None or node not in self._down or "deletionTimestamp" in live["metadata"]:
            return
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        told = self._store.write(changed(live, status={"conditions": with_condition(live, condition)}))
        end(self._store, told, now_ms=self._kernel.now_ms)

    def _hear(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            node = event.object["metadata"]["name"]
            self._kernel.after(_COLLECT_MS, lambda: self._collect(node))

    def _collect(self, node: str) -> None:
        """Take away the pods of a node that is not there any more."""
        if self._store.get("Node", node) is None:
            for pod in self._on(node):
                end(self._store, pod, now_ms=self._kernel.now_ms, grace_s=0)


def _patience_ms(spec: Mapping[str, Any]) -> int:
    """Give how long a pod stays on a node that does not answer; five minutes unless it says otherwise."""
    silent = Place("", {}, ({"key": _UNREACHABLE, "effect": "NoExecute"},))
    found = [one for one in spec.get("tolerations") or () if is_eligible({"tolerations": [one]}, silent)]
    seconds = [one.get("tolerationSeconds") for one in found]
    if not found:
        return 300_000
    limited = [int(each) for each in seconds if each is not None]
    return min(limited) * 1000 if limited else 10**12
