"""The documents that follow the EC2 service: a tree of texts for each version."""

from __future__ import annotations

from typing import Any, TypeAlias

from skep.domain.guest_documents.facts import GuestFacts
from skep.domain.guest_documents.networks import first_address
from skep.domain.instances import Instance
from skep.domain.volumes import root_of, staying

VERSIONS = (
    "1.0",
    "2007-01-19",
    "2007-03-01",
    "2007-08-29",
    "2007-10-10",
    "2007-12-15",
    "2008-02-01",
    "2008-09-01",
    "2009-04-04",
)
LATEST = "latest"
ON_DRIVES = ("2009-04-04", LATEST)

Tree: TypeAlias = dict[str, Any]
"""Names with what stands below them: a tree, a list of texts, a text, or bytes."""


def tree(facts: GuestFacts, version: str) -> Tree:
    """Return all documents of a version."""
    exact = VERSIONS[-1] if version == LATEST else version
    found: Tree = {"meta-data": _meta_data(facts, VERSIONS.index(exact))}
    if facts.user_data is not None:
        found["user-data"] = facts.user_data
    return found


def _disks(server: Instance) -> Tree:
    """Return the disks of a server by what they are for; volumes beside the one that it boots from are numbered."""
    root = root_of(server.block_devices)
    volumes = [one.device for one in staying(server.volumes) if not one.is_root]
    numbered = {f"ebs{number}": name for number, name in enumerate(volumes)}
    return {"ami": root.rpartition("/")[2], "root": root, **numbered}


def _meta_data(facts: GuestFacts, version: int) -> Tree:
    server = facts.server
    image = server.image.id if server.image is not None else ""
    groups = list(dict.fromkeys(group.name for vif in server.vifs for group in vif.groups))
    public = first_address(server.vifs, floating=True)
    found: Tree = {
        "ami-id": f"ami-{image[:8]}" if image else "",
        "ami-launch-index": str(server.launch_index),
        "ami-manifest-path": "FIXME",
        "hostname": facts.hostname,
        "instance-id": f"i-{server.uuid[:8]}",
        "local-ipv4": first_address(server.vifs),
        "reservation-id": server.reservation_id,
        "security-groups": groups or ["default"],
    }
    if server.key_pair is not None:
        found["public-keys"] = {"0": {"openssh-key": server.key_pair.public_key}}
    since: tuple[tuple[str, Tree], ...] = (
        ("2007-01-19", {"local-hostname": facts.hostname, "public-hostname": facts.hostname, "public-ipv4": public}),
        ("2007-03-01", {"product-codes": []}),
        ("2007-08-29", {"instance-type": server.flavor.name}),
        ("2007-12-15", {"block-device-mapping": _disks(server)}),
        ("2008-02-01", {"placement": {"availability-zone": server.availability_zone or ""}}),
        ("2008-09-01", {"instance-action": "none"}),
    )
    for begins, more in since:
        if VERSIONS.index(begins) <= version:
            found |= more
    return found


def text(facts: GuestFacts, words: tuple[str, ...], found: Any) -> bytes:
    """Return what is answered for a place of the tree: a list of names, those with something below with a slash."""
    if isinstance(found, bytes):
        return found
    if isinstance(found, dict):
        return "\n".join(_entry(facts, words, name, below) for name, below in sorted(found.items())).encode()
    return ("\n".join(found) if isinstance(found, list) else str(found)).encode()


def _entry(facts: GuestFacts, words: tuple[str, ...], name: str, below: Any) -> str:
    pair = facts.server.key_pair
    if words[-1:] == ("public-keys",) and pair is not None:
        # EC2 lists keys by number and name.
        return f"{name}={pair.name}"
    return f"{name}/" if isinstance(below, dict) else name
