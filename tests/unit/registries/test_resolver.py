"""Versions are chosen as all who ask for a package want, and a contradiction is explained."""

from collections.abc import Iterable, Mapping

import pytest

from mlstack.app.app import parse_package_ref
from mlstack.errors import ConfigError, NotFoundError, SchemaError
from mlstack.names import best_first, check_mlstack, fits
from mlstack.registries.resolver import Choice, Requirements, select

Packages = Mapping[str, Mapping[str, Mapping[str, str]]]  # by full name and version what it requires


class Shelf:
    """A catalog that is at hand, and counts what it is asked."""

    def __init__(self, packages: Packages) -> None:
        self.packages = packages
        self.asked: list[str] = []

    def versions(self, package: str, wanted: str) -> Iterable[str]:
        self.asked.append(package)
        if package not in self.packages:
            raise NotFoundError(f"no package {package}")
        return best_first(self.packages[package], wanted)

    def requires(self, package: str, version: str) -> Mapping[str, str]:
        return self.packages[package][version]


def asks(*refs: str, **environments: tuple[str, ...]) -> Requirements:
    own = {name: tuple(map(parse_package_ref, texts)) for name, texts in environments.items()}
    return Requirements(app=tuple(map(parse_package_ref, refs)), environments=own)


def chosen(requirements: Requirements, packages: Packages, **preferred: str) -> list[str]:
    wishes = {("*", f"r/{name}"): version for name, version in preferred.items()}
    return [_text_of(choice) for choice in select(requirements, Shelf(packages), preferred=wishes)]


def _text_of(choice: Choice) -> str:
    scopes = ",".join(choice.environments)
    return f"{choice.package.partition('/')[2]}@{choice.version} {scopes}".strip()


DIAMOND: Packages = {
    "r/a": {"1.0.0": {"r/b": "^1", "r/c": "^1"}, "1.1.0": {"r/b": "^1", "r/c": "^1", "r/x": "^9"}},
    "r/b": {"1.0.0": {"r/x": ">=1"}},
    "r/c": {"1.0.0": {"r/x": "<2"}},
    "r/d": {"1.0.0": {"r/x": "^1"}, "1.1.0": {"r/x": ">=1.5 <3"}},
    "r/e": {"1.0.0": {"r/x": "^1"}, "2.0.0": {"r/x": "^2"}},
    "r/f": {"1.0.0": {"r/gone": "^1"}},
    "r/g": {"1.0.0": {"r/b": "^1", "r/h": "^1"}},
    "r/h": {"1.0.0": {"r/x": "~1.9"}},
    "r/x": {"1.0.0": {}, "1.5.0": {}, "2.0.0": {}},
}


def test_one_version_suits_all_that_ask_for_it() -> None:
    assert chosen(asks("r/a"), DIAMOND) == ["a@1.0.0 *", "b@1.0.0 *", "c@1.0.0 *", "x@1.5.0 *"]


def test_a_preferred_version_stays_as_long_as_it_fits() -> None:
    assert "x@1.0.0 *" in chosen(asks("r/a"), DIAMOND, x="1.0.0")
    assert "x@1.5.0 *" in chosen(asks("r/a"), DIAMOND, x="2.0.0")


def test_what_is_preferred_needs_no_catalog() -> None:
    shelf = Shelf(DIAMOND)
    select(asks("r/x@^1"), shelf, preferred={("*", "r/x"): "1.0.0"})
    assert shelf.asked == []


def test_an_exact_version_stands_beside_with_what_it_requires() -> None:
    asking = asks("r/e", "r/e@1.0.0")
    assert chosen(asking, DIAMOND) == ["e@1.0.0", "e@2.0.0 *", "x@1.5.0", "x@2.0.0 *"]
    assert select(asking, Shelf(DIAMOND), preferred={})[0].requires == {"r/x": "1.5.0"}


def test_an_environment_moves_what_it_asks_for_and_what_that_requires() -> None:
    wanted = ["e@1.0.0 gke", "e@2.0.0 *", "x@1.5.0 gke", "x@2.0.0 *"]
    assert chosen(asks("r/e", gke=("r/e@1.0.0",)), DIAMOND) == wanted


@pytest.mark.parametrize(
    ("refs", "parts"),
    [
        (
            ("r/g@^1",),
            ["`r/h@1.0.0` (required by `r/g@1.0.0`, app.yaml) wants ~1.9", "are 2.0.0, 1.5.0, 1.0.0"],
        ),
        (("r/c", "r/x@^2"), ["app.yaml wants ^2", "`r/c@1.0.0` (required by app.yaml) wants <2"]),
        # All versions are tried; those stay that suit no other.
        (("r/x@^1", "r/d", "r/e@^2"), ["app.yaml wants ^1", "`r/e@2.0.0` (required by app.yaml) wants ^2"]),
    ],
    ids=["of packages", "of a file and a package", "that came last"],
)
def test_a_contradiction_names_who_asks_and_how_they_came_in(refs: tuple[str, ...], parts: list[str]) -> None:
    with pytest.raises(ConfigError, match="no version of `r/x` suits all that ask for it") as caught:
        chosen(asks(*refs), DIAMOND)
    assert [text for text in parts if text not in caught.value.message] == []


def test_who_requires_a_package_that_is_not_there_is_told() -> None:
    with pytest.raises(NotFoundError, match=r"^`r/f@1\.0\.0` requires `r/gone`: no package r/gone"):
        chosen(asks("r/f"), DIAMOND)


def test_a_version_that_nobody_has_is_not_found() -> None:
    with pytest.raises(NotFoundError, match=r"`r/x` has no version `\^7`") as caught:
        chosen(asks("r/x@^7"), DIAMOND)
    assert caught.value.hint == "known versions: 2.0.0, 1.5.0, 1.0.0"


@pytest.mark.slow
def test_hundreds_of_packages_are_chosen_without_going_back() -> None:
    count = 500
    packages = {
        f"r/p{n}": {
            f"{major}.{minor}.0": {
                f"r/p{other}": "^1" for other in (n + 1, n + 7, 2 * n + 3) if other < count
            }
            for major in (1, 2)
            for minor in range(5)
        }
        for n in range(count)
    }
    shelf = Shelf(packages)
    choices = select(asks("r/p0@^1"), shelf, preferred={})
    assert len(choices) == count
    assert {choice.version for choice in choices} == {"1.4.0"}
    assert len(shelf.asked) < 5 * count


@pytest.mark.parametrize(
    ("version", "wanted", "expected"),
    [
        ("1.3.0", "^1.2", True),
        ("2.0.0", "^1.2", False),
        ("0.3.1", "^0.2", False),
        ("1.2.9", "~1.2", True),
        ("1.5", ">=1.0, <2", True),
        ("1.5.0", ">= 1.0 < 1.5", False),
        ("v1.4", "1.x", True),
        ("2.1.0", "^1 || ^2", True),
        ("1.0.0-rc.1", "^1", False),
        ("1.0.0-rc.1", ">=1.0.0-rc.0", True),
        ("nightly", "^1", False),
        ("nightly", "", True),
        ("1.2.0", "1.2.0", True),
        ("1.2.0", "1.2", False),
    ],
)
def test_ranges(version: str, wanted: str, expected: bool) -> None:
    assert fits(version, wanted) is expected


def test_another_mlstack_is_told() -> None:
    check_mlstack(">=0.1,<9", what="this app", where="app.yaml")
    with pytest.raises(SchemaError, match=r"this app needs mlstack >=99, this is") as caught:
        check_mlstack(">=99", what="this app", where="app.yaml")
    assert caught.value.where == "app.yaml"
