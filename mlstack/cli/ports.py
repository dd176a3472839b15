"""Builds what the operations are handed: clusters, clock, cache folder, and answers to questions."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from fnmatch import fnmatchcase
from functools import cached_property, partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

from mlstack.cli import page
from mlstack.cli.options import Options
from mlstack.cli.output import prompt, say
from mlstack.dataclass import Record, dataclass
from mlstack.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from mlstack.app.app_dir import AppDir
    from mlstack.app.components import Overrides
    from mlstack.clock import Clock
    from mlstack.deploy.changes import ApplyOptions
    from mlstack.deploy.target import Holder, Target
    from mlstack.kube.client import Cluster
    from mlstack.kube.kubeconfig import Kubeconfig
    from mlstack.kube.transport import Counted

Result = TypeVar("Result")


class Operations:
    """The modules of operations, each imported when it is asked for: help and completion need none."""

    def __getattr__(self, name: str) -> Any:
        return import_module(f"mlstack.operations.{name}")


if TYPE_CHECKING:  # so that the calls are checked
    import mlstack.operations.app
    import mlstack.operations.authors
    import mlstack.operations.capacity
    import mlstack.operations.components
    import mlstack.operations.deploy
    import mlstack.operations.doctor
    import mlstack.operations.explain
    import mlstack.operations.images
    import mlstack.operations.imports
    import mlstack.operations.package_changes
    import mlstack.operations.packages
    import mlstack.operations.params
    import mlstack.operations.registries
    import mlstack.operations.render
    import mlstack.operations.status  # noqa: F401
    from mlstack import operations as operations
else:
    operations = Operations()

# While it is only worked out what would change, a webhook that starts is waited for so long.
WEBHOOK_S = 30.0


class SystemClock:
    """The clock of the machine."""

    def now_s(self) -> float:
        """Give the seconds since 1970."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)


def connect(context: str, kubeconfig: str | None) -> Cluster:
    """Open the real cluster behind a kubectl context; once it has answered, it is waited for."""
    from mlstack.kube.api_server import connect
    from mlstack.kube.client import GuardedClient, Patience

    patience = Patience(SystemClock(), lambda text: say(f"waiting: {text}"), webhook_s=WEBHOOK_S)
    return GuardedClient(connect(context, kubeconfig=kubeconfig), patience=patience)


def connect_once(context: str, kubeconfig: str | None, counted: Counted) -> Cluster:
    """Open the real cluster behind a kubectl context; nothing is asked twice.

    For whoever may write for a limited time only: a write that waited for its server would come too late.
    """
    from mlstack.kube.api_server import connect

    return connect(context, kubeconfig=kubeconfig, counted=counted)


def interactive() -> bool:
    """Tell whether questions can be asked: a person types and reads what is asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def who() -> str:
    """Name who runs this: `user@host`."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in many containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def ask(question: str) -> bool:
    """Ask on stderr; anything but a clear yes, and the end of input, is a no."""
    return ask_text(f"{question} [y/N]").lower() in ("y", "yes")


def ask_text(question: str) -> str:
    """Ask on stderr and give the line that was typed, empty at the end of input."""
    prompt(question)
    return sys.stdin.readline().strip()


def kubeconfig(path: str | None) -> Kubeconfig:
    """Read the contexts of `--kubeconfig`, else of `$KUBECONFIG`, else of the user's default file."""
    from mlstack.kube import kubeconfig

    return kubeconfig.load(path, os.environ)


class Ports(Record):
    """The ways out of the process that commands may use; tests put others in their place."""

    # opens the cluster behind a context; the second argument is `--kubeconfig`
    connect: Callable[[str, str | None], Cluster] = connect
    # the contexts of `--kubeconfig`, or of the user's files
    kubeconfig: Callable[[str | None], Kubeconfig] = kubeconfig
    clock: Clock = field(default_factory=SystemClock)
    ask: Callable[[str], bool] = ask  # puts a question on stderr and tells whether the answer was yes
    ask_text: Callable[[str], str] = ask_text  # puts a question on stderr and gives what was typed
    interactive: Callable[[], bool] = interactive  # tells whether somebody is there to answer
    who: Callable[[], str] = who  # names who runs this, as `user@host`, for the cluster's records
    # As `connect`, but fails where that one waits; the third argument is told of each request.
    connect_once: Callable[[str, str | None, Counted], Cluster] = connect_once


