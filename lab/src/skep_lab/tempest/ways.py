"""The clouds that the suite is run against, and what of it: a row for each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from skep_lab import rabbitmq
from skep_lab.neighbours import networks, volumes
from skep_lab.neighbours.identity_and_images import PART
from skep_lab.tempest import guests
from skep_lab.tempest.cloud import bare_surroundings, own_surroundings, surroundings
from skep_lab.tempest.selection import COMPUTE, LOGINS
from skep_lab.tempest.settings import Surroundings

_FIRST = (PART, "scripts/bootstrap neighbours")
_SERVERS = "rabbitmq-server and postgresql (packages of the distribution): scripts/system-packages tests"
_LAB = "scripts/system-packages lab"
_GUESTS = "make install-libvirt"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteWay:
    """How the suite is run."""

    command: str
    """What begins it."""
    surroundings: Callable[[Path], AbstractAsyncContextManager[Surroundings]]
    needed: tuple[tuple[str, str], ...] = ()
    """A program, and what installs it."""
    pattern: str = COMPUTE
    """Of the names of tests that are run, unless others are asked for."""
    test_seconds: int = 300
    """A single test that takes longer has failed."""
    networks: bool = True
    prepare: Callable[[Path], None] | None = None
    """What is done before in the folder of its work. The run then has networks for itself, which needs root."""


WAYS = {
    "all": SuiteWay(
        command="make tempest",
        surroundings=surroundings,
        needed=(
            _FIRST,
            (networks.PART, "scripts/bootstrap neutron"),
            (volumes.PART, "scripts/bootstrap cinder"),
            (rabbitmq.PROGRAM, _SERVERS),
            ("postgres", _SERVERS),
        ),
    ),
    "bare": SuiteWay(command="make tempest BARE=1", surroundings=bare_surroundings, needed=(_FIRST,), networks=False),
    "own": SuiteWay(command="make tempest OWN=1", surroundings=own_surroundings),
    "libvirt": SuiteWay(
        command="make tempest OWN=1 DRIVER=libvirt",
        surroundings=guests.guest_surroundings,
        needed=(
            *((program, _GUESTS) for program in ("qemu-system-x86_64", "libvirtd", "ip", "nft", "dnsmasq")),
            *((program, _LAB) for program in ("nats-server", "postgres", "ping")),
        ),
        pattern=LOGINS,
        test_seconds=1200,
        prepare=guests.prepare,
    ),
}
