"""After an operator's change is stored: tell the schedulers now; the super conductor does where that fails."""

from __future__ import annotations

import structlog

from skep.admin.services import AdminServices
from skep.database.api import operator_state
from skep.domain.errors import Unavailable
from skep.messages.to_super_conductor import OperatorStateChanged
from skep.transport.base import SCHEDULER, SUPER_CONDUCTOR

log = structlog.get_logger("skep.admin")


async def publish(services: AdminServices) -> None:
    """Publish what the rows say. The rows stand already, so a scheduler that is away hears of them later."""
    wanted = await services.database.read(operator_state.read)
    try:
        await services.transport.call(SCHEDULER, wanted)
    except Unavailable as error:
        log.warning("operator state waits for the super conductor", error=str(error))
    await services.transport.cast(SUPER_CONDUCTOR, OperatorStateChanged())
