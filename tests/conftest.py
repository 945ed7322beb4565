"""For every test: how hypothesis searches, what happens where a part of the system is absent."""

from __future__ import annotations

import os
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest
from hypothesis import HealthCheck, settings

from skep.processes.servers.postgres import PostgresServer
from skep.processes.servers.programs import find_program
from skep.telemetry import logs
from tests.support import durations, file_order, limits, samples

IN_CI = os.environ.get("CI") == "true"

EXAMPLES = samples.examples(100)

# A run in CI is repeatable and does not depend on how fast the machine is; at home every run looks elsewhere.
settings.register_profile(
    "ci",
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("dev", max_examples=EXAMPLES, deadline=None)
settings.load_profile("ci" if IN_CI else "dev")

logs.configure("info", "json")

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30


def _memory_is_fit() -> bool:
    """Whether the file system in memory has room for all that a run keeps at one time, and runs programs."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    there = os.statvfs(MEMORY)
    return there.f_bavail * there.f_frsize >= MEMORY_BYTES and not there.f_flag & os.ST_NOEXEC


# Each COMMIT waits for the disk, and tests make hundreds of thousands. None cuts the power, so memory is as good.
if _memory_is_fit():
    os.environ.setdefault("TMPDIR", str(MEMORY))
    tempfile.tempdir = None

# Workers of a run in parallel are told a width; commands that are tested print for programs unless a test says one.
os.environ.pop("COLUMNS", None)


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Set up logging as at the start of the run.

    Loggers keep what they found at their first use. Every test therefore changes one configuration, which is never
    reset to that of structlog: what captures lines could not reach a logger in use then.
    """
    yield
    output = logs.configure("info", "json")
    output.release(write=False)
    output.lost = 0


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Give back what a cloud of the test has made its own for the whole process."""
    before = os.umask(0)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server for all tests of a worker, each with databases of names of its own; it runs when a test ends."""
    with PostgresServer() as server:
        yield server


CHECKED_WHOLE = {("tests", "architecture"), ("tests", "contract"), ("tests", "unit")}
"""Folders that `make check` runs, except searches and what needs servers."""
SERVERS = {"memcached", "nats-server", "postgres"}
"""Parts that are servers: `make check` starts none."""
SERVICES = ("tests", "contract", "neighbours")
"""The folder whose tests serve neighbours over HTTP."""


def pytest_configure(config: pytest.Config) -> None:
    """Take interrupts, and draw the seed of the samples; workers of a run in parallel have that of their parent."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell has its background ignore it, and programs that tests start and interrupt would, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    samples.draw_seed(repeatable=IN_CI)
    durations.register(config)
    limits.register(config)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Obey `sampled`, and order the files."""
    if samples.checked():
        config.hook.pytest_deselected(items=[item for item in items if _was_checked(item)])
        items[:] = [item for item in items if not _was_checked(item)]
    if samples.quick():
        config.hook.pytest_deselected(items=[item for item in items if _needs_server(item)])
        items[:] = [item for item in items if not _needs_server(item)]
    wanted = {item.nodeid for item in items} if samples.everywhere() else _drawn(items)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
    longest: dict[PurePath, float] = defaultdict(float)
    for item in items:
        limit = max((marker.args[0] for marker in item.iter_markers("timeout") if marker.args), default=0)
        longest[_file(item)] = max(longest[_file(item)], limit)
    place = {file: number for number, file in enumerate(file_order.in_order(longest))}
    items[:] = sorted((item for item in items if item.nodeid in wanted), key=lambda item: place[_file(item)])


def _was_checked(item: pytest.Item) -> bool:
    """Tell whether `make check` has run a test as it is, and not with a part of its examples."""
    is_search = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return _file(item).parts[:2] in CHECKED_WHOLE and not is_search and not _needs_server(item)


def _needs_server(item: pytest.Item) -> bool:
    """Tell whether a test starts a server, or serves a neighbour itself."""
    parts = {part for marker in item.iter_markers("needs_part") for part in marker.args}
    return bool(parts & SERVERS) or _file(item).parts[: len(SERVICES)] == SERVICES


def _file(item: pytest.Item) -> PurePath:
    return PurePath(item.nodeid.partition("::")[0])


def _drawn(items: list[pytest.Item]) -> set[str]:
    """Return the names of what runs where a sample is enough."""
    cases: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for item in items:
        function = item.nodeid.partition("[")[0]
        marker = item.get_closest_marker("sampled")
        if marker is None or not marker.args:
            cases[item.nodeid, "", 1].append(item.nodeid)
        else:
            of = marker.kwargs.get("of_each", "")
            case = str(item.callspec.params[of]) if of else ""  # type: ignore[attr-defined]  # it is parametrized
            cases[function, case, marker.args[0]].append(item.nodeid)
    return {
        name
        for (function, case, size), names in cases.items()
        for name in samples.sample(names, size, samples.seed(), function, case)
    }


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which cases were drawn."""
    if samples.everywhere():
        terminalreporter.write_line("walks and matrices: every case")
    else:
        again = f"{samples.SEED}={samples.seed()} draws it again"
        terminalreporter.write_line(f"walks and matrices: a sample ({again}; `make test-everywhere` runs every case)")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Obey `needs_part(name)`: where the program (or the file, by its path) is absent, skip loudly; an error in CI."""
    for marker in item.iter_markers("needs_part"):
        for part in marker.args:
            if find_program(part) is not None or (part.startswith("/") and Path(part).exists()):
                continue
            if IN_CI:
                pytest.fail(f"{part} is not installed, and in CI it has to be", pytrace=False)
            pytest.skip(f"{part} is not installed (scripts/system-packages says how)")
