"""The lock file reads back what was written, in one order."""

import pytest

from mlstack.app import document as documents
from mlstack.app.app import Lock, LockedPackage, LockedRegistry, Retired
from mlstack.app.app_files import read_lock, write_lock
from mlstack.app.schema import check_file
from mlstack.errors import SchemaError


def package(name: str, version: str) -> LockedPackage:
    return LockedPackage(
        registry="k", name=name, version=version, digest="sha256:" + "a" * 64, source="bundled"
    )


RETIRED = (
    Retired(names=("old", "older"), reason="it is done"),
    Retired(names=("x",), reason="r", instead="do y"),
)
LOCK = Lock(
    registries=(
        LockedRegistry(name="k", address="bundled"),
        LockedRegistry(name="z", address="u", revision="abc", retired=RETIRED),
    ),
    packages=(package("a", "0.9.0"), package("a", "0.10.0"), package("b", "1.0")),
)


def test_what_is_written_reads_back_and_fits_its_schema() -> None:
    document = documents.read(write_lock(LOCK), file="mlstack.lock")
    check_file("Lock", document.value, source="mlstack.lock")
    assert read_lock(document) == LOCK


def test_the_order_of_things_does_not_matter() -> None:
    other = Lock(registries=LOCK.registries[::-1], packages=LOCK.packages[::-1])
    assert write_lock(other) == write_lock(LOCK)


@pytest.mark.parametrize(
    "entry",
    [
        "{package: core, version: '1', digest: x}",
        "{package: k/a, digest: x}",
        "{package: k/a, version: 1}",
        "[]",
    ],
)
def test_a_wrong_entry_is_told_with_its_line(entry: str) -> None:
    text = f"apiVersion: mlstack.dev/v1\nkind: Lock\npackages:\n- {entry}\n"
    with pytest.raises(SchemaError) as caught:
        read_lock(documents.read(text.encode(), file="mlstack.lock"))
    assert caught.value.where == "mlstack.lock:4"
