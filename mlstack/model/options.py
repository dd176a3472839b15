"""How an apply is to be done."""

from dataclasses import dataclass
from typing import Literal

OnFailure = Literal["stop", "rollback"]


@dataclass(frozen=True, kw_only=True)
class ApplyOptions:
    """What a person chose for one apply.

    Attributes:
        dry_run: write nothing; the server checks new objects as well.
        create: make objects that are missing.
        adopt: take over objects of other apps and environments, and what kubectl or Helm applied.
        force_conflicts: take fields from programs that own them too.
        keep_foreign_fields: leave what people's tools set and no file has.
        allow_destructive: let definitions lose fields and versions.
        lock_timeout_s: how long to wait for another run on the environment, 0 refuses at once; None for 30 s,
            and no longer than for anything else.
        prune: delete what the environment has in its cluster and the files no longer bring.
        allow_large_prune: also if that is more than half of it.
        wait: return only when everything works, and what was deleted is gone.
        timeout_s: how long anything is waited for; None for 300 s, and less for pods that no node can take.
        wait_for_jobs: wait also for what runs to an end, until it runs.
        on_failure: `rollback` applies the last revision that worked again, as far as the run was about it.
    """

    dry_run: bool = False
    create: bool = True
    adopt: bool = False
    force_conflicts: bool = False
    keep_foreign_fields: bool = False
    allow_destructive: bool = False
    lock_timeout_s: float | None = None
    prune: bool = True
    allow_large_prune: bool = False
    wait: bool = True
    timeout_s: float | None = None
    wait_for_jobs: bool = False
    on_failure: OnFailure = "stop"


DECIDING = (
    "create",
    "adopt",
    "force_conflicts",
    "keep_foreign_fields",
    "allow_destructive",
    "prune",
    "allow_large_prune",
)
"""Options that decide what happens; the others are about how it is done."""