@dataclass(kw_only=True)
class Session:
    """One call of the program: its ports, the options before the command, and what the command shares."""

    ports: Ports = field(default_factory=Ports)
    folder: Path | None = None  # where the app directory is looked for; None is the working directory
    debug: bool = False
    options: Options = field(default_factory=Options)  # those that the command shares with others
    arguments: Mapping[str, Any] = field(default_factory=dict)  # all that the command takes, by name
    ctx: Any = None  # typer's context of the command
    prior: list[Any] = field(default_factory=list)  # the runs that it planned for other environments

    @cached_property
    def app(self) -> AppDir:
        """The app directory of `--dir`, else of the working directory upwards."""
        from mlstack import disk_cache
        from mlstack.app.app_dir import AppDir

        folder = self.options.folder or self.folder or Path.cwd()
        return AppDir.find(folder, store=disk_cache.of_user(os.environ), environ=os.environ)

    def environment(self, name: str | None) -> str:
        """Give the environment that was named, else the chosen one (`env current --set`), else the only."""
        name = self.app.current_environment() if name is None else name
        if name is not None:
            return name
        names = self.app.environment_names
        if not names:
            hint = "mlstack env add NAME makes one from the current kubectl context"
            raise UsageError("the app has no environment yet", hint=hint)
        if len(names) > 1:
            hint = "name one, or choose one: mlstack env current --set ENV"
            raise UsageError(f"which environment? There are {', '.join(names)}", hint=hint)
        return names[0]

    def environments(self, words: Sequence[str] | None = None, *, reverse: bool = False) -> list[str] | None:
        """Give the environments that a command is about, each once; None if it is about one as always.

        Several are asked for by more than one word, by a pattern as in a shell, or by `--all`; the latter two
        give the app's order, or the `reverse`.
        """
        words = self.options.envs if words is None else words
        if self.options.every and words:
            raise UsageError("`--all` and names exclude each other", hint="leave one of them out")
        if not self.options.every and len(words) < 2 and not any(map(is_pattern, words)):
            return None
        every = self.app.environment_names[:: -1 if reverse else 1]
        if self.options.every:
            if not every:
                raise NotFoundError("the app has no environment", hint="mlstack env add NAME")
            return list(every)
        chosen: dict[str, None] = {}
        for word in words:
            names = [name for name in every if fnmatchcase(name, word)] if is_pattern(word) else [word]
            if not names:
                raise NotFoundError(f"no environment fits `{word}`", hint="mlstack env list")
            for name in {*names} - {*every}:
                self.app.environment(name)  # which says what there is
            chosen |= dict.fromkeys(names)
        return list(chosen)

    @property
    def only_environment(self) -> str | None:
        """The environment of a command that is about one, None for the chosen one."""
        return next(iter(self.options.envs), None)

    def each(
        self,
        work: Callable[[str | None], object],
        *,
        show: Callable[[object, str], int] | None = None,
        listed: bool = False,
    ) -> object:
        """Give the result of `work` for the environment that is asked for, or print those of several.

        As tables the latter are printed by `show`: the result and the format in, the exit code out.
        `listed`: one is printed as several are, so even when it fails.
        """
        names = self.environments()
        if names is None and not listed:
            return work(self.only_environment)
        from mlstack.cli.run_reporter import Results

        results = Results(self)
        for name in names or [self.environment(self.only_environment)]:
            with results.of(name):
                results.add(work(name), show or page.emit)
        return results.end()

    def from_cluster(
        self,
        read: Callable[Concatenate[Target, ...], Result],
        *args: Any,
        doing: str = "comparing with the cluster",
        env: str | None = None,
        **options: Any,
    ) -> Result:
        """Call an operation that reads the cluster of an environment; terminals show what is going on."""
        target = self.target(env)
        with page.waiting(doing):
            return self.call(partial(read, target, *args), **options)

    def call(self, operation: Callable[..., Result], /, **further: Any) -> Result:
        """Call an operation with the options that are called as its parameters, and what it takes besides.

        That is the app, the clock, what opens clusters, the parameters of this run, and runs planned before.
        """
        own: dict[str, Callable[[], Any]] = {
            "app": lambda: self.app,
            "clock": lambda: self.ports.clock,
            "opener": self.opener,
            "overrides": lambda: self.overrides,
            "prior": lambda: self.prior,
        }
        names = signature(operation).parameters.keys() - further.keys()
        given = {name: self.arguments[name] for name in names & self.arguments.keys()}
        given |= {name: own[name]() for name in names & own.keys()}
        return operation(**given, **further)

    @cached_property
    def overrides(self) -> Overrides | None:
        """The parameters given for one run, read once: `--values -` is stdin."""
        options, texts = self.options, []
        if not (options.sets or options.values or options.set_strings or options.set_files):
            return None
        from mlstack.app.components import read_overrides

        for word in options.set_files:
            key, equals, file = word.partition("=")
            texts.append(f"{key}={read_text(Path(file))}" if equals else word)
        return read_overrides(options.sets, options.values, strings=options.set_strings, texts=texts)

    def target(self, environment: str | None = None) -> Target:
        """Say what a deploy command is about, as its options have it."""
        from mlstack.deploy.target import Target

        return self.filled(
            Target,
            app=self.app,
            environment=self.environment(self.options.env if environment is None else environment),
            overrides=self.overrides,
            who=self.ports.who(),
            holder=holder(self.ports.who()),
        )

    def filled(self, kind: type[Result], **further: Any) -> Result:
        """Make a dataclass of what was given for the options that are called as its fields."""
        names = {option.name for option in fields(kind)}  # type: ignore[arg-type]
        taken = {name: value for name, value in self.arguments.items() if name in names}
        return kind(**{**taken, **further})

    def apply_options(self, **fixed: Any) -> ApplyOptions:
        """Give what was chosen for an apply."""
        from mlstack.deploy.changes import ApplyOptions

        return self.filled(ApplyOptions, **fixed)

    def opener(self) -> Callable[[str], Cluster]:
        """Give the function that operations use to open a cluster by its context."""
        from mlstack.kube.client import GuardedClient

        return lambda context: GuardedClient(self.ports.connect(context, self.options.kubeconfig))


