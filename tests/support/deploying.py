"""Deploy an app from a test: an app directory of plain manifests, and the operations on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from mlstack.app.app_dir import AppDir
from mlstack.deploy.changes import ApplyOptions, ChangeReport, RunEvent, RunResult
from mlstack.deploy.history import Revision
from mlstack.deploy.plan import ApplyPlan
from mlstack.deploy.target import Target
from mlstack.kube.api_server import connect
from mlstack.kube.client import Cluster, ObjectRef, Opener
from mlstack.operations import deploy, status
from mlstack.operations.status import StatusResult, list_history
from mlstack.yaml import write
from tests.support.builders import MINIMAL_APP, write_tree

Objects = Sequence[Mapping[str, Any]]


class RealClock:
    """The time as it passes."""

    def now_s(self) -> float:
        """Give the time in seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)


class FastClock(RealClock):
    """A clock on which time limits come so many times sooner."""

    def __init__(self, *, times: int) -> None:
        """Begin now."""
        self._begun_s, self._times = time.time(), times

    def now_s(self) -> float:
        """Give the time, which runs ahead."""
        return self._begun_s + (time.time() - self._begun_s) * self._times


class VirtualClock:
    """A clock that only sleeping moves."""

    def __init__(self, now_s: float = 1_800_000_000.0) -> None:
        """Begin at this time."""
        self._now_s = now_s

    def __call__(self) -> float:
        """Give the time, as the cluster in memory asks for it."""
        return self._now_s

    def now_s(self) -> float:
        """Give the time in seconds since 1970."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Move on at once."""
        self._now_s += seconds


def opener_of(kubeconfig: Path) -> Opener:
    """Give what opens the real clusters of a kubeconfig."""
    return lambda context: connect(context, kubeconfig=str(kubeconfig))


class Stack:
    """An app directory with environments `minikube` and `gke`, and what its user does with it.

    Args:
        root: folder of the app.
        namespace: of both environments.
        opener: opens a cluster by its context.
        name: of the app.
        clock: for waits and ages.
    """

    def __init__(
        self,
        root: Path,
        *,
        namespace: str,
        opener: Callable[[str], Cluster],
        name: str = "demo",
        clock: Any = None,
    ) -> None:
        """Write the app; it has no components yet."""
        self.root, self.namespace, self.opener = root, namespace, opener
        self.clock = clock or RealClock()
        self.events: list[RunEvent] = []
        environments = {
            f"environments/{environment}/environment.yaml": f"""\
                apiVersion: mlstack.dev/v1
                kind: Environment
                context: {environment}
                namespace: {namespace}
                """
            for environment in ("minikube", "gke")
        }
        write_tree(root, {"app.yaml": MINIMAL_APP.replace("demo", name), **environments})

    @property
    def app(self) -> AppDir:
        """Give the app as its files are now."""
        return AppDir.find(self.root)

    def write(self, component: str, *objects: Mapping[str, Any]) -> None:
        """Make a component of these objects, in place of what it was."""
        write_tree(self.root, {f"components/{component}.yaml": write.to_yaml_documents(objects)})

    def write_text(self, path: str, text: str) -> None:
        """Write any file of the app."""
        write_tree(self.root, {path: dedent(text)})

    def remove(self, component: str) -> None:
        """Take a component out of the app."""
        (self.root / f"components/{component}.yaml").unlink()

    def target(self, environment: str = "minikube", **options: Any) -> Target:
        """Give what the commands are about."""
        return Target(app=self.app, environment=environment, **options)

    def plan(self, environment: str = "minikube", **options: Any) -> ApplyPlan:
        """Work out what an apply would do; options are those of `Target` and `ApplyOptions`.

        Nothing runs in these clusters, so that only who asks for it waits.
        """
        about, how = _split(options)
        options_of_run = ApplyOptions(**{"wait": False, **how})
        return deploy.plan_apply(
            self.target(environment, **about), opener=self.opener, options=options_of_run
        )

    def apply(self, environment: str = "minikube", **options: Any) -> RunResult:
        """Apply without a question."""
        plan = self.plan(environment, **options)
        self.events = []
        return deploy.apply(plan, clock=self.clock, on_event=self.events.append)

    def deploy(self, component: str, *objects: Mapping[str, Any]) -> RunResult:
        """Make a component of these objects, and apply the app."""
        self.write(component, *objects)
        return self.apply()

    def rollback(self, number: int | None = None, environment: str = "minikube", **options: Any) -> RunResult:
        """Go back to a revision without a question."""
        about, how = _split(options)
        plan = deploy.plan_rollback(
            self.target(environment, **about),
            number,
            opener=self.opener,
            options=ApplyOptions(**{"wait": False, **how}),
        )
        self.events = []
        return deploy.apply(plan, clock=self.clock, on_event=self.events.append)

    def revisions(self, environment: str = "minikube", **options: Any) -> tuple[Revision, ...]:
        """Give the history, newest first."""
        return list_history(self.target(environment, **options), opener=self.opener).revisions

    @property
    def notes(self) -> list[str]:
        """Give what was said of the last run as a whole."""
        return [event.text for event in self.events if event.kind == "note"]

    def diff(self, environment: str = "minikube", **options: Any) -> ChangeReport:
        """Compare with the cluster; options are those of `Target` and `ApplyOptions`."""
        about, how = _split(options)
        asked = ApplyOptions(**{"dry_run": True, **how})
        return deploy.diff(self.target(environment, **about), opener=self.opener, options=asked)

    def delete(self, environment: str = "minikube", **options: Any) -> RunResult:
        """Delete without a question."""
        about, how = _split(options)
        own = {name: how.pop(name) for name in ("spare", "grace_period_s") if name in how}
        own["options"] = ApplyOptions(**how)
        plan = deploy.plan_delete(self.target(environment, **about), opener=self.opener, **own)
        self.events = []
        return deploy.apply(plan, clock=self.clock, on_event=self.events.append)

    def status(self, environment: str = "minikube", **options: Any) -> StatusResult:
        """Judge every object."""
        return status.status(self.target(environment, **options), opener=self.opener, clock=self.clock)


