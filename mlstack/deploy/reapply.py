"""What is applied again as it stood: changes that somebody approved, or an earlier revision.

A plan is one JSON document, declared by the schema `Plan.json`; `plan --out` writes it and `apply` reads it.
It may lie about where Secrets may not, so it holds no secret, nor a hash from which one could be guessed at
the speed of a hash: every digest is salted, and dear to compute where a secret may be behind it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlstack
from mlstack.app import edit
from mlstack.app.app import Component
from mlstack.app.components import Overrides
from mlstack.app.document import API_VERSION
from mlstack.app.environment import ClusterIdentity
from mlstack.app.schema import check_file
from mlstack.clock import timestamp
from mlstack.dataclass import Record
from mlstack.deploy import target as guard
from mlstack.deploy.changes import (
    DECIDING,
    DONE,
    ApplyOptions,
    Change,
    ChangeAction,
    Changes,
    RunResult,
    hide_secrets,
)
from mlstack.deploy.history import (
    CHANGING,
    DamagedHistoryError,
    History,
    Revision,
    changes_between,
    last_good_revision,
    only,
    open_history,
)
from mlstack.deploy.inventory import Inventory, as_members, load_inventory
from mlstack.deploy.live import fetch
from mlstack.deploy.plan import ApplyPlan, diff
from mlstack.deploy.replacement import earlier_state, sparing_claims
from mlstack.deploy.target import ResolvedTarget, Target, resolve
from mlstack.errors import (
    ClusterError,
    ConfigError,
    ConflictError,
    MlstackError,
    NotFoundError,
    SchemaError,
    UsageError,
    WrongClusterError,
)
from mlstack.kube import parallel
from mlstack.kube.client import Opener
from mlstack.names import listed
from mlstack.objects import masking
from mlstack.objects.kube_object import DesiredState, Identity

KIND = "Plan"
PlanData = Mapping[str, Any]
"""A plan file; the descriptions of its keys stand in `Plan.json`."""

_NEW_PLAN = "make a new one: mlstack plan ENV --out FILE"
_IDLE: frozenset[ChangeAction] = frozenset({"unchanged", "kept", "missing"})
_WORK = 2**11  # 7 ms a digest: nothing for a plan, 80 days for a dictionary of a billion words
_SHOWN = 5  # differences that are named
_LONGEST = 40  # characters of a value that is shown


def digest(text: str, salt: str, *, costly: bool) -> str:
    """Give a salted digest that says whether a text is the same and nothing else; the empty text stays empty.

    It is `costly` if a secret may be behind it; `salt` is the same for all digests of one plan.
    """
    if not text:
        return ""
    if not costly:
        return "sha256:" + hashlib.sha256(f"{salt}\0{text}".encode()).hexdigest()
    return "scrypt:" + hashlib.scrypt(text.encode(), salt=salt.encode(), n=_WORK, r=8, p=1, dklen=32).hex()


# --- approve ---


def approve(plan: ApplyPlan, *, now_s: float, salt: str) -> dict[str, Any]:
    """Write down what a deploy would do, so that exactly that can be done later.

    Raises:
        ClusterError: the cluster does not say who it is.
    """
    state, changes, target = plan.resolved.state, plan.changes, plan.resolved.target
    cluster = changes.cluster
    if cluster is None or not guard.is_known(cluster):
        raise ClusterError("the cluster does not say who it is, so a plan could be applied to any other")
    overrides = target.overrides.plain() if target.overrides else {}
    overrides_digest = digest(_text(overrides), salt, costly=state.has_secrets) if overrides else ""
    identity = {"uid": cluster.uid, "ca": cluster.ca, "server": cluster.server}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "tool": f"mlstack/{mlstack.__version__}",
        "created": timestamp(now_s),
        "app": state.app,
        "environment": state.environment,
        "context": changes.context,
        "namespace": state.namespace,
        "cluster": {name: fact for name, fact in identity.items() if fact is not None},
        "selection": list(target.components),
        "components": list(state.components),
        "options": {_camel(name): getattr(plan.options, name) for name in DECIDING},
        "overrides": {} if _sets_secrets(target) else overrides,
        "overridesDigest": overrides_digest,
        "packages": target.app.lock.digests,
        "inputs": _inputs(target, salt, costly=state.has_secrets),
        "salt": salt,
        "costly": state.has_secrets,
        "counts": changes.counts(),
        "notes": [masking.scrubbed(note) for note in changes.notes],
        "objects": rows(changes, salt, costly=state.has_secrets),
    }


def rows(changes: Changes, salt: str, *, costly: bool) -> list[dict[str, Any]]:
    """Give each change as a plan file holds it: what a run knows of secrets stands nowhere in it.

    A change with the same digest is the same change; it is that of the true values, and dear to compute only
    where a secret is behind it.
    """

    def row(change: Change) -> dict[str, Any]:
        key, data = change.identity, change.desired.data if change.desired is not None else {}
        holds_secret = (key.group, key.kind) == ("", "Secret") or (
            bool(changes.secrets) and masking.mask_values(data, changes.secrets) != data
        )
        return {
            "object": str(key),
            "group": key.group,
            "apiVersion": change.api_version,
            "kind": key.kind,
            "namespace": key.namespace,
            "name": key.name,
            "component": change.component,
            "action": change.action,
            "uid": change.live_uid,
            "digest": digest(change.digest, salt, costly=costly and holds_secret),
            "reason": masking.scrubbed(change.reason),
            "fields": [
                {
                    "path": field.path,
                    "action": field.action,
                    "old": masking.scrubbed_value(field.old),
                    "new": masking.scrubbed_value(field.new),
                }
                for field in hide_secrets(change.fields, changes.secrets)
            ],
            "notes": [masking.scrubbed(note) for note in change.notes],
        }

    return parallel.whole(parallel.run(row, changes.changes))


def _inputs(target: Target, salt: str, *, costly: bool) -> dict[str, str]:
    inputs = target.app.files.inputs()
    digests = parallel.run(lambda file: digest(inputs[file], salt, costly=costly), list(inputs))
    return dict(zip(inputs, map(str, digests), strict=True))


def _text(overrides: Mapping[str, Any]) -> str:
    return json.dumps(overrides, sort_keys=True)


def _sets_secrets(target: Target) -> bool:
    """Tell whether a parameter that was given for this run is secret in any component it may reach."""
    if not target.overrides:
        return False
    app, place = target.app, target.environment
    names = {name for _, name, _ in target.overrides.keys(app.component_files)}
    prototypes = (app.prototype_of(own, place) for own in app.components() if isinstance(own, Component))
    declared = (param for prototype in prototypes for param in prototype.params.values() if param.secret)
    return any(names & {param.name, *param.aliases} for param in declared)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


# --- take up what was approved ---


def target_of(document: PlanData, target: Target) -> Target:
    """Give what a plan is about, in the place of what was asked for beside it.

    Of `target` count the app directory, and what an option gave: another context, parameters.

    Raises:
        ConfigError: the plan is another app's.
        UsageError: it was made with secret parameters, and other ones are given now, or none.
    """
    app = target.app.app.name
    if document["app"] != app:
        raise ConfigError(f"the plan is for app `{document['app']}`, this is app `{app}`")
    current = target.app.environment(document["environment"])
    elsewhere = document["context"] if document["context"] != current.context else None
    return replace(
        target,
        environment=document["environment"],
        components=tuple(document["selection"]),
        overrides=_overrides(document, target.overrides),
        context=target.context or elsewhere,
        namespace=document["namespace"] if document["namespace"] != current.namespace else None,
    )


def _overrides(document: PlanData, given: Overrides | None) -> Overrides:
    if document["overrides"] or not document["overridesDigest"]:
        if given:
            raise UsageError("a plan holds its parameters", hint="leave `--set` and `--values` out")
        return Overrides.from_plain(document["overrides"])
    text = _text(given.plain()) if given else ""
    if given and digest(text, document["salt"], costly=document["costly"]) == document["overridesDigest"]:
        return given
    raise UsageError(
        "the plan was made with secret parameters, which it does not hold"
        + ("; these are others" if given else ""),
        hint="give the same `--set` and `--values` as when it was made",
    )


def options_of(document: PlanData, options: ApplyOptions) -> ApplyOptions:
    """Give the options of an apply, those that decide what happens as they were approved."""
    decided: dict[str, Any] = {name: document["options"].get(_camel(name), False) for name in DECIDING}
    return replace(options, **decided)


# --- verification: is what an apply would do now still what was approved ---


def refuse_moved_files(document: PlanData, target: Target, *, where: str) -> None:
    """Raise if the files are not those that the approved changes were made from; ask after the render.

    Raises:
        ConfigError: naming each file and package that moved.
    """
    inputs = _inputs(target, document["salt"], costly=document["costly"])
    packages, moved = target.app.lock.digests, list[str]()
    for kind, before, now in (("package ", document["packages"], packages), ("", document["inputs"], inputs)):
        for name in sorted(before.keys() | now.keys()):
            old, new = before.get(name, ""), now.get(name, "")
            if old != new:
                verb = "has changed" if old and new else "is new" if new else "is not read any more"
                moved.append(f"{kind}`{name}` {verb}")
    if moved:
        text = "\n  ".join(["the files have changed since the plan was made; nothing was done", *moved])
        raise ConfigError(text, where=where, hint=_again(document))


def refuse_moved_cluster(document: PlanData, identity: ClusterIdentity, *, context: str) -> None:
    """Raise WrongClusterError if another cluster answers than the one that the plan was made for."""
    approved = ClusterIdentity(**document["cluster"])
    if guard.differ(approved, identity):
        raise WrongClusterError(
            f"the plan is for another cluster than context `{context}` leads to:"
            f" made for {guard.describe(approved)}, found {guard.describe(identity)}",
            hint=f"give the context of that cluster with --context, or {_again(document)}",
        )


def refuse_moved_objects(document: PlanData, changes: Changes, *, where: str) -> None:
    """Raise if something would be done that was not approved.

    Raises:
        ConflictError: saying of each object what.
    """
    moved = moved_objects(document["objects"], rows(changes, document["salt"], costly=document["costly"]))
    if moved:
        text = "\n  ".join(["the cluster has moved since the plan was made; nothing was done", *moved])
        raise ConflictError(text, where=where, hint=_again(document))


def _again(document: PlanData) -> str:
    return f"make a new plan: mlstack plan {document['environment']} --out FILE"


_NAME = ("group", "kind", "namespace", "name")


def moved_objects(approved: Sequence[PlanData], now: Sequence[PlanData]) -> list[str]:
    """Say of each row of today what would happen to its object that was not approved.

    An object that is as approved already needs nothing any more, so an apply that was interrupted can be
    taken up again with the same file.
    """
    before = {tuple(row[part] for part in _NAME): row for row in approved}
    moved = ((row, _moved(before.get(tuple(row[part] for part in _NAME)), row)) for row in now)
    return [f"{row['object']}: {text}" for row, text in moved if text]


def _moved(old: PlanData | None, now: PlanData) -> str:
    action: ChangeAction = now["action"]
    if action in _IDLE and (old is None or old["action"] in _IDLE or action == "unchanged"):
        return ""
    if old is None:
        return f"would be {DONE[action]}, which the plan does not hold"
    if action not in _IDLE and (old["action"], old["digest"]) == (action, now["digest"]):
        return ""
    if old["uid"] and now["uid"] and old["uid"] != now["uid"]:
        return "was deleted and made anew by somebody else"
    if old["action"] != action:
        gone = old["uid"] and not now["uid"]
        return f"{'is gone and ' if gone else ''}would be {DONE[action]}, not {DONE[old['action']]}"
    texts = list(_differences(old["fields"], now["fields"]))
    named = f": {listed(texts, _SHOWN)}" if texts else ""
    return f"differs in another way than when it was approved{named}"


def _differences(old: Sequence[PlanData], new: Sequence[PlanData]) -> Iterator[str]:
    before, now = ({field["path"]: field for field in fields} for fields in (old, new))
    for path in dict.fromkeys((*before, *now)):
        if path not in now:
            yield f"`{path}` is as wanted already"
        elif path not in before:
            yield f"`{path}` differs as well"
        elif before[path] != now[path]:
            value, approved = now[path]["old"], before[path]["old"]
            texts = [json.dumps(side, ensure_ascii=False) for side in (value, approved)]
            is_short = value != approved and all(len(text) <= _LONGEST for text in texts)
            yield f"`{path}` is {texts[0]}, was {texts[1]}" if is_short else f"`{path}` has another value"


# --- plan file ---


def write(path: Path, document: PlanData) -> None:
    """Write a plan file that its owner alone can read, as a whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    edit.write_files({path: json.dumps(document, indent=2, ensure_ascii=False) + "\n"}, private=[path])


