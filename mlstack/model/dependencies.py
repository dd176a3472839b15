"""What a person says about order: the annotation `config.kubernetes.io/depends-on`, and `dependsOn`."""

from collections.abc import Iterable, Mapping, Sequence

from mlstack.errors import ConfigError
from mlstack.model import dag
from mlstack.model.objects import Identity, KubeObject

DEPENDS_ON = "config.kubernetes.io/depends-on"
"""Annotation of cli-utils: `group/kind/name` or `group/namespaces/NS/kind/name`, separated by commas."""

_FORM = (
    "write `group/namespaces/NAMESPACE/Kind/name` or `group/Kind/name`; the core group is empty: `/Kind/name`"
)


def wanted(found: KubeObject) -> tuple[Identity, ...]:
    """Give what the annotation of an object names, as it is written.

    Raises:
        ConfigError: it does not read as a list of objects, or names the object itself.
    """
    text = found.annotations.get(DEPENDS_ON)
    if text is None:
        return ()
    names = tuple(dict.fromkeys(_identity(part.strip(), found) for part in str(text).split(",")))
    if found.identity in names:
        raise ConfigError(f"`{found.identity}` says that it depends on itself", where=_place(found))
    return names


def _identity(text: str, found: KubeObject) -> Identity:
    parts = text.split("/")
    if len(parts) == 3 and all(parts[1:]):
        return Identity(parts[0], parts[1], "", parts[2])
    if len(parts) == 5 and parts[1] == "namespaces" and all(parts[2:]):
        return Identity(parts[0], parts[3], parts[2], parts[4])
    raise ConfigError(
        f"`{found.identity}`: annotation `{DEPENDS_ON}` names no object: `{text}`",
        where=_place(found),
        hint=_FORM,
    )


def resolved(target: Identity, found: KubeObject, known: Mapping[Identity, object]) -> Identity:
    """Give the object that an annotation means.

    A name without a namespace means a cluster-scoped object, or else one of the object's own namespace: so
    the same annotation does in every environment.
    """
    here = Identity(target.group, target.kind, found.namespace, target.name)
    return here if not target.namespace and target not in known and here in known else target


def outside(objects: Iterable[KubeObject]) -> tuple[tuple[KubeObject, Identity], ...]:
    """Give the objects that depend on something which none of them is, and on what.

    Raises:
        ConfigError: an annotation cannot be read.
    """
    listed = tuple(objects)
    known = {found.identity: found for found in listed}
    pairs = ((found, resolved(one, found, known)) for found in listed for one in wanted(found))
    return tuple((found, target) for found, target in pairs if target not in known)


def closure(direct: Mapping[str, Sequence[str]], files: Mapping[str, str]) -> Mapping[str, tuple[str, ...]]:
    """Give all components that each component depends on, through others as well.

    Args:
        direct: what each component names itself; those that name nothing may be left out.
        files: the component's files, for messages.

    Raises:
        ConfigError: components depend on each other in a circle.
    """
    circle = dag.find_cycle(sorted(direct), direct)
    if circle:
        way = " → ".join(f"`{name}`" for name in (*circle, circle[0]))
        raise ConfigError(
            f"components depend on each other in a circle: {way}",
            where=files.get(circle[0]),
            hint="take one of them out of `dependsOn`",
        )
    return {name: tuple(sorted(_reached(name, direct))) for name in direct if direct[name]}


def _reached(name: str, direct: Mapping[str, Sequence[str]]) -> set[str]:
    found: set[str] = set()
    rest = list(direct.get(name, ()))
    while rest:
        one = rest.pop()
        if one not in found:
            found.add(one)
            rest += direct.get(one, ())
    return found


def _place(found: KubeObject) -> str:
    return found.source.at(("metadata", "annotations", DEPENDS_ON)) if found.source else found.component
