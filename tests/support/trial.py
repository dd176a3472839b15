"""Type the examples of every command's help in the situations asked for, and tell what came of each as JSON.

A process of its own (`python -m tests.support.trial FOLDER`), so that it can be put where there is no network
and where file systems are mounted for it alone; it reads situations, a line each. Each example runs in a
child: on clusters in memory that know what was applied before, in an app with nearly all that is spoken of.
"""

from __future__ import annotations

import json
import os
import pkgutil
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import mlstack
from mlstack.cli.main import main
from tests.support.builders import Tree, read_tree, restore_tree, write_tree
from tests.support.cli import Runner
from tests.support.commands import every_command
from tests.support.registry import REGISTRY

SITUATIONS = ("plain", "subdirectory", "dir", "readonly", "stranger", "closed", "full", "interrupted")
NOBODY = 65534
LOCK = "app/.mlstack/lock"
EXAMPLES = 1
LIMIT_S = 60
TOLD = "told"  # is printed once a situation is done with
LONG = ("elastic run", "elastic simulate case")  # they run for ever, or for a minute
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "nginx:1.27"}]
"""
SETTINGS = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {level: info}\n"
ADDED = DEPLOYMENT.replace("name: web}\nspec", "name: added}\nspec")
PACKAGE = {
    path.removeprefix("registry/").replace("tools/", "web/"): str(text).replace("name: tools", "name: web")
    for path, text in REGISTRY.items()
}
REGISTRIES = ("our-registry", "my-checkout", "app/our-registry", "app/registry")
BASE: Tree = {
    **{f"{registry}/{path}": text for registry in REGISTRIES for path, text in PACKAGE.items()},
    "app/deployment.yaml": ADDED,
    "app/web.yaml": ADDED,
    "app/manifests/one.yaml": ADDED,
    "app/base/one.yaml": ADDED,
    "app/gke/one.yaml": ADDED.replace("replicas: 2", "replicas: 3"),
    "app/minikube/one.yaml": ADDED,
    "app/values.yaml": "{}\n",
    "app/chart/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n",
    "manifests/web/kustomization.yaml": "resources: [one.yaml]\n",
    "manifests/web/one.yaml": ADDED,
    "my-kubeflow/app.yaml": "apiVersion: 0.2.0\nkind: ksonnet.io/app\nname: old\nenvironments:\n  gke:\n"
    "    destination: {namespace: ml, server: 'https://127.0.0.1'}\n    path: gke\n",
    "my-kubeflow/components/params.libsonnet": "{ global: {}, components: {} }\n",
    "my-kubeflow/components/a.yaml": SETTINGS,
}
STEPS = (
    "pkg install kubeflow/core kubeflow/tf-job kubeflow/tf-serving kubeflow/elastic",
    *(f"registry index {folder}" for folder in ("../our-registry", "../my-checkout", "our-registry")),
    "registry add ours ../our-registry",
    "generate core kubeflow-core",
    "generate tf-cnn cnn",
    "generate elastic-controller elastic --image=example.org/mlstack:1",
    "generate elastic-job bert --image=example.org/bert:1 --entrypoint=train",
    "module create serving",
    "env add minikube --no-preset --context minikube",
    "env add gke --no-preset --context gke",
    "env add dev --context gke -n dev",
    "env add prod --context minikube -n prod",
    "env add staging --context gke-staging -n west",
    "env add us-east --extends gke -n east --ttl 0s",
    "param set --env gke cnn num_workers 2",
    "env snapshot gke",
    "apply gke --yes --no-wait",
    "param set elastic replicas 4",
    "apply gke --yes --no-wait",
    "param set elastic replicas 3",
    "apply gke --yes --no-wait",
    "apply minikube --yes --no-wait",
    "param set --env gke cnn num_workers 1",
    "plan gke --out plan.json",
    "plan gke --out gke-plan.json",
    "elastic plan --save before.json --context minikube",
    "elastic simulate --example",
)


@dataclass
class Outcome:
    """What a line did: exit code, output, the files it changed; and whether it names a file itself."""

    line: str
    code: int
    out: str
    err: str
    changed: list[str]
    names_path: bool


def example_lines() -> Iterator[str]:
    """Give the first examples of the help of each command of the program, as typed behind `mlstack`."""
    for _, command in every_command():
        examples = "" if hasattr(command, "commands") else command.epilog or ""
        for text in examples.partition("Example:\n")[2].splitlines()[:EXAMPLES]:
            line = text.strip().removeprefix("mlstack ")
            for separator in (" && ", " | ", " > "):
                line = line.partition(separator)[0]
            yield line


class Trial:
    """A folder with an app and its neighbours, and clusters that know the app."""

    def __init__(self, folder: Path) -> None:
        """Build the app; what stands in `scene` is what is watched."""
        self.situation, self.folder, self.root = "", folder / "scene", folder / "scene/app"
        contexts = dict.fromkeys(("minikube", "gke", "gke-staging", "gke-prod", "prod", "my-kind"), "default")
        self.runner = Runner(capsys=None, contexts=contexts)  # type: ignore[arg-type]  # nothing is read back
        write_tree(self.folder, BASE)
        os.chdir(self.folder)
        self._step("init app --dir app")
        os.chdir(self.root)
        write_tree(self.root, {"components/web.yaml": DEPLOYMENT, "components/settings.yaml": SETTINGS})
        for step in STEPS:
            self._step(step)
        self.runner.clusters[""] = self.runner.cluster("minikube")  # where no context is named
        os.chdir(folder)
        for name in ("scene", "cache"):
            shutil.copytree(folder / name, folder / f"kept-{name}", symlinks=True)

    def enter(self, situation: str) -> None:
        """Lay out the app, on a file system of its own that is read-only or full where that is asked for."""
        self.situation, cache = situation, self.folder.with_name("cache")
        shutil.rmtree(cache)
        size = ("-o", "size=8m") if situation == "full" else ()
        subprocess.run(["mount", "-t", "tmpfs", *size, "scene", self.folder], check=True)
        for folder in (self.folder, cache):
            kept = folder.with_name(f"kept-{folder.name}")
            shutil.copytree(kept, folder, symlinks=True, dirs_exist_ok=True)
        if situation == "readonly":
            subprocess.run(["mount", "-o", "remount,ro", self.folder], check=True)
        if situation == "full":
            with suppress(OSError), (self.folder / "filler").open("wb", buffering=0) as filler:
                while True:
                    filler.write(bytes(4096))
        self.before = read_tree(self.folder)

    def _step(self, line: str) -> None:
        code = main(shlex.split(line), ports=self.runner.ports())
        if code != 0:
            raise SystemExit(f"`{line}` ended with {code}")

    def run(self, line: str, printed: Path) -> Outcome:
        """Run a line in a child, and put the folder back as it was."""
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = self._run_here(line, printed)
            except BaseException as error:
                (printed / "err").open("a").write(f"left the program: {error!r}\n")
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        after = read_tree(self.folder)
        changed = {name for name in {*after, *self.before} if after.get(name) != self.before.get(name)}
        if changed:
            restore_tree(self.folder, self.before)
        out, err = ((printed / name).read_text(errors="replace") for name in ("out", "err"))
        words = [word.rpartition("=")[2] for word in shlex.split(line)]
        names_path = any(set("./") & set(word) and (self.root / word).exists() for word in words)
        return Outcome(line, code, out, err, sorted(changed - {LOCK}), names_path)

    def _run_here(self, line: str, printed: Path) -> int:
        words, _, source = line.partition(" < ")
        argv = shlex.split(words)
        places = {"subdirectory": self.root / "components/serving", "dir": self.folder}
        os.chdir(places.get(self.situation, self.root))
        if self.situation == "dir":
            argv = ["--dir", str(self.root), *argv]
        for number, path in enumerate((source.strip() or os.devnull, printed / "out", printed / "err")):
            flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            os.dup2(os.open(path, flags, 0o666), number)
        if self.situation == "closed":
            reader, writer = os.pipe()
            os.close(reader)
            os.dup2(writer, 1)
        if self.situation == "stranger":
            os.environ["HOME"] = os.environ["XDG_CACHE_HOME"] = "/nonexistent"
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        if self.situation == "interrupted":
            self._interrupt_soon()
        signal.alarm(LIMIT_S)
        code = main(argv, ports=self.runner.ports())
        sys.stdout.flush()
        return code

    def _interrupt_soon(self) -> None:
        """Press Ctrl-C when the first file is about to take its place."""
        real = {name: getattr(os, name) for name in ("rename", "replace")}

        def pressed(name: str) -> Callable[..., None]:
            def call(*args: Any, **options: Any) -> None:
                for attribute, function in real.items():
                    setattr(os, attribute, function)
                os.kill(os.getpid(), signal.SIGINT)
                real[name](*args, **options)

            return call

        for name in real:
            setattr(os, name, pressed(name))


def tell(folder: Path) -> None:
    """Run every example in each situation that is read, and write what came of it to `SITUATION.json`."""
    for module in pkgutil.walk_packages(mlstack.__path__, "mlstack."):
        if not module.name.endswith("__main__"):
            import_module(module.name)  # once for all children; a stranger may be unable to read them
    printed = folder / "printed"
    printed.mkdir(mode=0o777)
    printed.chmod(0o777)
    trial = Trial(folder)
    for situation in map(str.strip, sys.stdin):
        trial.enter(situation)
        lines = [line for line in example_lines() if not line.startswith(LONG)]
        outcomes = {line: asdict(trial.run(line, printed)) for line in lines}
        subprocess.run(["umount", "--lazy", trial.folder], check=True)
        (folder / f"{situation}.json").write_text(json.dumps(outcomes))
        sys.stdout.write(f"{TOLD}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    tell(Path(sys.argv[1]))
