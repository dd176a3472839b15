"""The contexts of a kubeconfig and where they lead; credentials are left to the client."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlstack.errors import NotFoundError, UsageError
from mlstack.files.kubeparts import Entries, Part, missing
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
            raise missing(self.paths)
        if not self.current_context:
            raise UsageError(
                "no kubectl context is current", hint="kubectl config use-context NAME, or --context NAME"
            )
        return self.context(self.current_context)

    def by_server(self, server: str) -> tuple[Context, ...]:
        """Give the contexts that lead to an address."""
        wanted = server.rstrip("/")
        return tuple(context for context in self.contexts.values() if context.server.rstrip("/") == wanted)


def load(option: str | None, environ: Mapping[str, str]) -> Kubeconfig:
    """Read the contexts of the kubeconfig, as whoever logs in reads them.

    Raises:
        NotFoundError: the file given by option does not exist.
        ClusterError: kubectl would not read a file.
    """
    if option and not Path(option).exists():
        raise NotFoundError(
            f"there is no kubeconfig at {option}", hint="relative paths start at the working directory"
        )
    entries = Entries(option, environ)
    servers = {name: _text(part.value.get("server")) for name, part in entries.known["clusters"].items()}
    contexts = {name: _context(part, servers) for name, part in entries.known["contexts"].items()}
    return Kubeconfig(
        current_context=entries.current,
        contexts=contexts,
        paths=entries.files,
        exists=any(file.exists() for file in entries.files),
    )


def _context(part: Part, servers: Mapping[str, str]) -> Context:
    cluster = _text(part.value.get("cluster"))
    namespace = _text(part.value.get("namespace")) or "default"
    return Context(name=part.name, cluster=cluster, server=servers.get(cluster, ""), namespace=namespace)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
