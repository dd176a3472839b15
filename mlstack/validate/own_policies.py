"""Policies of an app's own: the files of its folder `policies/`, whose CEL is checked when they are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from mlstack.app.document import AppDocument
from mlstack.app.policy import PolicyFile
from mlstack.errors import ConfigError, SchemaError
from mlstack.objects.kube_object import KubeObject
from mlstack.validate import cel
from mlstack.validate.formats import Field, shown
from mlstack.validate.policies import Policy, PolicyContext, Violations, builtin

_VARIABLES = ("object", "environment", "component")


def all_policies(files: Iterable[tuple[PolicyFile, AppDocument]]) -> dict[str, Policy]:
    """Give the built-in policies and an app's own, of its `files`, by id.

    Raises:
        SchemaError: a file is wrong, its id is taken, or its expression uses what is not known here.
    """
    known = dict(builtin())
    for own, document in files:
        where = str(document.origin(("id",)))
        if own.id in known:
            other = known[own.id].where
            message = f"`{own.id}` is {f'the policy of {other}' if other else 'a built-in policy'} already"
            raise SchemaError(message, where=where, hint="give it another id")
        place = str(document.origin(("expression",)))
        try:
            cel.check(own.expression, _names(own))
        except cel.UnsupportedError as error:
            message = f"`expression` of `{own.id}` cannot be evaluated: {error}"
            hint = "CEL as in Kubernetes' own rules: https://kubernetes.io/docs/reference/using-api/cel/"
            raise SchemaError(message, where=place, hint=hint) from error
        known[own.id] = Policy(
            id=own.id,
            sets=own.sets or ("own",),
            severity=own.severity,
            reason=own.reason,
            fix=own.fix,
            check=partial(_violations, own, place),
            where=document.file,
        )
    return known


def _names(own: PolicyFile) -> tuple[str, ...]:
    below = {"object": (), "pod": ("pod",), "container": ("pod", "container")}
    return (*_VARIABLES, *below[own.each])


def _violations(own: PolicyFile, place: str, stack: PolicyContext) -> Violations:
    for obj in stack.objects:
        if not _is_meant(own, obj):
            continue
        facts = {"object": obj.data, "environment": stack.environment, "component": obj.component}
        for field, variables in _asked(own, obj, stack):
            try:
                holds = cel.evaluate(own.expression, {**facts, **variables}, is_plain=True)
            except cel.UnsupportedError as error:
                message = f"policy `{own.id}` cannot be evaluated for {obj.identity}: {error}"
                hint = "guard what may be of another type, as with `type(x) == string`"
                raise ConfigError(message, where=place, hint=hint) from error
            except cel.EvaluationError as error:
                yield obj, field.says(f"{shown(own.expression)} has no value: {error}")
                continue
            if holds is not True:
                yield obj, field.says(own.message or f"is against {shown(own.expression)}")


def _is_meant(own: PolicyFile, obj: KubeObject) -> bool:
    names = (obj.kind, f"{obj.group}/{obj.kind}")
    return own.match is None or not own.match.kinds or any(name in own.match.kinds for name in names)


def _asked(own: PolicyFile, obj: KubeObject, stack: PolicyContext) -> list[tuple[Field, Mapping[str, Any]]]:
    """Give what the expression is asked of in an object, with the variables for each."""
    if own.each == "object":
        return [(Field(obj.data), {})]
    pods = stack.pods_of(obj)
    if own.each == "pod":
        return [(each.spec, {"pod": each.spec.value}) for each in pods]
    return [
        (container, {"pod": each.spec.value, "container": container.value})
        for each in pods
        for container in each.all_containers
    ]
