"""Changes that a dry run cannot tell: the server refuses it, or cannot be asked yet."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlstack.engine.comparing import probe, refusals
from mlstack.engine.comparing.making import Making
from mlstack.errors import Cause, InvalidError, MlstackError
from mlstack.model import adoption, conflicts, displacing, fields, payload, renewal
from mlstack.model.diff import Change, Refusal
from mlstack.model.dropped import Dropped
from mlstack.model.fields import FieldChange
from mlstack.model.objects import MANAGER
from mlstack.model.renewal import Verdict
from mlstack.model.replacement import needs_new_run


class Otherwise:
    """Works out the change of one object without an answer to a dry run of it.

    Args:
        making: makes changes of the object.
    """

    def __init__(self, making: Making) -> None:
        """Hold the parts; nothing is asked."""
        self._make, self._wanted, self._world = making, making.wanted, making.outlook.world

    def refused(self, live: Mapping[str, Any], error: InvalidError) -> Change:
        """Tell a change that cannot be made in place from an object that is wrong: ask under another name."""
        is_definition = refusals.is_definition(self._wanted)
        wanted = self._wanted.data
        copy = wanted if is_definition else probe.attempt(self._world.cluster, wanted, live)
        fault = copy if isinstance(copy, MlstackError) else None
        if not isinstance(copy, MlstackError):
            items = displacing.displaced(live, self._make.data, error.causes)
            if items:
                return self._displacing(live, items, copy)
        if not renewal.says_fixed(error.causes) and (is_definition or fault is not None):
            raise error
        after = self._wanted.data if isinstance(copy, MlstackError) else copy
        tree = fields.union(fields.owned(live, MANAGER), fields.owned(after, MANAGER))
        if after is self._wanted.data:  # as it is written, without what the server would fill in
            tree = fields.tree_of(after)
        foreign = self._make.outlook.foreign_of(self._wanted, live)
        found = (
            *fields.compare(live, after, tree),
            *fields.compare(live, after, fields.tree_along(foreign.paths)),
        )
        changed = tuple({one.path: one for one in found}.values())
        lost = refusals.losses(self._world.cluster, live, self._wanted.data) if is_definition else ()
        why = needs_new_run(self._wanted.with_data(live), changed)
        fixed = "; ".join(lost) or renewal.sentence(self._wanted, error.causes, changed)
        verdict = renewal.judge(self._wanted, self._world.state.environment, fixed=fixed, why=why)
        if fault is not None and verdict.recreate:
            verdict = renewal.unless_refused(verdict, fault)
        return self.anew(live, changed, verdict, self._notes(live, foreign, changed))

    @staticmethod
    def _notes(live: Mapping[str, Any], foreign: Dropped, changed: Sequence[FieldChange]) -> tuple[str, ...]:
        """Say what people added and goes with the object; nothing of what a new one has too."""
        differing = {one.path for one in changed}
        return tuple(
            conflicts.describe_foreign(live, loss)
            for loss in foreign.taken
            if any(text.startswith(path) for text in loss.texts for path in differing)
        )

    def fixed(
        self,
        live: Mapping[str, Any],
        changed: tuple[FieldChange, ...],
        causes: Sequence[Cause],
        notes: tuple[str, ...],
    ) -> Change:
        """Give the change of an object from which fields cannot go while it exists."""
        fixed = renewal.sentence(self._wanted, causes, changed)
        verdict = renewal.judge(self._wanted, self._world.state.environment, fixed=fixed, why=None)
        return self.anew(live, changed, verdict, notes)

    def unasked(self) -> Change:
        """Give the change of an object whose definition changes first: until then the server cannot tell."""
        note = "not checked by the server: its definition changes first"
        live = self._world.live(self._wanted)
        if live is None:
            return self._make.creation(False, notes=(note,))
        tree = fields.union(fields.owned(live, MANAGER), fields.tree_of(self._make.data))
        changed = tuple(fields.compare(live, self._make.data, tree))
        return self._make.update(
            live,
            changed,
            notes=(note,),
        )

    def outdated(self, live: Mapping[str, Any]) -> Change:
        """Give the change of an object whose field owners stand in a version that is not served any more."""
        tree = fields.union(fields.tree_of(self._make.data), {})
        changed = tuple(
            one
            for one in fields.compare(live, self._make.data, tree)
            if not one.path.startswith("apiVersion")
        )
        return self._make.update(
            live,
            changed,
            action="update" if changed else "unchanged",
            notes=(
                "its field owners are rewritten first: they stand in a version that is not served any more",
            ),
            prepare=adoption.reversioned(live, api_version=self._wanted.api_version),
        )

    def anew(
        self,
        live: Mapping[str, Any],
        changed: tuple[FieldChange, ...],
        verdict: Verdict,
        notes: tuple[str, ...] = (),
    ) -> Change:
        """Give the change of an object that cannot take it in place; made anew, it is sent whole."""
        refusal = Refusal(kind="immutable", reasons=(verdict.reason,), hint=verdict.hint)
        return self._make.update(
            live,
            changed,
            action="recreate" if verdict.recreate else "update",
            reason=verdict.reason if verdict.recreate else "",
            notes=notes,
            refusal=None if verdict.recreate else refusal,
            payload=self._wanted.data,
        )

    def _displacing(
        self, live: Mapping[str, Any], items: tuple[payload.Path, ...], after: Mapping[str, Any]
    ) -> Change:
        """Give the change of an object in which a person's list items stand where ours are to be."""
        tree = fields.union(fields.owned(live, MANAGER), fields.owned(after, MANAGER))
        changed = [
            *fields.compare(live, after, tree),
            *(
                FieldChange(path=fields.path_text(path), action="removed", old=payload.value_at(live, path))
                for path in items
            ),
        ]
        said = ", ".join(f"`{fields.path_text(path)}`" for path in items)
        return self._make.update(
            live,
            changed,
            notes=(f"removes {said}, which a person put in the place of ours",),
            prepare=displacing.take_items(live, items, api_version=self._wanted.api_version),
        )
