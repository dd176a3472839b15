"""`registry` with its commands."""

from __future__ import annotations

from pathlib import Path

from mlstack.cli.main import family
from mlstack.cli.options import option, word
from mlstack.cli.ports import Session

registry = family("Registries: where packages come from.")

REGISTRY = word("NAME", "The app's own name for the registry.")


@registry.command(
    "add",
    examples=[
        "mlstack registry add kubeflow github.com/google/kubeflow/tree/master/kubeflow",
        "mlstack registry add ours ../our-registry",
    ],
    name=REGISTRY,
    address=word("ADDRESS", "A folder, a git URL or a GitHub tree address."),
)
def add_registry(session: Session, name: str, address: str) -> object:
    """Add a registry to the app, once it is known to answer."""
    from mlstack.operations import registries

    return registries.add_registry(session.app, name, address)


@registry.command("list", examples=["mlstack registry list"])
def list_registries(session: Session) -> object:
    """List the registries of the app."""
    from mlstack.operations import registries

    return registries.list_registries(session.app)


@registry.command("describe", examples=["mlstack registry describe kubeflow"], name=REGISTRY)
def describe_registry(session: Session, name: str) -> object:
    """Show a registry and its packages."""
    from mlstack.operations import registries

    return registries.describe_registry(session.app, name)


@registry.command(
    takes="output",
    examples=["mlstack registry index registry/"],
    place=word("DIR", "The registry's folder, the one with registry.yaml."),
    check=option("--check", "Write nothing; exit 1 if it is stale."),
)
def index(session: Session, place: Path, check: bool = False) -> object:
    """Rewrite a registry's index from its package folders."""
    from mlstack.operations import registries

    return registries.index_registry(place, check=check)