def is_pattern(word: str) -> bool:
    """Tell whether a word may stand for several environments, as in a shell."""
    return any(mark in word for mark in "*?[")


def own_namespace(session: Session, context: str | None, kubeconfig: str | None) -> str:
    """Give the namespace that a program has for its own objects: its pod's, else that of the context."""
    in_pod = os.environ.get("POD_NAMESPACE", "")
    if in_pod and not context:
        return in_pod
    try:
        contexts = session.ports.kubeconfig(kubeconfig)
    except NotFoundError:
        return in_pod or "default"
    chosen = contexts.contexts.get(context or contexts.current_context or "")
    return chosen.namespace if chosen else in_pod or "default"


def read_text(file: Path) -> str:
    """Read a value from a file, or from stdin when it is called `-`."""
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        hint = "relative paths start at the working directory"
        raise NotFoundError(f"no file `{file}`", hint=hint) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"cannot read `{file}`: {reason}", hint="give a text file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"`{file}` is not UTF-8 text", hint="give a text file") from error


# --- who takes locks from here, and whether another run of this machine is over ---

_PROC = Path("/proc")


def holder(who: str) -> Holder:
    """Name this process so that no other has the same name; `who` is `user@host`.

    Where `/proc` tells, the name says which machine (and container) and when the process began: a lock that
    a killed run left behind on this machine is then known to be nobody's.
    """
    from mlstack.deploy.target import Holder

    pid = os.getpid()
    machine, began = _machine(), _began(pid)
    token = f"{machine}-{began}" if machine and began else os.urandom(8).hex()
    return Holder(name=f"{who}/{pid}/{token}", is_gone=_is_gone)


def _is_gone(name: str) -> bool:
    _, _, rest = name.rpartition("@")
    parts = rest.split("/")
    if len(parts) != 3 or not parts[1].isdigit():
        return False
    machine, _, began = parts[2].partition("-")
    return bool(began) and machine == _machine() and _began(int(parts[1])) != began


def _machine() -> str:
    """Tell this machine, since it was booted, and this container on it from all others."""
    try:
        booted = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii")
        processes = (_PROC / "self/ns/pid").readlink()
    except OSError:
        return ""
    return hashlib.sha256(f"{booted.strip()} {processes}".encode()).hexdigest()[:12]


def _began(pid: int) -> str:
    """Give the tick of the clock at which a process began, empty if it does not run."""
    try:
        line = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name in brackets may hold anything; behind it comes field 3, the state.
    state = line.rpartition(")")[2].split()
    return "" if state[0] in "ZXx" else state[19]
