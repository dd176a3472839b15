"""`registry` with its commands."""

from __future__ import annotations

from pathlib import Path

from mlstack.cli.main import family
from mlstack.cli.options import option, registries, word
from mlstack.cli.ports import Session
from mlstack.errors import UsageError

registry = family("Registries: where packages come from.")

NEW = word("NAME", "The app's own name for the registry.")
KNOWN = word("NAME", "The app's name for the registry.", registries)
ADDRESS = word(
    "ADDRESS",
    "A folder, a git URL, a GitHub or GitLab tree, oci://HOST/PATH, or https:// of charts.",
)
TYPE = option("--type PROTOCOL", "Overrules what the address says: directory, git, helm or oci.")


@registry.command(
    "add",
    examples=[
        "mlstack registry add kubeflow github.com/google/kubeflow/tree/master/kubeflow",
        "mlstack registry add ours ../our-registry",
    ],
    name=NEW,
    address=ADDRESS,
    type=TYPE,
)
def add_registry(session: Session, name: str, address: str, type: str = "") -> object:
    """Add a registry to the app, once it is known to answer."""
    from mlstack.operations import registries

    return registries.add_registry(session.app, name, address, protocol=type, stands=Path.cwd())


@registry.command("list", examples=["mlstack registry list"])
def list_registries(session: Session) -> object:
    """List the registries of the app."""
    from mlstack.operations import registries

    return registries.list_registries(session.app)


@registry.command(
    "set",
    examples=[
        "mlstack registry set ours --uri git@example.com:ml/registry.git#v2",
        "mlstack registry set ours --uri ../my-checkout --override",
    ],
    name=KNOWN,
    uri=option("--uri ADDRESS", "Where it is now: as with `registry add`."),
    type=TYPE,
    override=option("--override", "For you alone, in a file that git does not see."),
)
def set_registry(
    session: Session, name: str, uri: str | None = None, type: str = "", override: bool = False
) -> object:
    """Lead a registry to another address, once that is known to answer."""
    from mlstack.operations import registries

    if not uri:
        raise UsageError(
            "no new address: `--uri` is missing", hint=f"mlstack registry set {name} --uri ADDRESS"
        )
    return registries.set_registry(
        session.app, name, uri, protocol=type, stands=Path.cwd(), override=override
    )


@registry.command(
    "update",
    examples=["mlstack registry update", "mlstack registry update ours"],
    names=word("[NAME]...", "The registries; all of the app without any.", registries),
)
def update_registries(session: Session, names: list[str] | None = None) -> object:
    """Ask registries again, and say what has changed in each package; nothing is installed."""
    from mlstack.operations import registries

    return registries.update_registries(session.app, names or ())


@registry.command(
    "rm",
    examples=["mlstack registry rm ours", "mlstack registry rm ours --override"],
    name=KNOWN,
    override=option("--override", "Only the address that you alone have for it."),
)
def remove_registry(session: Session, name: str, override: bool = False) -> object:
    """Take out a registry that no package of the app comes from."""
    from mlstack.operations import registries

    return registries.remove_registry(session.app, name, override=override)


@registry.command("describe", examples=["mlstack registry describe kubeflow"], name=KNOWN)
def describe_registry(session: Session, name: str) -> object:
    """Show a registry and its packages."""
    from mlstack.operations import registries

    return registries.describe_registry(session.app, name)


@registry.command(
    takes="output",
    examples=["mlstack registry index registry/", "mlstack registry index registry/ --sign cosign.key"],
    place=word("DIR", "The registry's folder, the one with registry.yaml."),
    check=option("--check", "Write nothing; exit 1 if it is stale."),
    key=option("--sign --key KEY", "Sign new versions with this private key of cosign."),
    name=option("--name NAME", "The registry's name. Default: as it is, or the folder's."),
)
def index(session: Session, place: Path, check: bool = False, name: str = "", key: str = "") -> object:
    """Rewrite a registry's index from its package folders."""
    from mlstack.operations import registries

    return registries.index_registry(place, check=check, name=name, key=key)


@registry.command(
    takes="output",
    examples=["mlstack registry lint registry/", "mlstack registry lint ../our-registry/web"],
    place=word("[DIR]", "The registry's folder, or a package's. Default: here."),
)
def lint(session: Session, place: Path = Path()) -> object:
    """Look for faults before publishing: files, templates, index, licences; exit 1 if there are any."""
    from mlstack.operations import authors

    return authors.lint_registry(place)
