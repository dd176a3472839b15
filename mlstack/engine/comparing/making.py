"""The parts of every change of one object: what is sent, and what it was computed from."""

from collections.abc import Iterable, Mapping
from typing import Any

from mlstack.engine.comparing.outlook import Outlook, holding
from mlstack.model import payload, report
from mlstack.model.diff import Change
from mlstack.model.digest import digest_of, fingerprint
from mlstack.model.fields import FieldChange
from mlstack.model.objects import KubeObject


class Making:
    """Makes changes of one object.

    Args:
        outlook: what holds for the run as a whole.
        wanted: the object.
    """

    def __init__(self, outlook: Outlook, wanted: KubeObject) -> None:
        """Hold the parts; nothing is asked."""
        self.outlook, self.wanted = outlook, wanted
        self.data = outlook.payload(wanted)

    def change(self, **facts: Any) -> Change:
        """Give a change of the object; what is sent is what we will own of it, if nothing else is given."""
        sent = facts.pop("payload", self.data)
        return Change(
            identity=self.wanted.identity,
            component=self.wanted.component,
            api_version=self.wanted.api_version,
            desired=self.wanted,
            payload=None if sent == self.wanted.data else sent,
            **facts,
        )

    def update(self, live: Mapping[str, Any], changed: Iterable[FieldChange], **facts: Any) -> Change:
        """Give the change of a live object in some fields, whose secrets are masked."""
        differing = tuple(changed)
        return self.change(
            **{
                "action": "update",
                "fields": report.masked(self.wanted.identity, differing),
                "fingerprint": fingerprint(differing),
                **precisely(live),
                **facts,
            }
        )

    def creation(self, reachable: bool, **facts: Any) -> Change:
        """Give a creation; the number that an autoscaler sets is sent once and handed over at once."""
        path, handover, data = self.outlook.scalers.path(self.wanted), None, self.data
        if reachable and self.outlook.sets(self.wanted, path) and self.outlook.scaler(self.wanted):
            data = payload.cut(data, [path])
        if data != self.wanted.data:
            handover = holding(self.wanted.data, path, payload.value_at(self.wanted.data, path))
        made = digest_of(self.wanted.data)
        return self.change(action="create", fingerprint=made, handover=handover, payload=data, **facts)


def precisely(live: Mapping[str, Any]) -> dict[str, str]:
    """Give which object, and which version of it, a change was computed from."""
    metadata = live["metadata"]
    return {"live_uid": str(metadata["uid"]), "live_version": str(metadata["resourceVersion"])}
