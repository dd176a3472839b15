"""`import`: what others wrote becomes components of the app."""

from __future__ import annotations

from mlstack.cli.main import ListingGroup, family
from mlstack.cli.options import option, word
from mlstack.cli.ports import Session


class ImportGroup(ListingGroup):
    """A group that takes files where no command is named: `import web.yaml` is `import files web.yaml`."""

    default = "files"


imports = family(
    "Take over what exists: `import FILE` takes manifests, the commands below what tools write.",
    cls=ImportGroup,
)

MODULE = option("--module NAME", "The module the components go to.")
FORCE = option("--force", "Replace components of the same name.")


@imports.command(
    examples=[
        "mlstack import deployment.yaml",
        "mlstack import manifests/ --module legacy",
        "mlstack import - --name web < web.yaml",
    ],
    places=word("FILE|DIR|-...", "Manifests in YAML or JSON; `-` reads standard input."),
    module=MODULE,
    name=option("--name NAME", "What the only component is called. Default: its file's name."),
    split=option("--split", "One component an object, not one a file."),
    force=FORCE,
)
def files(
    session: Session,
    places: list[str],
    module: str = "",
    name: str | None = None,
    split: bool = False,
    force: bool = False,
) -> object:
    """Make components of manifests; their text and comments stay as they are."""
    from mlstack.operations import imports

    return imports.import_manifests(session.app, places, module=module, name=name, split=split, replace=force)
