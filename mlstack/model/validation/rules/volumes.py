"""Rules on the volumes of a pod and where containers mount them."""

from __future__ import annotations

from mlstack.model.names import nearest
from mlstack.model.validation import formats, syntax
from mlstack.model.validation.base import Field, Problems, shown
from mlstack.model.validation.rules.claims import claim_spec_fits
from mlstack.model.validation.rules.shared import fits, needed_name, one_of, unique
from mlstack.model.validation.rules.table import PodSubject, pod_rule

_MAX_MODE = 0o777
_MIN_TOKEN_S = 600
_PROJECTED = (
    "clusterTrustBundle",
    "configMap",
    "downwardAPI",
    "podCertificate",
    "secret",
    "serviceAccountToken",
)
_NEEDED = {
    "configMap": ("name",),
    "csi": ("driver",),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
    "secret": ("secretName",),
}


@pod_rule
def volumes_are_named(pod: PodSubject) -> Problems:
    """A volume has a DNS label of its own as name."""
    volumes = pod.spec.at("volumes").items
    for volume in volumes:
        yield from needed_name(volume.at("name"), syntax.label)
    yield from unique((volume.at("name") for volume in volumes), what="volume")


@pod_rule
def volumes_have_one_source(pod: PodSubject) -> Problems:
    """A volume comes from one place; from none means an empty directory."""
    for volume in pod.spec.at("volumes").items:
        given = [name for name in volume.names if name != "name"]
        if len(given) > 1:
            yield volume.says(
                f"must have one source, got {len(given)}: {' and '.join(f'`{one}`' for one in given)}"
            )
        for name in given:
            for field in _NEEDED.get(name, ()):
                yield from volume.at(name, field).needed()


@pod_rule
def volume_sources_fit(pod: PodSubject) -> Problems:
    """Sources have paths that stay inside, modes up to 0777, sizes of zero and up."""
    for volume in pod.spec.at("volumes").items:
        yield from fits(volume.at("hostPath", "path"), syntax.no_parent)
        yield from _absolute(volume.at("nfs", "path"))
        size = volume.at("emptyDir", "sizeLimit")
        found = formats.quantity(size.value)
        if found is not None and found < 0:
            yield size.says(f"must not be negative, got {shown(size.value)}")
        for name in ("configMap", "downwardAPI", "projected", "secret"):
            yield from _mode(volume.at(name, "defaultMode"))
        for name in ("configMap", "secret"):
            yield from _files(volume.at(name, "items"))
        yield from _projected(volume.at("projected"))
        template = volume.at("ephemeral", "volumeClaimTemplate")
        if volume.at("ephemeral"):
            yield from template.needed()
        if template:
            yield from claim_spec_fits(template.at("spec"))


def _absolute(path: Field) -> Problems:
    if path.text and not path.text.startswith("/"):
        yield path.says(f"must be an absolute path, got {shown(path.value)}")


def _mode(mode: Field) -> Problems:
    if mode.number is not None and not 0 <= mode.number <= _MAX_MODE:
        yield mode.says(f"must be a file mode from 0 to 0777 ({_MAX_MODE} in decimal), got {mode.number}")


def _files(items: Field) -> Problems:
    for item in items.items:
        yield from item.at("key").needed()
        yield from item.at("path").needed()
        yield from fits(item.at("path"), _inside)
        yield from _mode(item.at("mode"))


def _inside(path: str) -> str | None:
    return (
        f"must not start with `..`, got {shown(path)}"
        if path.startswith("..")
        else syntax.relative_path(path)
    )


def _projected(projected: Field) -> Problems:
    paths: list[Field] = []
    for source in projected.at("sources").items:
        if len(source.names) > 1:
            yield from one_of(source, _PROJECTED, what="source")
        for name in ("configMap", "secret"):
            if source.at(name):
                yield from source.at(name, "name").needed()
                yield from _files(source.at(name, "items"))
                paths += [item.at("path") for item in source.at(name, "items").items]
        token = source.at("serviceAccountToken")
        if token:
            yield from token.at("path").needed()
            yield from fits(token.at("path"), _inside)
            yield from token.at("expirationSeconds").between(_MIN_TOKEN_S, 2**32)
    yield from unique(paths, what="path")


@pod_rule
def mounts_lead_to_volumes(pod: PodSubject) -> Problems:
    """A mount names a volume of the pod."""
    known = {volume.at("name").text for volume in pod.spec.at("volumes").items} | pod.claims
    for container in pod.containers:
        for list_name in ("volumeMounts", "volumeDevices"):
            for mount in container.at(list_name).items:
                name = mount.at("name")
                if name.text and name.text not in known:
                    near = nearest(name.text, known)
                    hint = f", did you mean `{near}`?" if near else ""
                    yield name.says(f"no volume {shown(name.text)} in this pod{hint}")
                yield from name.needed()


@pod_rule
def mounts_have_places(pod: PodSubject) -> Problems:
    """A mount has a place of its own in its container, and a path inside the volume."""
    for container in pod.containers:
        mounts = container.at("volumeMounts").items
        for mount in mounts:
            yield from mount.at("mountPath").needed()
            for name in ("subPath", "subPathExpr"):
                yield from fits(mount.at(name), syntax.relative_path)
            if mount.at("subPath").text and mount.at("subPathExpr").text:
                yield mount.at("subPathExpr").says("must not be set together with `subPath`")
            if (
                mount.at("recursiveReadOnly").text in ("Enabled", "IfPossible")
                and not mount.at("readOnly").value
            ):
                yield mount.at("recursiveReadOnly").says("needs `readOnly: true`")
        devices = container.at("volumeDevices").items
        places = [*(one.at("mountPath") for one in mounts), *(one.at("devicePath") for one in devices)]
        yield from unique(places, what="path")
