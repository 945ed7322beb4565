"""Whatever JSON is sent to whatever route, the answer is never a 5xx."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.api.microversions import MAXIMUM, MINIMUM
from skep.api.routes import ROUTES
from skep.testing.api import CELL1, api_under_test

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
SEGMENT = st.sampled_from(["1", "h1", CELL1, "x" * 300, "detail", "%00", "%FF", "ü", "-1", "9" * 30])


def body_for(action: str | None) -> st.SearchStrategy[Any]:
    return ANY_JSON if action is None else ANY_JSON.map(lambda value: {action: value})


@given(data=st.data())
@settings(max_examples=60)
async def test_no_5xx(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with api_under_test(Path(directory)) as api:
            await api.map_host("h1", node=CELL1)
            for _ in range(10):
                route = data.draw(st.sampled_from(ROUTES))
                path = "/".join(data.draw(SEGMENT) if part.startswith("{") else part for part in route.path.split("/"))
                query = data.draw(
                    st.dictionaries(st.sampled_from(["limit", "marker", "name", "x"]) | TEXT, TEXT, max_size=3)
                )
                response = await api.ask(
                    route.method,
                    path,
                    data.draw(body_for(route.action)) if route.body is not None else None,
                    version=f"2.{data.draw(st.integers(MINIMUM, MAXIMUM))}",
                    token=data.draw(st.sampled_from(["admin", "member", "reader", "nobody"])),
                    params=query,
                )
                assert response.status_code < 500, (route.method, path, response.text)
                assert response.headers["x-openstack-request-id"].startswith("req-")
