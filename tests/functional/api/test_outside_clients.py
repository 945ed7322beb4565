"""Clients of another project judge the answers of the API, by schemas that we did not write."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from skep.api.microversions import MAXIMUM
from skep.api.routes import ROUTES
from skep.domain.ids import NodeUuid, new_uuid
from skep_lab.compute_api.servers import HOST, servers_under_test
from skep_lab.tempest.clients import PYTHON, told_by_clients
from tests.support import samples

MINORS: tuple[int, ...] = (
    1,
    2,
    3,
    6,
    8,
    9,
    10,
    11,
    13,
    16,
    19,
    23,
    26,
    28,
    33,
    36,
    37,
    39,
    40,
    41,
    45,
    47,
    50,
    51,
    53,
    54,
    55,
    57,
    58,
)
MINORS += (59, 61, 62, 63, 64, 70, 71, 73, 75, 79, 80, 84, 88, 89, 90, 96, 98, 100, 102, MAXIMUM)
"""Those at which the clients change their schemas, and those at which the API changes a shape."""


DRAWN = 12
"""So many of them a run tries, unless all are wanted."""


@pytest.mark.sampled
@pytest.mark.needs_part(str(PYTHON))
async def test_the_clients_accept_every_answer(tmp_path: Path) -> None:
    minors = MINORS if samples.everywhere() else samples.sample(MINORS, DRAWN, samples.seed(), "clients")
    # The clients want ids and addresses as a real host has them.
    host = replace(HOST, node=NodeUuid(new_uuid()), usage=replace(HOST.usage, host_ip="127.0.0.1"))
    async with servers_under_test(tmp_path, routes=ROUTES, reported=(host,)) as cloud:
        assert await told_by_clients(cloud, [f"2.{minor}" for minor in minors]) == []
