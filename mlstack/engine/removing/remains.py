"""What an environment has in its cluster, to be taken away: by the inventory, the marks and the files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mlstack.cluster.api import Cluster, Opener
from mlstack.engine import parallel
from mlstack.engine.comparing.surroundings import placed
from mlstack.engine.records import inventory as inventories
from mlstack.engine.records import scan
from mlstack.engine.records.survey import Live, Survey, ref_of, survey
from mlstack.engine.removing.leftovers import leftovers, namespaces_going, refuse_along, taken_along
from mlstack.engine.target import Reached, Target, reach
from mlstack.errors import ConfigError, MlstackError, NotFoundError, RegistryError
from mlstack.model import pruning
from mlstack.model.diff import Change, Changes
from mlstack.model.inventory import Inventory, Member
from mlstack.model.objects import DesiredState, Identity, KubeObject
from mlstack.model.order import last_first
from mlstack.model.pruning import Spare, Verdict


@dataclass(frozen=True, kw_only=True)
class Remains:
    """What there is to take away.

    Attributes:
        reached: where it is; its state is what the files bring, as far as they render.
        changes: a deletion for each object, or `kept` with the reason.
        inventory: what was deployed.
        forgotten: members of it that are not there any more, or are another's.
    """

    reached: Reached
    changes: Changes
    inventory: Inventory
    forgotten: frozenset[Identity]


def find(target: Target, opener: Opener, *, spare: Spare) -> Remains:
    """Give a deletion for everything of an environment that is in the cluster.

    What was deployed counts, whatever the files say now; they need not even render. Objects of the files
    that carry the marks of another app or environment, or none, are kept: other people may depend on them.

    Args:
        target: the environment, and which components of it.
        opener: opens a cluster by its context; nothing is written.
        spare: kinds to keep.

    Raises:
        NotFoundError: neither the files nor the inventory know a component.
        ClusterError: the cluster cannot be asked or is another one.
    """
    state, fault = _rendered(target)
    reached = reach(target, opener, state=state)
    cluster, place = reached.cluster, reached.place
    known = inventories.known(
        cluster, app=state.app, environment=state.environment, namespace=place.namespace
    )
    members = _members(reached, known)
    if isinstance(fault, NotFoundError) and not members:
        raise fault
    seen = survey(cluster, [*members, *_of_files(reached, known), *_own_namespace(reached, spare)])
    verdicts = _along(seen, {one.identity: _verdict(one, seen, known, spare) for one in seen.members}, spare)
    noted = refuse_along(cluster, known, verdicts, spare)
    found = _changes(reached, seen, verdicts)
    going = [change.found for change in found if change.action == "delete" and change.found is not None]
    changes = Changes(
        app=state.app,
        environment=state.environment,
        namespace=state.namespace,
        context=place.context,
        cluster=reached.identity,
        changes=found,
        depends=state.depends,
        notes=(*_notes(reached, known, fault, going), *noted),
    )
    lost = (key for key, one in verdicts.items() if key in known.members and one.fate in ("gone", "foreign"))
    return Remains(reached=reached, changes=changes, inventory=known, forgotten=frozenset(lost))


def _rendered(target: Target) -> tuple[DesiredState, MlstackError | None]:
    """Give what the files bring, or nothing and the reason."""
    try:
        return target.desired(), None
    except (ConfigError, NotFoundError, RegistryError) as error:
        place, app = target.place(), target.app.app().name
        return DesiredState(app=app, environment=place.name, namespace=place.namespace, objects=()), error


def _members(reached: Reached, known: Inventory) -> tuple[Member, ...]:
    """Give the members that are to go: all, or those of the selected components and modules."""
    if reached.selective:
        names, modules = set(reached.state.components), tuple(reached.target.components)
        return tuple(
            one
            for one in known.ordered()
            if one.component in names
            or any(one.component == name or one.component.startswith(f"{name}.") for name in modules)
        )
    if not known.exists:  # rebuilt by the marks just now
        return known.ordered()
    marked, _ = scan.scan(reached.cluster, known)
    return known.with_members(one for one in marked if one.identity not in known.members).ordered()


def _of_files(reached: Reached, known: Inventory) -> Iterator[Member]:
    """Give what the files bring and the inventory does not know: it may be there, ours or another's."""
    for found in placed(reached.state.objects, reached.cluster):
        if found.identity not in known.members:
            yield Member(identity=found.identity, api_version=found.api_version, component=found.component)


def _own_namespace(reached: Reached, spare: Spare) -> Iterator[Member]:
    """Give the environment's namespace where namespaces are to go: it was made before everything else."""
    if not spare.namespaces and not reached.selective:
        identity = Identity("", "Namespace", "", reached.place.namespace)
        yield Member(identity=identity, api_version="v1")


def _verdict(member: Member, seen: Survey, known: Inventory, spare: Spare) -> Verdict:
    if member.identity in seen.hidden:
        return Verdict("kept", "its API does not answer at present")
    return pruning.judge(seen.live.get(member.identity), member, known, spare=spare)


def _along(seen: Survey, verdicts: Mapping[Identity, Verdict], spare: Spare) -> Mapping[Identity, Verdict]:
    """Let what is kept go, where it may, with a namespace that goes."""
    going = namespaces_going(verdicts)
    if spare.foreign or not going:
        return verdicts
    return {
        key: Verdict("delete", f"goes with namespace `{key.namespace}`")
        if key.namespace in going and one.fate == "kept" and not pruning.is_claim(key) and key in seen.live
        else one
        for key, one in verdicts.items()
    }


def _changes(reached: Reached, seen: Survey, verdicts: Mapping[Identity, Verdict]) -> tuple[Change, ...]:
    """Give what becomes of everything that is there, in the order of execution."""
    full = _full(reached.cluster, [one for one in seen.members if verdicts[one.identity].fate == "delete"])
    brought, lives = {found.identity for found in reached.state.objects}, {**seen.live, **full}
    found = {
        one.identity: _change(one, verdicts[one.identity], lives.get(one.identity), brought)
        for one in seen.members
        if verdicts[one.identity].fate != "gone"
    }
    subjects = [change.subject for change in found.values()]
    return tuple(found[one] for one in last_first(subjects, reached.state.depends))


def _full(cluster: Cluster, members: Sequence[Member]) -> Mapping[Identity, Live]:
    """Read whole objects: what they hold says what they need and what goes with them."""
    results = parallel.run(lambda one: cluster.get(ref_of(one)), members)
    return {
        one.identity: live
        for one, live in zip(members, results, strict=True)
        if live is not None and not isinstance(live, MlstackError)
    }


def _change(member: Member, verdict: Verdict, live: Live | None, brought: Iterable[Identity]) -> Change:
    goes = verdict.fate == "delete"
    obsolete = "the files no longer bring it" if member.identity not in brought else ""
    return Change(
        identity=member.identity,
        component=member.component,
        api_version=member.api_version,
        action="delete" if goes else "kept",
        reason=verdict.reason or (obsolete if brought else ""),
        live_uid=str(live["metadata"]["uid"]) if live is not None else "",
        writes=goes,
        found=KubeObject(data=live, component=member.component) if live is not None else None,
    )


def _notes(
    reached: Reached, known: Inventory, fault: MlstackError | None, going: Sequence[KubeObject]
) -> Iterator[str]:
    yield from known.notes
    if fault is not None:
        yield f"by the inventory alone, as the files cannot be rendered: {fault.message}"
    yield from taken_along(going, reached.cluster)
    yield from leftovers(going, reached.cluster)
