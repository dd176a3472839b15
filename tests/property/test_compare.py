"""Laws of comparing with a cluster and of applying, when others write too; on the cluster in memory."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from mlstack.app import app
from mlstack.app.app_dir import AppDir
from mlstack.app.environment import Environment
from mlstack.deploy.changes import ApplyOptions, Changes, silent
from mlstack.deploy.inventory import Inventory, Member, owned_hash, payload_hash
from mlstack.deploy.live import context_of
from mlstack.deploy.run import Run
from mlstack.deploy.target import ResolvedTarget, Target
from mlstack.errors import OutdatedError
from mlstack.kube.client import ObjectRef
from mlstack.objects import managed_fields
from mlstack.objects.kube_object import DesiredState, KubeObject
from mlstack.testing.cluster import MemoryCluster
from mlstack.validate.validate import load_schemas
from tests.support.deploying import VirtualClock, config_map
from tests.support.looking import compared

SCHEMAS = load_schemas("1.36")
PLACE = Environment(name="dev", context="dev", namespace="default")
REF = ObjectRef("v1", "ConfigMap", "default", "settings")
DATA = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2", "3"]), max_size=3)
WRITES = st.lists(st.tuples(st.sampled_from(["kubectl-edit", "operator"]), DATA), max_size=3)


def resolved(cluster: MemoryCluster, data: dict[str, str], app: Any) -> ResolvedTarget:
    settings = config_map(**data)
    labels = {"mlstack.dev/app": "demo", "mlstack.dev/environment": "dev"}
    metadata = {"name": "settings", "namespace": "default", "labels": labels}
    manifest = KubeObject(data={**settings, "metadata": metadata}, component="a")
    state = DesiredState(app="demo", environment="dev", namespace="default", objects=(manifest,))
    target = Target(app=app, environment="dev")
    return ResolvedTarget(
        target=target, place=PLACE, state=state, cluster=cluster, identity=cluster.identity()
    )


class App(AppDir):
    """An app that has no files."""

    def __init__(self) -> None:
        """Read nothing."""

    @property
    def app(self) -> Any:  # type: ignore[override]
        """Give an app without rules."""
        return app.App(name="demo")

    @property
    def environment_names(self) -> tuple[str, ...]:  # type: ignore[override]
        """Give the one there is."""
        return ("dev",)


def apply(about: ResolvedTarget, changes: Changes | None = None) -> Changes:
    changes_of = changes or compared(about)
    run = Run(about.cluster, on_event=silent, clock=VirtualClock(), context=context_of(about))
    run.apply(changes_of.changes)
    return changes_of


def live_of(cluster: MemoryCluster) -> dict[str, Any]:
    live = cluster.get(REF)
    assert live is not None
    return live


def write(cluster: MemoryCluster, writes: list[tuple[str, dict[str, str]]]) -> None:
    for manager, data in writes:
        cluster.patch(REF, {"data": data}, manager=manager)


def inventory_of(cluster: MemoryCluster, about: ResolvedTarget) -> Inventory:
    """Give what is recorded after a write."""
    (manifest,) = about.state.objects
    live = live_of(cluster)
    member = Member(
        identity=manifest.identity,
        api_version="v1",
        component="a",
        uid=live["metadata"]["uid"],
        payload_hash=payload_hash(manifest.data),
        owned_hash=owned_hash(live),
    )
    return Inventory(app="demo", environment="dev", namespace="default", members={manifest.identity: member})


@given(DATA, WRITES, DATA)
def test_hashes_and_dry_runs_agree_on_what_is_unchanged(
    first: dict[str, str], writes: list[Any], now: dict[str, str]
) -> None:
    cluster = MemoryCluster(SCHEMAS, clock=VirtualClock())
    before = resolved(cluster, first, App())
    apply(before)
    inventory = inventory_of(cluster, before)
    write(cluster, writes)
    about = resolved(cluster, now, App())
    (quick,), (thorough,) = compared(about, inventory=inventory).changes, compared(about).changes
    assert quick.action == thorough.action
    if quick.live_metadata is None and quick.action == "unchanged":  # told from hashes alone
        assert not thorough.writes
        assert not thorough.left


@given(DATA, WRITES, DATA, WRITES)
def test_what_was_approved_is_done_or_nothing(
    first: dict[str, str], writes: list[Any], now: dict[str, str], later: list[Any]
) -> None:
    cluster = MemoryCluster(SCHEMAS, clock=VirtualClock())
    apply(resolved(cluster, first, App()))
    write(cluster, writes)
    about = resolved(cluster, now, App())
    approved = compared(about)
    write(cluster, later)
    between, (again,) = live_of(cluster), compared(about).changes
    try:
        apply(about, approved)
    except OutdatedError as error:
        assert "changed since it was shown" in str(error)
        assert live_of(cluster) == between
        assert again.digest != approved.changes[0].digest
        return
    if approved.changes[0].writes and again.digest == approved.changes[0].digest:
        (after,) = compared(about).changes
        assert after.action == "unchanged"


@given(DATA, WRITES, DATA)
@example({}, [("operator", {"a": "1"}), ("kubectl-edit", {"a": "2"})], {})
def test_nothing_is_to_do_after_an_apply_among_others(
    first: dict[str, str], writes: list[Any], now: dict[str, str]
) -> None:
    cluster = MemoryCluster(SCHEMAS, clock=VirtualClock())
    apply(resolved(cluster, first, App()))
    write(cluster, writes)
    about = resolved(cluster, now, App())
    apply(about)
    before = live_of(cluster)
    (change,) = apply(about).changes
    assert (change.action, change.writes) == ("unchanged", False)
    assert live_of(cluster) == before
    left = {path for path, _ in change.left}
    ours = {
        managed_fields.path_text(path)
        for path in managed_fields.paths(managed_fields.owned(before, "mlstack"))
    }
    assert not left & ours


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["kubectl-edit", "k9s", "operator"]),
        st.dictionaries(st.sampled_from("abcd"), st.none() | st.sampled_from("123"), max_size=3),
    ),
    max_size=4,
)


@given(DATA, EDITS, DATA, st.booleans())
def test_nothing_of_people_stays_but_labels_and_everything_of_programs(
    first: dict[str, str], edits: list[Any], now: dict[str, str], keeps: bool
) -> None:
    cluster = MemoryCluster(SCHEMAS, clock=VirtualClock())
    before = resolved(cluster, first, App())
    apply(before)
    inventory = inventory_of(cluster, before)
    write(cluster, edits)
    cluster.patch(REF, {"metadata": {"labels": {"team": "red"}}}, manager="kubectl-label")
    meddled, about = live_of(cluster), resolved(cluster, now, App())
    owners = {
        key.removeprefix("f:"): entry.owner.manager
        for entry in managed_fields.entries(meddled)
        for key in entry.tree.get("f:data", {})
        if key != "."
    }
    options = ApplyOptions(keep_foreign_fields=keeps)
    apply(about, compared(about, options=options, inventory=inventory))
    live = live_of(cluster)
    stays = {"operator"} | ({"kubectl-edit", "k9s"} if keeps else set())
    for key in "abcd":
        owner, value = owners.get(key), meddled.get("data", {}).get(key)
        if key in now:
            assert live["data"][key] == (value if owner == "operator" else now[key])
        else:
            assert live.get("data", {}).get(key) == (value if owner in stays else None)
    assert live["metadata"]["labels"]["team"] == "red"
    (again,) = compared(about, options=options, inventory=inventory).changes
    assert (again.action, again.writes) == ("unchanged", False)
