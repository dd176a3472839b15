"""The table of policies; each enters itself where it is written."""

from __future__ import annotations

from collections.abc import Callable

from mlstack.elastic.config import PolicyConfig
from mlstack.elastic.scaleplan import ScalePlan
from mlstack.elastic.snapshot import Snapshot
from mlstack.model.table import Table

Policy = Callable[[Snapshot, PolicyConfig], ScalePlan]

POLICIES: Table[Policy] = Table("scaling policy")
policy = POLICIES.register