def read(path: Path) -> PlanData:
    """Read a plan file.

    Raises:
        NotFoundError: there is none.
        ConfigError: it is damaged, something else, or of a newer mlstack.
    """
    where = str(path)
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise NotFoundError(f"no plan file `{path}`", hint=_NEW_PLAN) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError("the plan file is damaged: it is no JSON", where=where, hint=_NEW_PLAN) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"cannot read the plan file: {reason}", where=where) from error
    head = document if isinstance(document, dict) else {}
    api_version, kind = head.get("apiVersion"), head.get("kind")
    if kind == KIND and api_version != API_VERSION and str(api_version).startswith("mlstack.dev/"):
        raise ConfigError(
            f"the plan file has version `{api_version}`, this mlstack reads `{API_VERSION}`",
            where=where,
            hint=f"use the mlstack that made it ({head.get('tool', 'a newer one')}), or {_NEW_PLAN}",
        )
    if (api_version, kind) != (API_VERSION, KIND):
        content = f"a `{kind}` of `{api_version}`" if kind else "something else"
        raise ConfigError(f"this is no plan file, but {content}", where=where, hint=_NEW_PLAN)
    try:
        check_file(KIND, document, source=where)
    except SchemaError as error:
        raise ConfigError(f"the plan file is damaged: {error}", where=where, hint=_NEW_PLAN) from error
    return head


