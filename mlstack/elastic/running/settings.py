"""How a controller is run: what people may set on its command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from mlstack.elastic.config import PolicyConfig, PriorityGrants
from mlstack.elastic.pace import TICK_MS

LEASE_NAME = "mlstack-elastic"
LEASE_NAMESPACE = "mlstack-system"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a controller is run.

    Attributes:
        policy: settings of the policy.
        grants: which priorities jobs may have.
        namespaces: where jobs are looked after; empty for everywhere.
        identity: name of this process; no other has it.
        is_gone: tells whether another process certainly runs no more, by its name.
        lease_namespace: where the Lease is.
        lease_name: name of the Lease.
        tick_ms: longest time between two passes.
        is_dry: work everything out, write nothing, lead nobody.
    """

    policy: PolicyConfig = field(default_factory=PolicyConfig)
    grants: PriorityGrants = field(default_factory=PriorityGrants)
    namespaces: tuple[str, ...] = ()
    identity: str
    is_gone: Callable[[str], bool] = lambda name: False
    lease_namespace: str = LEASE_NAMESPACE
    lease_name: str = LEASE_NAME
    tick_ms: int = TICK_MS
    is_dry: bool = False