_ABOUT = {field.name for field in fields(Target)}


def _split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell what a command is about from how it is to be done."""
    about = {name: value for name, value in options.items() if name in _ABOUT}
    return about, {name: value for name, value in options.items() if name not in _ABOUT}


def outcomes(result: RunResult) -> dict[str, str]:
    """Give how each object ended, by name."""
    return {row.name: row.outcome for row in result.objects}


GROUPS = dict.fromkeys(("deployments", "statefulsets"), "apis/apps/v1") | {
    "jobs": "apis/batch/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "tfjobs": "apis/kubeflow.org/v1",
}


def refuse(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, verb: str, fault: Callable[..., Any]) -> None:
    """Let a verb of the cluster fail with the error that `fault` gives for its arguments, if any."""
    whole = getattr(cluster, verb)

    def instead(*args: Any, **how: Any) -> Any:
        error = fault(*args, **how)
        if error:
            raise error
        return whole(*args, **how)

    monkeypatch.setattr(cluster, verb, instead)


def path(namespace: str, kind: str, name: str = "") -> str:
    """Give the address of an object, or without a name of all of the kind; the kind is a plural."""
    return f"/{GROUPS.get(kind, 'api/v1')}/namespaces/{namespace}/{kind}/{name}".rstrip("/")


def existing(cluster: Cluster, ref: ObjectRef) -> dict[str, Any]:
    """Give an object that has to be there."""
    live = cluster.get(ref)
    assert live is not None
    return live


def config_map(name: str = "settings", **data: str) -> dict[str, Any]:
    """Build a ConfigMap."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def secret(name: str = "keys", **data: str) -> dict[str, Any]:
    """Build a Secret."""
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}


def deployment(
    name: str = "web", *, replicas: int = 1, image: str = "nginx:1.27", **pod: Any
) -> dict[str, Any]:
    """Build a Deployment of one container `main`; keywords go into the container."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": image, **pod}]},
            },
        },
    }


def autoscaler(
    name: str = "scaler", api_version: str = "apps/v1", kind: str = "Deployment", of: str = "web"
) -> dict[str, Any]:
    """Build a HorizontalPodAutoscaler of a workload."""
    target = {"apiVersion": api_version, "kind": kind, "name": of}
    spec = {"scaleTargetRef": target, "maxReplicas": 9}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": spec,
    }


def crd(
    plural: str = "widgets", kind: str = "Widget", *, group: str, scope: str = "Namespaced"
) -> dict[str, Any]:
    """Build a definition whose objects have an open `spec`."""
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "scope": scope,
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


def tfjob(
    name: str = "cnn", *, workers: int = 1, image: str = "tensorflow/tensorflow:2.15.0"
) -> dict[str, Any]:
    """Build a TFJob with workers only."""
    pod = {"spec": {"containers": [{"name": "tensorflow", "image": image}]}}
    worker = {"replicas": workers, "restartPolicy": "OnFailure", "template": pod}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"runPolicy": {"cleanPodPolicy": "Running"}, "tfReplicaSpecs": {"Worker": worker}},
    }


def is_established(definition: Mapping[str, Any]) -> bool:
    """Tell whether a definition is served; its conditions are null for a moment."""
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(row["type"] == "Established" and row["status"] == "True" for row in conditions)
