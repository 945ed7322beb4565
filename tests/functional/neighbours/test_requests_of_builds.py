"""How often services are asked while a server is built: each request costs more than the rest of its step."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from skep_lab.faulty_service import Moment
from tests.functional.neighbours.test_cinder import BesideCinder
from tests.functional.neighbours.test_neutron import BesideNeutron
from tests.support.cloud_beside import cloud_beside

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}")

WRITES = {
    "POST /v2.0/ports": 1,
    "POST /v3/volumes": 1,
    "POST /v3/volumes/ID/metadata": 1,
    "POST /v3/attachments": 1,
    "PUT /v3/attachments/ID": 1,
    "POST /v3/attachments/ID/action": 1,
}
"""Of a server with two ports and a new volume."""

READS = {
    # The user's quota and networks.
    "GET /v2.0/quotas/ID": 1,
    "GET /v2.0/networks": 2,
    # What is there before any is made.
    "GET /v2.0/ports": 1,
    # Of those that were made: their answers say the rest.
    "GET /v2.0/subnets": 1,
    "GET /v2.0/security-groups": 1,
    # Before the volume is made, and once it is ready: nothing has it then.
    "GET /v3/volumes/detail": 2,
}
"""Until it runs. A look, which compares what it has with its row, may come meanwhile on a busy machine."""

LOOK = {
    "GET /v2.0/ports": 2,
    "GET /v2.0/networks": 1,
    "GET /v2.0/subnets": 1,
    "GET /v2.0/security-groups": 1,
    "GET /v2.0/floatingips": 1,
    "GET /v3/volumes/detail": 1,
    "GET /v3/attachments/detail": 1,
}
"""At most, of one look at ports and one at volumes."""


async def test_a_server_with_two_ports_and_a_new_volume(tmp_path: Path) -> None:
    asked: Counter[str] = Counter()

    def count(method: str, path: str, moment: Moment) -> None:
        if moment == "before":
            asked[f"{method} {ID.sub('ID', path.partition('?')[0])}"] += 1

    async with cloud_beside(tmp_path, networks=True, volumes=True) as beside:
        image = await beside.image()
        session = await beside.session()
        cinder, tenant = BesideCinder(beside, session, image), BesideNeutron(beside, session, image)
        networks = [{"uuid": (await tenant.network(f"10.{number}.0.0/24"))["id"]} for number in (1, 2)]
        cinder.store.looks = 1
        beside.neutron.passes = beside.cinder.passes = count
        new = {"source_type": "blank", "destination_type": "volume", "volume_size": 1}
        await cinder.becomes(await cinder.create(new, networks=networks), "ACTIVE")
    assert {one: times for one, times in asked.items() if not one.startswith("GET ")} == WRITES
    reads = Counter({one: times for one, times in asked.items() if one.startswith("GET ")})
    assert reads >= Counter(READS), reads
    assert reads <= Counter(READS) + Counter(LOOK), reads
