"""A new password from whoever holds the database: the way back in when no password is known any more."""

from __future__ import annotations

import msgspec

from skep.database import Connection
from skep.database.api import users
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.standalone.identity.passwords import Passwords


async def set_password(database: Database, passwords: Passwords, clock: Clock, name: str, password: str) -> bool:
    """Give a user a new password and end all tokens of the user; false when there is no such user."""
    hashed = await passwords.hash(password)
    now = clock.now()

    def unit(connection: Connection) -> bool:
        user = users.by_name(connection, name)
        if user is None:
            return False
        changes = {"password_hash": hashed, "tokens_invalid_before": now, "password_expires_at": None}
        users.update(connection, msgspec.structs.replace(user, **changes))
        return True

    return await database.write(unit)
