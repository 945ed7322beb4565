"""The story of passwords and files of guests on hosts that cannot open them: they are opened here, for one agent.

They stand sealed in rows and messages, by a key that only machines above the cells have. A host that was enrolled from
elsewhere asks its conductor, which asks here. What goes down is sealed for the run of the agent that builds the server,
as its cell's rows name it, so that conductors pass on what they cannot read.
"""

from __future__ import annotations

from functools import partial

from skep.database.cell import guest_secrets
from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden, Unavailable
from skep.domain.ids import CellUuid
from skep.domain.sessions import contents_label, seal_to_run
from skep.messages.to_cell_conductor import SealedContents
from skep.messages.to_super_conductor import OpenContents
from skep.super_conductor.parts import Parts
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

NOTHING = SealedContents(sealed=None)


class Contents:
    """Opens the secrets of servers for the hosts that build them."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._warned = False

    async def open(self, cell: CellUuid, message: OpenContents, _context: RequestContext | None) -> SealedContents:
        """Answer a conductor of `cell`. Raises Forbidden when it asks for another cell, Unavailable without it."""
        if message.cell != cell:
            raise Forbidden(f"cell: cell {cell} may not request secrets of cell {message.cell}.")
        access = self._parts.cells.get(cell)
        if access is None:
            raise Unavailable(f"This process does not know cell {cell}.")
        reading = partial(
            guest_secrets.for_host,
            instance=message.instance,
            attempt=message.attempt,
            host=message.host,
            task_id=message.task_id,
        )
        found = await access.read(reading)
        if found is None or found.exchange_key is None:
            return NOTHING
        plain = self._parts.unseal(found.sealed)
        if plain is None:
            if not self._warned:
                self._warned = True
                log.warning("passwords and files not given to guests: no key of this process opens them", cell=cell)
            return NOTHING
        about = contents_label(message.instance, message.attempt, message.task_id)
        try:
            return SealedContents(sealed=seal_to_run(found.exchange_key, about, plain))
        except ValueError as error:
            log.error("an agent's session has no key", cell=cell, host=message.host, error=str(error))
            return NOTHING
