"""How an apply is to be done."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ApplyOptions:
    """What a person chose for one apply.

    Attributes:
        dry_run: write nothing; the server checks new objects as well.
        create: make objects that are missing.
    """

    dry_run: bool = False
    create: bool = True
