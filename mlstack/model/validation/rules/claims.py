"""Rules on storage: claims, volumes and classes."""

from __future__ import annotations

from mlstack.model.validation import formats, syntax
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.rules.shared import fits, needed_name, selector
from mlstack.model.validation.rules.table import Subject, rule

_NO_SOURCE = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)


@rule("PersistentVolumeClaim")
def claim_fits(subject: Subject) -> Problems:
    """A claim says how it is accessed and how much it needs."""
    yield from claim_spec_fits(subject.spec)


@rule("apps/StatefulSet")
def claim_templates_fit(subject: Subject) -> Problems:
    """The claims of a StatefulSet are claims; older versions leave that to the claim itself."""
    for template in subject.spec.at("volumeClaimTemplates").items:
        yield from claim_spec_fits(template.at("spec"))


def claim_spec_fits(spec: Field) -> Problems:
    """Check the specification of a claim."""
    yield from _access_modes(spec)
    yield from selector(spec.at("selector"))
    yield from fits(spec.at("storageClassName"), syntax.subdomain)
    storage = spec.at("resources", "requests", "storage")
    if not storage:
        yield storage.says("is required")
    yield from _positive(storage)


def _access_modes(spec: Field) -> Problems:
    modes = spec.at("accessModes")
    yield from modes.needed()
    if len(modes.items) > 1 and "ReadWriteOncePod" in [mode.text for mode in modes.items]:
        yield modes.says("must not have `ReadWriteOncePod` together with another mode")


def _positive(quantity: Field) -> Problems:
    found = formats.quantity(quantity.value)
    if found is not None and found <= 0:
        yield quantity.says(f"must be above 0, got {shown(quantity.value)}")


@rule("PersistentVolume")
def volume_fits(subject: Subject) -> Problems:
    """A volume has a size, access modes and one source."""
    yield from subject.spec.at("capacity").needed()
    if subject.spec.at("capacity").names:
        storage = subject.spec.at("capacity", "storage")
        if not storage:
            yield storage.says("is required")
        yield from _positive(storage)
        for name, other in subject.spec.at("capacity").entries:
            if name != "storage":
                yield other.says("must be `storage`, the only resource of a volume")
    yield from _access_modes(subject.spec)
    yield from fits(subject.spec.at("storageClassName"), syntax.subdomain)
    sources = [name for name in subject.spec.names if name not in _NO_SOURCE]
    if len(sources) != 1:
        listed = " and ".join(f"`{name}`" for name in sources) or "none"
        yield subject.spec.says(f"must have one source, got {listed}")
    if "nfs" in sources:
        yield from subject.spec.at("nfs", "server").needed()
        path = subject.spec.at("nfs", "path")
        yield from path.needed()
        if path.text and not path.text.startswith("/"):
            yield path.says(f"must be an absolute path, got {shown(path.value)}")


@rule("storage.k8s.io/StorageClass")
def class_has_a_provisioner(subject: Subject) -> Problems:
    """A class names who makes the volumes."""
    yield from needed_name(subject.root.at("provisioner"), lambda text: syntax.qualified_name(text.lower()))
