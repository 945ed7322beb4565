"""What a service does once before it begins with its passes, and may not leave out because something was away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from skep.domain.errors import SkepError
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

RETRY_SECONDS = 0.25


async def until_done(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do `work`; log its failure and do it again until it has succeeded. The log calls it `name`.

    A task of its own that ended with an error would leave the service half started, and no restart would follow.
    """
    while True:
        try:
            await work()
        except SkepError as error:
            log.warning("beginning put off", work=name, error=str(error))
        except Exception:
            log.exception("beginning put off", work=name)
        else:
            return
        await asyncio.sleep(RETRY_SECONDS)
