"""Makes and removes the hosts of a machine, cut before each program that is run for it, where this process runs.

`python -m tests.support.cut_host_spaces` says how often it was cut. It is run in namespaces that a test makes.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from skep.compute.drivers.base import DriverError
from skep.compute.drivers.libvirt.bridged import programs
from skep.processes.supervisor.host_spaces import BRIDGE, FORWARDING, OUTER, HostSpaces

FLOATING = IPv4Network("203.0.113.0/24")
NAMES = ("cell1-host1", "cell2-host1")


class Cut(BaseException):
    """The process has died."""


@contextmanager
def cut_at(number: int) -> Iterator[None]:
    """Die before this program of the block, the first one being 1."""
    plain, left = programs._run, iter(range(1, number))

    def run(arguments: Sequence[str], told: str = "") -> bytes:
        if next(left, None) is None:
            raise Cut
        return plain(arguments, told)

    programs._run = run
    try:
        yield
    finally:
        programs._run = plain


@contextmanager
def guest_of(host: str) -> Iterator[None]:
    """Have a process in the network namespace of a host."""
    with subprocess.Popen(
        ("ip", "netns", "exec", f"skep-{host}", "cat"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cat:
        assert cat.stdin is not None
        assert cat.stdout is not None
        cat.stdin.write(b"\n")
        cat.stdin.flush()
        cat.stdout.read(1)  # it is there
        yield


def links(space: str | None = None) -> set[str]:
    return {str(one["ifname"]) for one in programs.look(("link", "show"), space)}


def tables() -> str:
    return programs._run(("nft", "list", "tables")).decode()


def main(folder: Path) -> int:
    """Return how often it was cut. Raises AssertionError."""
    spaces = HostSpaces(folder / "state", FLOATING)

    def make() -> None:
        spaces.open()
        made = [spaces.add(name) for name in NAMES]
        assert len({one.address for one in made}) == len(NAMES)
        assert {BRIDGE, f"{BRIDGE}2", f"{BRIDGE}3"} <= links()
        assert all(OUTER in links(one.name) for one in made)
        assert FORWARDING.read_text() == "1\n"

    def remove() -> None:
        assert spaces.close(lambda host: folder / host) == ()
        assert links() == {"lo"}
        assert not programs.look(("netns", "list"))
        assert "skep" not in tables()
        assert FORWARDING.read_text() == "0\n"

    def until_whole(work: Callable[[], None], before: Callable[[], None]) -> int:
        for number in itertools.count(1):
            before()
            try:
                with cut_at(number):
                    work()
            except Cut:
                make()
                remove()
            else:
                return number - 1
        raise AssertionError("never whole")

    FORWARDING.write_text("0")
    cuts = until_whole(make, lambda: None)
    remove()
    cuts += until_whole(remove, make)
    make()
    with guest_of(NAMES[0]):
        assert spaces.close(lambda host: folder / host) == (NAMES[0],), "what a guest runs in stays"
        assert {BRIDGE, f"{BRIDGE}2"} <= links()
        make()
    with pytest.raises(DriverError, match="another cloud"):
        HostSpaces(folder / "another", FLOATING).open()
    remove()
    return cuts


if __name__ == "__main__":
    with TemporaryDirectory() as made:
        sys.stdout.write(f"{main(Path(made))}\n")
