"""Fixtures that all tests share: a clean environment, an app directory, golden files."""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.builders import MINIMAL_APP, Tree, write_tree
from tests.support.cli import Runner

# What hypothesis remembers of Unicode and of our sources is to lie neither in the tree nor in a home.
os.environ.setdefault(
    "HYPOTHESIS_STORAGE_DIRECTORY", str(Path(tempfile.gettempdir()) / f"mlstack-hypothesis-{os.getuid()}")
)

# Tests send signals; whoever starts them under nohup or in the background lets them be ignored.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)

# A busy machine is no fault of the code: laws are judged by what they find, not by their time. `ci` and
# `thorough` draw more examples than a plain run, the same ones every time, so that what lands is no matter of
# luck; `fresh` draws new ones. The laws of scaling plans take eight times as many: 10,000 in `exhaustive`.
settings.register_profile(
    "mlstack",
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("ci", settings.get_profile("mlstack"), max_examples=60)
settings.register_profile("thorough", settings.get_profile("mlstack"), max_examples=300)
settings.register_profile("exhaustive", settings.get_profile("mlstack"), max_examples=1250)
settings.register_profile("fresh", settings.get_profile("thorough"), derandomize=False)
settings.load_profile("mlstack")

LEFT_OUT = """\
pytest -m slow tests                 what takes longer: hostile servers, whole experiments, many processes
pytest -m cluster tests/cluster      tests on a real control plane, built at first use
pytest -m bench -s tests/bench       measurements
pytest tests/property --hypothesis-profile=thorough    many more examples of every law
pytest tests/property/elastic --hypothesis-profile=exhaustive    10,000 examples of every law of scaling plans
"""
CLEARED = ("KUBECONFIG", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "EDITOR", "COLUMNS", "FORCE_COLOR", "TERM")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the switch that rewrites golden files."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files from what is seen")


def is_whole_plain_run(config: pytest.Config) -> bool:
    """Tell whether all tests were asked for that need neither a control plane nor a quiet machine."""
    return config.args_source is config.ArgsSource.TESTPATHS and "not cluster" in config.option.markexpr


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put first what takes longest: no worker is to end with such a test alone."""
    items.sort(key=lambda item: not item.nodeid.startswith(("tests/unit/simulator/", "tests/unit/test_")))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over what lives as long as the tests: it took a third of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use every processor for the whole plain run; a few tests are done before workers have started."""
    return os.cpu_count() or 1 if is_whole_plain_run(config) else 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how to run the tests that a plain run leaves out."""
    if is_whole_plain_run(config):
        terminalreporter.section("left out")
        terminalreporter.write(LEFT_OUT)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder that is the home of one test after the other."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def clean_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give every test an empty home and cache, and none of the developer's settings."""
    for name in [*CLEARED, *(name for name in os.environ if name.startswith(("MLSTACK_", "GIT_")))]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    # No test can see what a disk holds after a power cut, and thousands of writes would wait for it.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    yield
    for left in home.iterdir():
        shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()


@pytest.fixture
def app(tmp_path: Path) -> Callable[[Tree], Path]:
    """Give a function that makes an app directory from path → content; `app.yaml` is added when absent."""

    def build(tree: Tree | None = None) -> Path:
        return write_tree(tmp_path / "app", {"app.yaml": MINIMAL_APP, **(tree or {})})

    return build


Golden = Callable[[str, str | bytes], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Give a function that compares content with `tests/golden/expected/<name>`, or rewrites that file."""
    folder = Path(__file__).parent / "golden" / "expected"
    update = bool(request.config.getoption("--update-golden"))

    def check(name: str, output: str | bytes) -> None:
        file = folder / name
        content = output.encode() if isinstance(output, str) else output
        if update:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        assert file.is_file(), f"no golden file {name}: run pytest --update-golden and read the result"
        expected = file.read_bytes()
        assert content.decode() == expected.decode(), f"{name} differs: pytest --update-golden rewrites it"

    return check


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    """Give what runs command lines in an empty folder; each context leads to a cluster in memory."""
    monkeypatch.chdir(tmp_path)
    return Runner(capsys)
