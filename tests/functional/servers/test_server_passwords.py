"""The password that a guest has told of itself."""

from __future__ import annotations

from functools import partial

from skep.database.cell import guest_passwords, travels
from skep.domain.ids import InstanceUuid
from skep_lab.compute_api.servers import CELL1, ServersUnderTest

NOW = 2**50


async def told(cloud: ServersUnderTest, uuid: str, password: str) -> bool:
    unit = partial(guest_passwords.tell, uuid=InstanceUuid(uuid), password=password, now=NOW)
    return await cloud.services.cells[CELL1].write(unit)


async def test_it_is_told_once_shown_and_cleared(cloud: ServersUnderTest) -> None:
    uuid = await cloud.create()
    path = f"/servers/{uuid}/os-server-password"
    assert await cloud.good("GET", path) == {"password": ""}
    assert (await cloud.ask("DELETE", path)).status_code == 204
    await cloud.build(uuid)
    assert await cloud.good("GET", path) == {"password": ""}
    assert await told(cloud, uuid, "c2VjcmV0")
    assert not await told(cloud, uuid, "b3RoZXI=")
    assert await cloud.good("GET", path, token="reader") == {"password": "c2VjcmV0"}
    assert (await cloud.bad("DELETE", path, token="reader"))[0] == 403
    for method in ("GET", "DELETE"):
        assert (await cloud.bad(method, path, token="other"))[0] == 404
    travelling = await cloud.services.cells[CELL1].read(partial(travels.pack, uuid=InstanceUuid(uuid)))
    assert travelling.columns["guest_password"] == "c2VjcmV0"
    assert (await cloud.ask("DELETE", path)).status_code == 204
    assert await cloud.good("GET", path) == {"password": ""}
    assert await told(cloud, uuid, "b3RoZXI=")
