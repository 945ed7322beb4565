"""From the operator's rows to the schedulers: whoever changed a row tells it at once, and passes repeat the whole."""

from __future__ import annotations

from functools import partial

from skep.database.api import operator_state
from skep.database.api.operator_state import Concerned
from skep.database.engine import Database
from skep.domain.errors import SkepError
from skep.messages.to_scheduler import PublishOperatorState
from skep.messages.to_super_conductor import OperatorStateChanged
from skep.telemetry.logs import get_logger
from skep.transport.base import SCHEDULER, SUPER_CONDUCTOR, Transport

log = get_logger(__name__)

TELL_SECONDS = 5.0
"""How long whoever changed something waits for a scheduler to take it."""


async def tell_schedulers(api: Database, transport: Transport, changed: Concerned | None = None) -> None:
    """Tell what the operator wants, from the rows, so that whoever asked sees the effect in the next answer.

    `changed`: what the change was about; None: everything is told. The rows stand already, so schedulers that are away
    hear of them later: the super conductor compares and repeats.
    """
    try:
        if changed is None:
            messages = operator_state.parts(await api.read(operator_state.read))
        else:
            messages = await api.read(partial(operator_state.concerning, changed=changed))
        await publish(transport, messages, timeout=TELL_SECONDS)
    except SkepError as error:
        log.warning("intent not sent to schedulers", error=str(error))
    await transport.cast(SUPER_CONDUCTOR, OperatorStateChanged())


async def publish(transport: Transport, messages: list[PublishOperatorState], *, timeout: float = 10.0) -> None:
    """Send parts of what the operator wants, one after the other. Raises Unavailable when one is not taken."""
    for message in messages:
        await transport.call(SCHEDULER, message, timeout=timeout)
