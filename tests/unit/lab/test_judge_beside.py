"""What is left at services beside a cloud, or missing there, is found."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from skep_lab.beside.judge import HasRow, SeenBeside, differences
from skep_lab.beside.services import ThingsOfUsers
from skep_lab.beside.walk import Request
from skep_lab.cinder_twin.store import TwinAttachment, TwinVolume

ROW = HasRow(
    uuid="server",
    name="one",
    state="active",
    host="host",
    volumes=({"volume_id": "mine", "attachment_id": "a"}, {"volume_id": "made", "attachment_id": "b"}),
    ports=("own", "brought"),
)
MINE = TwinVolume(id="mine", project_id="p", size=1, created_at="", status="in-use")
LABEL = {"skep_server": "server", "skep_position": "1", "skep_made": "ends", "skep_volume": "made"}
MADE = replace(MINE, id="made", metadata=LABEL)
ATTACHED = TwinAttachment(id="a", volume_id="mine", instance="server", status="attached", connector={"host": "host"})
SECOND = replace(ATTACHED, id="b", volume_id="made")
TWICE = replace(MADE, id="b", metadata={**LABEL, "skep_volume": "b"})
KEPT = replace(SECOND, status="reserved", connector={})
THINGS = ThingsOfUsers(volumes={"mine"}, ports={"brought"})


def port(id_: str, **said: Any) -> dict[str, Any]:
    return {"id": id_, "device_id": "server", "device_owner": "compute:nova", "binding:host_id": "host", **said}


WELL = SeenBeside(
    rows={"server": ROW},
    ports=(port("own"), port("brought")),
    volumes={"mine": MINE, "made": MADE},
    attachments=(ATTACHED, SECOND),
)
FREE = {"device_id": "", "device_owner": "", "binding:host_id": ""}
OVER = replace(
    WELL, rows={}, ports=(port("brought", **FREE),), volumes={"mine": replace(MINE, status="available")}, attachments=()
)


def test_what_servers_have_and_what_users_brought_is_no_finding() -> None:
    assert differences(WELL, THINGS).clean
    assert differences(OVER, THINGS).clean
    twice = replace(WELL, volumes={**WELL.volumes, "copy": replace(MADE, id="copy", status="available", metadata={})})
    assert differences(twice, THINGS).clean, "a user's own"
    taken = replace(MADE, status="available", metadata={**LABEL, "skep_server": ""})
    assert differences(replace(OVER, volumes={**OVER.volumes, "made": taken}), THINGS).clean, "a user's by now"


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (replace(WELL, rows={}), "attachment without its server"),
        (replace(OVER, volumes={"mine": replace(MINE, status="reserved")}), "is reserved, and no server has it"),
        (replace(OVER, volumes={"mine": replace(MINE, status="attaching")}), "volume mine is attaching"),
        (replace(OVER, volumes={**OVER.volumes, "made": replace(MADE, status="available")}), "volume without its"),
        (
            replace(WELL, volumes={**WELL.volumes, "b": replace(MADE, id="b", metadata={**LABEL, "skep_volume": "b"})}),
            "2",
        ),
        (replace(WELL, attachments=(*WELL.attachments, replace(ATTACHED, id="c"))), "2 times there: mine of server"),
        (replace(OVER, ports=(port("brought"),)), "port without its server"),
        (replace(OVER, ports=(*OVER.ports, port("own", device_id=""))), "port of nobody"),
        (replace(OVER, ports=(port("brought", **{**FREE, "binding:host_id": "host"}),)), "binding without its server"),
        (replace(WELL, ports=(port("own", **{"binding:host_id": ""}), port("brought"))), "is bound to , its server"),
    ],
)
def test_what_is_left_is_found(seen: SeenBeside, word: str) -> None:
    assert any(word in one for one in differences(seen, THINGS).leaked)


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        (replace(OVER, volumes={}), "volume of a user is gone"),
        (replace(WELL, volumes={"mine": MINE}), "has a volume that is gone: made"),
        (replace(WELL, attachments=(ATTACHED,)), "has lost its attachment of made"),
        (
            replace(WELL, attachments=(ATTACHED, replace(SECOND, status="reserved", connector={}))),
            "is reserved at None",
        ),
        (replace(OVER, ports=()), "port of a user is gone"),
        (replace(WELL, ports=(port("brought"),)), "has lost its port own"),
    ],
)
def test_what_is_missing_is_found(seen: SeenBeside, word: str) -> None:
    assert any(word in one for one in differences(seen, THINGS).lost)


def test_requests_to_a_service_are_told_apart() -> None:
    request = Request(service="cinder", method="PUT", path="attachments/*", moment="after")
    assert request.is_of("PUT", "/v3/attachments/one?all=1", "after")
    assert not request.is_of("PUT", "/v3/attachments/one", "before")
    assert not request.is_of("POST", "/v3/attachments/one", "after")
    assert not request.is_of("PUT", "/v3/attachments/one/action", "after")
    assert not request.is_of("PUT", "/v3/volumes/one", "after")
