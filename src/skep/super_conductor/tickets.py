"""The story of tickets: a host that builds a server of this cloud's own image gets to read the bytes of that image.

The host asks its conductor, which asks here. What is known above the cells decides: the server is of the asking cell
and was requested with this image, whose use the compute API had checked for its user. So a cell reads no image from
which none of its servers is built. The ticket is sealed for the run of the agent, and conductors cannot read it.
"""

from __future__ import annotations

from functools import partial

import msgspec

from skep.database import Connection
from skep.database.api import build_requests, instance_mappings
from skep.database.cell import guest_secrets
from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden, Unavailable
from skep.domain.ids import CellUuid
from skep.domain.sessions import seal_to_run
from skep.messages.to_cell_conductor import SealedTicket
from skep.messages.to_super_conductor import IssueTicket
from skep.neighbours.images.tickets import ImageTicket, write_ticket
from skep.super_conductor.parts import Parts
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

NO_STORE = SealedTicket(sealed=None, reason="the cloud has no image service of its own that gives tickets")
NO_KEY = SealedTicket(sealed=None, reason="the super conductor has no keys/secrets.key")
NOT_BUILT = SealedTicket(sealed=None, reason="the host does not build this server by this attempt")
NOT_ITS_IMAGE = SealedTicket(sealed=None, reason="the server was not requested with this image, or is not of this cell")


class Tickets:
    """Writes tickets for the hosts that build servers."""

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
        if not await parts.api.read(partial(_is_its_image, message=message)):
            return NOT_ITS_IMAGE
        key = await access.read(
            partial(
                guest_secrets.exchange_key_of_builder,
                instance=message.instance,
                attempt=message.attempt,
                host=message.host,
            )
        )
        if key is None:
            return NOT_BUILT
        ticket = write_ticket(parts.seal, message.image, parts.clock.now())
        if ticket is None:
            return NO_KEY
        about = ("ticket", message.instance, message.attempt, message.image)
        try:
            plain = msgspec.json.encode(ImageTicket(url=url, ticket=ticket))
            return SealedTicket(sealed=seal_to_run(key, about, plain))
        except ValueError as error:
            log.error("an agent's session has no key", cell=cell, host=message.host, error=str(error))
            return NOT_BUILT


def _is_its_image(connection: Connection, message: IssueTicket) -> bool:
    mapping = instance_mappings.get(connection, message.instance)
    spec = build_requests.spec_of(connection, message.instance)
    if mapping is None or mapping.cell != message.cell or spec is None or spec.image is None:
        return False
    return spec.image.id == message.image
