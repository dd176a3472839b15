"""Opens the real cluster behind a kubectl context: reads the login and comes by the proof for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial

from mlstack.cluster import direct
from mlstack.cluster.remote import RemoteCluster
from mlstack.cluster.transport import READ_TIMEOUT_S, Counted
from mlstack.errors import ForbiddenError
from mlstack.files import logins
from mlstack.files.logins import Found
from mlstack.model import login, plugin
from mlstack.model.login import IdToken, Proof, TokenFile
from mlstack.model.plugin import Interactive, Plugin


def connect(
    context: str = "",
    *,
    kubeconfig: str | None = None,
    read_timeout_s: float = READ_TIMEOUT_S,
    counted: Counted = lambda verb, status: None,
) -> RemoteCluster:
    """Prepare to speak to the cluster of a kubectl context; nothing is sent to it yet.

    Args:
        context: name of the context; empty for the current one, or, without any kubeconfig, for the service
            account of the pod this runs in.
        kubeconfig: what `--kubeconfig` says; None for what kubectl takes without it.
        read_timeout_s: how long the server may stay silent in one request, in seconds.
        counted: told of each request, from any thread.

    Raises:
        NotFoundError: no kubeconfig, or no such context in it.
        ForbiddenError: a credential plug-in fails, or an id-token cannot be renewed.
        ClusterError: the kubeconfig or a file it names cannot be used.
    """
    found = logins.find(context, kubeconfig, os.environ)
    return direct.connect(found.login, _proof(found), read_timeout_s=read_timeout_s, counted=counted)


def _proof(found: Found) -> Proof | Callable[[], Proof]:
    way = found.way
    if isinstance(way, Plugin):
        return partial(_asked, found, way)
    if isinstance(way, TokenFile):
        return partial(logins.read_token, found, way)
    if isinstance(way, IdToken):
        from mlstack.cli.idtokens import IdTokens

        return IdTokens(found, way)
    return way


def _asked(found: Found, asked: Plugin) -> Proof:
    """Ask a credential plug-in.

    Raises:
        ForbiddenError: it is missing, fails, or answers something else.
    """
    from mlstack import programs

    interactive = _can_ask(found, asked)
    settings = {**asked.env, plugin.INFO: plugin.question(asked, interactive=interactive)}
    try:
        output = programs.ask(asked.command, asked.args, settings=settings, reads_terminal=interactive)
        answer = plugin.answered(asked, output)
    except programs.ProgramMissingError:
        hint = asked.install_hint or "install it and make sure that it is on the PATH"
        raise _failed(found, asked, "is not installed", hint) from None
    except programs.ProgramError as error:
        text = f"failed with exit code {error.status}" if error.status is not None else "cannot run"
        raise _failed(found, asked, text) from None
    except ValueError as error:  # says nothing of what may be secret
        raise _failed(found, asked, f"gives no answer that can be used: {error}") from None
    return Proof(
        authorization=login.bearer(answer.token) if answer.token else None,
        cert_pem=answer.cert_pem or None,
        key_pem=answer.key_pem or None,
        expires_s=answer.expires_s,
    )


def _can_ask(found: Found, asked: Plugin) -> bool:
    """Tell whether a plug-in can ask the person."""
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if asked.interactive is Interactive.ALWAYS and not is_terminal:
        raise _failed(
            found,
            asked,
            "wants to ask a person, and standard input is no terminal",
            "run it on a terminal, or log in for programs: a service account's token",
        )
    return is_terminal and asked.interactive is not Interactive.NEVER


def _failed(found: Found, asked: Plugin, text: str, hint: str = "") -> ForbiddenError:
    return ForbiddenError(
        f"the credential plug-in `{asked.command}` of {found.login.label} {text}",
        why="credentials",
        where=found.files,
        hint=hint or f"log in with it again, then try: kubectl --context {found.context} version",
    )
