"""The twin over HTTP, in a cloud whose own user may do there what Skep has to."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec

from skep.contracts.neighbours.served import ServedNeighbours, address, bound, serving, token
from skep.contracts.neighbours.volumes_world import VolumesPlace
from skep.database import Connection
from skep.database.api import role_assignments, roles, users
from skep.database.api.role_assignments import RoleAssignment
from skep.domain.ids import new_uuid
from skep_lab.cinder_twin.app import cinder_app
from skep_lab.cinder_twin.store import SHARED_TYPE, VolumeStore

IMAGE = new_uuid()
SAID_OF_IMAGE = {"min_disk": 1, "min_ram": 64, "hw_rng_model": "virtio", "image_name": "tiny"}
SKEP = "admin"
"""Skep's own user."""


class ServedTwin(msgspec.Struct):
    """A twin that answers."""

    store: VolumeStore
    place: VolumesPlace


async def grant(cloud: ServedNeighbours, project: str, role: str, *, taken: bool = False) -> None:
    """Give Skep's own user a role in a project, or take it."""

    def unit(connection: Connection) -> None:
        user, wanted = users.by_name(connection, SKEP), roles.by_name(connection, role)
        assert user is not None
        assert wanted is not None
        place = RoleAssignment(user_id=user.id, project_id=cloud.first.project_ids[project], role_id=wanted.id)
        (role_assignments.unassign if taken else role_assignments.assign)(connection, place)

    await cloud.database.write(unit)


@contextlib.asynccontextmanager
async def served_twin(cloud: ServedNeighbours) -> AsyncIterator[ServedTwin]:
    """Serve a twin for the length of a block."""
    await grant(cloud, "demo", "member")
    await grant(cloud, SKEP, "service")
    async with cloud.identity_client() as client:
        tokens = {name: await token(client, name, name) for name in ("demo", "admin")}
    store = VolumeStore({IMAGE: SAID_OF_IMAGE})
    listener = bound()
    place = VolumesPlace(
        url=f"{address(listener)}/v3",
        tokens=tokens,
        projects=cloud.first.project_ids,
        image_id=IMAGE,
        shared_type=SHARED_TYPE,
    )
    async with serving((cinder_app(store, cloud.identity), listener)):
        yield ServedTwin(store, place)
