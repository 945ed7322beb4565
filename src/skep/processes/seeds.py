"""What a new cloud starts with: users, flavors, a small image. Repeating it changes nothing that is there."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from skep.database import Connection
from skep.database.api import flavors as flavor_rows
from skep.database.api import users as user_rows
from skep.database.api.images import ImageQuery, Viewer
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured
from skep.domain.flavors import Flavor
from skep.processes.directory import StateDirectory, write_private
from skep.standalone.identity.bootstrap import FIRST_USERS, ensure_bootstrap
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.images.service import StandaloneImages

IMAGE_NAME = "tiny"

FLAVORS = (
    Flavor(flavorid="1", name="m1.tiny", vcpus=1, memory_mb=512, root_gb=1),
    Flavor(flavorid="2", name="m1.small", vcpus=1, memory_mb=2048, root_gb=20),
    Flavor(flavorid="3", name="m1.medium", vcpus=2, memory_mb=4096, root_gb=40),
    Flavor(flavorid="4", name="m1.large", vcpus=4, memory_mb=8192, root_gb=80),
    Flavor(flavorid="5", name="m1.xlarge", vcpus=8, memory_mb=16384, root_gb=160),
)


async def users(
    database: Database, identity: StandaloneIdentity, clock: Clock, directory: StateDirectory, identity_url: str
) -> dict[str, str]:
    """Make the first users and the file that clients find the cloud by; return the passwords that were made now.

    The file is written before the users are, so that a crash between leaves a password that works, never users whose
    password nobody knows. One that was lost since is written again, without the passwords.
    """
    file = directory.clouds_yaml
    passwords = passwords_in(file)
    if await database.read(user_rows.any_exists):
        if not file.exists():
            write_private(file, clouds_yaml(identity_url, dict.fromkeys(FIRST_USERS)).encode())
        else:
            _point_to(file, identity_url)
    elif passwords:
        _point_to(file, identity_url)
    else:
        passwords = {name: secrets.token_urlsafe(18) for name in FIRST_USERS}
        write_private(file, clouds_yaml(identity_url, passwords).encode())
    made = await ensure_bootstrap(database, identity.passwords, clock, chosen=passwords)
    return made.passwords


def clouds_yaml(identity_url: str, passwords: Mapping[str, str | None]) -> str:
    """Return the file: cloud `skep` is the admin, `skep-demo` an ordinary user. JSON is YAML too.

    A user whose password is None gets an entry without one.
    """
    clouds = {_cloud_of(name): _entry(identity_url, name, password) for name, password in passwords.items()}
    return _written(clouds)


def _cloud_of(user: str) -> str:
    return "skep" if user == "admin" else f"skep-{user}"


def _entry(identity_url: str, user: str, password: str | None) -> dict[str, Any]:
    project, _ = FIRST_USERS.get(user, (None, None))
    auth = {
        "auth_url": identity_url,
        "username": user,
        "password": password,
        "project_name": project,
        "user_domain_name": "Default",
        "project_domain_name": "Default",
    }
    return {
        "auth": {key: value for key, value in auth.items() if value is not None},
        "region_name": "RegionOne",
        "identity_api_version": 3,
    }


def _written(clouds: Mapping[str, Any]) -> str:
    return json.dumps({"clouds": clouds}, indent=2) + "\n"


def keep_password(path: Path, identity_url: str, user: str, password: str) -> None:
    """Put a user's new password into the file, making what is missing.

    Raises Misconfigured when somebody rewrote the file in another form: his words are not ours to change.
    """
    clouds = _clouds_in(path) if path.exists() else {}
    if clouds is None:
        raise Misconfigured(f"the password is set, but {path} was rewritten by hand: put it there yourself")
    mine = [entry for entry in clouds.values() if entry["auth"].get("username") == user]
    for entry in mine:
        entry["auth"]["password"] = password
    if not mine:
        clouds[_cloud_of(user)] = _entry(identity_url, user, password)
    write_private(path, _written(clouds).encode())


def passwords_in(path: Path) -> dict[str, str]:
    """Return user -> password of a clouds.yaml that a start wrote; nothing when somebody rewrote it in another form."""
    auths = [entry["auth"] for entry in (_clouds_in(path) or {}).values()]
    return {auth["username"]: auth["password"] for auth in auths if auth.get("password")}


def addresses_in(path: Path) -> set[str]:
    """Return the addresses of identity services in a clouds.yaml that a start wrote."""
    return {str(entry["auth"].get("auth_url")) for entry in (_clouds_in(path) or {}).values()}


def _clouds_in(path: Path) -> dict[str, Any] | None:
    """Return the entries of a file that we wrote; None when it is not there or in another form."""
    try:
        clouds: dict[str, Any] = json.loads(path.read_text())["clouds"]
        for entry in clouds.values():
            str(entry["auth"]["username"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return clouds


def _point_to(path: Path, identity_url: str) -> None:
    """Put the address of this start into a file of ours; whatever else stands in it stays."""
    clouds = _clouds_in(path)
    if clouds is None or all(entry["auth"].get("auth_url") == identity_url for entry in clouds.values()):
        return
    said = json.loads(path.read_text())
    for entry in said["clouds"].values():
        entry["auth"]["auth_url"] = identity_url
    write_private(path, (json.dumps(said, indent=2) + "\n").encode())


async def flavors(database: Database, clock: Clock) -> None:
    """Make the usual flavors in a cloud that has none."""

    def unit(connection: Connection) -> None:
        if not flavor_rows.find(connection, flavor_rows.FlavorQuery(project=None, everything=True, public=None)):
            for flavor in FLAVORS:
                flavor_rows.add(connection, flavor, clock.now())

    await database.write(unit)


class FirstImage(NamedTuple):
    """The image of a cloud that has none."""

    said: Mapping[str, Any]
    """What is said of it, its name too."""
    content: Callable[[], AsyncIterator[bytes]]


async def _content() -> AsyncIterator[bytes]:
    content = io.BytesIO(b"Skep's tiny image: a fake host needs no more than this.\n")
    yield content.read()


PLAIN_IMAGE = FirstImage(
    {"name": IMAGE_NAME, "visibility": "public", "disk_format": "raw", "container_format": "bare"}, _content
)
"""Enough for hosts without a hypervisor."""


async def image(store: StandaloneImages, first: FirstImage) -> None:
    """Make a small public image in a cloud that has none.

    One that an interrupted start left without its bytes gets them now.
    """
    viewer = Viewer(project_id=None, is_admin=True)
    there = (await store.select(ImageQuery(), None, viewer)).images
    if not there:
        there = [await store.create(dict(first.said), viewer)]
    if len(there) == 1 and there[0].name == IMAGE_NAME and there[0].status == "queued":
        await store.upload(there[0].id, first.content(), viewer)
