"""What a new password must be like, and when it ends: settings with Keystone's names."""

from __future__ import annotations

from skep.database import Connection
from skep.database.api import former_passwords
from skep.database.api.users import User
from skep.domain.clock import SECOND
from skep.domain.errors import BadRequest, Misconfigured
from skep.domain.patterns import Pattern, parted
from skep.standalone.identity.passwords import Passwords
from skep.standalone.identity.settings import IdentitySettings

DAY = 86_400 * SECOND
MOST_MATCHED = 255
"""Characters of a password that a pattern is tried on."""


class PasswordRules:
    """The rules of the settings, ready to be applied."""

    def __init__(self, settings: IdentitySettings) -> None:
        """Raises Misconfigured for a pattern that is none."""
        self._settings = settings
        try:
            self._patterns = [Pattern(part) for part in parted(settings.password_regex)]
        except ValueError as error:
            raise Misconfigured(f"identity.password_regex: expected a regular expression, {error}") from error

    def check(self, password: str, field: str) -> None:
        """Refuse a new password that is not as it must be.

        Raises BadRequest naming the field, never the password.
        """
        least = self._settings.minimum_password_length
        if len(password) < least:
            raise BadRequest(f"{field}: expected at least {least} characters")
        if not self._settings.password_regex:
            return
        if len(password) > MOST_MATCHED:
            raise BadRequest(f"{field}: expected at most {MOST_MATCHED} characters")
        if not all(pattern.begins(password) for pattern in self._patterns):
            wanted = self._settings.password_regex_description or f"a match of {self._settings.password_regex}"
            raise BadRequest(f"{field}: the password does not meet the requirements, expected {wanted}")

    def ends(self, now: int) -> int | None:
        """Return when a password that begins now ends (microseconds); None: it does not."""
        days = self._settings.password_expires_days
        return now + days * DAY if days else None

    def former(self, connection: Connection, user: User) -> list[str]:
        """Return the hashes of the passwords that a user may not choose again, the present one among them."""
        count = self._settings.unique_last_password_count - 1
        if count < 1:
            return []
        present = [user.password_hash] if user.password_hash is not None else []
        return [*present, *former_passwords.latest(connection, user.id, count - 1)]

    async def check_new(self, passwords: Passwords, password: str, former: list[str]) -> None:
        """Refuse a password that its user has or had.

        Raises BadRequest, Overloaded.
        """
        for stored in former:
            if await passwords.verify(password, stored):
                count = self._settings.unique_last_password_count
                raise BadRequest(f"user.password: expected one that is none of the last {count - 1}")

    def ended(self, connection: Connection, user: User, now: int) -> None:
        """Keep the hash of a password that ends now, as far as it may be asked for."""
        if user.password_hash is not None:
            most = max(self._settings.unique_last_password_count - 2, 0)
            former_passwords.add(connection, user.id, user.password_hash, now, most)
