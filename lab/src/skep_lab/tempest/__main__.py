"""`python -m skep_lab.tempest`: run the suite's tests of the compute API and say what came of each."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from skep.processes.servers.programs import find_program
from skep.telemetry.log_file import LogFile
from skep.telemetry.logs import configure
from skep_lab.neighbours.programs import programs
from skep_lab.tempest.apart import start_again
from skep_lab.tempest.known import known
from skep_lab.tempest.outcomes import Came, SuiteOutcome, counted, page, read
from skep_lab.tempest.selection import chosen
from skep_lab.tempest.settings import sections, written
from skep_lab.tempest.ways import WAYS, SuiteWay

PROGRAMS = programs("tempest")
INSIDE = Path(__file__).with_name("inside")
MINUTES = 50.0
LIST_SECONDS = 300
"""So long the suite may take to tell its tests, or what came of them."""
RUNNER = """[DEFAULT]
test_path={inside}
top_dir={inside}
group_regex=([^\\.]*\\.)*
"""


def main() -> int:
    """Run it; 1 when a test failed that is not known to, or was not run."""
    parser = argparse.ArgumentParser(prog="skep_lab.tempest", description=__doc__)
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--bare", action="store_true", help="beside Keystone and Glance, without networks and volumes")
    ways.add_argument("--own", action="store_true", help="with Skep's own identity, images and networks")
    parser.add_argument(
        "--driver",
        choices=("fake", "libvirt"),
        default="fake",
        help="with --own: of the hosts; guests of libvirt are virtual machines, and the suite logs into them",
    )
    parser.add_argument(
        "--regex",
        default="",
        help="tests that are run, by their names; default: of the compute API (libvirt: those that log in), or all of "
        "the list",
    )
    parser.add_argument("--exclude", default="", help="tests that are left out")
    parser.add_argument("--list", type=Path, help="a file with names of tests or classes; no others are run")
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="what has not ended by then is not run")
    parser.add_argument("--work", type=Path, help="folder for logs and results, kept; it must not exist")
    parser.add_argument("--page", type=Path, help="write the list by name into this file")
    parser.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.driver == "libvirt" and not asked.own:
        parser.error("--driver libvirt needs --own")
    way = WAYS["libvirt" if asked.driver == "libvirt" else "own" if asked.own else "bare" if asked.bare else "all"]
    for program, part in (*way.needed, (PROGRAMS / "stestr", "scripts/bootstrap tempest")):
        if find_program(str(program)) is None:
            sys.stderr.write(f"not installed: {part}\n")
            return 2
    work = asked.work or Path(tempfile.mkdtemp(prefix="skep-tempest-"))
    work.mkdir(parents=True, exist_ok=True)
    if way.prepare is not None and not asked.apart:
        way.prepare(work)
        start_again([*sys.argv[1:], "--work", str(work), "--apart"], work)
    configure(file=LogFile(work / "skep.log"), file_only=True)
    outcomes = asyncio.run(_run(asked, work, way))
    why = {
        outcome.test: reason for outcome in outcomes if (reason := known(outcome, networks=way.networks)) is not None
    }
    if asked.page:
        asked.page.write_text(page(outcomes, why, way.command))
    return _say(outcomes, why, work)


async def _run(asked: argparse.Namespace, work: Path, way: SuiteWay) -> list[SuiteOutcome]:
    """Run the tests beside a cloud and read what came of them."""
    ends = time.monotonic() + 60 * asked.minutes
    (work / "locks").mkdir()
    async with way.surroundings(work) as cloud:
        (work / "tempest.conf").write_text(written(sections(cloud, work)))
        (work / ".stestr.conf").write_text(RUNNER.format(inside=INSIDE))
        await _suite(work, "list", "init", seconds=LIST_SECONDS)
        await _suite(work, "all.txt", "list", seconds=LIST_SECONDS)
        everything = [line for line in (work / "all.txt").read_text().splitlines() if line.startswith("tempest.")]
        selected = chosen(everything, asked, way.pattern)
        (work / "selected.txt").write_text("".join(f"{test}\n" for test in selected))
        _print(f"{len(selected)} tests; logs and results: {work}")
        running = ("run", "--subunit", "--load-list", "selected.txt", "--concurrency", str(asked.concurrency))
        more = {"OS_TEST_TIMEOUT": str(way.test_seconds)}
        if not await _suite(work, "stream", *running, seconds=ends - time.monotonic(), more=more):
            _print(f"ended after {asked.minutes:g} minutes")
    await _program(work, "told.json", "python", str(INSIDE / "told.py"), "stream", seconds=LIST_SECONDS)
    return read((work / "told.json").read_text().splitlines(), selected)


async def _suite(work: Path, into: str, *arguments: str, seconds: float, more: Mapping[str, str] | None = None) -> bool:
    return await _program(work, into, "stestr", *arguments, seconds=seconds, more=more)


async def _program(
    work: Path, into: str, program: str, *arguments: str, seconds: float, more: Mapping[str, str] | None = None
) -> bool:
    """Run a program of the suite's environment, its output into a file; False when it was ended for its time.

    `more`: of its variables.
    """
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OS_")},
        "PATH": f"{PROGRAMS}:{os.environ.get('PATH', '')}",
        "TEMPEST_CONFIG_DIR": str(work),
        "TEMPEST_CONFIG": "tempest.conf",
        "PYTHONWARNINGS": "ignore",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        **(more or {}),
    }
    with (work / into).open("wb") as output, (work / "errors.txt").open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            PROGRAMS / program,
            *arguments,
            cwd=work,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            await asyncio.wait_for(process.wait(), max(1.0, seconds))
        except TimeoutError:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            await process.wait()
    return True


def _say(outcomes: Sequence[SuiteOutcome], why: dict[str, str], work: Path) -> int:
    """Print what came of the tests; return the status."""
    wrong = 0
    for outcome in outcomes:
        if outcome.came in {Came.FAILED, Came.NOT_RUN} and outcome.test not in why:
            wrong += 1
            _print(f"{outcome.came}: {outcome.test}\n    {outcome.why.replace(chr(10), chr(10) + '    ')}")
    counts = ", ".join(f"{number} {word}" for word, number in counted(outcomes).items())
    _print(f"{counts}; {wrong} of them unexpected; {work}")
    return 1 if wrong or not outcomes else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


sys.exit(main())
