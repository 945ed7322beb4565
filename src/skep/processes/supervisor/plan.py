"""Which children a cloud of processes has, and what each is told: no more than its role may know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from skep.config.nats_security import NatsSecurity
from skep.config.sections import CellSettings, Config
from skep.domain.cells import Cell
from skep.processes.directory import StateDirectory
from skep.processes.supervisor.child import ChildTask


@dataclass(frozen=True)
class ProcessNumbers:
    """How many processes of each role; cell conductors are for each cell."""

    api: int = 1
    super_conductor: int = 1
    scheduler: int = 2
    cell_conductor: int = 1


def orders_above(
    config: Config, numbers: ProcessNumbers, ports: Mapping[str, int], api_ports: Sequence[int], identity_url: str
) -> tuple[ChildTask, ...]:
    """Return the children above the cells; `ports` are those that clients know, `api_ports` one for each API process.

    `config` names every database and every cell.
    """
    above = (*_shared(config), *_above(config))
    return (
        *(
            ChildTask(f"scheduler-{number}", "scheduler", settings=_scheduler(config))
            for number in _count(numbers.scheduler)
        ),
        *(
            ChildTask(
                f"super-conductor-{number}",
                "super-conductor",
                settings=(*above, *_images(ports), *_notifications(config)),
            )
            for number in _count(numbers.super_conductor)
        ),
        *(
            ChildTask(
                f"api-{number}",
                "api",
                settings=(*above, *_ports(ports, port, identity_url), *_notifications(config)),
            )
            for number, port in enumerate(api_ports, 1)
        ),
        *(
            ChildTask("metadata", "metadata", settings=(*above, ("SKEP_METADATA__PORT", str(port))))
            for name, port in ports.items()
            if name == "metadata"
        ),
    )


def _nothing_more(_host: str) -> tuple[tuple[str, str], ...]:
    return ()


def _here(_host: str) -> tuple[str, ...]:
    return ()


def orders_inside(
    config: Config,
    numbers: ProcessNumbers,
    cell: Cell,
    hosts: Sequence[str],
    host_settings: Callable[[str], tuple[tuple[str, str], ...]] = _nothing_more,
    within: Callable[[str], tuple[str, ...]] = _here,
) -> tuple[ChildTask, ...]:
    """Return the children of one cell: its conductors, and the agents of its hosts, each with settings of its own.

    `within` returns the words before the command of the agent of a host.
    """
    inside = (*_shared(config), ("SKEP_CELLS", _cells(config, cell.name)), *_notifications(config))
    host = (*_shared(config), *_host(config, cell))
    return (
        *(
            ChildTask(
                f"cell-conductor-{cell.name}-{number}", "cell-conductor", ("--cell", cell.name), inside, cell.name
            )
            for number in _count(numbers.cell_conductor)
        ),
        *(
            ChildTask(
                f"compute-{name}",
                "compute",
                ("--host", name),
                (*host, *host_settings(name)),
                cell.name,
                within(name),
            )
            for name in hosts
        ),
    )


def _count(number: int) -> range:
    return range(1, number + 1)


def settings_above(config: Config) -> tuple[tuple[str, str], ...]:
    """Return the variables with which a process reaches everything."""
    return (*_scheduler(config), *_above(config))


def _shared(config: Config) -> tuple[tuple[str, str], ...]:
    transport = config.transport
    return (
        ("SKEP_TRANSPORT__KIND", transport.kind),
        ("SKEP_TRANSPORT__URL", transport.url),
        *_sign_in("TRANSPORT", transport),
    )


def _sign_in(section: str, settings: NatsSecurity) -> tuple[tuple[str, str], ...]:
    return ((f"SKEP_{section}__SIGN_IN_FILE", settings.sign_in_file),) if settings.sign_in_file else ()


def _above(config: Config) -> tuple[tuple[str, str], ...]:
    return (
        ("SKEP_DATABASE__API_URL", config.database.api_url),
        ("SKEP_DATABASE__CELL0_URL", config.database.cell0_url),
        ("SKEP_CELLS", _cells(config)),
        *_networks(config),
    )


def _networks(config: Config) -> tuple[tuple[str, str], ...]:
    """All that make or show ports of servers have to agree on whether there are any."""
    return (("SKEP_NETWORKS__KIND", config.networks.kind),) if config.networks.kind else ()


def _notifications(config: Config) -> tuple[tuple[str, str], ...]:
    """Only processes that tell of something know the broker: its address holds a password."""
    url = config.notifications.transport_url
    return (("SKEP_NOTIFICATIONS__TRANSPORT_URL", url),) if url else ()


def _scheduler(config: Config) -> tuple[tuple[str, str], ...]:
    synchronizer = config.synchronizer
    return (
        *_shared(config),
        ("SKEP_SYNCHRONIZER__BACKEND", synchronizer.backend),
        ("SKEP_SYNCHRONIZER__URL", synchronizer.url),
        *_sign_in("SYNCHRONIZER", synchronizer),
    )


def _host(config: Config, cell: Cell) -> tuple[tuple[str, str], ...]:
    exchange = StateDirectory(Path(config.state.directory).absolute()).exchange(config.compute)
    known = tuple(CellSettings(name=one.name, transport_url=one.transport_url) for one in config.cells)
    mine = [one for one in known if one.name == cell.name]
    return (
        ("SKEP_COMPUTE__CELL", cell.uuid),
        ("SKEP_COMPUTE__CELL_NAME", cell.name),
        ("SKEP_COMPUTE__EXCHANGE_DIRECTORY", "" if exchange is None else str(exchange)),
        ("SKEP_CELLS", msgspec.json.encode(mine).decode()),
        *_own_images(config),
    )


def _own_images(config: Config) -> tuple[tuple[str, str], ...]:
    """An agent gets the images of the cloud itself by tickets, unless the configuration gives it a user."""
    if config.images.kind != "embedded" or config.compute.images.auth_url:
        return ()
    return (("SKEP_COMPUTE__IMAGES__BY_TICKET", "true"),)


def _images(ports: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Super conductors tell hosts where images are."""
    return (("SKEP_IMAGES__PORT", str(ports["images"])),) if "images" in ports else ()


def _cells(config: Config, name: str | None = None) -> str:
    return msgspec.json.encode([one for one in config.cells if name in (None, one.name)]).decode()


def _ports(ports: Mapping[str, int], port: int, identity_url: str) -> tuple[tuple[str, str], ...]:
    """The first API process has the ports that clients know; the others have an API of their own."""
    if port == ports["api"]:
        return tuple((f"SKEP_{name.upper()}__PORT", str(port)) for name, port in ports.items())
    return (
        ("SKEP_API__PORT", str(port)),
        ("SKEP_IDENTITY__LISTEN", "false"),
        ("SKEP_IDENTITY__PUBLIC_URL", identity_url),
        ("SKEP_IMAGES__LISTEN", "false"),
        ("SKEP_IMAGES__PORT", str(ports["images"])),
        *_networks_elsewhere(ports),
    )


def _networks_elsewhere(ports: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Every API process tells clients where the network service is."""
    if "networks" not in ports:
        return ()
    return (("SKEP_NETWORKS__LISTEN", "false"), ("SKEP_NETWORKS__PORT", str(ports["networks"])))
