"""Rows of the route table for consoles."""

from __future__ import annotations

from functools import partial

from skep.api.handlers import consoles
from skep.api.routing import Route
from skep.api.schemas import consoles as schemas

_RULE = "os_compute_api:os-remote-consoles"
_of_server = partial(Route, target="object", rule=_RULE)

CONSOLE_ROUTES: tuple[Route, ...] = (
    _of_server(
        method="POST",
        path="/servers/{id}/remote-consoles",
        handler=consoles.create,
        since=schemas.REMOTE_SINCE,
        body=schemas.CREATE,
        response=schemas.CREATED,
    ),
    *(
        _of_server(
            method="POST",
            path="/servers/{id}/action",
            action=key,
            handler=consoles.act,
            until=schemas.ACTIONS_LAST,
            body=schemas.action_body(key),
            response=schemas.GIVEN,
        )
        for key in schemas.BY_ACTION
    ),
    Route(
        method="GET",
        path="/os-console-auth-tokens/{token}",
        handler=consoles.show_token,
        rule="os_compute_api:os-console-auth-tokens",
        response=schemas.TOKEN,
    ),
)
