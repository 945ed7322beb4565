"""The documents below `openstack/`, by version. A document says what it said in the version that is asked for."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from skep.domain.guest_documents.facts import GuestFacts
from skep.domain.guest_documents.networks import network_data, tagged_devices, tagged_disks
from skep.domain.volumes import staying

VERSIONS = (
    "2012-08-10",
    "2013-04-04",
    "2013-10-17",
    "2015-10-15",
    "2016-06-30",
    "2016-10-06",
    "2017-02-22",
    "2018-08-27",
    "2020-10-14",
    "2025-04-04",
)
LATEST = "latest"
CONTENT = "content"
PASSWORD = "password"  # noqa: S105 - a name

_SEED_SINCE, _PROJECT_SINCE, _DEVICES_SINCE, _CPUS_SINCE = "2013-04-04", "2015-10-15", "2016-06-30", "2020-10-14"


class DocumentKind(NamedTuple):
    """One kind of document."""

    since: str
    made: Callable[[GuestFacts, str], bytes | None]
    """None: the server has no such document."""
    on_drives: bool = True


def of_version(facts: GuestFacts, version: str) -> dict[str, bytes]:
    """Return the documents of a version by their names, in Nova's order."""
    exact = VERSIONS[-1] if version == LATEST else version
    made = {name: kind.made(facts, exact) for name, kind in KINDS.items() if kind.since <= exact}
    return {name: document for name, document in made.items() if document is not None}


def contents(facts: GuestFacts) -> dict[str, bytes]:
    """Return the injected files by the names that `meta_data.json` gives them."""
    return {f"{number:04}": content for number, (_, content) in enumerate(facts.files)}


def _meta_data(facts: GuestFacts, version: str) -> bytes:
    server, pair = facts.server, facts.server.key_pair
    said: dict[str, Any] = {"uuid": server.uuid}
    if server.metadata:
        said["meta"] = server.metadata
    if facts.files:
        said["files"] = [
            {"content_path": f"/{CONTENT}/{number:04}", "path": path} for number, (path, _) in enumerate(facts.files)
        ]
    if facts.admin_password is not None:
        said["admin_pass"] = facts.admin_password
    if pair is not None:
        said["public_keys"] = {pair.name: pair.public_key}
        said["keys"] = [{"name": pair.name, "type": pair.type, "data": pair.public_key}]
    said |= {
        "hostname": facts.hostname,
        "name": server.name,
        "launch_index": server.launch_index,
        "availability_zone": server.availability_zone,
    }
    if version >= _SEED_SINCE:
        said["random_seed"] = base64.b64encode(facts.seed).decode()
    if version >= _PROJECT_SINCE:
        said["project_id"] = server.project_id
    if version >= _DEVICES_SINCE:
        said["devices"] = [*tagged_devices(server.vifs, version), *tagged_disks(staying(server.volumes))]
    if version >= _CPUS_SINCE:
        said["dedicated_cpus"] = []
    return msgspec.json.encode(said)


def _user_data(facts: GuestFacts, _version: str) -> bytes | None:
    return facts.user_data


def _password(facts: GuestFacts, _version: str) -> bytes:
    return facts.told_password.encode()


def _vendor_data(facts: GuestFacts, _version: str) -> bytes:
    return msgspec.json.encode(facts.vendor_data)


def _vendor_data2(facts: GuestFacts, _version: str) -> bytes:
    return msgspec.json.encode({"static": facts.vendor_data, **facts.dynamic_vendor_data})


def _network_data(facts: GuestFacts, _version: str) -> bytes:
    return msgspec.json.encode(network_data(facts.server.vifs))


VENDOR_DATA = "vendor_data2.json"
"""What the operator's services are asked for."""

KINDS: dict[str, DocumentKind] = {
    "meta_data.json": DocumentKind("2012-08-10", _meta_data),
    "user_data": DocumentKind("2012-08-10", _user_data),
    PASSWORD: DocumentKind("2013-04-04", _password, on_drives=False),
    "vendor_data.json": DocumentKind("2013-10-17", _vendor_data),
    "network_data.json": DocumentKind("2015-10-15", _network_data),
    VENDOR_DATA: DocumentKind("2016-10-06", _vendor_data2),
}
