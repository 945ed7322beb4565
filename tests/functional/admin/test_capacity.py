"""How many more servers fit, over HTTP; and dry runs that say what would fit instead."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from skep.database.api import aggregates, flavors
from skep.domain.flavors import Flavor
from skep.domain.ids import NodeUuid
from skep.messages.to_scheduler import HostReport, UpdateHostState
from skep.transport.base import SCHEDULER
from tests.support.admin import CELL1, NOW, Admin
from tests.support.served_admin import Served, usage

LARGE = Flavor(flavorid="2", name="m1.large", vcpus=3, memory_mb=1024, root_gb=1)
HUGE = Flavor(flavorid="3", name="m1.huge", vcpus=9, memory_mb=1024, root_gb=1)


@pytest.fixture
async def zoned(served: Served) -> Served:
    """Put h2 into zone east, half of h1 into use, and make two more flavors known."""

    def add(connection: sa.Connection) -> None:
        for flavor in (LARGE, HUGE):
            flavors.add(connection, flavor, NOW)
        made = aggregates.add(connection, uuid="u-1", name="shelf", metadata={"availability_zone": "east"}, now=NOW)
        assert made is not None
        aggregates.add_host(connection, made.id, "h2")

    await served.admin.services.database.write(add)
    await served.tell()
    report = HostReport(node=NodeUuid("n1"), cell=CELL1, incarnation=1, seq=2, usage=usage("h1", {"VCPU": 4}))
    await served.admin.services.transport.call(SCHEDULER, UpdateHostState(reports=(report,)))
    return served


async def capacity(served: Served, query: str) -> Any:
    return (await served.good("GET", f"/capacity?{query}"))["capacity"]


async def test_all_of_the_cloud_and_its_parts(zoned: Served) -> None:
    found = await capacity(zoned, "flavor=m1.large")
    assert (found["flavor"], found["servers"], found["hosts"], found["considered"]) == ("m1.large", 3, 2, 2)
    assert (found["runs_out_first"], found["limits"]) == ("VCPU", {"VCPU": 2})
    assert found["asked"] == {"VCPU": 3, "MEMORY_MB": 1024, "DISK_GB": 1}
    assert found["left_over"]["VCPU"] == 1 + 2
    assert [(room["name"], room["servers"]) for room in found["zones"]] == [("east", 2), ("nova", 1)]
    assert [(room["name"], room["servers"]) for room in found["cells"]] == [("cell2", 2), ("cell1", 1)]
    assert [(room["name"], room["servers"]) for room in found["aggregates"]] == [("shelf", 2)]
    assert found["sizes"] == [{"servers": 1, "hosts": 1}, {"servers": 2, "hosts": 1}]
    assert (await capacity(zoned, "flavor=2"))["servers"] == 3


async def test_parts_with_equal_room_are_told_by_name(zoned: Served) -> None:
    """Cells are kept by ids, which say nothing to an operator."""
    report = HostReport(node=NodeUuid("n1"), cell=CELL1, incarnation=1, seq=3, usage=usage("h1", {}))
    await zoned.admin.services.transport.call(SCHEDULER, UpdateHostState(reports=(report,)))
    found = await capacity(zoned, "flavor=m1.large")
    assert [(room["name"], room["servers"]) for room in found["cells"]] == [("cell1", 2), ("cell2", 2)]


async def test_narrowed_by_zone_by_cell_and_by_hosts_that_are_kept_free(zoned: Served) -> None:
    assert (await capacity(zoned, "flavor=m1.large&availability_zone=east"))["servers"] == 2
    assert (await capacity(zoned, "flavor=m1.large&availability_zone=nova&cell=cell2"))["servers"] == 0
    assert (await capacity(zoned, "flavor=m1.large&cell=cell1"))["servers"] == 1
    kept = await capacity(zoned, "flavor=m1.large&keep_free_hosts=1")
    assert (kept["servers"], kept["kept_free"]) == (1, ["h2"])
    none = await capacity(zoned, "flavor=m1.huge")
    assert (none["servers"], none["hosts"], none["suitable"], none["runs_out_first"]) == (0, 0, 0, None)
    assert none["too_small"] == {"VCPU": 2}
    assert none["stages"] == [{"stage": "capacity, when empty", "left": 0}]


@pytest.mark.parametrize(
    ("query", "status", "named"),
    [
        ("", 400, "flavor"),
        ("flavor=", 400, "flavor"),
        ("flavor=none", 400, "flavor"),
        ("flavor=%00", 400, "flavor"),
        ("flavor=m1.tiny&keep_free_hosts=-1", 400, "keep_free_hosts"),
        ("flavor=m1.tiny&keep_free_hosts=many", 400, "keep_free_hosts"),
        ("flavor=m1.tiny&colour=red", 400, "colour"),
        ("flavor=m1.tiny&cell=nowhere", 404, "cell"),
        ("flavor=m1.tiny&availability_zone=nowhere", 404, "availability_zone"),
    ],
)
async def test_what_there_is_not_is_named(zoned: Served, query: str, status: int, named: str) -> None:
    response = await zoned.ask("GET", f"/capacity?{query}")
    assert response.status_code == status
    assert named in response.json()["error"]["message"]


async def test_a_flavor_that_takes_nothing_has_no_number(zoned: Served) -> None:
    none = {f"resources:{name}": "0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")}
    nothing = Flavor(flavorid="4", name="nothing", vcpus=1, memory_mb=1, extra_specs=none)
    await zoned.admin.services.database.write(lambda connection: flavors.add(connection, nothing, NOW))
    response = await zoned.ask("GET", "/capacity?flavor=nothing")
    assert (response.status_code, "flavor" in response.text) == (400, True)


async def test_only_admins_are_told(zoned: Served, admin: Admin) -> None:
    assert (await admin.ask("GET", "/admin/v1/capacity?flavor=m1.tiny", token="owner")).status_code == 403
    secret = await zoned.secret("cells/cell1")
    assert await zoned.status("GET", "/capacity?flavor=m1.tiny", secret=secret) == 403


async def test_a_dry_run_says_what_would_fit(zoned: Served) -> None:
    (refused,) = (await zoned.good("POST", "/placement/dry-run", {"flavor": "m1.huge"}))["decisions"]
    why = refused["explanation"]
    assert (why["verdict"], why["could_hold"]) == ("never", 0)
    assert why["changes"] == [{"parts": ["with 1 VCPU less"], "hosts": 1}]
    assert refused["reason"].endswith(why["advice"])
    assert why["advice"].startswith("it would fit with 1 VCPU less; no host could ever hold it")


async def test_a_dry_run_explains_the_chosen_too(zoned: Served) -> None:
    body = {"flavor": "m1.large", "availability_zone": "east"}
    (placed,) = (await zoned.good("POST", "/placement/dry-run", body))["decisions"]
    assert placed["host"] == "h2"
    why = placed["explanation"]
    assert why["rejected"] == {"h1": "availability zone east"}
    assert [miss["host"] for miss in why["nearest"]] == ["h1"]
    assert (why["verdict"], why["changes"], set(why["scores"])) == (None, [], {"h2"})


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({"flavor": "m1.tiny", "cell": "none"}, 404, "cell"),
        ({"flavor": "m1.tiny", "exclude_cells": ["none"]}, 404, "exclude_cells"),
        ({"flavor": "m1.tiny", "min_count": 0}, 400, "min_count"),
        ({"flavor": "m1.tiny", "prefer": [7]}, 400, "prefer"),
        ({"flavor": 7}, 400, "flavor"),
    ],
)
async def test_selections_name_what_is_wrong(zoned: Served, body: dict[str, Any], status: int, named: str) -> None:
    response = await zoned.ask("POST", "/select-destinations", body)
    assert response.status_code == status
    assert named in response.json()["error"]["message"]
