"""One question to the databases of all cells at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database import Connection
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid

AnswerT = TypeVar("AnswerT")


async def ask_all(services: AdminServices, unit: Callable[[Connection], AnswerT]) -> Mapping[CellUuid, AnswerT]:
    """Return what each cell answers, in the order of their names. Raises SkepError when one cannot be read."""
    answered, unread = await ask_each(services, unit)
    for error in unread.values():
        raise error
    return answered


async def ask_each(
    services: AdminServices, unit: Callable[[Connection], AnswerT], *, among: Collection[CellUuid] | None = None
) -> tuple[Mapping[CellUuid, AnswerT], Mapping[CellUuid, SkepError]]:
    """Return what each cell answers, in the order of their names, and why others could not be read.

    `among`: only these of the cells are asked.
    """
    answered: dict[CellUuid, AnswerT] = {}
    unread: dict[CellUuid, SkepError] = {}

    async def ask(uuid: CellUuid) -> None:
        try:
            answered[uuid] = await services.cell(uuid).read(unit, within=CELL_SECONDS)
        except SkepError as error:
            unread[uuid] = error

    wanted = [uuid for uuid in services.cells if among is None or uuid in among]
    cells = sorted(wanted, key=lambda uuid: str(services.cell_name(uuid)))
    await asyncio.gather(*(ask(uuid) for uuid in cells))
    return {uuid: answered[uuid] for uuid in cells if uuid in answered}, unread
