"""Tells NATS servers of accounts while they run: a new cell, a revoked host. Nothing is reloaded."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable

from nats import errors as nats_errors
from nats.aio.msg import Msg

from skep.config.nats_security import signed_in_by
from skep.config.sections import TransportSettings
from skep.domain.errors import Misconfigured, Unreachable
from skep.transport.nats_accounts import without_user
from skep.transport.nats_client import EndingClient, nobody_listens
from skep.transport.nats_options import security, servers
from skep.transport.nats_users import UPDATE_SUBJECT

ANSWER_SECONDS = 5.0
OTHERS_SECONDS = 0.2
"""For further servers to answer, after the one before."""
_TAKEN = 200


async def update_accounts(settings: TransportSettings, system: str, accounts: Iterable[str]) -> frozenset[str]:
    """Send JWTs of one or more accounts to the servers; `system` is the credentials of the system account.

    Return the ids of the servers that took them: a server has another one after each start. Raises Unreachable when no
    server answers, Misconfigured when they are not run by this operator or refuse an account.
    """
    first, *others = accounts
    client = EndingClient()
    options = {**security(settings), **signed_in_by(system)}
    addresses = without_user(",".join(servers(settings))).split(",")
    try:
        async with asyncio.timeout(2 * ANSWER_SECONDS):
            await client.connect(
                addresses,
                name="skep-accounts",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                error_cb=_ignore,
                **options,
            )
        heard = await _told_to_all(client, first)
        for jwt in others:
            _server_of(await client.request(UPDATE_SUBJECT, jwt.encode(), timeout=ANSWER_SECONDS))
        return heard
    except nats_errors.NoRespondersError:
        raise Misconfigured(
            "the NATS servers keep no accounts: start them with `skep nats config --host-users`"
        ) from None
    except (nats_errors.Error, OSError, TimeoutError) as error:
        text = str(error) or type(error).__name__
        if "authorization" in text.lower():
            raise Misconfigured(
                "the NATS servers do not know this installation's operator: start them with `skep nats config "
                "--host-users`, in the state directory of this installation"
            ) from error
        raise Unreachable(f"the NATS servers did not accept accounts: {text}") from error
    finally:
        if not client.is_closed:
            await client.close()


async def _told_to_all(client: EndingClient, jwt: str) -> frozenset[str]:
    """Tell all servers of an account, and return the ids of those that took it; Misconfigured when one does not."""
    inbox = client.new_inbox()
    answers = await client.subscribe(inbox)
    await client.publish(UPDATE_SUBJECT, jwt.encode(), reply=inbox)
    heard = {_server_of(await answers.next_msg(ANSWER_SECONDS))}
    with contextlib.suppress(nats_errors.TimeoutError):
        while True:
            heard.add(_server_of(await answers.next_msg(OTHERS_SECONDS)))
    return frozenset(heard)


def _server_of(answer: Msg) -> str:
    if nobody_listens(answer):
        raise nats_errors.NoRespondersError
    try:
        said = json.loads(answer.data)
        if said.get("data", {}).get("code") == _TAKEN:
            return str(said.get("server", {}).get("id", ""))
        reason = said.get("error", {}).get("description", "") or str(said)[:200]
    except (ValueError, AttributeError):
        reason = repr(answer.data[:200])
    raise Misconfigured(f"a NATS server refuses an account: {reason}")


async def _ignore(_error: Exception) -> None:
    """Hear of nothing: what matters is raised by what was asked."""
