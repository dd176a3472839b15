"""The errors of mlstack: who can mend it decides the branch, the branch decides the exit code.

MlstackError                 anything below, to catch broadly                          exit 70
├─ UsageError                the command line is wrong, or a question had no answer        2
├─ ConfigError               a file of the app, package or environment is wrong            3
│  ├─ SchemaError            a file does not fit its JSON Schema
│  ├─ ParamError             a parameter is unknown, of the wrong type or out of range
│  ├─ TemplateError          a template does not compile or render
│  └─ YamlError              text is not YAML that kubectl would read
├─ NotFoundError             names no such thing; carries the nearest known one            4
├─ RegistryError             cannot fetch, digest differs, protocol unknown                5
├─ ClusterError              the cluster refused or did something unexpected               6
│  ├─ UnreachableError       no answer from the API server
│  ├─ ForbiddenError         the API server knows us and says no
│  ├─ ObjectNotFoundError    the cluster has no such object or kind
│  ├─ InvalidError           the API server does not accept the object
│  ├─ ConflictError          another field manager owns what would be changed
│  └─ WrongClusterError      the context leads to another cluster than the environment's
└─ NotReadyError             applied, but failed or not ready in time                      7

Errors hold facts and format themselves plainly; only the command line prints them.
"""

from collections.abc import Sequence
from typing import ClassVar

INTERNAL_EXIT_CODE = 70


class MlstackError(Exception):
    """Root of every error that a person can do something about.

    Args:
        message: what is wrong: lower case, no full stop, names in backticks.
        where: the place as `file:line`, a field or an object.
        hint: what to do next, on a line of its own.
    """

    exit_code: ClassVar[int] = INTERNAL_EXIT_CODE

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        """Hold the facts; nothing is printed."""
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        """Give the message alone."""
        return self.message

    def describe(self) -> str:
        """Write the lines a person reads: `error: … (where)`, then `hint: …` if there is one."""
        place = f" ({self.where})" if self.where else ""
        hint = f"\nhint: {self.hint}" if self.hint else ""
        return f"error: {self.message}{place}{hint}"


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


class TemplateError(ConfigError):
    """Raised when a template does not compile, reads what is not there, or calls `fail`."""


class YamlError(ConfigError):
    """Raised when text is not YAML, or is YAML that kubectl would refuse or read otherwise."""


class NotFoundError(MlstackError):
    """Raised when a name leads to nothing.

    Args:
        message: what was looked for and where.
        near: the nearest known name; becomes the hint when none is given.
        where: the place of the wrong name.
        hint: what to do next.
    """

    exit_code = 4

    def __init__(
        self, message: str, *, near: str | None = None, where: str | None = None, hint: str | None = None
    ) -> None:
        """Hold the facts and turn `near` into a hint."""
        if hint is None and near is not None:
            hint = f"did you mean `{near}`?"
        super().__init__(message, where=where, hint=hint)
        self.near = near


class RegistryError(MlstackError):
    """Raised when a package cannot be fetched, its digest differs or its protocol is unknown."""

    exit_code = 5


class ClusterError(MlstackError):
    """Raised when the cluster refuses, or answers something that cannot be understood."""

    exit_code = 6


class UnreachableError(ClusterError):
    """Raised when no API server answers at the address of the context."""


class ForbiddenError(ClusterError):
    """Raised when the API server knows the user and the user may not do this."""


class ObjectNotFoundError(ClusterError):
    """Raised when an object, its namespace or its kind is not on the cluster."""


class InvalidError(ClusterError):
    """Raised when the API server does not accept an object: schema, admission or immutable field."""


class ConflictError(ClusterError):
    """Raised when another field manager owns a field, or an object changed meanwhile.

    Args:
        message: which object, which fields.
        managers: the field managers that own the fields.
        where: the object.
        hint: what to do next.
    """

    def __init__(
        self,
        message: str,
        *,
        managers: Sequence[str] = (),
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Hold the facts and the owners of the fields."""
        super().__init__(message, where=where, hint=hint)
        self.managers = tuple(managers)


class WrongClusterError(ClusterError):
    """Raised when a context leads to another cluster than the one the environment is bound to."""


class NotReadyError(MlstackError):
    """Raised when objects were applied but failed or did not become ready in time.

    Args:
        message: what is not ready.
        reasons: the last reason of each object that is not ready.
        where: the environment or component.
        hint: what to do next.
    """

    exit_code = 7

    def __init__(
        self,
        message: str,
        *,
        reasons: Sequence[str] = (),
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Hold the facts and the last reasons."""
        super().__init__(message, where=where, hint=hint)
        self.reasons = tuple(reasons)
