"""The cache remembers bytes, and whatever is odd about it is a miss, never an error."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import mlstack
from mlstack import disk_cache
from mlstack.cli import fast
from mlstack.disk_cache import Cache, of_user
from tests.support.cli import Runner
from tests.support.registry import small_app


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_last_bytes_put_win(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("k", b"1")
    cache.put("k", b"2")
    assert cache.get("k") == b"2"
    assert len(entries(tmp_path)) == 1


def test_a_cache_that_was_never_written_makes_no_folder(tmp_path: Path) -> None:
    assert Cache(tmp_path / "cache").get("k") is None
    assert not (tmp_path / "cache").exists()


def test_folder_and_entries_are_closed_to_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Cache(tmp_path / "cache").put("k", b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert stat.S_IMODE(entries(tmp_path)[0].stat().st_mode) == 0o600


@pytest.mark.parametrize("damage", [b"", b"short", b"x" * 40])
def test_a_damaged_entry_is_a_miss_and_is_replaced(tmp_path: Path, damage: bytes) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("k", b"data")
    entries(tmp_path)[0].write_bytes(damage)
    assert cache.get("k") is None
    cache.put("k", b"data")
    assert cache.get("k") == b"data"


def test_a_folder_open_to_others_is_not_used(tmp_path: Path) -> None:
    Cache(tmp_path / "cache").put("k", b"x")
    (tmp_path / "cache").chmod(0o770)
    cache = Cache(tmp_path / "cache")
    assert cache.get("k") is None
    cache.put("other", b"y")
    assert len(entries(tmp_path)) == 1


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(tmp_path / "cache").put("k", b"x")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert Cache(tmp_path / "cache").get("k") is None


def test_links_are_not_followed(tmp_path: Path) -> None:
    real = Cache(tmp_path / "real")
    real.put("k", b"x")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert Cache(tmp_path / "link").get("k") is None
    entry = entries(tmp_path / "real")[0]
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert Cache(tmp_path / "real").get("k") is None


@pytest.mark.parametrize("name", ["file/cache", "\x7f" * 300])
def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("x")
    cache = Cache(tmp_path / name)
    cache.put("k", b"x")
    assert cache.get("k") is None


def test_a_folder_that_goes_meanwhile_is_made_again_for_its_owner_alone(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("k", b"x")
    shutil.rmtree(tmp_path / "cache")
    for _ in range(2):
        cache.put("other", b"y")
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert Cache(tmp_path / "cache").get("other") == b"y"


def test_a_full_disk_is_no_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("k", b"x")

    def full(source: str, target: str) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr("os.replace", full)
    cache.put("other", b"y")
    assert cache.get("other") is None
    assert len(entries(tmp_path)) == 1


def test_size_is_bounded_and_the_oldest_entries_go(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache", limit_bytes=50_000)
    for number in range(100):
        cache.put(f"k{number}", bytes(1000))
    cache.sweep()
    assert sum(path.stat().st_size for path in entries(tmp_path)) <= 50_000
    assert cache.get("k0") is None
    assert cache.get("k99") == bytes(1000)


def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    store = of_user({})
    store.put("a", b"1")
    assert store.get("a") is None


def test_an_entry_in_the_place_of_another_is_a_miss(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cache.put("a", b"1")
    first = entries(tmp_path)[0]
    cache.put("b", b"2")
    other = next(path for path in entries(tmp_path) if path != first)
    other.write_bytes(first.read_bytes())
    assert (cache.get("a"), cache.get("b")) == (b"1", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b"null", b"\xff\xfe", b"[" * 100_000, b'{"objects": [[1, 2]]}']
)
def test_entries_that_hold_something_else_change_no_output(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    small_app(tmp_path)
    monkeypatch.chdir(tmp_path / "demo")
    run.ok("generate web front --image nginx")
    run.ok("env add gke --no-preset")
    words = ("render gke", "prototype describe web", "pkg list", "param list front", "validate gke")
    wanted = [run.ok(line) for line in words]
    monkeypatch.setattr(Cache, "get", lambda self, key: None if key.startswith("passed-") else data)
    assert [run.ok(line) for line in words] == wanted
    assert fast.render(["gke"]) == 0


# --- a program that was changed in any way is another one ---


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "program"
    (folder / "cli").mkdir(parents=True)
    for name in ("__init__.py", "cli/main.py"):
        (folder / name).write_text("")
    monkeypatch.setattr(mlstack, "__file__", str(folder / "__init__.py"))
    yield folder
    disk_cache.program_identity.cache_clear()


def identity() -> str:
    disk_cache.program_identity.cache_clear()
    return disk_cache.program_identity()


def test_sources_and_interpreter_make_a_program(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identities = [identity()]
    (package / "cli/main.py").write_text("print()")
    identities.append(identity())
    os.utime(package / "cli/main.py", ns=(0, 0))
    identities.append(identity())
    (package / "cli/main.py").rename(package / "cli/other.py")
    identities.append(identity())
    monkeypatch.setattr("sys.version", "4.0")
    identities.append(identity())
    assert len(set(identities)) == len(identities)


def test_byte_code_follows_from_its_source(package: Path) -> None:
    first = identity()
    (package / "__pycache__").mkdir()
    (package / "__pycache__/main.pyc").write_text("compiled")
    assert identity() == first


def test_libraries_are_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first = identity()
    monkeypatch.setattr(disk_cache, "_LIBRARIES", ("jinja2", "no_such_library"))
    assert identity() != first
    disk_cache.program_identity.cache_clear()


def test_what_was_put_is_found_by_another_process(tmp_path: Path) -> None:
    Cache(tmp_path / "cache" / "mlstack").put("a key / with anything \ud800", b"\x00data")
    cache = Cache(tmp_path / "cache" / "mlstack")
    assert cache.get("a key / with anything \ud800") == b"\x00data"
    assert cache.get("another key") is None
