"""Where components come from: `registry`, `pkg` and `prototype` with their commands, and `generate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlstack import DEFAULT_KUBERNETES_VERSION
from mlstack.cli import page
from mlstack.cli.main import Family, FreeOptionsCommand
from mlstack.cli.options import ENV_OPTION, NAMES, installable, offered, option, prototypes, registries, word
from mlstack.cli.options import examples as offer_examples
from mlstack.cli.options import packages as offer_packages
from mlstack.cli.output import say, write
from mlstack.cli.page import emit, emit_objects, table_text
from mlstack.cli.ports import Session, operations
from mlstack.errors import UsageError

registry = Family("registry", "Registries: where packages come from.")

NEW = word("NAME", "The app's own name for the registry.")
KNOWN = word("NAME", "The app's name for the registry.", registries)
ADDRESS = word(
    "ADDRESS", "A folder, a git URL, a GitHub or GitLab tree, oci://HOST/PATH, or https:// of charts."
)
TYPE = option(
    "--type PROTOCOL",
    f"How it is read, whatever the address says{NAMES}.",
    offered("registries.registry.protocols"),
)
REGISTRY_DIR = word("DIR", "The registry's folder, the one with registry.yaml.")
LINTED_DIR = word("[DIR]", "The registry's folder, or a package's. Default: here.", default=Path())
DESCRIBED = word("REGISTRY/PACKAGE[@VERSION]", "The package, as `kubeflow/core`.", installable)
TESTED_DIR = word("[DIR]", "The package's folder, the one with package.yaml. Default: here.", default=Path())
_PACKAGES = word("[REGISTRY/PACKAGE[@RANGE]]...", "The packages; all when left out.", offer_packages)
PUBLISHED_DIR = word("DIR", "The package's folder; those that it requires may lie beside it.")
PROTOTYPE = word("PROTOTYPE", "Its name or a unique end of it.", prototypes)
PARAMS = option("--set PARAM=VALUE", "A parameter; `--PARAM VALUE` means the same.")
EXAMPLE = option("--example NAME", "Start from this example of the prototype.", offer_examples)
VALUES = option("--values --values-file FILE", "A YAML file of parameters; repeatable.")
PACKAGE_DIR = option("--package DIR", "The package's folder. Default: here, else a new folder of the name.")


@registry.command(
    "add", examples=["kubeflow github.com/google/kubeflow/tree/master/kubeflow", "ours ../our-registry"]
)
def add_registry(session: Session, name: str = NEW, address: str = ADDRESS, type: str = TYPE) -> object:
    """Add a registry to the app, once it is known to answer."""
    return operations.registries.add_registry(session.app, name, address, protocol=type, stands=Path.cwd())


@registry.command("list")
def list_registries(session: Session) -> object:
    """List the registries of the app."""
    return operations.registries.list_registries(session.app)


@registry.command(
    "set", examples=["ours --uri git@example.com:ml/registry.git#v2", "ours --uri ../my-checkout --override"]
)
def set_registry(
    session: Session,
    name: str = KNOWN,
    uri: str | None = option("--uri ADDRESS", "Where it is now: as with `registry add`."),
    protocol: str = TYPE,
    override: bool = option("--override", "For you alone, in a file that git does not see."),
) -> object:
    """Lead a registry to another address, once that is known to answer."""
    if not uri:
        raise UsageError(
            "no new address: `--uri` is missing", hint=f"mlstack registry set {name} --uri ADDRESS"
        )
    return session.call(operations.registries.set_registry, address=uri, stands=Path.cwd())


@registry.command("update", examples=["", "ours"])
def update_registries(
    session: Session,
    names: Sequence[str] = word("[NAME]...", "The registries; all of the app without any.", registries),
) -> object:
    """Ask registries again, and say what has changed in each package; nothing is installed."""
    return operations.registries.update_registries(session.app, names)


@registry.command("rm", examples=["ours", "ours --override"])
def remove_registry(
    session: Session,
    name: str = KNOWN,
    override: bool = option("--override", "Only the address that you alone have for it."),
) -> object:
    """Take out a registry that no package of the app comes from."""
    return operations.registries.remove_registry(session.app, name, override=override)


@registry.command("describe", examples=["kubeflow"])
def describe_registry(session: Session, name: str = KNOWN) -> object:
    """Show a registry and its packages."""
    return operations.registries.describe_registry(session.app, name)


@registry.command(takes="output", examples=["registry/", "registry/ --sign cosign.key"])
def index(
    session: Session,
    place: Path = REGISTRY_DIR,
    check: bool = option("--check", "Write nothing; exit 1 if it is stale."),
    name: str = option("--name NAME", "The registry's name. Default: as it is, or the folder's."),
    key: str = option("--sign --key KEY", "Sign new versions with this private key of cosign."),
) -> object:
    """Rewrite a registry's index from its package folders."""
    return operations.registries.index_registry(place, check=check, name=name, key=key)


