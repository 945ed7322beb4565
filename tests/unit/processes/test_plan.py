"""What each child of a cloud of processes is told: no more than its role may know."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from skep.config.compute import ComputeSettings, HostImagesSettings
from skep.config.notifications import NotificationsSettings
from skep.config.sections import (
    CellSettings,
    Config,
    DatabaseSettings,
    IdentitySettings,
    ImagesSettings,
    SynchronizerSettings,
    TransportSettings,
)
from skep.domain.cells import Cell
from skep.domain.ids import CellUuid, new_uuid
from skep.processes.supervisor.child import ChildTask
from skep.processes.supervisor.plan import ProcessNumbers, orders_above, orders_inside

ABOVE, CELL0, ONE, TWO, STATES = (f"postgresql://db/{name}" for name in ("api", "cell0", "one", "two", "states"))
CONFIG = Config(
    database=DatabaseSettings(api_url=ABOVE, cell0_url=CELL0),
    cells=(CellSettings(name="cell1", database_url=ONE), CellSettings(name="cell2", database_url=TWO)),
    transport=TransportSettings(kind="nats", url="nats://bus"),
    synchronizer=SynchronizerSettings(backend="sql", url=STATES),
)
CELL1 = Cell(uuid=CellUuid(new_uuid()), name="cell1")
KEYSTONE = IdentitySettings(kind="keystone", auth_url="http://keystone", username="skep", password="secret")
OF_A_USER = HostImagesSettings(auth_url="http://identity/v3", username="hosts", password="secret")
PORTS = {"api": 8774, "identity": 5000, "images": 9292}


def orders() -> tuple[ChildTask, ...]:
    numbers = ProcessNumbers(api=2, scheduler=2, cell_conductor=2)
    above = orders_above(CONFIG, numbers, PORTS, (8774, 40000), "http://identity/v3")
    return (*above, *orders_inside(CONFIG, numbers, CELL1, ("host1", "host2")))


def test_one_api_process_serves_networks_and_the_others_know_where() -> None:
    numbers = ProcessNumbers(api=2, scheduler=1, cell_conductor=1)
    ports = {**PORTS, "networks": 9696}
    above = orders_above(CONFIG, numbers, ports, (8774, 40000), "http://identity/v3")
    first, second = (dict(order.settings) for order in above if order.role == "api")
    assert (first["SKEP_NETWORKS__PORT"], "SKEP_NETWORKS__LISTEN" in first) == ("9696", False)
    assert (second["SKEP_NETWORKS__PORT"], second["SKEP_NETWORKS__LISTEN"]) == ("9696", "false")
    assert not any("NETWORKS" in name for order in orders() for name, _ in order.settings)


def test_only_roles_that_tell_of_something_know_the_broker() -> None:
    url = "rabbit://skep:secret@broker/"
    config = replace(CONFIG, notifications=NotificationsSettings(transport_url=url))
    ports = {**PORTS, "metadata": 8775}
    above = orders_above(config, ProcessNumbers(), ports, (8774,), "http://identity/v3")
    planned = (*above, *orders_inside(config, ProcessNumbers(), CELL1, ("host1",)))
    assert {order.role for order in planned if url in dict(order.settings).values()} == {
        *("api", "super-conductor", "cell-conductor")
    }
    assert len({order.role for order in planned}) == 6


@pytest.mark.parametrize(
    ("role", "known"),
    [
        ("api", {ABOVE, CELL0, ONE, TWO}),
        ("super-conductor", {ABOVE, CELL0, ONE, TWO}),
        ("cell-conductor", {ONE}),
        ("scheduler", {STATES}),
        ("compute", set()),
    ],
)
def test_a_role_is_told_of_its_own_databases_only(role: str, known: set[str]) -> None:
    mine = [order for order in orders() if order.role == role]
    assert mine
    for order in mine:
        told = " ".join(value for _, value in order.settings)
        assert {url for url in (ABOVE, CELL0, ONE, TWO, STATES) if url in told} == known
        assert "nats://bus" in told


def test_so_many_of_each_with_names_of_their_own() -> None:
    names = [order.name for order in orders()]
    assert len(names) == len(set(names))
    assert names == [
        "scheduler-1",
        "scheduler-2",
        "super-conductor-1",
        "api-1",
        "api-2",
        "cell-conductor-cell1-1",
        "cell-conductor-cell1-2",
        "compute-host1",
        "compute-host2",
    ]


def test_only_the_first_api_process_serves_identity_and_images() -> None:
    first, second = (dict(order.settings) for order in orders() if order.role == "api")
    assert (first["SKEP_API__PORT"], first["SKEP_IDENTITY__PORT"]) == ("8774", "5000")
    assert (second["SKEP_API__PORT"], second["SKEP_IDENTITY__LISTEN"]) == ("40000", "false")
    assert second["SKEP_IDENTITY__PUBLIC_URL"] == "http://identity/v3"


def test_agents_get_images_by_tickets_which_super_conductors_write() -> None:
    by_role = {order.role: dict(order.settings) for order in orders()}
    assert by_role["compute"]["SKEP_COMPUTE__IMAGES__BY_TICKET"] == "true"
    assert by_role["super-conductor"]["SKEP_IMAGES__PORT"] == "9292"


@pytest.mark.parametrize(
    "config",
    [
        replace(CONFIG, identity=KEYSTONE, images=ImagesSettings(kind="glance")),
        replace(CONFIG, compute=ComputeSettings(images=OF_A_USER)),
    ],
)
def test_agents_of_a_cloud_with_other_images_or_a_user_get_none(config: Config) -> None:
    [agent] = [one for one in orders_inside(config, ProcessNumbers(), CELL1, ("host1",)) if one.role == "compute"]
    assert "SKEP_COMPUTE__IMAGES__BY_TICKET" not in dict(agent.settings)


def test_an_agent_knows_its_cell() -> None:
    agent = next(order for order in orders() if order.name == "compute-host2")
    assert agent.arguments == ("--host", "host2")
    assert dict(agent.settings)["SKEP_COMPUTE__CELL"] == CELL1.uuid
