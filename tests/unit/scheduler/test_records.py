"""Stored bodies: recorded samples that every later version must read, and bodies that say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from skep.domain.cells import Cell, HostIntent
from skep.domain.claims import Claim
from skep.domain.hosts import Report
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.namespaces import Namespace, NamespaceField, Schema
from skep.messages.to_scheduler import AggregatePage
from skep.placement.groups import GroupSlot
from skep.scheduler import records
from skep.scheduler.records import (
    BeatValue,
    CellValue,
    ComputeValue,
    GroupValue,
    HearingValue,
    SchedulerValue,
    StateValue,
    Unreadable,
)
from skep.synchronizer.base import Key, Record

SAMPLES: dict[str, tuple[bytes, Any]] = {
    records.COMPUTE: (
        (
            b'["e",3,{"cell":"c","report":null,"claims":[{"instance":"i","attempt":2,"node":"n","resources":{"VCPU":1},'
            b'"role":"build","group":null}]}]'
        ),
        ComputeValue(
            cell=CellUuid("c"),
            claims=(Claim(instance=InstanceUuid("i"), attempt=2, node=NodeUuid("n"), resources={"VCPU": 1}),),
        ),
    ),
    records.GROUPS: (
        b'["e",3,{"slots":[["i",2,"n"]]}]',
        GroupValue(slots=(GroupSlot(InstanceUuid("i"), 2, NodeUuid("n")),)),
    ),
    records.OPERATOR: (
        b'["e",3,{"node":"n","host":"h","cell":"c","disabled":true,"disabled_reason":"why","forced_down":false}]',
        HostIntent(node=NodeUuid("n"), host="h", cell=CellUuid("c"), disabled=True, disabled_reason="why"),
    ),
    records.AGGREGATES: (
        b'["e",3,{"id":1,"hosts":["h"],"metadata":{"availability_zone":"east"}}]',
        AggregatePage(id=1, hosts=("h",), metadata={"availability_zone": "east"}),
    ),
    records.CELLS: (
        b'["e",3,{"wish":{"uuid":"c","name":"one","disabled":false},"asserted":true}]',
        CellValue(intent=Cell(uuid=CellUuid("c"), name="one"), asserted=True),
    ),
    records.SCHEDULERS: (b'["e",3,{"at":5}]', SchedulerValue(at=5)),
    records.BEATS: (b'["e",3,{"heard":["n"],"at":5}]', BeatValue(heard=(NodeUuid("n"),), at=5)),
    records.HEARING: (
        b'["e",3,{"version":77,"nodes":["n"]}]',
        HearingValue(version=77, nodes=(NodeUuid("n"),)),
    ),
    records.NAMESPACES: (
        b'["e",3,{"name":"volume","schema":{"fields":{"free_gb":{"type":"integer","minimum":0}},"max_states":7}}]',
        Namespace(
            name="volume", schema=Schema(fields={"free_gb": NamespaceField(type="integer", minimum=0)}, max_states=7)
        ),
    ),
    records.STATES: (
        b'["e",3,{"incarnation":1,"seq":2,"state":{"free_gb":3,"volumes":["v"]}}]',
        StateValue(incarnation=1, seq=2, state={"free_gb": 3, "volumes": ["v"]}),
    ),
}
"""Namespace -> a body as it was once written, and what it says. Rows are added, never changed."""


def record(namespace: str, body: bytes, generation: int = 3) -> Record:
    return Record(key=Key(namespace, "k"), generation=generation, body=body)


def test_every_namespace_has_a_sample() -> None:
    assert set(SAMPLES) == set(records.KINDS)


@pytest.mark.parametrize("namespace", SAMPLES)
def test_samples_are_read_and_what_is_written_is_read_again(namespace: str) -> None:
    body, value = SAMPLES[namespace]
    assert records.decode("e", record(namespace, body)) == value
    assert records.decode("e", record(namespace, records.encode("e", 3, value))) == value


def test_a_full_report_is_read_again(usage: Any) -> None:
    value = ComputeValue(cell=CellUuid("c"), report=Report(incarnation=1, seq=2, usage=usage("h")))
    assert records.decode("e", record(records.COMPUTE, records.encode("e", 3, value))) == value


@pytest.mark.parametrize(
    ("epoch", "body", "generation"),
    [
        ("another", SAMPLES[records.GROUPS][0], 3),
        ("e", b"", 3),
    ],
)
def test_a_body_of_another_epoch_and_a_removed_one_say_nothing(epoch: str, body: bytes, generation: int) -> None:
    assert records.decode(epoch, record(records.GROUPS, body, generation)) is None


def test_a_namespace_of_a_later_version_says_nothing_yet() -> None:
    assert records.decode("e", record("volume", b"whatever")) is None


@pytest.mark.parametrize(
    "body",
    [b'["e",3,{}]', b"\xff\xfe", b"null", b"[" * 100_000, b'["e",3,{"slots":[["\xff",1,"n"]]}]'],
)
def test_a_body_that_is_no_value_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable):
        records.decode("e", record(records.GROUPS, body))


def test_a_body_that_calls_itself_another_generation_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="its body has generation 3, the backend has 4"):
        records.decode("e", record(records.GROUPS, SAMPLES[records.GROUPS][0], 4))


def test_a_beat_of_today_stands_on_pages() -> None:
    body = b'["e",3,{"at":5,"listening":true,"pages":[7,8],"heard":[]}]'
    assert records.decode("e", record(records.BEATS, body)) == BeatValue(at=5, listening=True, pages=(7, 8))
