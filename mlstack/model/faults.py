"""Faults of parameters: gathered, then told together in one error."""

from collections.abc import Sequence
from dataclasses import dataclass

from mlstack.errors import ParamError, TypedValueError


@dataclass(frozen=True)
class ParamFault:
    """One thing that is wrong with a parameter.

    Args:
        message: lower case, names in backticks, what was seen and what was expected.
        where: file and line.
        hint: the next step.
    """

    message: str
    where: str | None = None
    hint: str | None = None


def param_error(faults: Sequence[ParamFault], *, subject: str = "") -> ParamError:
    """Make one error of all faults; a single one reads as if it were raised alone.

    Args:
        faults: at least one.
        subject: whose parameters they are, for the headline of several (`of component `cnn``).
    """
    is_typed = all((fault.where or "").startswith("--") for fault in faults)
    kind = TypedValueError if is_typed else ParamError
    if len(faults) == 1:
        return kind(faults[0].message, where=faults[0].where, hint=faults[0].hint)
    lines = [f"{len(faults)} parameters{' ' + subject if subject else ''} are wrong"]
    lines += [
        f"  {fault.message} ({fault.where})" if fault.where else f"  {fault.message}" for fault in faults
    ]
    hints = list(dict.fromkeys(fault.hint for fault in faults if fault.hint))
    return kind("\n".join(lines), hint="\n      ".join(hints) or None)
