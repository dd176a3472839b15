"""What keeps the containers of a pod from running, in words that stay while it lasts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_LONGEST = 300  # of what a kubelet says

_BEGINNING = ("", "ContainerCreating", "PodInitializing")
# A kubelet tells both by turns, as it tries and waits (kubernetes/pkg/kubelet/images).
_PULLING = ("ErrImagePull", "ImagePullBackOff")
_CRASHING = "CrashLoopBackOff"
# Their messages name the container that was tried, another each time.
_VARYING = ("CreateContainerError", "PostStartHookError", "RunContainerError")
_LOOPS = 2
"""A container that was started again so often, and is not ready, counts as crashing while it runs too."""


def held_up(status: Mapping[str, Any]) -> str:
    """Say what the first container that cannot begin waits for, empty where none does.

    What changes from one try to the next, such as the time to wait, is left out: the text is written into the
    status of the job, and a steady cluster costs no write.
    """
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            text = _held_up(container)
            if text:
                return sys.intern(text[:_LONGEST])  # many pods of a job say the same
    return ""


def _held_up(container: Mapping[str, Any]) -> str:
    waiting = (container.get("state") or {}).get("waiting") or {}
    reason = str(waiting.get("reason") or "")
    if reason in _PULLING:
        return f"{_PULLING[1]}: image {container.get('image')}"
    if reason == _CRASHING or _is_crashing(container):
        ended = (container.get("lastState") or {}).get("terminated") or {}
        code = f" with exit code {ended['exitCode']}" if "exitCode" in ended else ""
        return f"{_CRASHING}: container `{container.get('name')}` ended{code}"
    if reason in _BEGINNING:
        return ""
    message = " ".join(str(waiting.get("message") or "").split())
    return f"{reason}: {message}" if message and reason not in _VARYING else reason


def _is_crashing(container: Mapping[str, Any]) -> bool:
    """Tell whether it was started again and again and is still not ready."""
    return int(container.get("restartCount") or 0) >= _LOOPS and not container.get("ready")
