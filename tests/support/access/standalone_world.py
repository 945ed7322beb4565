"""The embedded services with users and things of two projects, for the matrix: what `standalone_rows` names."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, neighbours, sign_in_body
from skep.domain.ids import new_uuid
from skep.standalone.identity.app import identity_app
from skep.standalone.images.app import images_app
from skep.standalone.networks.app import networks_app
from tests.support.access.matrix import Caller, Row, Thing, World
from tests.support.access.network_rows import network_things
from tests.support.access.snapshots import Snapshot

OF_OTHERS = "sesame"
"""Stands in all that is another project's or user's."""
PASSWORD = "a password for tests"
BYTES = {"Content-Type": "application/octet-stream"}
ROLES = {"reader": "reader", "manager": "manager", "service": "service", "guest": "auditor"}
"""Users of the project `demo` beside its member, and what they are there."""


@dataclass(frozen=True)
class Things:
    """What the rows name."""

    user: Thing
    project: Thing
    domain: Thing
    group: Thing
    credential: Thing
    access_rule: Thing
    role: Thing
    default_role: str
    token: Thing
    image: Thing
    queued_image: Thing
    public_image: str
    networks: Mapping[str, Thing]
    """By kind."""


@contextlib.asynccontextmanager
async def standalone_world(directory: Path) -> AsyncIterator[tuple[World, Things, tuple[Caller, ...]]]:
    """Open both services with their things, and say who asks."""
    async with (
        neighbours(directory, SteppedClock()) as cloud,
        cloud.identity_client() as identity,
        cloud.images_client() as images,
        cloud.networks_client() as networks,
    ):
        things, callers = await _things(cloud, identity, images, networks)
        snapshot = Snapshot([directory / "api.sqlite"])
        files = _Files(directory / "images")

        addresses = (f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in itertools.count())
        apps = {
            "": identity_app(cloud.identity),
            "images": images_app(cloud.images, cloud.identity),
            "networks": networks_app(cloud.networks),
        }

        async def send(method: str, url: str, body: Any, row: Row, headers: Mapping[str, str]) -> httpx.Response:
            content = {"content": body} if isinstance(body, str) else {"json": body}
            # From another address each time: wrong passwords are counted by address.
            transport = httpx.ASGITransport(apps[row.service], client=(next(addresses), 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://cloud") as client:
                return await client.request(method, url, headers=dict(headers), **content)

        async def restore() -> None:
            snapshot.restore()
            files.restore()
            await cloud.identity.change(lambda _connection: None)

        world = World(send, lambda: snapshot.changed() or files.changed(), restore, (OF_OTHERS,))
        try:
            yield world, things, callers
        finally:
            snapshot.close()


class _Files:
    """The files of a directory as they were."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._kept = self._now()

    def changed(self) -> bool:
        return self._now() != self._kept

    def restore(self) -> None:
        for path in self._now().keys() - self._kept.keys():
            path.unlink()
        for path, content in self._kept.items():
            path.write_bytes(content)

    def _now(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self._directory.rglob("*") if path.is_file()}


