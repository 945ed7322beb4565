"""The agent of one of two hosts of QEMU dies between two calls of a move: the server is whole, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from skep_lab.processes.libvirt_operations import CALLS, AgentCase, called, cases, die_at
from skep_lab.processes.libvirt_walk import HostOfDaemon, Kind, LibvirtAgentsWalk
from tests.support.libvirt_daemons import DAEMON_PARTS, HOSTS, two_daemons
from tests.support.libvirt_hosts import is_root

pytestmark = [
    *DAEMON_PARTS,
    pytest.mark.needs_part("nats-server"),
    pytest.mark.needs_part("postgres"),
    pytest.mark.skipif(not is_root(), reason="only root's libvirtds keep their files apart"),
    pytest.mark.crash,
    pytest.mark.timeout(600),
]

Walked = Callable[[Kind, Callable[[LibvirtAgentsWalk], None]], None]
OPERATIONS = [(kind, name) for kind, operations in CALLS.items() for name in operations]


@contextmanager
def walking(root: Path, kind: Kind) -> Iterator[LibvirtAgentsWalk]:
    """Have a cloud of a kind, with libvirtds of its own."""
    with two_daemons() as daemons:
        hosts = tuple(
            HostOfDaemon(name=name, root=daemon.root, options=daemon.options)
            for name, daemon in zip(HOSTS, daemons, strict=True)
        )
        walk = LibvirtAgentsWalk(root, kind, hosts)
        try:
            walk.start()
            yield walk
        finally:
            walk.stop()


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    """Do something with a cloud of a kind, and see that nothing is left; after a failure it is a new one."""
    with ExitStack() as running:
        walks: list[LibvirtAgentsWalk] = []

        def one(kind: Kind, story: Callable[[LibvirtAgentsWalk], None]) -> None:
            if not walks or walks[0].kind != kind:
                walks.clear()
                running.close()
                walks.append(running.enter_context(walking(tmp_path_factory.mktemp("cloud"), kind)))
            [walk] = walks
            try:
                story(walk)
                walk.clear()
            except BaseException:
                walks.clear()
                walk.process.kill()
                running.close()
                raise

        yield one


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_a_server_goes_or_stays_whichever_agent_dies(walked: Walked, case: AgentCase) -> None:
    walked(case.kind, lambda walk: die_at(walk, case))


@pytest.mark.sampled(0)
@pytest.mark.parametrize(("kind", "operation"), OPERATIONS)
def test_the_table_has_all_calls(walked: Walked, kind: Kind, operation: str) -> None:
    def compare(walk: LibvirtAgentsWalk) -> None:
        assert called(walk, operation) == CALLS[kind][operation]

    walked(kind, compare)
