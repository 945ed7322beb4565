"""The newest microversion stands in one place: raising it there takes no route and no key from any answer."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from skep.api.microversions import MAXIMUM
from skep.api.routes import ROUTES
from skep.contracts.eventually import PATIENCE

RAISED = """
import importlib.util, json, sys, types

name = "skep.api.microversions"
found = importlib.util.find_spec(name)
source = found.loader.get_source(name)
newest = int(sys.argv[1])
line = f"MAXIMUM = {newest}"
assert source.count(line) == 1
raised = types.ModuleType(name)
sys.modules[name] = raised
exec(compile(source.replace(line, line + " + 1"), found.origin, "exec"), raised.__dict__)

from skep.api.routes import ROUTES

version = newest + 1
assert raised.requested({b"openstack-api-version": b"compute latest"}) == version
json.dump(
    {
        f"{row.method} {row.path} {row.action} {row.since}": [
            row.response and row.response.schema(version),
            row.body and row.body.schema(version),
            row.query.schema(version),
        ]
        for row in ROUTES
        if row.at(version)
    },
    sys.stdout,
)
"""


def test_raising_it_takes_nothing_away() -> None:
    now: dict[str, Any] = {
        f"{row.method} {row.path} {row.action} {row.since}": [
            row.response and row.response.schema(MAXIMUM),
            row.body and row.body.schema(MAXIMUM),
            row.query.schema(MAXIMUM),
        ]
        for row in ROUTES
        if row.at(MAXIMUM)
    }
    done = subprocess.run(
        [sys.executable, "-c", RAISED, str(MAXIMUM)], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    after = json.loads(done.stdout)
    assert len(now) > 90
    assert after.keys() == now.keys()
    assert [name for name in now if after[name] != json.loads(json.dumps(now[name]))] == []
