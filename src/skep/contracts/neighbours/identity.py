"""What every identity service must do: inherit `IdentityContract` in a test module and give it an `identity` fixture.

The users and projects are those of Skep's own identity service, which answers over HTTP meanwhile (`cloud`).
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator

import pytest

from skep.contracts.neighbours.contract import ServedContract
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, sign_in_body, token
from skep.domain.clock import SECOND
from skep.domain.ids import RequestId
from skep.neighbours.identity.base import EXPIRED_SECONDS, IdentityService

NO_TOKENS = ("", "x", "gAAAAABm", "a b", "a\r\nX-Evil: 1", "é", "x" * 10_000, "a\0b")
"""What a client may send in the place of a token."""


class IdentityContract(ServedContract, abc.ABC):
    """Tests of the port `skep.neighbours.identity.base.IdentityService`."""

    @pytest.fixture
    @abc.abstractmethod
    async def identity(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[IdentityService]:
        """Give a service that judges tokens of the users of `cloud`, by `clock`."""
        yield  # type: ignore[misc]  # abstract: inheritors give the service

    async def test_a_project_token_says_user_project_roles_and_end(
        self, cloud: ServedNeighbours, identity: IdentityService, clock: SteppedClock
    ) -> None:
        """Roles that others imply are among them."""
        known = await identity.validate(await _token(cloud, "demo", "demo"))
        assert known is not None
        assert (known.user_name, known.project_name) == ("demo", "demo")
        assert known.project_id == cloud.first.project_ids["demo"]
        assert known.roles == ("member", "reader")
        assert (known.user_domain_id, known.project_domain_name) == ("default", "Default")
        assert known.expires_at == clock.now() + 3600 * SECOND
        assert not known.system_scope
        context = known.context(RequestId("req-1"))
        assert (context.project_id, context.user_id, context.is_admin) == (known.project_id, known.user_id, False)

    async def test_an_unscoped_token_has_no_project_and_no_roles(
        self, cloud: ServedNeighbours, identity: IdentityService
    ) -> None:
        """It is a token all the same."""
        known = await identity.validate(await _token(cloud, "demo", None))
        assert known is not None
        assert (known.project_id, known.roles) == (None, ())

    async def test_a_system_token_is_an_admin_s(self, cloud: ServedNeighbours, identity: IdentityService) -> None:
        """Its scope is the system."""
        body = sign_in_body("admin", None)
        body["auth"]["scope"] = {"system": {"all": True}}
        async with cloud.identity_client() as client:
            response = await client.post("/v3/auth/tokens", json=body)
        known = await identity.validate(response.headers["X-Subject-Token"])
        assert known is not None
        assert known.system_scope
        assert known.is_admin

    @pytest.mark.parametrize("forged", NO_TOKENS)
    async def test_what_is_no_token_is_refused(self, identity: IdentityService, forged: str) -> None:
        """It is no error of the service."""
        assert await identity.validate(forged) is None

    async def test_a_token_with_one_character_changed_is_refused(
        self, cloud: ServedNeighbours, identity: IdentityService
    ) -> None:
        """Tokens cannot be guessed from others."""
        good = await _token(cloud, "demo", "demo")
        middle = len(good) // 2
        changed = good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1 :]
        assert await identity.validate(changed) is None

    async def test_an_expired_token_is_refused(
        self, cloud: ServedNeighbours, identity: IdentityService, clock: SteppedClock
    ) -> None:
        """Also one that was good when it was last asked about."""
        good = await _token(cloud, "demo", "demo")
        assert await identity.validate(good) is not None
        clock.advance(3600)
        assert await identity.validate(good) is None

    async def test_a_service_may_show_a_token_that_has_expired(
        self, cloud: ServedNeighbours, identity: IdentityService, clock: SteppedClock
    ) -> None:
        """For two days, and not one that was taken back; to others it is no token."""
        ended, revoked = await _token(cloud, "demo", "demo"), await _token(cloud, "demo", "demo")
        async with cloud.identity_client() as client:
            await client.delete("/v3/auth/tokens", headers={"X-Auth-Token": revoked, "X-Subject-Token": revoked})
        known = await identity.validate(ended, chained=True)
        clock.advance(3601)
        assert await identity.validate(ended, chained=True) == known
        assert known is not None
        assert await identity.validate(ended) is None
        assert await identity.validate(revoked, chained=True) is None
        clock.advance(EXPIRED_SECONDS)
        assert await identity.validate(ended, chained=True) is None

    async def test_projects_are_there_or_not(self, cloud: ServedNeighbours, identity: IdentityService) -> None:
        """A name that is a path leads nowhere."""
        assert await identity.project_exists(cloud.first.project_ids["demo"]) is True
        assert await identity.project_exists("absent") is False
        assert await identity.project_exists("../users") is False


async def _token(cloud: ServedNeighbours, user: str, project: str | None) -> str:
    async with cloud.identity_client() as client:
        return await token(client, user, project)
