"""The program itself: `demo`, commands on a cluster in memory, and `completion`, `schema`, `version`."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mlstack import DEFAULT_KUBERNETES_VERSION, __version__
from mlstack.cli.main import Family, main
from mlstack.cli.options import option, word
from mlstack.cli.output import write
from mlstack.cli.ports import Ports, Session, operations
from mlstack.clock import timestamp
from mlstack.dataclass import Record
from mlstack.errors import MlstackError

if TYPE_CHECKING:
    from mlstack.kube.client import Cluster
    from mlstack.testing.controllers import Simulation

top = Family()

CONTEXTS = ("minikube", "gke")
APP = "my-kubeflow"


# Command lines after `mlstack`, what they are for, and the exit code where it is not 0.
SCRIPT = """\
# An app is a directory for git.
init my-kubeflow
# This address of old leads to the registry that mlstack brings along.
registry add kubeflow github.com/google/kubeflow/tree/master/kubeflow
# Packages are copied into the app and pinned.
pkg install kubeflow/core
pkg install kubeflow/tf-job
# A component is a prototype under a name.
generate core kubeflow-core --name=kubeflow-core
generate tf-cnn cnn --name=cnn
# An environment is a kubectl context and a namespace.
env add minikube
# Every object is checked before it is sent, offline.
validate minikube
# The core goes first: it brings the kind TFJob.
apply minikube -c kubeflow-core
apply minikube -c cnn
# Applying again writes nothing.
apply minikube -c cnn
# Controllers in memory have run it all by now.
status minikube
# Parameters have types and bounds.
param set --env=minikube cnn num_workers 2
# The difference to the cluster, before it is made.
diff minikube -c cnn  # gives 1
# A running job cannot change: it is recreated, which has to be confirmed.
apply minikube -c cnn --yes
# Another cluster, where the same job is to have a GPU.
env add gke --context gke
param set --env=gke cnn num_gpus 1
# Every value knows where it comes from, and which fields it reaches.
param explain cnn num_gpus --env gke
apply gke
# This cluster has no GPUs. What does not run says why, and what to do.
status gke -c cnn  # gives 1
# And away with it.
delete minikube --yes
"""


@top.command(takes="")
def demo(session: Session) -> int:
    """See it all work in a minute; needs no cluster, no network and leaves nothing behind."""
    stage, purpose = DemoStage(), ""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for line in SCRIPT.splitlines():
            if line.startswith("# "):
                purpose = f"{line}\n"
                continue
            words, _, expected = line.partition("  # gives ")
            write(f"{purpose}$ mlstack {words}")
            purpose = ""
            with contextlib.redirect_stderr(sys.stdout):
                code = main(words.split(), ports=stage.ports())
            if code != int(expected or 0):
                message = f"`mlstack {words}` gave {code}, not {expected or 0}"
                hint = "this installation of mlstack is broken, or it is a fault of mlstack: please report it"
                raise DemoError(message, hint=hint)
            stage.settle()
            write("\n")
            if words == f"init {APP}":
                write(f"$ cd {APP}\n")
                os.chdir(APP)
    write("That was all of it. Start your own: mlstack init NAME")
    return 0


class DemoError(MlstackError):
    """Raised when a step of the demo ends otherwise than it should."""


class DemoStage:
    """Clusters in memory, one a context, where what is applied runs; their time is the same in every run."""

    def __init__(self) -> None:
        self._clock = StandingClock()
        self._clusters: dict[str, Cluster] = {}
        self._simulations: list[Simulation] = []

    def ports(self) -> Ports:
        """Give ports that lead to the clusters; nobody is there to be asked."""
        from mlstack.kube.kubeconfig import Context, Kubeconfig

        contexts = {
            name: Context(name=name, cluster="in memory", server="", namespace="default") for name in CONTEXTS
        }
        kubeconfig = Kubeconfig(current_context=CONTEXTS[0], contexts=contexts)
        return Ports(
            connect=lambda context, kubeconfig: self._cluster(context),
            kubeconfig=lambda path: kubeconfig,
            clock=self._clock,
            ask=lambda question: False,
            ask_text=lambda question: "",
            interactive=lambda: False,
            who=lambda: "you@demo",
        )

    def settle(self) -> None:
        """Let controllers, scheduler and kubelets do what is due in every cluster."""
        for simulation in self._simulations:
            simulation.settle()

    def _cluster(self, context: str) -> Cluster:
        from mlstack.testing.cluster import MemoryCluster
        from mlstack.testing.controllers import Simulation
        from mlstack.validate.validate import load_schemas

        if context not in self._clusters:
            schemas = load_schemas(DEFAULT_KUBERNETES_VERSION)
            cluster = MemoryCluster(schemas, name=context, clock=self._clock.now_s)
            simulation = Simulation(cluster, load_balancers=True, now=self._clock.now)
            cluster.on_idle = simulation.step
            self._clusters[context] = cluster
            self._simulations.append(simulation)
        return self._clusters[context]


class StandingClock:
    """A clock that moves only while somebody waits, from the first second of 2026 on."""

    def __init__(self) -> None:
        self._now_s = 1_767_225_600.0

    def now_s(self) -> float:
        """Give the seconds since 1970."""
        return self._now_s

    def now(self) -> str:
        """Give the time as Kubernetes writes it."""
        return timestamp(self._now_s)

    def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self._now_s += seconds


# --- completion, schema, version, upgrade ---

LIBRARIES = ("typer", "jinja2", "PyYAML", "jsonschema-rs", "google-re2", "urllib3", "rich")

Shell = Literal["bash", "zsh", "fish", "powershell"]
SHELL = word("SHELL", "bash, zsh, fish or powershell.")


class Versions(Record):
    """The versions of the program, of Python and of the libraries in use."""

    mlstack: str  # version of the program
    python: str  # version of Python
    libraries: dict[str, str]  # versions of libraries, by name


@top.command(takes="", examples=["bash > ~/.mlstack-completion && . ~/.mlstack-completion"])
def completion(session: Session, shell: Shell = SHELL) -> int:
    """Print the completion script of a shell."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    file = Path(__file__).parents[1] / f"completion.{shell}"
    facts = {"prog_name": "mlstack", "complete_var": "_MLSTACK_COMPLETE", "shell": shell}
    write(file.read_text("utf-8") if file.is_file() else get_completion_script(**facts).strip())
    return 0


@top.command(takes="output", examples=["", "DiffResult"])
def schema(
    session: Session, name: str | None = word("[NAME]", "The `kind` of a file or result. Default: list all.")
) -> object:
    """Print the JSON Schema of a file or of what `-o json` prints; without NAME, list them."""
    return operations.app.list_schemas() if name is None else operations.app.find_schema(name)


@top.command(takes="output", examples=["-o json"])
def version(session: Session) -> object:
    """Print the versions of mlstack and its libraries."""
    from importlib.metadata import version as version_of

    libraries = {name: version_of(name) for name in LIBRARIES}
    python = ".".join(str(part) for part in sys.version_info[:3])
    return Versions(mlstack=__version__, python=python, libraries=libraries)


@top.command(examples=["--dry-run", ""])
def upgrade(
    session: Session, dry_run: bool = option("--dry-run", "Say what would change; write nothing.")
) -> object:
    """Bring the files of the app up to date with this mlstack; nothing else rewrites them."""
    from mlstack.app.layout import find_root

    start = session.options.folder or session.folder or Path.cwd()
    return operations.doctor.upgrade(find_root(start) or session.app.root, dry_run=dry_run)
