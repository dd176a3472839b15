"""Archives of packages: the same bytes everywhere; hostile ones are refused."""

import gzip
import hashlib
import io
import tarfile
from pathlib import PurePosixPath

import pytest

from mlstack.app.chart import pack, unpack
from mlstack.app.files import MAX_BYTES
from mlstack.errors import RegistryError
from tests.support.packages import JOBS, as_files

FILES = as_files(JOBS)


def test_what_was_packed_is_unpacked() -> None:
    assert unpack(pack(FILES), "jobs") == FILES
    assert unpack(gzip.compress(pack(FILES)), "jobs") == FILES


def test_the_same_files_are_the_same_bytes_in_any_order_and_everywhere() -> None:
    assert pack(dict(reversed(FILES.items()))) == pack(FILES)
    two = {PurePosixPath("a/ä.txt"): b"x", PurePosixPath("b" * 120): b""}
    digest = hashlib.sha256(pack(two)).hexdigest()
    assert digest == "01bac8e808559562ba25d13ecb905ce436a0471416adbab98aae26661421f9e6"


def member(name: str, **facts: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    content = b""
    for key, value in facts.items():
        if key == "content":
            content = value  # type: ignore[assignment]
            info.size = len(content)
        else:
            setattr(info, key, value)
    return info, content


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ([member("a", type=tarfile.SYMTYPE, linkname="/etc/passwd")], "`a`, which is a link or no file"),
        ([member("a", type=tarfile.LNKTYPE, linkname="b")], "a link or no file"),
        ([member("a", type=tarfile.FIFOTYPE)], "a link or no file"),
        ([member("a", type=tarfile.CHRTYPE)], "a link or no file"),
        ([member("/etc/x", content=b"x")], "a path that leads out of it"),
        ([member("a/../../x", content=b"x")], "a path that leads out of it"),
        ([member("..\\x", content=b"x")], "a path that leads out of it"),
        ([member("a", content=b"x"), member("a", content=b"y")], "two files `a`"),
        ([member("a/b", content=b"x"), member("a", content=b"y")], "`a/b`, whose folder is a file too"),
        ([member("a\x1b[2J", content=b"x")], "a name that is no UTF-8 or cannot be shown"),
        ([member("/".join("a" * 40), content=b"x")], "more than 32 deep"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # the same in every process
)
def test_what_no_package_may_hold_is_refused(members: list[tuple[tarfile.TarInfo, bytes]], text: str) -> None:
    with pytest.raises(RegistryError, match="package `jobs` is refused: ") as caught:
        unpack(archive(*members), "jobs")
    assert text in str(caught.value)


def test_a_hundred_thousand_files_are_refused_long_before_their_end() -> None:
    header = archive(member("a", type=tarfile.DIRTYPE))[:512]
    with pytest.raises(RegistryError, match="more than 2000 files"):
        unpack(header * 100_000, "jobs")


@pytest.mark.slow
def test_a_bomb_is_refused_before_it_goes_off() -> None:
    bomb = gzip.compress(bytes(3 * MAX_BYTES))
    assert len(bomb) < 200_000
    with pytest.raises(RegistryError, match="holds more than"):
        unpack(bomb, "jobs")
    with pytest.raises(RegistryError, match="holds more than"):
        unpack(member("a", size=MAX_BYTES + 1)[0].tobuf() + bytes(1024), "jobs")


@pytest.mark.parametrize("data", [b"", b"no archive", pack(FILES)[:700], gzip.compress(pack(FILES))[:-20]])
def test_a_broken_archive_is_refused(data: bytes) -> None:
    with pytest.raises(RegistryError, match="its archive cannot be read"):
        unpack(data, "jobs")


def test_hidden_files_are_left_out_as_in_folders() -> None:
    members = [
        member("a", content=b"x"),
        member(".git/config", content=b"x"),
        member("d", type=tarfile.DIRTYPE),
    ]
    assert unpack(archive(*members), "jobs") == {PurePosixPath("a"): b"x"}
