"""What Nova's unversioned notifications say, made from the versioned ones."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.domain import event_table, event_types, notifications
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.ids import NodeUuid, ProjectId, RequestId, new_uuid
from skep.domain.instances import Fault, Instance, State, Task
from skep.domain.unversioned_notifications import publisher, unversioned
from skep.domain.vifs import Vif, VifAddress, VifSubnet
from tests.support import rows

CONTEXT = RequestContext(request_id=RequestId("req-1"), project_id=ProjectId("asks"))
VIF = Vif(
    id="p0rt",
    mac_address="fa:16:3e:00:00:01",
    network_id="n",
    network_name="private",
    mtu=1500,
    subnets=(
        VifSubnet(id="4", cidr="10.0.0.0/24", version=4, addresses=(VifAddress("10.0.0.5", ("1.2.3.4",)),)),
        VifSubnet(id="6", cidr="fd00::/64", version=6, addresses=(VifAddress("fd00::5"),)),
    ),
)
NODE = NodeUuid(new_uuid())
BUILT_AT = 1_700_000_000 * SECOND


def server(**changes: Any) -> Instance:
    whole = msgspec.structs.replace(
        rows.server(),
        state=State.ACTIVE,
        host="host1",
        node=NODE,
        vifs=(VIF,),
        metadata={"a": "b"},
        created_at=BUILT_AT - 10 * SECOND,
        launched_at=BUILT_AT,
    )
    return msgspec.structs.replace(whole, **changes)


def told(event_type: str, payload: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    found = unversioned(event_type, payload, CONTEXT)
    assert found is not None
    json.dumps(found[1])
    return found


def test_a_server_that_was_built() -> None:
    one = server()
    name, payload = told("instance.create.end", notifications.create(one, CONTEXT))
    assert name == "compute.instance.create.end"
    wanted = {
        "tenant_id": one.project_id,
        "user_id": one.user_id,
        "instance_id": one.uuid,
        "display_name": one.name,
        "hostname": one.hostname,
        "instance_type": one.flavor.name,
        "instance_flavor_id": one.flavor.flavorid,
        "memory_mb": one.flavor.memory_mb,
        "vcpus": one.flavor.vcpus,
        "disk_gb": one.flavor.root_gb + one.flavor.ephemeral_gb,
        "root_gb": one.flavor.root_gb,
        "ephemeral_gb": one.flavor.ephemeral_gb,
        "host": "host1",
        "node": NODE,
        "state": "active",
        "state_description": "",
        "created_at": "2023-11-14 22:13:10+00:00",
        "launched_at": "2023-11-14T22:13:20.000000",
        "deleted_at": "",
        "terminated_at": "",
        "metadata": {"a": "b"},
        "message": "Success",
    }
    assert wanted.items() <= payload.items()
    fixed = {"type": "fixed", "meta": {}, "floating_ips": [], "label": "private", "vif_mac": VIF.mac_address}
    assert payload["fixed_ips"] == [
        {**fixed, "address": "10.0.0.5", "version": 4},
        {**fixed, "address": "fd00::5", "version": 6},
    ]


def test_a_build_that_failed() -> None:
    fault = Fault(code=500, message="ImageUnacceptable: too large", created_at=BUILT_AT)
    _, payload = told("instance.create.error", notifications.create(server(), CONTEXT, fault))
    assert (payload["exception"], payload["message"], payload["code"]) == (
        *("ImageUnacceptable", "ImageUnacceptable: too large"),
        500,
    )


def test_a_change_has_the_old_and_the_new_state() -> None:
    name, payload = told("instance.update", notifications.update(server(task=Task.POWERING_OFF), State.STOPPED))
    assert name == "compute.instance.update"
    assert (payload["old_state"], payload["state"]) == ("stopped", "active")
    assert (payload["old_task_state"], payload["new_task_state"]) == (None, "powering-off")
    assert payload["state_description"] == "powering-off"
    assert "old_display_name" not in payload
    _, first = told("instance.update", notifications.update(server(), None))
    assert first["old_state"] == "active"


def test_a_resize_names_the_new_flavor() -> None:
    one = server()
    name, payload = told("instance.resize_prep.start", notifications.resize_prep(one, CONTEXT, one.flavor))
    assert (name, payload["new_instance_type"]) == ("compute.instance.resize.prep.start", one.flavor.name)


def test_no_host_was_found() -> None:
    one, spec = server(), rows.spec()
    name, payload = told("compute_task.build_instances.error", notifications.compute_task_error(one, spec, "No host"))
    assert name == "compute_task.build_instances"
    assert (payload["instance_id"], payload["method"], payload["reason"]) == (one.uuid, "build_instances", "No host")
    assert payload["state"] == "error"
    assert payload["instance_properties"]["project_id"] == spec.project_id
    name, payload = told("scheduler.select_destinations.end", notifications.request_spec(spec, one.uuid, 3))
    assert name == "scheduler.select_destinations.end"
    assert payload["request_spec"]["num_instances"] == 3
    assert payload["request_spec"]["instance_type"]["flavorid"] == spec.flavor.flavorid


def test_the_project_of_a_key_pair_is_that_of_the_request() -> None:
    payload = notifications.payload("KeypairPayload", "1.0", {"user_id": "u", "name": "k", "type": "ssh"})
    assert told("keypair.create.end", payload) == (
        "keypair.create.end",
        {"tenant_id": "asks", "user_id": "u", "key_name": "k"},
    )


@pytest.mark.parametrize("event_type", ["instance.lock", "instance.pause.error", "aggregate.cache_images.start"])
def test_what_has_no_such_form(event_type: str) -> None:
    assert unversioned(event_type, notifications.action(server(), CONTEXT), CONTEXT) is None


@pytest.mark.parametrize(
    ("event_type", "versioned", "before"),
    [
        ("compute.instance.update", "nova-compute:h1", "compute.h1"),
        ("compute.instance.update", "nova-conductor:cell", "conductor.cell"),
        ("keypair.create.end", "nova-api:a.b", "api.a.b"),
        ("compute_task.build_instances", "nova-conductor:super", "compute_task.super"),
    ],
)
def test_who_speaks(event_type: str, versioned: str, before: str) -> None:
    assert publisher(event_type, versioned) == before


@given(
    event_type=st.sampled_from(sorted(one for one in event_table.SENT if one.startswith("instance."))),
    state=st.sampled_from(State),
    task=st.none() | st.sampled_from(Task),
    failed=st.booleans(),
    addresses=st.booleans(),
)
def test_every_event_of_a_server_has_its_facts(
    event_type: str, state: State, task: Task | None, failed: bool, addresses: bool
) -> None:
    one = server(state=state, task=task, vifs=(VIF,) if addresses else ())
    fault = Fault(code=500, message="it failed", created_at=BUILT_AT) if failed else None
    update = event_type == event_types.UPDATE
    payload = notifications.update(one, state) if update else notifications.action(one, CONTEXT, fault)
    found = unversioned(event_type, payload, CONTEXT)
    assert (found is None) == (event_table.unversioned(event_type) is None)
    if found is None:
        return
    name, said = found
    assert name.startswith("compute.instance.")
    assert json.loads(json.dumps(said))["instance_id"] == one.uuid
    assert said["state"] == payload["nova_object.data"]["state"]
    assert said["state_description"] == (payload["nova_object.data"]["task_state"] or "")
    assert len(said["fixed_ips"]) == (2 if addresses else 0)
    assert ("exception" in said) == (failed and not update)


def test_versioned_payloads_name_the_addresses() -> None:
    first, second = notifications.action(server(), CONTEXT)["nova_object.data"]["ip_addresses"]
    assert (first["nova_object.name"], first["nova_object.version"]) == ("IpPayload", "1.0")
    assert first["nova_object.data"] == {
        "mac": VIF.mac_address,
        "meta": {},
        "port_uuid": "p0rt",
        "version": 4,
        "address": "10.0.0.5",
        "device_name": "tapp0rt",
        "label": "private",
    }
    assert second["nova_object.data"]["address"] == "fd00::5"
