"""What makes two changes the same to who approved one of them."""

from dataclasses import replace

from mlstack.deploy.changes import Change, fingerprint, what_moved
from mlstack.objects.kube_object import Identity
from mlstack.objects.managed_fields import FieldChange

NAME = Identity("", "ConfigMap", "ml", "settings")


def change(*fields: FieldChange) -> Change:
    return Change(
        identity=NAME,
        component="a",
        action="update",
        fields=fields,
        live_uid="1",
        live_version="5",
        fingerprint=fingerprint(fields),
    )


def to(path: str, old: object, new: object) -> FieldChange:
    return FieldChange(path=path, action="changed", old=old, new=new)


ONE = change(to("data.a", "1", "2"))


def test_the_version_and_ownership_do_not_matter() -> None:
    moved = replace(ONE, live_version="6", prepare=({"op": "test"},), handover={"spec": {}}, notes=("x",))
    assert moved.digest == ONE.digest


def test_everything_approved_matters() -> None:
    others = [
        replace(ONE, live_uid="2"),
        replace(ONE, action="recreate"),
        replace(ONE, left=(("data.b", "operator"),)),
        change(to("data.a", "0", "2")),
        change(to("data.a", "1", "3")),
        change(to("data.a", "1", "2"), to("data.b", "1", "2")),
    ]
    assert len({one.digest for one in [ONE, *others]}) == len(others) + 1


def test_masked_values_are_told_apart_by_their_true_ones() -> None:
    hidden = [to("data.password", "********", "********")]
    first = replace(change(*hidden), fingerprint=fingerprint([to("data.password", "a", "b")]))
    second = replace(change(*hidden), fingerprint=fingerprint([to("data.password", "a", "c")]))
    assert first.digest != second.digest


def test_what_moved_is_said() -> None:
    assert (
        what_moved(ONE, change(to("data.a", "1", "2"), to("data.b", "x", "y"))) == "`data.b` differs as well"
    )
    assert what_moved(ONE, change(to("data.a", "9", "2"))) == "`data.a` has another value"
    assert what_moved(ONE, replace(ONE, live_uid="2")) == "it was made anew by somebody else"
    assert what_moved(ONE, replace(ONE, live_uid="", action="create")) == "it is gone"
    left = replace(change(), action="unchanged", left=(("data.a", "operator"),))
    assert what_moved(ONE, left) == (
        "it is as wanted already, `data.a` is as wanted already, `data.a` belongs to `operator` now"
    )
    many = change(*(to(f"data.{number}", 1, 2) for number in range(9)))
    assert what_moved(change(), many).endswith(" and 4 more")