@registry.command(takes="output", examples=["registry/", "../our-registry/web"])
def lint(session: Session, place: Path = LINTED_DIR) -> object:
    """Look for faults before publishing: files, templates, index, licences; exit 1 if there are any."""
    return operations.authors.lint_registry(place)


# --- packages ---

top = Family()
pkg = Family("pkg", "Packages: prototypes under one version, pinned by digest.")
prototype = Family("prototype", "Prototypes: what components are made from.")


# --- pkg ---


@pkg.command("get", examples=["kubeflow/core"])
@pkg.command(examples=["kubeflow/core kubeflow/tf-job@^0.1", "--env gke kubeflow/core@0.1.0", "--frozen"])
def install(
    session: Session,
    names: Sequence[str] = word(
        "[REGISTRY/PACKAGE[@VERSION]]...", "Packages; `@^1.2`, a branch, commit or digest too.", installable
    ),
    env: str | None = option("--env ENV", "Only for this environment."),
    frozen: bool = option("--frozen", "Change no file but vendor/; the lock must fit."),
    force: bool = option("--force", "Fetch again what is there."),
) -> object:
    """Copy packages and what they require into vendor/, pinned in mlstack.lock.

    Without packages, restore what the app asks for, as it is locked.
    """
    if not frozen:
        return operations.packages.install_packages(session.app, names, environment=env, force=force)
    if names or env:
        raise UsageError("--frozen takes no package", hint="mlstack pkg install --frozen")
    return operations.packages.restore_packages(session.app, force=force)


@pkg.command("list", examples=["--installed"])
def list_packages(
    session: Session, installed: bool = option("--installed", "Only installed packages; asks no registry.")
) -> object:
    """List the packages that can be installed and those that are."""
    return operations.packages.list_packages(session.app, installed_only=installed)


@pkg.command("describe", examples=["kubeflow/tf-job"])
def describe_package(session: Session, name: str = DESCRIBED) -> object:
    """Show a package and its prototypes, installed or not."""
    return operations.packages.describe_package(session.app, name)


@pkg.command("remove", examples=["kubeflow/tf-serving"])
@pkg.command("rm", examples=["kubeflow/tf-serving"])
def remove_packages(
    session: Session,
    names: Sequence[str] = word("REGISTRY/PACKAGE[@VERSION]...", "The packages.", offer_packages),
    env: str | None = option("--env ENV", "Only this environment's own requirements."),
) -> object:
    """Remove packages that no component uses, together those that require each other."""
    return operations.packages.remove_packages(session.app, names, environment=env)


@pkg.command(
    takes="output",
    examples=[
        "",
        "our-registry/web --update-golden",
        "our-registry/web --prototype web --example gpu --set replicas=0",
        "our-registry/web --against ours/web@1.2.0",
    ],
)
def test(
    session: Session,
    place: Path = TESTED_DIR,
    against: str = option(
        "--against R/P@V|DIR", "The version that users have: also say whether they come through an update."
    ),
    prototype: str = option("--prototype NAME", "Only this prototype."),
    example: str = option("--example NAME", "Only this example."),
    params: Sequence[str] = option("--set PARAM=VALUE", "Only that example under these parameters."),
    update_golden: bool = option(
        "--update-golden", "Approve what the examples render to: write it into golden/."
    ),
    kubernetes: str = option(
        "--kubernetes-version VERSION",
        "Whose schemas the objects must fit.",
        default=DEFAULT_KUBERNETES_VERSION,
    ),
) -> object:
    """Try a package's prototypes: examples, combinations of parameters, hostile texts, golden output.

    Exits with 1 if there is a fault.
    """
    only = operations.authors.Selection(prototype=prototype, example=example, texts=_pairs(params))
    return session.call(operations.authors.test_package, folder=place, only=only, app=lambda: session.app)


