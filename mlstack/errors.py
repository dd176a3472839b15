"""The errors of mlstack: who can mend it decides the branch, the branch decides the exit code.

MlstackError                 anything below, to catch broadly                          exit 70
├─ UsageError                the command line is wrong, or a question had no answer        2
│  └─ TypedValueError        a parameter was typed wrongly: a ParamError too
├─ ConfigError               a file of the app, package or environment is wrong            3
│  ├─ SchemaError            a file does not fit its JSON Schema
│  ├─ ParamError             a parameter is unknown, of the wrong type or out of range
│  ├─ TemplateError          a template does not compile or render
│  │  └─ TemplateRefusedError it says why it makes nothing of these parameters
│  └─ YamlError              text is not YAML that kubectl would read
├─ NotFoundError             names no such thing; carries the nearest known one            4
│  └─ UnknownParamError      what was given for one run names no parameter: a ParamError too
├─ RegistryError             cannot fetch, digest differs, protocol unknown                5
├─ ClusterError              the cluster refused or did something unexpected               6
│  ├─ UnreachableError       no answer from the API server
│  ├─ ForbiddenError         the API server says no: credentials, rights, quota, policy
│  ├─ ObjectNotFoundError    the cluster has no such object, namespace or kind
│  ├─ InvalidError           the API server does not accept the object, now or ever
│  │  └─ VersionGoneError    an object stands in a version that is not served any more
│  ├─ ConflictError          another field manager owns what would be changed, or it moved meanwhile
│  │  └─ OutdatedError       an object is no longer as it was when its change was approved
│  ├─ TransientError         the API server asks for patience: a webhook down, too many requests
│  ├─ LockedError            another run holds the environment's lock, or ours was lost
│  ├─ WatchExpiredError      a watch cannot go on from where it was: list again
│  └─ WrongClusterError      the context leads to another cluster than the environment's
└─ NotReadyError             applied, but failed or not ready in time                      7

Errors hold facts and format themselves plainly; only the command line prints them.
"""

from collections.abc import Sequence
from typing import ClassVar

from mlstack.dataclass import dataclass

INTERNAL_EXIT_CODE = 70
ODD = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
"""What goes wrong with values of other types than an API, or who wrote a file, promises."""


class MlstackError(Exception):
    """Root of every error that a person can do something about."""

    exit_code: ClassVar[int] = INTERNAL_EXIT_CODE

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.partial: object | None = None  # what a run had done before it failed

    def __str__(self) -> str:
        """Give the message alone."""
        return self.message

    def messages(self) -> tuple[str, ...]:
        """Give what a person reads: `error: … (where)`, then `hint: …` if there is one."""
        location = f" ({self.where})" if self.where else ""
        headline = f"error: {self.message}{location}"
        return (headline, f"hint: {self.hint}") if self.hint else (headline,)

    def describe(self) -> str:
        """Write the messages below each other."""
        return "\n".join(self.messages())


class UsageError(MlstackError):
    """Raised when the command line is wrong, or a question needs `--yes` and has no terminal."""

    exit_code = 2


class ConfigError(MlstackError):
    """Raised when a file of the app, a package or an environment is wrong or cannot be written."""

    exit_code = 3


class SchemaError(ConfigError):
    """Raised when a file does not fit the JSON Schema of its kind."""


class ParamError(ConfigError):
    """Raised when a parameter is unknown, has the wrong type or lies outside its bounds."""


class TypedValueError(UsageError, ParamError):
    """Raised when a parameter that somebody typed has the wrong type or lies outside its bounds."""


class TemplateError(ConfigError):
    """Raised when a template does not compile, reads what is not there, or calls `fail`."""


class TemplateRefusedError(TemplateError):
    """Raised when a template calls `fail`: its parameters do not fit together."""

    param: str | None = None  # the first that it names


class YamlError(ConfigError):
    """Raised when text is not YAML, or is YAML that kubectl would refuse or read otherwise."""


