"""Consoles of servers: an address that a client may connect to once (Nova's API reference, "Server consoles").

Drivers give out the serial line and the screen of a guest; of any other kind of console the answer is that it is
unavailable, as of a Nova in which it is not enabled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from urllib.parse import quote

import msgspec

from skep.api.cells import read_cell
from skep.api.console_pages import PAGE, has_viewer
from skep.api.console_tokens import ConsoleToken, end_of, read_token, write_token
from skep.api.handlers.guest_questions import ask_host, check_host
from skep.api.handlers.server_lookup import find
from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.consoles import BY_ACTION, DETAILS_SINCE
from skep.database.cell import agents
from skep.domain.consoles import KINDS, PATHS, VNC, ConsoleDoor
from skep.domain.decoding import json_decoder
from skep.domain.errors import BadRequest, Conflict, NotFound
from skep.domain.questions import NEEDS, Topic

GIVEN_OUT: Mapping[str, Topic] = MappingProxyType({"serial": Topic.SERIAL_LINE, "novnc": Topic.VNC_LINE})
"""Kind of a console -> what is asked of the host for it."""


async def create(request: ApiRequest) -> Answer:
    """`POST /servers/{id}/remote-consoles`."""
    asked = request.body["remote_console"]
    url = await _address(request, asked["protocol"], asked["type"])
    return Answer({"remote_console": {**asked, "url": url}})


async def act(request: ApiRequest) -> Answer:
    """`os-getSerialConsole` and the like, until 2.5."""
    ((key, asked),) = request.body.items()
    kind = asked["type"]
    assert kind in BY_ACTION[key]
    return Answer({"console": {"type": kind, "url": await _address(request, KINDS[kind][0], kind)}})


async def show_token(request: ApiRequest) -> Answer:
    """`GET /os-console-auth-tokens/{token}`: where the console of a token is."""
    if request.version < DETAILS_SINCE:
        raise BadRequest("The requested console type details are not accessible")
    services = request.services
    token = read_token(services.unseal, request.params["token"], services.clock.now())
    if token is None:
        raise NotFound("Token not found")
    where = {"instance_uuid": token.instance, "host": token.host, "port": token.door.port}
    return Answer({"console": {**where, "tls_port": None, "internal_access_path": None}})


async def _address(request: ApiRequest, protocol: str, kind: str) -> str:
    """Return the address of a new console."""
    services = request.services
    found = await find(request)
    server = found.instance
    if protocol != KINDS[kind][0]:
        raise BadRequest(f"Unavailable console type {kind}: its protocol is {KINDS[kind][0]}, not {protocol}")
    topic = GIVEN_OUT.get(kind)
    if topic is None:
        raise BadRequest(f"Unavailable console type {kind}: drivers give out serial lines and screens only.")
    check_host(server)
    assert found.cell is not None
    assert server.host is not None
    needed = NEEDS[topic]
    if await read_cell(services, found.cell, partial(agents.lacks, host=server.host, capability=needed)):
        raise BadRequest(
            f"Unavailable console type {kind}: the driver of the host of instance {server.uuid} lacks the capability "
            f"`{needed}`."
        )
    if protocol == VNC and not has_viewer(services.settings.novnc_directory):
        raise BadRequest(f"Unavailable console type {kind}: the API has no noVNC (`[consoles] novnc_directory`).")
    seconds = services.settings.console_token_seconds
    content = await ask_host(request, found, topic, {"seconds": seconds}, f"get_{protocol}_console")
    try:
        door = json_decoder(ConsoleDoor).decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Conflict(f"Cannot get the console of instance {server.uuid}: its host's answer cannot be read") from error
    token = ConsoleToken(
        instance=server.uuid,
        cell=found.cell,
        host=server.host,
        attempt=server.attempt,
        kind=kind,
        door=door,
        until=end_of(services.clock.now(), seconds),
    )
    base, line = request.links.base, f"{PATHS[protocol]}?token={quote(write_token(services.seal, token), safe='')}"
    if protocol == VNC:
        # Where the viewer is to connect to is a parameter of its page, as it is of Nova's.
        return f"{base}{PAGE}?path={quote(line.removeprefix('/'), safe='')}"
    # `http` becomes `ws`, and `https` `wss`.
    return f"ws{base.removeprefix('http')}{line}"
