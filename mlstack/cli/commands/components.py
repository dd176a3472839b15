"""`component list, rename, rm` and `module create, list, rm`."""

from __future__ import annotations

from mlstack.cli.main import family
from mlstack.cli.options import ENV_OPTION, components, modules, option, word
from mlstack.cli.ports import Session, code_store

component = family("Components: prototypes used under a name, and plain manifests.")
module = family("Modules: folders of components, with parameters of their own.")

NAME = word("NAME", "The component.", components)
MODULE = word("NAME", "The module; `a.b` is one in another.", modules)


@component.command(
    "list",
    examples=["mlstack component list", "mlstack component list --module serving --kinds"],
    in_module=option("--module NAME", "Only those of this module and the ones in it.", modules),
    kinds=option("--kinds", "Show the kinds of the objects that each brings."),
    env=ENV_OPTION,
)
def list_components(
    session: Session, in_module: str | None = None, kinds: bool = False, env: str | None = None
) -> object:
    """List the components of the app."""
    from mlstack.operations import components

    in_module = in_module and in_module.replace("/", ".")
    return components.list_components(
        session.app, module=in_module, kinds=kinds, environment=env, store=code_store()
    )


@component.command(
    examples=["mlstack component rename cnn mnist", "mlstack component rename cnn training.cnn"],
    old=word("OLD", "The component.", components),
    new=word("NEW", "Its new name; `a.b` puts it into the module `a`."),
)
def rename(session: Session, old: str, new: str) -> object:
    """Give a component another name; its objects keep theirs, and no apply deletes them."""
    from mlstack.operations import components

    return components.rename_component(session.app, old, new, store=code_store())


@component.command("rm", takes="kubeconfig folder output", examples=["mlstack component rm cnn"], name=NAME)
def remove_component(session: Session, name: str) -> object:
    """Remove a component and what environments say about it; warns where it is still deployed."""
    from mlstack.operations import components

    return components.remove_component(session.app, name, opener=session.opener())


@module.command(
    examples=["mlstack module create serving", "mlstack module create serving.canary"],
    name=word("NAME", "The module; `a.b` is one in another."),
)
def create(session: Session, name: str) -> object:
    """Make a module: a folder of components with parameters of its own."""
    from mlstack.operations import components

    return components.create_module(session.app, name)


@module.command("list", examples=["mlstack module list"])
def list_modules(session: Session) -> object:
    """List the modules of the app."""
    from mlstack.operations import components

    return components.list_modules(session.app)


@module.command(
    "rm",
    takes="kubeconfig folder output",
    examples=["mlstack module rm serving --components"],
    name=MODULE,
    with_components=option("--components", "Remove its components too."),
)
def remove_module(session: Session, name: str, with_components: bool = False) -> object:
    """Remove a module with its parameters and the modules in it."""
    from mlstack.operations import components

    return components.remove_module(
        session.app, name, with_components=with_components, opener=session.opener()
    )