class NotFoundError(MlstackError):
    """Raised when a name leads to nothing; `near`, the nearest known one, is the hint when none is given."""

    exit_code = 4

    def __init__(
        self, message: str, *, near: str | None = None, where: str | None = None, hint: str | None = None
    ) -> None:
        if hint is None and near is not None:
            hint = f"did you mean `{near}`?"
        super().__init__(message, where=where, hint=hint)
        self.near = near


class UnknownParamError(NotFoundError, ParamError):
    """Raised when an option, or a file given for one run, names a parameter that there is not."""


class RegistryError(MlstackError):
    """Raised when a package cannot be fetched, its digest differs or its protocol is unknown."""

    exit_code = 5


class ClusterError(MlstackError):
    """Raised when the cluster refuses, or answers something that cannot be understood."""

    exit_code = 6


class UnreachableError(ClusterError):
    """Raised when no API server answers at the address of the context."""


class ForbiddenError(ClusterError):
    """Raised when the API server says no.

    `why` is `credentials`, `rights`, `escalation`, `quota`, `policy` or `terminating` (a namespace or
    definition that is going away: worth another try after it has gone).
    """

    def __init__(self, message: str, *, why: str = "rights", **place: str | None) -> None:
        super().__init__(message, **place)
        self.why = why


@dataclass(frozen=True, kw_only=True)
class FieldConflict:
    """One field that belongs to somebody else."""

    manager: str  # the field manager that owns it
    path: str  # the field as the server writes it: `.spec.ports[port=80,protocol="TCP"].targetPort`
    subresource: str = ""  # `scale` or `status` if it was written through one


class ConflictError(ClusterError):
    """Raised when another field manager owns a field, or an object changed meanwhile.

    There are no `conflicts` if it changed or was replaced; `managers` are owners of unknown fields.
    """

    def __init__(
        self,
        message: str,
        *,
        conflicts: Sequence[FieldConflict] = (),
        managers: Sequence[str] = (),
        **place: str | None,
    ) -> None:
        super().__init__(message, **place)
        self.conflicts = tuple(conflicts)
        self.managers = tuple(sorted({*managers, *(conflict.manager for conflict in conflicts)}))


class OutdatedError(ConflictError):
    """Raised when an object is no longer as it was shown: what was approved is not what would be done."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One fault the API server found in an object."""

    field: str = ""  # path of the field, empty if the fault is the object's as a whole
    reason: str = ""  # the server's word for it: `FieldValueInvalid`, `FieldValueForbidden` …
    message: str = ""  # the server's text, cut before any value it would repeat

    def __str__(self) -> str:
        """Write the fault as a part of a sentence."""
        return f"`{self.field}` {self.message}" if self.field else self.message


class InvalidError(ClusterError):
    """Raised when the API server finds an object wrong: it will never pass.

    There is a cause for each field; none if the server could not read the object at all.
    """

    def __init__(self, message: str, *, causes: Sequence[Cause] = (), **place: str | None) -> None:
        super().__init__(message, **place)
        self.causes = tuple(causes)


class VersionGoneError(InvalidError):
    """Raised when an object, or the record of its field owners, is in a version that is not served."""


class ObjectNotFoundError(ClusterError):
    """Raised when the cluster has no such thing: `what` is `object`, `namespace` or `kind`."""

    def __init__(self, message: str, *, what: str = "object", **place: str | None) -> None:
        super().__init__(message, **place)
        self.what = what


class TransientError(ClusterError):
    """Raised when the same request may pass later; `webhook` names the admission webhook that failed."""

    def __init__(self, message: str, *, webhook: str = "", **place: str | None) -> None:
        super().__init__(message, **place)
        self.webhook = webhook


class LockedError(ClusterError):
    """Raised when another run holds the lock of an environment, or this run has lost it."""


class WatchExpiredError(ClusterError):
    """Raised when a watch asks for a version the server no longer has: list again, then watch."""


class WrongClusterError(ClusterError):
    """Raised when a context leads to another cluster than the one the environment is bound to."""


class NotReadyError(MlstackError):
    """Raised when objects failed or did not become ready in time, with the last reason of each."""

    exit_code = 7

    def __init__(self, message: str, *, reasons: Sequence[str] = (), **place: str | None) -> None:
        super().__init__(message, **place)
        self.reasons = tuple(reasons)
