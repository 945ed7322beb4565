"""A volume service that tells Skep of its hosts: how much room each has, and which volumes are on it.

    python examples/volume_states.py --url http://127.0.0.1:8774/admin/v1 --admin-token TOKEN --host HOST=FREE_GB:ID,ID

needs nothing but Python. What a real service does once, by hand of the operator: register the namespace and get a
credential (`skep namespace set`, `skep namespace credential create`). What it does for as long as it runs: write a
state when something changes, and all of them again when the answer names another epoch. docs/namespaces.md explains it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

NAMESPACE = "volume"
SCHEMA = {
    "fields": {
        "free_gb": {"type": "integer", "minimum": 0, "required": True},
        "volumes": {"type": "strings", "max_items": 1000, "max_length": 36},
    },
    "join": {"names": "host"},
}
BATCH = 500
"""States in one request."""


class Refused(Exception):
    """The admin API answered with an error."""


class AdminApi:
    """Skep's admin API, asked with a user's token or with a program's credential."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json", **headers}

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request and return its answer. Raises Refused with what the API says."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, dict(self._headers), method=method)  # noqa: S310 - the operator's address
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise Refused(f"{method} {path}: {json.load(error)['error']['message']}") from error


class VolumeStates:
    """Keeps what Skep knows of our hosts equal to what we know."""

    def __init__(self, api: AdminApi) -> None:
        self._api = api
        self._incarnation = time.time_ns() // 1000
        """Larger than in any earlier life of this service: what is younger wins."""
        self._seq = 0
        self._states: dict[str, dict[str, Any]] = {}
        self._epoch: str | None = None

    def tell(self, changed: Mapping[str, dict[str, Any]]) -> None:
        """Write the states of these hosts. Raises Refused when one of them is not taken."""
        self._states.update(changed)
        epoch = self._write(list(changed))
        if epoch != self._epoch and len(changed) < len(self._states):
            # The schedulers' data began a new life: nothing of what we wrote before is there any more.
            epoch = self._write(list(self._states))
        self._epoch = epoch

    def _write(self, hosts: list[str]) -> str:
        epoch = ""
        for start in range(0, len(hosts), BATCH):
            self._seq += 1
            batch = [
                {"key": host, "incarnation": self._incarnation, "seq": self._seq, "state": self._states[host]}
                for host in hosts[start : start + BATCH]
            ]
            answer = self._api.ask("PUT", f"/namespaces/{NAMESPACE}/states", {"states": batch})
            refused = [one["refused"] for one in answer["states"] if one["refused"] is not None]
            if refused:
                raise Refused("; ".join(f"{one['key']}: {one['field']}: {one['reason']}" for one in refused))
            epoch = answer["epoch"]
        return epoch

    def known(self) -> dict[str, dict[str, Any]]:
        """Return what Skep knows, by host."""
        found: dict[str, dict[str, Any]] = {}
        marker = ""
        while True:
            page = self._api.ask("GET", f"/namespaces/{NAMESPACE}/states?limit=500{marker}")
            found.update({one["key"]: one["state"] for one in page["states"]})
            if page["next_marker"] is None:
                return found
            marker = f"&marker={page['next_marker']}"


def register(url: str, admin_token: str) -> str:
    """Register the namespace as an admin, and return the secret of a credential that is bound to it."""
    admin = AdminApi(url, {"X-Auth-Token": admin_token})
    admin.ask("PUT", f"/namespaces/{NAMESPACE}", SCHEMA)
    made = admin.ask("POST", f"/namespaces/{NAMESPACE}/credentials", {"description": "the volume service"})
    secret: str = made["credential"]["secret"]
    return secret


def read_host(text: str) -> tuple[str, dict[str, Any]]:
    """Read `HOST=FREE_GB:VOLUME,VOLUME`."""
    host, _, rest = text.partition("=")
    free, _, volumes = rest.partition(":")
    return host, {"free_gb": int(free), "volumes": [volume for volume in volumes.split(",") if volume]}


def main() -> None:
    """Register, write the states of the hosts that were named, read all of them back and print them."""
    parser = argparse.ArgumentParser(description="Tell Skep of the volumes on its hosts.")
    parser.add_argument("--url", required=True, help="address of the admin API, ends with /admin/v1")
    parser.add_argument("--admin-token", required=True)
    parser.add_argument("--host", action="append", default=[], type=read_host, metavar="HOST=FREE_GB:ID,ID")
    arguments = parser.parse_args()
    secret = register(arguments.url, arguments.admin_token)
    service = VolumeStates(AdminApi(arguments.url, {"Authorization": f"Bearer {secret}"}))
    service.tell(dict(arguments.host))
    sys.stdout.write(json.dumps(service.known(), sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