# --- going back to an earlier revision: asked for, or after an apply that failed ---


class RollbackGoal(Record):
    """Where going back leads: what is to be planned, the set of today, and what is to be said."""

    resolved: ResolvedTarget
    options: ApplyOptions
    what: str
    now: DesiredState
    notes: tuple[str, ...]
    created: frozenset[str] = frozenset()  # what the apply made that failed


def earlier_goal(
    target: Target, opener: Opener, *, number: int | None = None, options: ApplyOptions
) -> RollbackGoal:
    """Find the revision to go back to; without a number the newest before the last one that worked.

    Claims stay as they are: those of today are neither deleted nor given the size they had. So do
    definitions that would lose something, unless the options allow that.

    Raises:
        NotFoundError: there is no such revision, or none before the newest.
        ClusterError: the cluster cannot be asked or is another one.
    """
    past = open_history(target, opener)
    revisions, notes = past.revisions(), list[str]()
    if number is not None:
        revision = past.find(number)
    else:
        revision, notes = _last_before(past, revisions)
    earlier = past.load(revision)
    try:
        now = past.load(revisions[-1])
    except DamagedHistoryError as error:  # what is there now is known from the inventory all the same
        now = earlier
        notes.append(error.message)
    state, stays = earlier_state(earlier, now, may_lose=options.allow_destructive)
    return RollbackGoal(
        resolved=resolve(target, lambda context: past.cluster, state=state),
        options=options,
        what=f"rollback to {revision.number}",
        now=now,
        notes=(*notes, *stays, *_files_differ(target, state)),
    )