@pkg.command(examples=["--preview", "kubeflow/core@^0.2"])
def update(
    session: Session,
    names: Sequence[str] = _PACKAGES,
    env: str | None = option("--env ENV", "Only the packages that this environment asks for itself."),
    preview: bool = option("--preview", "Change nothing; say what it would change."),
) -> object:
    """Move packages to the newest versions that the app's requirements let in."""
    return operations.package_changes.update_packages(session.app, names, environment=env, preview=preview)


@pkg.command(takes="exit_code folder output")
def outdated(
    session: Session, exit_code: bool = option("--exit-code", "Exit with 1 when something is outdated.")
) -> int:
    """List the installed packages of which there are newer versions, or that are withdrawn."""
    result = operations.package_changes.list_outdated(session.app)
    emit(result, session.options.output)
    return 1 if exit_code and result.packages else 0


@pkg.command("diff", examples=["kubeflow/core 0.1.0 0.2.0"])
def diff_packages(
    session: Session,
    name: str = word("REGISTRY/PACKAGE", "The package.", offer_packages),
    first: str = word("VERSION1", "A version, branch, tag or commit."),
    second: str = word("VERSION2", "The one to compare it with."),
) -> object:
    """Compare two versions of a package: prototypes, parameters, files."""
    return operations.package_changes.diff_packages(session.app, name, first, second)


@pkg.command()
def verify(session: Session) -> object:
    """Check every byte of vendor/ against mlstack.lock, and signatures where app.yaml asks for them."""
    return operations.package_changes.verify_packages(session.app)


@pkg.command(
    "publish", examples=["packages/jobs oci://registry.example.com/ml --sign cosign.key", ". ../our-registry"]
)
def publish_package(
    session: Session,
    place: Path = PUBLISHED_DIR,
    registry: str = word(
        "REGISTRY", "oci://HOST/PATH, a registry's folder, or the app's name for one of them."
    ),
    key: str = option("--sign --key KEY", "Sign it with this private key of cosign."),
) -> object:
    """Offer a package in a registry: push it to an OCI registry, or copy it into a registry's folder.

    An OCI registry is asked with the logins of docker and podman. Of a git registry name a checkout.
    """
    app = None if registry.startswith("oci://") or Path(registry).is_dir() else session.app
    return operations.registries.publish_package(place, registry, app=app, key=key)


@pkg.command(
    "copy",
    examples=[
        "kubeflow/tf-job --to oci://registry.example.com/ml",
        "--to oci://registry.example.com/ml --platform linux/amd64",
    ],
)
def copy_packages(
    session: Session,
    names: Sequence[str] = word("[PACKAGE]...", "Installed packages. Default: all of them.", offer_packages),
    to: str = option("--to REGISTRY", "oci://HOST/PATH."),
    platform: Sequence[str] = option(
        "--platform OS/ARCH", "Only what of images is for this platform; repeatable. Default: all."
    ),
) -> object:
    """Copy packages with their default images to an OCI registry, for a place that reaches no other.

    There: `registry add`, `pkg install`, and `images copy ENV --to HOST/PATH` names the images.
    """
    if not to:
        raise UsageError(
            "no registry to copy to: `--to` is missing", hint="mlstack pkg copy PACKAGE --to oci://HOST/PATH"
        )
    with page.waiting("copying packages and images"):
        return operations.registries.copy_packages(session.app, names, to, platforms=platform)


# --- prototype and generate ---


