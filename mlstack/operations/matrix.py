"""`env matrix`: parameters, images, replicas and GPUs of several environments side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from mlstack.app import layout
from mlstack.app.app import API_VERSION, Component
from mlstack.app.app_dir import AppDir
from mlstack.app.declare import to_map
from mlstack.app.environment import ApprovedDifference
from mlstack.app.secret_values import mapped, shown
from mlstack.dataclass import dataclass
from mlstack.errors import UsageError
from mlstack.objects.kube_object import DesiredState
from mlstack.objects.masking import MASK
from mlstack.objects.references import templates
from mlstack.objects.resources import is_gpu, requests
from mlstack.render import render
from mlstack.render.template import CodeStore

Section = Literal["param", "image", "replicas", "gpus"]


@dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """One thing in all environments."""

    section: Section  # what kind of thing it is
    # `COMPONENT PARAM`, or `COMPONENT KIND NAME ROLE CONTAINER` as far as that is needed to tell it apart
    subject: str
    values: Mapping[str, Any]  # by environment; null where there is none; secrets are masked
    differs: bool  # whether the environments have not all the same
    approved: bool  # the difference is meant
    reason: str = ""  # why


@dataclass(frozen=True, kw_only=True)
class MatrixResult:
    """Several environments side by side."""

    api_version: str = API_VERSION  # version of this format
    kind: Literal["MatrixResult"] = "MatrixResult"  # kind of this format
    ok: bool  # true if every difference is approved
    environments: tuple[str, ...]
    rows: tuple[MatrixRow, ...]
    written: str = ""  # the file to which differences were added


def compare_all(
    app: AppDir,
    environments: Sequence[str],
    *,
    components: Sequence[str] = (),
    same: bool = False,
    approve: str | None = None,
    store: CodeStore | None = None,
) -> MatrixResult:
    """Compare environments by what their files bring; no cluster is asked.

    Args:
        app: the app directory.
        environments: at least two of them, in the order of the columns.
        components: only these components and modules.
        same: also give what is the same everywhere.
        approve: enter all differences among the approved ones, with this reason.
        store: keeps compiled templates and renders.

    Raises:
        UsageError: there is only one environment.
        NotFoundError: no such environment or component.
        ConfigError: a file, parameter or template is wrong.
    """
    if len(environments) < 2:
        raise UsageError("one environment has nothing to be compared with", hint="mlstack env matrix A B")
    cells: dict[tuple[Section, str], dict[str, Any]] = defaultdict(dict)
    for name in environments:
        state = render.load(app, name, components=components, store=store, stand_ins=True)
        for section, subject, value in (*_params(app, name, components), *_objects(state)):
            cells[section, subject][name] = value
    rows = [
        row
        for (section, subject), values in sorted(cells.items(), key=_order)
        if (row := _row(app, section, subject, values, environments)).differs or same
    ]
    written = _approve(app, rows, approve) if approve is not None else ""
    if written:
        rows = [_row(app, row.section, row.subject, row.values, environments) for row in rows]
    return MatrixResult(
        ok=all(row.approved or not row.differs for row in rows),
        environments=tuple(environments),
        rows=tuple(rows),
        written=written,
    )


@dataclass(frozen=True)
class _Secret:
    """The value of a secret parameter, which is compared and not shown."""

    value: Any  # with what people may see in the place of each reference

    def beside(self, first: Any) -> Any:
        """Give what people see of it, who see the first one as the mask."""
        text = shown(self.value)
        return f"{text} (another)" if text == MASK and isinstance(first, _Secret) and self != first else text


_SECTIONS: tuple[Section, ...] = ("param", "image", "replicas", "gpus")


def _order(cell: tuple[tuple[Section, str], Any]) -> tuple[int, str]:
    (section, subject), _ = cell
    return _SECTIONS.index(section), subject


def _row(
    app: AppDir, section: Section, subject: str, known: Mapping[str, Any], environments: Sequence[str]
) -> MatrixRow:
    values = {name: known.get(name) for name in environments}
    first = values[environments[0]]
    differs = any(value != first for value in values.values())
    values = {
        name: value.beside(first) if isinstance(value, _Secret) else value for name, value in values.items()
    }
    reason = app.approved.reason(subject) if differs else None
    return MatrixRow(
        section=section,
        subject=subject,
        values=values,
        differs=differs,
        approved=reason is not None,
        reason=reason or "",
    )


def _params(app: AppDir, environment: str, components: Sequence[str]) -> Iterator[tuple[Section, str, Any]]:
    for component in app.selected(app.environment(environment), components):
        if isinstance(component, Component):
            params = app.prototype(component.prototype).params
            for name, value in app.resolve(component, environment).values.items():
                if value is not None:
                    is_secret = name in params and params[name].secret
                    known = mapped(value, lambda place: place.shown) if is_secret else value
                    yield "param", f"{component.full_name} {name}", _Secret(known) if is_secret else known


def _objects(state: DesiredState) -> Iterator[tuple[Section, str, Any]]:
    for obj in state.objects:
        gpus = 0
        where = f"{obj.component} {obj.kind} {obj.name}"
        for template in templates(obj):
            place = f"{where} {template.role}".rstrip()
            for container in template.containers:
                yield "image", f"{place} {container.get('name', '')}".rstrip(), container.get("image")
            yield "replicas", place, template.replicas
            asked = requests(template.spec)
            gpus += template.replicas * sum(asked[name] for name in asked if is_gpu(name))
        if gpus:
            yield "gpus", where, gpus


def _approve(app: AppDir, rows: Sequence[MatrixRow], reason: str) -> str:
    """Enter the differences that are not approved yet; give the file, empty if there is none."""
    with app.locked():
        edited = app.edited(layout.APPROVED, "ApprovedDifferences")
        for row in rows:
            if row.differs and app.approved.reason(row.subject) is None:
                entry = ApprovedDifference(subject=row.subject, reason=reason)
                edited.append(("approved",), to_map(entry))
        if not edited.changed:
            return ""
        app.write({edited.file: edited.text})
    return edited.file
