"""Dry runs read all that a create reads: hints, the image, forced hosts, whose server it would be."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from skep.database.api import aggregates, server_groups
from skep.database.api.server_groups import ServerGroup
from skep.domain.groups import SpreadConstraint
from skep.domain.ids import GroupUuid, ProjectId, UserId
from skep.domain.images import Image
from skep.domain.request_specs import RequestSpec
from tests.support.admin import CELL1, CELL2, NOW, Admin
from tests.support.admin_tokens import PROJECT
from tests.support.images import HeldImages
from tests.support.served_admin import Served

GROUP = GroupUuid("99999999-9999-4999-8999-999999999999")
RUNS = ("/placement/dry-run", "/select-destinations")


async def with_group(admin: Admin, policy: Any = "soft-anti-affinity") -> None:
    group = ServerGroup(uuid=GROUP, name="g", policy=policy, project_id=PROJECT, user_id=UserId("u"), created_at=NOW)
    await admin.services.database.write(partial(server_groups.add, group=group, most=-1))


async def asked(admin: Admin, path: str, **body: Any) -> RequestSpec:
    await admin.good("POST", path, json={"flavor": "1", **body})
    return admin.scheduler.asked[-1].spec


@pytest.mark.parametrize("path", RUNS)
async def test_hints_mean_what_they_mean_to_a_create(admin: Admin, path: str) -> None:
    await with_group(admin)
    one, other = await admin.server(CELL1), await admin.server(CELL1)
    hints = {
        "group": GROUP,
        "spread": "zone:1,host:2:soft",
        "same_host": one.uuid,
        "different_host": [other.uuid, "77777777-7777-4777-8777-777777777777"],
        "target_cell": "cell1",
        "different_cell": ["cell2"],
        "query": '[">", "$free_ram_mb", 1]',
        "build_near_host_ip": "10.0.0.1",
        "lifetime": 60,
        "colour": "red",
    }
    spec = await asked(admin, path, scheduler_hints=hints)
    assert spec.group is not None
    assert spec.group.spread == (
        SpreadConstraint(key="host", max_skew=2, hard=False),
        SpreadConstraint(key="zone", max_skew=1),
    )
    assert (spec.same_host_names, spec.different_host_names) == (("h1",), ("h1",))
    assert (spec.target_cell, spec.different_cells) == (CELL1, (CELL2,))
    assert spec.scheduler_hints == hints
    assert spec.lifetime is not None
    none = await asked(admin, path)
    assert (none.group, none.same_host_names, none.different_host_names, none.lifetime) == (None, None, (), None)
    gone = await asked(admin, path, scheduler_hints={"same_host": "77777777-7777-4777-8777-777777777777"})
    assert gone.same_host_names == ()


@pytest.mark.parametrize("path", RUNS)
async def test_image_hosts_and_project(admin: Admin, path: str) -> None:
    image = Image(id="i", properties={"hw_architecture": "aarch64"})
    assert isinstance(admin.services.images, HeldImages)
    admin.services.images.held["i"] = image
    spec = await asked(
        admin, path, image="i", host="h1", hypervisor_hostname="h1.example", availability_zone="east", project_id="p"
    )
    assert (spec.image, spec.requested_host, spec.requested_node) == (image, "h1", "h1.example")
    assert (spec.availability_zone, spec.project_id) == ("east", ProjectId("p"))
    forced = await asked(admin, path, availability_zone="east:h1:n1")
    assert (forced.availability_zone, forced.forced_host, forced.forced_node) == ("east", "h1", "n1")
    assert (await asked(admin, path)).project_id == PROJECT


@pytest.mark.parametrize("path", RUNS)
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"scheduler_hints": {"group": GROUP}}, "group"),
        ({"scheduler_hints": {"group": 7}}, "group"),
        ({"scheduler_hints": {"spread": "zone:1"}}, "spread"),
        ({"scheduler_hints": {"same_host": "h1"}}, "same_host"),
        ({"scheduler_hints": {"different_host": {"a": 1}}}, "different_host"),
        ({"scheduler_hints": {"target_cell": "cell9"}}, "target_cell"),
        ({"scheduler_hints": {"query": "["}}, "query"),
        ({"scheduler_hints": {"reservation": "r"}}, "reservation"),
        ({"scheduler_hints": []}, "scheduler_hints"),
        ({"image": "none"}, "image"),
        ({"availability_zone": "a:b:c:d"}, "availability_zone"),
        ({"availability_zone": "a:b", "host": "h1"}, "availability_zone"),
    ],
)
async def test_what_no_create_could_ask_is_named(admin: Admin, path: str, body: dict[str, Any], named: str) -> None:
    refused = await admin.ask("POST", f"/admin/v1{path}", json={"flavor": "1", **body})
    assert refused.status_code == 400
    assert named in refused.text


@pytest.mark.parametrize("path", RUNS)
@pytest.mark.parametrize("levels", [65, 400, 900])
async def test_hints_are_not_nested_beyond_reason(admin: Admin, path: str, levels: int) -> None:
    nested = "[" * levels + "]" * levels
    body = f'{{"flavor": "1", "scheduler_hints": {{"anything": {nested}}}}}'
    answer = await admin.ask("POST", f"/admin/v1{path}", content=body)
    assert answer.status_code == 400
    assert "attribute scheduler_hints.anything" in answer.text
    assert "64 levels" in answer.text


async def test_members_of_a_dry_run_are_spread(served: Served) -> None:
    def add(connection: sa.Connection) -> None:
        made = aggregates.add(connection, uuid="u-1", name="shelf", metadata={"availability_zone": "east"}, now=NOW)
        assert made is not None
        aggregates.add_host(connection, made.id, "h2")

    await served.admin.services.database.write(add)
    await with_group(served.admin)
    await served.tell()
    body = {"flavor": "1", "count": 4, "scheduler_hints": {"group": GROUP, "spread": "zone:1"}}
    decisions = (await served.good("POST", "/placement/dry-run", body))["decisions"]
    assert sorted(one["zone"] for one in decisions) == ["east", "east", "nova", "nova"]
