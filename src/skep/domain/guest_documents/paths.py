"""Where each document stands: in the metadata service, and on a config drive."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.domain.guest_documents import ec2, openstack
from skep.domain.guest_documents.facts import GuestFacts


def split(path: str) -> tuple[str, ...]:
    """Return the words of a path; what is empty between slashes counts for nothing."""
    return tuple(word for word in path.split("/") if word and word != ".")


def versions() -> bytes:
    """Return what stands at the root, for everybody: the versions of EC2."""
    return "\n".join((*ec2.VERSIONS, ec2.LATEST)).encode()


def find(facts: GuestFacts, words: tuple[str, ...]) -> bytes | None:
    """Return the document or list at a path of the metadata service; None: there is nothing."""
    match words:
        case []:
            return versions()
        case ["openstack", *rest]:
            return _openstack(facts, rest)
        case ["ec2", *rest]:
            return _ec2(facts, tuple(rest)) if rest else versions()
    return _ec2(facts, words)


def is_password(words: tuple[str, ...]) -> bool:
    """Tell whether a guest may tell its password at a path."""
    match words:
        case ["openstack", version, openstack.PASSWORD]:
            since = openstack.KINDS[openstack.PASSWORD].since
            return version == openstack.LATEST or (version in openstack.VERSIONS and version >= since)
    return False


def asks_vendors(words: tuple[str, ...]) -> bool:
    """Tell whether the document at a path holds what the operator's services say."""
    match words:
        case ["openstack", _, openstack.VENDOR_DATA]:
            return True
    return False


def _openstack(facts: GuestFacts, words: list[str]) -> bytes | None:
    match words:
        case []:
            return _lines((*openstack.VERSIONS, openstack.LATEST))
        case [openstack.CONTENT, name]:
            return openstack.contents(facts).get(name)
        case [version, *rest] if version in (*openstack.VERSIONS, openstack.LATEST):
            documents = openstack.of_version(facts, version)
            return _lines(tuple(documents)) if not rest else documents.get(rest[0]) if len(rest) == 1 else None
    return None


def _ec2(facts: GuestFacts, words: tuple[str, ...]) -> bytes | None:
    if words[0] not in (*ec2.VERSIONS, ec2.LATEST):
        return None
    found: Any = ec2.tree(facts, words[0])
    for word in words[1:]:
        if not isinstance(found, dict) or word not in found:
            return None
        found = found[word]
    return ec2.text(facts, words, found)


def _lines(names: tuple[str, ...]) -> bytes:
    return "\n".join(names).encode()


def on_config_drive(facts: GuestFacts) -> dict[str, bytes]:
    """Return the files of a config drive by their paths."""
    files = {f"openstack/{openstack.CONTENT}/{name}": content for name, content in openstack.contents(facts).items()}
    for version in (*openstack.VERSIONS, openstack.LATEST):
        for name, document in openstack.of_version(facts, version).items():
            if openstack.KINDS[name].on_drives:
                files[f"openstack/{version}/{name}"] = document
    for version in ec2.ON_DRIVES:
        found = ec2.tree(facts, version)
        files[f"ec2/{version}/meta-data.json"] = msgspec.json.encode(found["meta-data"])
        if "user-data" in found:
            files[f"ec2/{version}/user-data"] = found["user-data"]
    return files
