"""The rows of the route table that are about key pairs."""

from __future__ import annotations

from skep.api.handlers import key_pairs
from skep.api.routing import Route
from skep.api.schemas import key_pairs as schemas

_ALL = "/os-keypairs"
_ONE = "/os-keypairs/{name}"
_RULE = "os_compute_api:os-keypairs"

KEY_PAIR_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        _ALL,
        key_pairs.index,
        f"{_RULE}:index",
        query=schemas.LIST,
        response=schemas.LISTED,
        target="object",
    ),
    Route(
        "POST",
        _ALL,
        key_pairs.create,
        f"{_RULE}:create",
        until=1,
        body=schemas.CREATE,
        response=schemas.CREATED,
        target="object",
    ),
    Route(
        "POST",
        _ALL,
        key_pairs.create,
        f"{_RULE}:create",
        status=201,
        since=2,
        body=schemas.CREATE,
        response=schemas.CREATED,
        target="object",
    ),
    Route("GET", _ONE, key_pairs.show, f"{_RULE}:show", query=schemas.ONE, response=schemas.SHOWN, target="object"),
    Route("DELETE", _ONE, key_pairs.delete, f"{_RULE}:delete", status=202, until=1, query=schemas.ONE, target="object"),
    Route("DELETE", _ONE, key_pairs.delete, f"{_RULE}:delete", status=204, since=2, query=schemas.ONE, target="object"),
)
