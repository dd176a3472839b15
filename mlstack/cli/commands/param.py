"""`param set, unset, list, diff, explain`."""

from __future__ import annotations

from pathlib import Path

from mlstack.cli import options
from mlstack.cli.main import DashedValueCommand, family
from mlstack.cli.options import ENV_OPTION, GIVEN, environments, option, word
from mlstack.cli.output import emit
from mlstack.cli.ports import Session, code_store, read_text
from mlstack.errors import UsageError

top = family()
param = family("Parameters, at every level of an app.")

IN_ENV = option("--env ENV", "In this environment alone.", environments)
MINE = option("--override", "For you alone, in --env ENV: a value that git does not see.")
MODULE = option("--module NAME", "For all components of this module.")


@param.command(
    "set",
    cls=DashedValueCommand,
    examples=[
        "mlstack param set --env=gke cnn num_gpus 1",
        "mlstack param set --env=gke accelerator nvidia-l4",
        "mlstack param set cnn extra_args --forward_only=true",
        "mlstack param set cnn labels.team vision",
        "mlstack param set --env=gke cnn batch_size 8 --override",
        "mlstack param set cnn 'args[0]' --verbose",
    ],
    words=word(
        "[COMPONENT] KEY VALUE",
        "Dots reach into maps, [0] into lists. Without a component, a value for all.",
        options.parameter_and_value,
    ),
    env=IN_ENV,
    module=MODULE,
    override=MINE,
    as_string=option("--as-string", "Store the text as it is, without reading a type."),
    file=option("--file -f FILE", "Read the value from a file; `-` is stdin."),
    resolve_image=option("--resolve-image", "Pin an image to the digest that its tag has now."),
)
def set_(
    session: Session,
    words: list[str] | None = None,
    env: str | None = None,
    module: str | None = None,
    override: bool = False,
    as_string: bool = False,
    file: Path | None = None,
    resolve_image: bool = False,
) -> object:
    """Set a parameter; only the value changes in the file."""
    from mlstack.app.params import ParamScope
    from mlstack.operations import params

    words = [*(words or []), *([read_text(file)] if file is not None else [])]
    _check_count(words, 2, "set", "KEY VALUE", "num_gpus 1")
    *component, key, value = words
    owner = next(iter(component), None)
    place = ParamScope(component=owner, environment=env, module=module, personal=override)
    return params.set_param(session.app, place, key, value, as_string=as_string, resolve_image=resolve_image)


_UNSET = {
    "words": word(
        "[COMPONENT] KEY",
        "Without a component, a value for all: of the app, a module or an environment.",
        options.component_and_parameter,
    ),
    "env": IN_ENV,
    "module": MODULE,
    "override": MINE,
}


@param.command("delete", hidden=True, examples=["mlstack param delete cnn num_gpus"], **_UNSET)
@param.command(examples=["mlstack param unset --env=gke cnn num_gpus", "mlstack param unset cloud"], **_UNSET)
def unset(
    session: Session,
    words: list[str] | None = None,
    env: str | None = None,
    module: str | None = None,
    override: bool = False,
) -> object:
    """Take a value back, so that the next lower level counts again."""
    from mlstack.app.params import ParamScope
    from mlstack.operations import params

    words = words or []
    _check_count(words, 1, "unset", "KEY", "num_gpus")
    *component, key = words
    owner = next(iter(component), None)
    place = ParamScope(component=owner, environment=env, module=module, personal=override)
    return params.unset_param(session.app, place, key)


def _check_count(words: list[str], least: int, verb: str, takes: str, example: str) -> None:
    if len(words) not in (least, least + 1):
        count = "1 word" if len(words) == 1 else f"{len(words)} words"
        hint = f"mlstack param {verb} cnn {example}"
        raise UsageError(f"`param {verb}` takes [COMPONENT] {takes}, got {count}", hint=hint)


@param.command(
    "list",
    takes=f"{GIVEN} folder output",
    examples=[
        "mlstack param list",
        "mlstack param list cnn --env gke -o json",
        "mlstack param list --own --env gke",
    ],
    component=word("[COMPONENT]", "Only this component.", options.components),
    env=ENV_OPTION,
    set_only=option("--set-only", "Leave out the defaults of prototypes."),
    own=option(
        "--own --without-modules",
        "Only what this level itself sets: of the app, --module, COMPONENT, --env or both of these.",
    ),
    module=option("--module NAME", "Only components of this module."),
)
def list_(
    session: Session,
    component: str | None = None,
    env: str | None = None,
    set_only: bool = False,
    own: bool = False,
    module: str | None = None,
) -> object:
    """List the values that a render would use, and where each one was set."""
    from mlstack.operations import params

    overrides = session.overrides
    if own and overrides:
        hint = "leave out --own, or --set and --values"
        raise UsageError("what is given for one run is no level's own", hint=hint)
    if own:
        return params.list_own_params(session.app, component=component, environment=env, module=module)
    return params.list_params(
        session.app,
        component=component,
        environment=env,
        module=module,
        set_only=set_only,
        overrides=overrides,
    )


@param.command(
    takes="components exit_code folder output",
    examples=["mlstack param diff minikube gke -c cnn"],
    first=word("ENV1", None, environments),
    second=word("ENV2", None, environments),
    exit_code=option("--exit-code", "Exit with 1 when something differs."),
)
def diff(session: Session, first: str, second: str, exit_code: bool = False) -> int:
    """Show the parameters that differ between two environments."""
    from mlstack.operations import params

    result = params.diff_params(session.app, first, second, components=session.options["components"])
    emit(result, session.options["output"])
    return 1 if exit_code and result.rows else 0


@param.command(
    takes="components folder output", examples=["mlstack param lint", "mlstack param lint -c cnn -o json"]
)
def lint(session: Session) -> object:
    """Find values and patches that change no object in any environment; exits with 1 when there are some."""
    from mlstack.operations.explain import lint_params

    return lint_params(session.app, components=session.options["components"], store=code_store())


@param.command(
    takes=f"{GIVEN} folder output",
    examples=[
        "mlstack param explain cnn num_gpus --env gke",
        "mlstack param explain web 'env[0].value' --env gke",
    ],
    component=word("COMPONENT", "The component.", options.components),
    name=word(
        "[PARAM]", "One parameter, or a place inside it. Default: all that are set.", options.parameters
    ),
    env=ENV_OPTION,
)
def explain(session: Session, component: str, name: str | None = None, env: str | None = None) -> object:
    """Show where a value comes from, level by level, and which fields of the objects it reaches."""
    from mlstack.operations.explain import explain_param

    overrides = session.overrides
    return explain_param(
        session.app, component, name, environment=env, overrides=overrides, store=code_store()
    )


@top.command(
    "explain",
    takes=f"{GIVEN} folder output",
    examples=[
        "mlstack explain deployment/web spec.replicas --env gke",
        "mlstack explain configmap/settings data.level --env gke",
    ],
    name=word("KIND/NAME", "The object."),
    field=word("FIELD", "The path of a field in it, as a diff writes it."),
    env=option("--env ENV", "The environment. Default: the one chosen.", environments),
)
def explain_field(session: Session, name: str, field: str, env: str | None = None) -> object:
    """Show where a field of an object comes from: template line, patch, parameters and who set them."""
    from mlstack.operations.explain import explain_field

    return explain_field(
        session.app,
        name,
        field,
        environment=session.environment(env),
        overrides=session.overrides,
        store=code_store(),
    )
