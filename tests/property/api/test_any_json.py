"""Whatever JSON is sent to whatever route, the answer is never a 5xx."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.api.microversions import MAXIMUM, MINIMUM
from skep.api.routes import ROUTES
from skep.api.routing import Route
from skep_lab.compute_api.api import CELL1, PROJECT, api_under_test
from tests.support.public_keys import ssh_key
from tests.support.samples import examples

TEXT = st.text(max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
WORDS = st.sampled_from(
    [
        "server",
        "flavor",
        "flavorRef",
        "imageRef",
        "networks",
        "aggregate",
        "server_group",
        "policies",
        "policy",
        "rules",
        "quota_set",
        "cores",
        "name",
        "id",
        "ram",
        "vcpus",
        "disk",
        "host",
        "binary",
        "status",
        "metadata",
        "meta",
        "tags",
        "extra_specs",
        "min_count",
        "max_count",
        "block_device_mapping_v2",
        "os:scheduler_hints",
        "availability_zone",
        "forced_down",
    ]
)
VALUES = st.sampled_from(["nova-compute", "h1", "auto", "none", "1", "affinity", "enabled", CELL1, "nova:h1"])
ANY_JSON = st.recursive(
    SCALARS | VALUES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | TEXT, inner, max_size=5),
    max_leaves=15,
)
SEGMENT = st.sampled_from(
    ["1", "t", "enable", PROJECT, "h1", CELL1, "x" * 300, "detail", "%00", "%FF", "ü", "-1", "9" * 30]
)

OF_DRIVERS = "/os-hosts/"
"""What is asked here only a driver can do, and none can: 501 is Nova's answer, whatever else was sent."""

GOOD: dict[str, Any] = {
    "POST /flavors": {
        "flavor": {
            "name": "tiny",
            "id": "t",
            "ram": 512,
            "vcpus": 1,
            "disk": 1,
            "swap": 0,
            "rxtx_factor": 1.5,
            "os-flavor-access:is_public": True,
            "description": "d",
        }
    },
    "PUT /flavors/{flavor_id}": {"flavor": {"description": "d"}},
    "POST /flavors/{flavor_id}/os-extra_specs": {"extra_specs": {"hw:cpu_policy": "shared", "a": "b"}},
    "PUT /flavors/{flavor_id}/os-extra_specs/{key}": {"1": "2"},
    "addTenantAccess": {"addTenantAccess": {"tenant": PROJECT}},
    "removeTenantAccess": {"removeTenantAccess": {"tenant": PROJECT}},
    "POST /os-aggregates": {"aggregate": {"name": "fast", "availability_zone": "east"}},
    "PUT /os-aggregates/{aggregate_id}": {"aggregate": {"name": "fast", "availability_zone": "east"}},
    "add_host": {"add_host": {"host": "h1"}},
    "remove_host": {"remove_host": {"host": "h1"}},
    "set_metadata": {"set_metadata": {"metadata": {"a": "b", "availability_zone": None}}},
    "POST /os-server-groups": {
        "server_group": {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 1}}
    },
    "POST /os-keypairs": {"keypair": {"name": "k", "type": "ssh", "public_key": ssh_key(), "user_id": "u"}},
    "PUT /os-quota-sets/{project}": {"quota_set": {"cores": 5, "ram": -1, "force": True}},
    "PUT /os-quota-class-sets/{name}": {"quota_class_set": {"cores": 5, "ram": -1}},
    "PUT /os-services/enable": {"host": "h1", "binary": "nova-compute"},
    "PUT /os-services/force-down": {"host": "h1", "binary": "nova-compute", "forced_down": "yes"},
    "PUT /os-services/{service_id}": {"status": "disabled", "disabled_reason": "r", "forced_down": True},
    "POST /servers": {
        "server": {
            "name": "s",
            "flavorRef": "1",
            "imageRef": CELL1,
            "networks": "none",
            "metadata": {"a": "b"},
            "min_count": 1,
            "max_count": 2,
            "availability_zone": "nova:h1",
            "block_device_mapping_v2": [{"boot_index": 0, "uuid": CELL1, "source_type": "image"}],
            "user_data": "YQ==",
            "tags": ["a"],
        },
        "os:scheduler_hints": {"group": CELL1, "same_host": [CELL1]},
    },
    "reboot": {"reboot": {"type": "HARD"}},
}
"""Bodies that are right, of which one place at a time is made wrong."""


@st.composite
def nearly_good(draw: st.DrawFn, good: Any) -> Any:
    """Replace one place of a right body by anything."""
    if isinstance(good, dict) and good and draw(st.integers(0, 9)) > 0:
        key = draw(st.sampled_from(sorted(good)))
        return {**good, key: draw(nearly_good(good[key]))}
    if isinstance(good, list) and good and draw(st.booleans()):
        return [draw(nearly_good(good[0])), *good[1:]]
    return draw(ANY_JSON | st.just(good))


def body_for(route: Route) -> st.SearchStrategy[Any]:
    good = GOOD.get(route.action or f"{route.method} {route.path}")
    wild = ANY_JSON if route.action is None else ANY_JSON.map(lambda value: {route.action: value})
    return wild if good is None else st.just(good) | nearly_good(good) | wild


def query_for(route: Route) -> st.SearchStrategy[dict[str, str]]:
    names = [parameter.name for parameter in route.query.parameters]
    values = TEXT | st.sampled_from(["1", "-1", "true", "None", "asc", "9" * 30, CELL1])
    return st.dictionaries(st.sampled_from([*names, "x"]), values, max_size=3)


@given(data=st.data())
@settings(max_examples=examples(60))
async def test_no_5xx(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with api_under_test(Path(directory)) as api:
            await api.map_host("h1", node=CELL1)
            await api.good("POST", "/flavors", GOOD["POST /flavors"], version="2.55")
            await api.good("POST", "/os-aggregates", {"aggregate": {"name": "slow"}})
            for _ in range(10):
                route = data.draw(st.sampled_from(ROUTES))
                words = [data.draw(SEGMENT) if part.startswith("{") else part for part in route.path.split("/")]
                versions = st.integers(MINIMUM, MAXIMUM) | st.integers(route.since, route.until)
                response = await api.ask(
                    route.method,
                    "/".join(words),
                    data.draw(body_for(route)) if route.body is not None else None,
                    version=f"2.{data.draw(versions)}",
                    token=data.draw(st.sampled_from(["admin", "admin", "member", "reader", "nobody"])),
                    params=data.draw(query_for(route)),
                )
                if response.status_code != 501 or not route.path.startswith(OF_DRIVERS):
                    assert response.status_code < 500, (route.method, route.path, response.text)
                assert response.headers["x-openstack-request-id"].startswith("req-")
