"""The story of tickets: a host gets to read the bytes of the image that it builds a server from, or to store others.

The host asks its conductor, which asks here. What is known above the cells decides: the server is of the asking cell
and was requested with this image, or is rebuilt from it, whose use the compute API had checked for its user, or is
unshelved from it. So a cell reads no image from which none of its servers is built. A rescue names its image in what
the compute API sealed for it, and so does a question by which a host fetches images before servers need them. Bytes are
stored only for an image that the compute API made of the server and awaits (`database/api/awaited_images.py`), while
the action runs. The ticket is sealed for the run of the agent, and conductors cannot read it.
"""

from __future__ import annotations

import base64
from functools import partial

import msgspec

from skep.database import Connection
from skep.database.api import awaited_images, build_requests, instance_mappings
from skep.database.cell import guest_questions, guest_secrets, sessions
from skep.domain.actions import SealedRescue
from skep.domain.context import RequestContext
from skep.domain.decoding import json_decoder
from skep.domain.errors import Forbidden, Unavailable
from skep.domain.ids import CellUuid
from skep.domain.image_caching import SealedCaching
from skep.domain.questions import GuestQuestion
from skep.domain.sessions import seal_to_run
from skep.messages.to_cell_conductor import SealedTicket
from skep.messages.to_super_conductor import IssueTicket
from skep.neighbours.images.tickets import ImageTicket, write_ticket
from skep.super_conductor.parts import CellAccess, Parts
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

NO_STORE = SealedTicket(sealed=None, reason="the cloud has no image service of its own that gives tickets")
NO_SESSION = SealedTicket(sealed=None, reason="the agent of the host has begun no session")
NO_KEY = SealedTicket(sealed=None, reason="the super conductor has no keys/secrets.key")
NOT_BUILT = SealedTicket(sealed=None, reason="the host does not build this server by this attempt")
NOT_ITS_IMAGE = SealedTicket(sealed=None, reason="the server was not requested with this image, or is not of this cell")
NOT_RESCUED = SealedTicket(sealed=None, reason="the host does not rescue this server with this image")
NOT_TO_CACHE = SealedTicket(sealed=None, reason="the host was not asked to cache this image")
NOT_AWAITED = SealedTicket(sealed=None, reason="no image of this id is made of this server of this cell")
NOT_ACTING = SealedTicket(sealed=None, reason="the host does not run the action that makes this image")


class Tickets:
    """Writes tickets for hosts that build servers, or make images of them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def issue(self, cell: CellUuid, message: IssueTicket, _context: RequestContext | None) -> SealedTicket:
        """Answer a conductor of `cell`. Raises Forbidden when it asks for another cell, Unavailable without it."""
        parts = self._parts
        if message.cell != cell:
            raise Forbidden(f"cell: cell {cell} may not request tickets of cell {message.cell}.")
        access = parts.cells.get(cell)
        if access is None:
            raise Unavailable(f"This process does not know cell {cell}.")
        url = parts.images_url()
        if not url:
            return NO_STORE
        key = await self._key(access, message)
        if isinstance(key, SealedTicket):
            return key
        ticket = write_ticket(parts.seal, message.image, parts.clock.now(), store=message.store)
        if ticket is None:
            return NO_KEY
        about = ("ticket", message.instance, message.attempt, message.image)
        try:
            plain = msgspec.json.encode(ImageTicket(url=url, ticket=ticket))
            return SealedTicket(sealed=seal_to_run(key, about, plain))
        except ValueError as error:
            log.error("an agent's session has no key", cell=cell, host=message.host, error=str(error))
            return NO_SESSION

    async def _key(self, access: CellAccess, message: IssueTicket) -> bytes | SealedTicket:
        """Return the key of the agent that builds, rescues or copies the server; or what one hears that does not."""
        if message.question:
            return await self._key_of_cacher(access, message)
        place = (message.instance, message.attempt, message.host)
        if message.store:
            task_id = await self._parts.api.read(partial(_awaiting_task, message=message))
            if task_id is None or task_id != message.task_id:
                return NOT_AWAITED
            key = await access.read(lambda connection: guest_secrets.exchange_key_of_actor(connection, *place, task_id))
            return key or NOT_ACTING
        if message.task_id:
            return await self._key_of_rescuer(access, message)
        if not await self._parts.api.read(partial(_is_its_image, message=message)):
            return NOT_ITS_IMAGE
        key = await access.read(lambda connection: guest_secrets.exchange_key_of_builder(connection, *place))
        return key or NOT_BUILT

    async def _key_of_rescuer(self, access: CellAccess, message: IssueTicket) -> bytes | SealedTicket:
        """Return the key of the agent that rescues a server; or what it hears where it rescues none with this image.

        What the compute API sealed says which image it is: nobody in the cell can write that.
        """
        reading = partial(
            guest_secrets.for_host,
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            task_id=message.task_id,
        )
        found = await access.read(reading)
        if found is None:
            return NOT_RESCUED
        plain = self._parts.unseal(found.sealed)
        if plain is None:
            return NO_KEY
        try:
            sealed = json_decoder(SealedRescue).decode(plain)
        except msgspec.DecodeError:
            return NOT_RESCUED
        if (sealed.instance, sealed.image) != (message.instance, message.image):
            return NOT_RESCUED
        return found.exchange_key or NOT_RESCUED

    async def _key_of_cacher(self, access: CellAccess, message: IssueTicket) -> bytes | SealedTicket:
        """Return the key of the agent that was asked to fetch an image; or what it hears where it was not.

        What the compute API sealed says which host and images were meant: nobody in the cell can write that.
        """
        asked, exchange_key = await access.read(partial(_asked_to_cache, message=message))
        if asked is None or exchange_key is None:
            return NOT_TO_CACHE
        try:
            plain = self._parts.unseal(base64.b64decode(str(asked.arguments.get("sealed")), validate=True))
            if plain is None:
                return NO_KEY
            sealed = json_decoder(SealedCaching).decode(plain)
        except (ValueError, msgspec.DecodeError):
            return NOT_TO_CACHE
        meant = (sealed.question, sealed.host) == (message.question, message.host)
        return exchange_key if meant and message.image in sealed.images else NOT_TO_CACHE


def _asked_to_cache(connection: Connection, message: IssueTicket) -> tuple[GuestQuestion | None, bytes | None]:
    """Return the question that a host has to answer, and the key of its agent."""
    asked = guest_questions.unanswered(connection, message.question)
    session = sessions.of_host(connection, message.host)
    return asked, None if session is None else session.exchange_key


def _is_its_image(connection: Connection, message: IssueTicket) -> bool:
    mapping = instance_mappings.get(connection, message.instance)
    spec = build_requests.spec_of(connection, message.instance)
    if mapping is None or mapping.cell != message.cell or spec is None:
        return False
    own = spec.image.id if spec.image is not None else None
    if message.image in (own, *spec.rebuilt_from):
        return True
    return awaited_images.is_shelved(connection, message.image, message.instance)


def _awaiting_task(connection: Connection, message: IssueTicket) -> str | None:
    """Return the task that makes the image of the server; None where it is not awaited, or the cell is another."""
    found = awaited_images.get(connection, message.image)
    if found is None or found.image.instance != message.instance or found.cell != message.cell:
        return None
    return found.image.task_id