@prototype.command("list", examples=["", "tf-job"])
def list_prototypes(
    session: Session, name: str | None = word("[NAME]", "The one to show, with its parameters.")
) -> object:
    """List the installed prototypes; with a name, the matching ones and their parameters."""
    if name is None:
        return operations.packages.list_prototypes(session.app)
    return operations.packages.matching_prototypes(session.app, name)


@prototype.command(examples=["serving"])
def search(session: Session, text: str = word("TEXT", "A part of a name or description.")) -> object:
    """Find prototypes by name and description, in every registry of the app."""
    return operations.packages.search_prototypes(session.app, text)


@prototype.command("describe", examples=["tf-serving"])
def describe_prototype(session: Session, name: str = PROTOTYPE) -> object:
    """Show a prototype: what it is for and every parameter with type, default and unit."""
    return operations.packages.describe_prototype(session.app, name)


@prototype.command(cls=FreeOptionsCommand, takes="folder object_output", examples=["tf-cnn cnn --num_gpus 1"])
def preview(
    session: Session,
    name: str = PROTOTYPE,
    component: str | None = word("[NAME]", "The name the component would have."),
    params: Sequence[str] = PARAMS,
    values_files: Sequence[Path] = VALUES,
    example: str | None = EXAMPLE,
    env: str | None = ENV_OPTION,
) -> int:
    """Print the Kubernetes objects that a component of this prototype would bring."""
    from mlstack.app.components import ComponentRequest

    request = session.filled(ComponentRequest, prototype=name, name=component, texts=_pairs(params))
    environment = env or session.app.current_environment()
    state = session.call(operations.components.preview_prototype, request=request, environment=environment)
    return emit_objects(state, session.options.output)


@prototype.command(
    takes="output",
    examples=["web", "web --from deployment.yaml", "web --from manifests/ --package our-registry/web"],
)
def new(
    session: Session,
    name: str = word("NAME", "The prototype's name, and that of its package if that is new."),
    source: str = option(
        "--from FILE|DIR|-", "Manifests: their images, replicas and names become parameters."
    ),
    package: Path | None = PACKAGE_DIR,
) -> object:
    """Begin a prototype of your own: parameters, templates and an example, in a package or a new one."""
    return operations.components.new_prototype(name, source=source, package=package)


@prototype.command(
    "use", cls=FreeOptionsCommand, add_help_option=False, examples=["tf-cnn cnn", "tf-cnn --help"]
)
@top.command(
    cls=FreeOptionsCommand,
    add_help_option=False,
    examples=[
        "tf-cnn cnn --name=cnn",
        "tf-serving inception --model_path=gs://models/inception",
        "tf-cnn cnn --example gpu",
        "tf-cnn --help",
    ],
)
def generate(
    session: Session,
    prototype: str | None = word("PROTOTYPE", "The prototype.", prototypes, default=None),
    name: str | None = word("NAME", "The component's name.", default=None),
    params: Sequence[str] = PARAMS,
    values_files: Sequence[Path] = VALUES,
    example: str | None = EXAMPLE,
    module: str | None = option("--module NAME", "The module it goes to."),
    force: bool = option("--force", "Replace a component of that name."),
    show_help: bool = option("--help -h", "This message; behind a prototype, its parameters."),
) -> object:
    """Make a component from a prototype; its parameters are options of this command."""
    if show_help:
        write(session.ctx.get_help())
        if prototype is None:
            say("hint: mlstack generate PROTOTYPE --help lists the parameters of that prototype")
        else:
            write("\n" + table_text(operations.packages.describe_prototype(session.app, prototype)))
        return 0
    if prototype is None:
        raise UsageError("which prototype?", hint="mlstack prototype list")
    from mlstack.app.components import ComponentRequest

    request = session.filled(ComponentRequest, texts=_pairs(params))
    return operations.components.generate(session.app, request, replace=force)


def _pairs(words: Sequence[str]) -> dict[str, str | None]:
    """Read `PARAM=VALUE` words; a word without `=` is a switch, which only a boolean parameter takes."""
    parts = [word.partition("=") for word in words]
    names = [name for name, _, _ in parts]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"`--{twice}` is given twice", hint=f"once, with commas: --{twice}=ONE,TWO")
    return {name: text if equals else None for name, equals, text in parts}
