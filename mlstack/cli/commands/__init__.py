"""The table of commands, each with the place of its group or function, and the help of the program itself.

A command line that is only asked for help imports nothing else.
"""

# Name -> `module.group[.command]` below this folder, and what it does.
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("app.top.init", "Create an app directory"),
    "app": ("app.application", "Labels and annotations of all objects: set"),
    "registry": ("packages.registry", "Where packages come from: add, list, lint, update, …"),
    "pkg": ("packages.pkg", "Packages of prototypes: install, update, list, test, …"),
    "prototype": ("packages.prototype", "What can be generated: list, search, describe, new, …"),
    "generate": ("packages.top.generate", "Make a component from a prototype"),
    "import": ("components.imports", "Take over manifests, charts and apps of ksonnet"),
    "component": ("components.component", "What the app deploys: list, rename, rm"),
    "module": ("components.module", "Folders of components: create, list, rm"),
    "param": ("components.param", "Parameters: set, unset, list, diff, explain, lint"),
    "explain": ("components.top.explain", "Show where a field of an object comes from"),
    "env": ("app.env", "Environments: add, list, describe, set, copy, rename, rm …"),
    "render": ("render.top.render", "Print the Kubernetes objects of an environment"),
    "show": ("render.top.render", "The same as render"),
    "validate": ("render.top.validate", "Check the objects of an environment, offline"),
    "policy": ("render.policies", "What validate --policy asks of objects: list"),
    "images": ("render.images", "The container images of environments: list, copy"),
    "footprint": ("render.top.footprint", "Add up what an environment takes of a cluster"),
    "diff": ("deploy.top.diff", "Show what apply would change in the cluster"),
    "plan": ("deploy.top.plan", "Keep what apply would do in a file, to be approved"),
    "apply": ("deploy.top.apply", "Make the cluster match the app"),
    "delete": ("deploy.top.delete", "Remove an environment's objects from the cluster"),
    "status": ("deploy.top.status", "Tell whether what was applied works, and why not"),
    "promote": ("deploy.top.promote", "Bring what one environment runs to another one's files"),
    "history": ("deploy.history", "What was applied to an environment: list, show, diff"),
    "unlock": ("deploy.top.unlock", "Free an environment that a dead run left locked"),
    "rollback": ("deploy.top.rollback", "Apply an earlier revision again"),
    "doctor": ("app.top.doctor", "Check all that mlstack stands on, with the next step of each"),
    "elastic": ("elastic.commands", "Elastic training jobs: run, plan, status, simulate"),
    "demo": ("program.top.demo", "See it all work, on a cluster in memory"),
    "schema": ("program.top.schema", "Print the JSON Schema of a file or of what a command prints"),
    "completion": ("program.top.completion", "Print the completion script of a shell"),
    "upgrade": ("program.top.upgrade", "Bring the app's files up to date with this mlstack"),
    "version": ("program.top.version", "Print the versions of mlstack and its libraries"),
}
OPTIONS = {
    "--dir DIR": "The app directory. Default: here.",
    "--debug": "Show the traceback of an internal fault.",
    "--version": "Print the version.",
    "-h, --help": "Show this message and exit.",
}
SUMMARY = "Package and deploy machine-learning stacks on Kubernetes."
NEXT_STEP = "Start with `mlstack demo`, or with `mlstack init NAME`. `mlstack help COMMAND` tells more."


def program_help(columns: int) -> str:
    """Write the help of the program for a terminal of so many columns, as typer lays help out."""
    from textwrap import fill

    width = max(min(columns, 80) - 2, 50)
    lines = ["Usage: mlstack [OPTIONS] COMMAND [ARGS]...", ""]
    lines += [fill(SUMMARY, width, initial_indent="  ", subsequent_indent="  ")]
    commands = {name: text for name, (_, text) in COMMANDS.items()}
    for heading, rows in (("Options", OPTIONS), ("Commands", commands)):
        names = max(map(len, rows))
        lines += ["", f"{heading}:"]
        for name, text in rows.items():
            lines += [
                fill(text, width, initial_indent=f"  {name:<{names}}  ", subsequent_indent=" " * (names + 4))
            ]
    return "\n".join([*lines, "", fill(NEXT_STEP, width)])