def _last_before(past: History, revisions: Sequence[Revision]) -> tuple[Revision, list[str]]:
    """Give the newest revision that worked before what is there now, and what is to be said of others."""
    before, notes = revisions[:-1], list[str]()
    if revisions and revisions[-1].is_good:
        owner = Inventory(app=past.app, environment=past.environment, namespace=past.namespace)
        inventory = load_inventory(past.cluster, owner)
        # What a run is about to write loses its hashes until that has ended.
        if not inventory.notes and any(not member.owned_hash for member in inventory.ordered()):
            before, notes = revisions, [f"the run after revision {revisions[-1].number} was cut off"]
    if not before:
        history = f"only revision {revisions[0].number}" if revisions else "no history"
        raise NotFoundError(
            f"environment `{past.environment}` has nothing to go back to: {history}",
            hint=f"mlstack history {past.environment}",
        )
    revision = last_good_revision(before) or before[-1]
    if passed := [str(later.number) for later in before if later.number > revision.number]:
        notes.append(f"revision {', '.join(passed)} is passed over: it did not work")
    return revision, notes


def to_earlier(plan: ApplyPlan, goal: RollbackGoal) -> ApplyPlan:
    """Give a plan of an earlier set without what it must not do to claims, and with what is to be said."""
    changes = sparing_claims(plan.changes.changes, goal.now)
    notes = (*plan.changes.notes, *goal.notes)
    return replace(plan, changes=replace(plan.changes, changes=changes, notes=notes))


def _files_differ(target: Target, state: DesiredState) -> Iterator[str]:
    """Warn if the next apply would undo the rollback."""
    environment = target.environment
    try:
        desired = target.desired()
    except MlstackError as error:
        yield f"the files of the app cannot be rendered at present: {error.message}"
        return
    if changes_between(state, desired):
        yield (
            "the files of the app still say something else: the next `mlstack apply"
            f" {environment}` undoes this; see `mlstack diff {environment}`"
        )


# --- after an apply that failed ---


class LastGood(Record):
    """What an apply may go back to without a question, as it was known before it began."""

    revision: int  # the last one that worked
    state: DesiredState  # its set
    borne_out: frozenset[Identity]  # the objects of which the cluster had exactly what the set says


