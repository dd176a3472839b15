"""Whether those who have an earlier version of a package come through an update to a later one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from mlstack.app import document
from mlstack.app.params import spelling_table
from mlstack.app.prototype import Example, Package, Prototype
from mlstack.errors import ConfigError
from mlstack.objects.kube_object import KubeObject
from mlstack.objects.managed_fields import FieldChange
from mlstack.objects.resources import quantity
from mlstack.readiness.evaluate import needs_new_run
from mlstack.render.trial import PrototypeTrial
from mlstack.testing.kinds import update_faults


class UpgradeFault(NamedTuple):
    """What an update breaks; a `warning` is what users should know."""

    prototype: str
    message: str
    example: str = ""  # what it was seen with; empty for what is declared
    severity: str = "error"


def upgrade_faults(before: Package, after: Package) -> Iterator[UpgradeFault]:
    """Compare two versions of a package as their users meet them: names, parameters, objects of the examples.

    The examples are those of the earlier version.
    """
    names = {name for new in after.prototypes.values() for name in (new.name, *new.aliases)}
    for name, old in before.prototypes.items():
        for alias in old.aliases:
            if alias not in names:
                yield UpgradeFault(name, f"`{alias}`, another name of it, is gone")
        heirs = (new for new in after.prototypes.values() if name in new.aliases)
        new = after.prototypes.get(name) or next(heirs, None)
        if new is None:
            yield UpgradeFault(name, "the prototype is gone, and no other has its name as an alias")
            continue
        for spelled in (name, *(alias for alias in old.aliases if alias in new.aliases)):
            yield from _spellings(old, new, spelled)
        yield from _declarations(old, new)
        for example in old.examples.values():
            yield from _example(old, new, example)


def _spellings(old: Prototype, new: Prototype, name: str) -> Iterator[UpgradeFault]:
    """Tell which names of parameters are gone, of those that the prototype has under one of its names."""
    known, under = spelling_table(new.called(name).params), f" under the name `{name}`"
    for spelling, own in spelling_table(old.called(name).params).items():
        if spelling in known or (name != old.name and spelling in spelling_table(old.params)):
            continue
        if name != old.name:
            yield UpgradeFault(old.name, f"the parameter `{spelling}`{under} is gone")
        elif spelling == own:
            hint = "keep it as an alias, or deprecate it"
            yield UpgradeFault(old.name, f"the parameter `{spelling}` is gone: {hint}")
        else:
            yield UpgradeFault(old.name, f"`{spelling}`, another name of `{own}`, is gone")


def _declarations(old: Prototype, new: Prototype) -> Iterator[UpgradeFault]:
    for name, param in new.params.items():
        was = next((old.params[own] for own in (name, *param.aliases) if own in old.params), None)
        if param.required and (was is None or not was.required) and not param.has_default:
            yield UpgradeFault(old.name, f"the parameter `{name}` is required now")
        if was is not None and was.has_default and was.default != param.default:
            change = f"{document.shown(was.default)} → {document.shown(param.default)}"
            yield UpgradeFault(old.name, f"the default of `{name}` changes: {change}", severity="warning")


_Key = tuple[str, str, str, str]  # group, kind, namespace, name


def _example(old: Prototype, new: Prototype, example: Example) -> Iterator[UpgradeFault]:
    try:
        before = _rendered(old, example)
    except ConfigError:  # it never worked
        return
    try:
        after = _rendered(new, example)
    except ConfigError as error:
        reason = error.message.replace("\n", " ")
        yield UpgradeFault(old.name, f"its parameters do not render any more: {reason}", example.name)
        return
    for key, obj in before.items():
        for message, severity in _effects(obj, after.get(key), [*before.values()]):
            yield UpgradeFault(old.name, message, example.name, severity)


def _rendered(prototype: Prototype, example: Example) -> dict[_Key, KubeObject]:
    objects = PrototypeTrial(prototype).objects(example.params, example=example)
    return {(obj.group, obj.kind, obj.namespace or "", obj.name): obj for obj in objects}


def _effects(
    old: KubeObject, new: KubeObject | None, others: Sequence[KubeObject]
) -> Iterator[tuple[str, str]]:
    """Tell what becomes of an object: what is wrong with that, and how bad it is."""
    named = f"{old.kind} `{old.name}`"
    if new is None and old.kind == "PersistentVolumeClaim":
        yield f"the claim `{old.name}` is dropped, and with it what was stored", "error"
    elif new is None:
        yield f"{named} goes from the cluster", "warning"
    if new is None:
        return
    for claim in sorted(_claims(old) - _claims(new)):
        yield f"{named}: the claim template `{claim}` is dropped", "error"
    if fields := fixed_fields(old, new):
        what = "the selector is renamed: " if "`spec.selector`" in fields else ""
        yield f"{named}: {what}{', '.join(fields)} cannot change while the object exists", "error"
    elif _size(new) < _size(old):
        yield f"{named}: it shrinks, which no claim can", "error"
    elif old.kind == "Service" and _loses_pods(old, new, others):
        change = f"{_written(_selector(old))} → {_written(_selector(new))}"
        yield f"{named}: the selector changes, and the pods that run lose its requests: {change}", "error"
    changes = list(_changes(old.data.get("spec"), new.data.get("spec"), "spec"))
    if why := needs_new_run(old.data, changes):
        yield f"{named} is deleted and made anew: {why}", "warning"


def _claims(obj: KubeObject) -> set[str]:
    spec = obj.data.get("spec")
    templates = spec.get("volumeClaimTemplates") if isinstance(spec, Mapping) else None
    return {str(template["metadata"]["name"]) for template in templates or ()}


def fixed_fields(old: KubeObject, new: KubeObject) -> list[str]:
    """Give, in backticks, the fields whose change the API server refuses; each of a spec tried by itself."""
    key = (old.group, old.kind)
    fields = dict.fromkeys(cause.field for cause in update_faults(key, old.data, new.data))
    if "spec" in fields:
        before, after = old.data["spec"], new.data["spec"]
        changed = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        alone = {name: {**old.data, "spec": {**before, name: after.get(name)}} for name in changed}
        fields = {f"spec.{name}": None for name in changed if [*update_faults(key, old.data, alone[name])]}
    return [f"`{field}`" for field in fields]


def _size(obj: KubeObject) -> float:
    """Give the bytes that a claim asks for; 0 of anything else."""
    if obj.kind != "PersistentVolumeClaim":
        return 0
    asked = ((obj.data.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return float(quantity(asked.get("storage")) or 0)


def _selector(obj: KubeObject) -> dict[str, str]:
    return dict((obj.data.get("spec") or {}).get("selector") or {})


def _written(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) or "none"


def _loses_pods(old: KubeObject, new: KubeObject, others: Sequence[KubeObject]) -> bool:
    """Tell whether pods of the earlier version, as far as they are known, are selected no more."""
    before, after = _selector(old).items(), _selector(new).items()
    if before == after or not before:
        return False
    templates = (((obj.data.get("spec") or {}).get("template") or {}) for obj in others)
    labels = ((template.get("metadata") or {}).get("labels") or {} for template in templates)
    selected = [pod.items() for pod in labels if before <= pod.items()]
    return not selected or not all(after <= pod for pod in selected)


def _changes(old: Any, new: Any, path: str) -> Iterator[FieldChange]:
    """Give the differences of two maps, lists as a whole."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted({*old, *new}):
            yield from _changes(old.get(name), new.get(name), f"{path}.{name}")
    elif old != new:
        yield FieldChange(path=path, action="changed", old=old, new=new)
