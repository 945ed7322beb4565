"""A table of names, for tests of databases that stop answering and answer again."""

from __future__ import annotations

from typing import Protocol

import sqlalchemy as sa

from skep.contracts.eventually import eventually

metadata = sa.MetaData()
things = sa.Table("things", metadata, sa.Column("name", sa.Text, primary_key=True))


class Asked(Protocol):
    """What notices whether it is answered."""

    @property
    def answers(self) -> bool:
        """Whether it is."""


def add(name: str) -> sa.Insert:
    """Return the statement that adds a name."""
    return things.insert().values(name=name)


def names(connection: sa.Connection) -> list[str]:
    """Return all names in their order."""
    return list(connection.scalars(sa.select(things.c.name).order_by(things.c.name)))


async def answering(one: Asked) -> None:
    """Wait until it is answered again."""

    async def answers() -> bool:
        return one.answers

    await eventually(answers, "it answers again")
