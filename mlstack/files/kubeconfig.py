"""The contexts of a kubeconfig and where they lead; credentials are left to the client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlstack.errors import ConfigError, NotFoundError, UsageError
from mlstack.files import document as documents
from mlstack.files.wording import described
from mlstack.model.names import nearest


@dataclass(frozen=True, kw_only=True)
class Context:
    """A kubectl context.

    Args:
        name: the context's name.
        cluster: the cluster entry it uses.
        server: that entry's address; empty when it is missing.
        namespace: the namespace it sets; `default` when it sets none.
    """

    name: str
    cluster: str
    server: str
    namespace: str


@dataclass(frozen=True, kw_only=True)
class Kubeconfig:
    """All contexts of one or several kubeconfig files.

    Args:
        current_context: the context kubectl uses unless told otherwise; empty when there is none.
        contexts: by name.
        paths: the files that were looked for, in order.
        exists: whether one of them is there.
    """

    current_context: str = ""
    contexts: Mapping[str, Context] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()
    exists: bool = True

    def context(self, name: str) -> Context:
        """Give a context.

        Raises:
            NotFoundError: with the nearest known one.
        """
        if name not in self.contexts:
            looked = ", ".join(str(path) for path in self.paths)
            near = nearest(name, self.contexts)
            hint = f"did you mean `{near}`?" if near else "kubectl config get-contexts"
            raise NotFoundError(f"no context `{name}` in {looked or 'the kubeconfig'}", near=near, hint=hint)
        return self.contexts[name]

    def current(self) -> Context:
        """Give the context that kubectl uses unless told otherwise.

        Raises:
            NotFoundError: there is no kubeconfig, or no such context in it.
            UsageError: none is current.
        """
        if not self.exists:
            looked = ", ".join(str(path) for path in self.paths)
            raise NotFoundError(
                f"there is no kubeconfig at {looked or '~/.kube/config'}",
                hint="set KUBECONFIG, or let your cluster write one: minikube start, "
                "gcloud container clusters get-credentials NAME",
            )
        if not self.current_context:
            raise UsageError(
                "no kubectl context is current", hint="kubectl config use-context NAME, or --context NAME"
            )
        return self.context(self.current_context)

    def by_server(self, server: str) -> tuple[Context, ...]:
        """Give the contexts that lead to an address."""
        wanted = server.rstrip("/")
        return tuple(context for context in self.contexts.values() if context.server.rstrip("/") == wanted)


def paths(option: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Give the kubeconfig files as kubectl finds them: `--kubeconfig`, `$KUBECONFIG`, `~/.kube/config`."""
    if option:
        return (Path(option),)
    listed = [part for part in environ.get("KUBECONFIG", "").split(":") if part]
    home = environ.get("HOME", "")
    return tuple(Path(part) for part in listed) or ((Path(home, ".kube", "config"),) if home else ())


def load(option: str | None, environ: Mapping[str, str]) -> Kubeconfig:
    """Read the kubeconfig; where several files speak of one thing, the first counts, as with kubectl.

    Files that do not exist are passed over, except one given by `--kubeconfig`.

    Raises:
        NotFoundError: the file given by option does not exist.
        YamlError: a file is no YAML.
    """
    files = paths(option, environ)
    if option and not Path(option).is_file():
        raise NotFoundError(
            f"there is no kubeconfig at {option}", hint="relative paths start at the working directory"
        )
    current = ""
    contexts: dict[str, tuple[Any, Path]] = {}
    servers: dict[str, str] = {}
    for file in files:
        content = _read(file) if file.exists() else {}
        current = current or _text(content.get("current-context"))
        for name, entry in _entries(content, "contexts", "context"):
            contexts.setdefault(name, (entry, file))
        for name, entry in _entries(content, "clusters", "cluster"):
            servers.setdefault(name, _text(entry.get("server")))
    found = {name: _context(name, entry, servers) for name, (entry, _) in contexts.items()}
    exists = any(file.exists() for file in files)
    return Kubeconfig(current_context=current, contexts=found, paths=files, exists=exists)


def _context(name: str, entry: Mapping[str, Any], servers: Mapping[str, str]) -> Context:
    cluster = _text(entry.get("cluster"))
    namespace = _text(entry.get("namespace")) or "default"
    return Context(name=name, cluster=cluster, server=servers.get(cluster, ""), namespace=namespace)


def _read(file: Path) -> Mapping[str, Any]:
    found = documents.read_all(_bytes(file), file=str(file))
    value = found[0].value if found else {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"a kubeconfig is a map, got {described(value)}", where=str(file))
    return value


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"cannot read the kubeconfig: {reason}", where=str(file), hint="check KUBECONFIG and --kubeconfig"
        ) from error


def _entries(content: Mapping[str, Any], group: str, field_name: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Give (name, entry) of a list such as `contexts`; what has another shape is passed over."""
    listed = content.get(group)
    found = []
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, Mapping) and isinstance(each.get("name"), str):
            entry = each.get(field_name)
            found.append((each["name"], entry if isinstance(entry, Mapping) else {}))
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