async def _things(
    cloud: ServedNeighbours, identity: httpx.AsyncClient, images: httpx.AsyncClient, networks: httpx.AsyncClient
) -> tuple[Things, tuple[Caller, ...]]:
    tokens = {name: await _token(identity, name, project) for name, project in (("admin", "admin"), ("demo", "demo"))}
    tokens["system"] = await _token(identity, "admin", None, {"system": {"all": True}})

    async def make(path: str, body: Any, token: str = "admin") -> Any:
        made = await identity.post(f"/v3{path}", json=body, headers={"X-Auth-Token": tokens[token]})
        assert made.status_code == 201, made.text
        return next(iter(made.json().values()))

    role = (await make("/roles", {"role": {"name": "auditor"}}))["id"]
    other = (await make("/projects", {"project": {"name": OF_OTHERS}}))["id"]
    domain = (await make("/domains", {"domain": {"name": "another"}}))["id"]
    group = (await make("/groups", {"group": {"name": "group"}}))["id"]
    listed = await identity.get("/v3/roles", headers={"X-Auth-Token": tokens["admin"]})
    roles = {one["name"]: one["id"] for one in listed.json()["roles"]}
    demo = cloud.first.project_ids["demo"]
    ids: dict[str, str] = {}
    for name, project, given in (
        *((name, demo, given) for name, given in ROLES.items()),
        (OF_OTHERS, other, "member"),
        ("nobody", None, None),
    ):
        ids[name] = (await make("/users", {"user": {"name": name, "password": PASSWORD}}))["id"]
        if project is not None and given is not None:
            assigned = await identity.put(
                f"/v3/projects/{project}/users/{ids[name]}/roles/{roles[given]}",
                headers={"X-Auth-Token": tokens["admin"]},
            )
            assert assigned.status_code == 204, assigned.text
    for name in ROLES:
        tokens[name] = await _token(identity, name, "demo", password=PASSWORD)
    tokens["nobody"] = await _token(identity, "nobody", None, password=PASSWORD)
    tokens[OF_OTHERS] = await _token(identity, OF_OTHERS, OF_OTHERS, password=PASSWORD)
    shown = await identity.get("/v3/auth/tokens", headers=_subject(tokens["demo"], tokens["demo"]))
    credentials, rules = {}, {}
    for name, user in (("demo", shown.json()["token"]["user"]["id"]), (OF_OTHERS, ids[OF_OTHERS])):
        path = f"/users/{user}/application_credentials"
        rule = {"service": "compute", "method": "GET", "path": f"/{name}"}
        used = {"name": "used", "secret": PASSWORD, "access_rules": [rule]}
        credentials[name] = await make(path, {"application_credential": used}, name)
        rules[name] = credentials[name]["access_rules"][0]["id"]
    things = Things(
        user=Thing(shown.json()["token"]["user"]["id"], "f" * 32, ids[OF_OTHERS]),
        project=Thing(demo, "f" * 32, other),
        domain=Thing(domain, "f" * 32),
        group=Thing(group, "f" * 32),
        credential=Thing(credentials["demo"]["id"], "f" * 32, credentials[OF_OTHERS]["id"]),
        access_rule=Thing(rules["demo"], "f" * 32, rules[OF_OTHERS]),
        role=Thing(role, "f" * 32),
        default_role=roles["member"],
        token=Thing(tokens["demo"], "gAAAAA" + "A" * 94, tokens[OF_OTHERS]),
        image=await _image_thing(images, tokens, "image"),
        queued_image=await _image_thing(images, tokens, None),
        public_image=await _image(images, tokens["admin"], "public", "image", visibility="public"),
        networks=await network_things(networks, tokens, OF_OTHERS),
    )
    return things, _callers(tokens)


def _callers(tokens: Mapping[str, str]) -> tuple[Caller, ...]:
    held = {"demo": ("member", "reader"), "reader": ("reader",), "service": ("service",), "guest": ("auditor",)}
    held |= {"manager": ("manager", "member", "reader"), "admin": ("admin",), "system": ("admin",), "nobody": ()}
    return (
        Caller("without a token", {}, known=False),
        Caller("with a token that is none", {"X-Auth-Token": "forged"}, known=False),
        *(
            Caller(
                name,
                {"X-Auth-Token": tokens[name]},
                frozenset(roles),
                owns=name not in ("nobody", "admin", "system"),
                himself=name == "demo",
            )
            for name, roles in held.items()
        ),
    )


def _subject(caller: str, subject: str) -> dict[str, str]:
    return {"X-Auth-Token": caller, "X-Subject-Token": subject}


async def _token(
    identity: httpx.AsyncClient, user: str, project: str | None, scope: Any = None, *, password: str | None = None
) -> str:
    body = sign_in_body(user, project, password)
    if scope is not None:
        body["auth"]["scope"] = scope
    answer = await identity.post("/v3/auth/tokens", json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.headers["X-Subject-Token"])


async def _image_thing(images: httpx.AsyncClient, tokens: Mapping[str, str], content: str | None) -> Thing:
    own = await _image(images, tokens["demo"], "own", content)
    return Thing(own, new_uuid(), await _image(images, tokens[OF_OTHERS], OF_OTHERS, content))


async def _image(images: httpx.AsyncClient, token: str, name: str, content: str | None, **more: str) -> str:
    body = {"name": name, "disk_format": "raw", "container_format": "bare", "tags": ["tag"], **more}
    headers = {"X-Auth-Token": token}
    made = await images.post("/v2/images", json=body, headers=headers)
    assert made.status_code == 201, made.text
    if content is not None:
        stored = await images.put(f"/v2/images/{made.json()['id']}/file", content=content, headers=headers | BYTES)
        assert stored.status_code == 204, stored.text
    return str(made.json()["id"])