def last_good(plan: ApplyPlan) -> LastGood | None:
    """Give what an apply may go back to, before it begins; None if no earlier revision worked.

    A history lies in Secrets: whoever may write those in the namespace may write a revision of their own,
    with the rights of whoever goes back to it. Nothing else in the namespace vouches for one either, since
    whoever may write Secrets there may mostly write all else. So a revision is believed as far as the live
    objects, looked at one by one, are what it says: to bring those back gives nobody more than they had.
    Only the components that the apply is about go back.

    Raises:
        ClusterError: the cluster cannot be asked.
    """
    resolved = plan.resolved
    past = History.of(resolved.state.app, resolved.place, resolved.cluster)
    revisions = past.revisions()
    components = resolved.state.known_as if resolved.selective else ()
    while (good := last_good_revision(revisions, components)) is not None:
        try:
            state = past.load(good)
        except DamagedHistoryError:  # the one before it may be whole
            revisions = tuple(revision for revision in revisions if revision.number < good.number)
            continue
        earlier = only(state, components) if resolved.selective else state
        return LastGood(revision=good.number, state=state, borne_out=_borne_out(plan, earlier))
    return None


def _borne_out(plan: ApplyPlan, earlier: DesiredState) -> frozenset[Identity]:
    """Give the objects of a set that are there as it says; the inventory's hashes are not asked."""
    namespace = plan.place.namespace
    nothing = Inventory(app=earlier.app, environment=earlier.environment, namespace=namespace)
    try:
        desired = replace(plan.resolved, state=as_members(earlier, namespace))
        options = replace(plan.options, dry_run=True, create=False, adopt=False, keep_foreign_fields=True)
        changes = diff(fetch(desired, options, inventory=nothing))
    except ClusterError:  # a kind that the cluster does not have: the apply itself needs none of this
        return frozenset()
    return frozenset(change.identity for change in changes.changes if change.action == "unchanged")


def failure_goal(failed: ApplyPlan, error: MlstackError, good: LastGood | None) -> RollbackGoal | str:
    """Find what to go back to after an apply that `error` ended, or say why nothing is rolled back.

    Objects come back that were there as the revision says when the apply began, and those go that it has
    made; nothing else that a revision says is done without a question.
    """
    done = error.partial
    if not (isinstance(done, RunResult) and any(result.outcome in CHANGING for result in done.objects)):
        return "nothing was changed, so nothing is rolled back"
    if good is None:
        return "nothing is rolled back: no earlier revision of this environment worked"
    resolved, number = failed.resolved, good.revision
    earlier = only(good.state, resolved.state.known_as) if resolved.selective else good.state
    today = {obj.identity: obj for obj in resolved.state.objects}
    doubted = [obj.identity for obj in earlier.objects if obj.identity not in good.borne_out]
    believed = [obj for obj in earlier.objects if obj.identity in good.borne_out]
    instead = [today[key] for key in doubted if key in today]
    vouched = replace(earlier, objects=(*believed, *instead))
    state, stays = earlier_state(vouched, resolved.state, may_lose=failed.options.allow_destructive)
    notes = [
        f"{key} is not brought back: before this run the cluster had not what revision {number} says of it;"
        f" if that is wanted: mlstack rollback {failed.place.name} {number}"
        for key in doubted
    ]
    for result in done.objects:
        if result.outcome in ("recreated", "deleted", "terminating"):
            notes.append(f"{result.object} was {result.outcome}: what it had done or held does not come back")
    return RollbackGoal(
        resolved=replace(resolved, state=state, whole=good.state),
        # The set was whole once, so that what goes is what the failed apply brought.
        options=replace(failed.options, prune=True, create=True, allow_large_prune=True),
        what=f"rollback to {number} after a failure",
        now=resolved.state,
        created=frozenset(result.object for result in done.objects if result.outcome == "created"),
        notes=(f"rolling back to revision {number}", *stays, *notes),
    )


def to_last_good(plan: ApplyPlan, goal: RollbackGoal, failed: ApplyPlan) -> ApplyPlan:
    """Give a plan of what is known to be good, which takes away only what the apply made."""
    changes, stays = [], []
    for change in sparing_claims(plan.changes.changes, goal.now):
        # That a revision does not have what was there before the run is no reason to delete it.
        was_there = change.action == "delete" and str(change.identity) not in goal.created
        reason = "was there before this run" if was_there else change.reason
        changes.append(replace(change, action="kept", reason=reason, writes=False) if was_there else change)
        if was_there or change.action == "kept":
            stays.append(f"{change.identity} stays: {reason}")
    notes = (goal.notes[0], *stays, *goal.notes[1:], *plan.changes.notes)
    changed = replace(plan.changes, changes=tuple(changes), notes=notes)
    return replace(plan, changes=changed, pin=None, lock=failed.lock)
