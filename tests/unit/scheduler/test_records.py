"""Stored bodies: recorded samples that every later version must read, and bodies that say nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.domain.claims import Claim
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.messages.to_scheduler import AggregateWish, CellWish, HostWish
from skep.scheduler.groups import GroupSlot
from skep.scheduler.service import records
from skep.scheduler.service.records import BeatValue, CellValue, ComputeValue, GroupValue
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
        HostWish(node=NodeUuid("n"), host="h", cell=CellUuid("c"), disabled=True, disabled_reason="why"),
    ),
    records.AGGREGATES: (
        b'["e",3,{"id":1,"hosts":["h"],"metadata":{"availability_zone":"east"}}]',
        AggregateWish(id=1, hosts=("h",), metadata={"availability_zone": "east"}),
    ),
    records.CELLS: (
        b'["e",3,{"wish":{"uuid":"c","name":"one","disabled":false},"asserted":true}]',
        CellValue(wish=CellWish(uuid=CellUuid("c"), name="one"), asserted=True),
    ),
    records.BEATS: (b'["e",3,{"heard":["n"],"at":5}]', BeatValue(heard=(NodeUuid("n"),), at=5)),
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
    value = ComputeValue(cell=CellUuid("c"), report=records.Report(incarnation=1, seq=2, usage=usage("h")))
    assert records.decode("e", record(records.COMPUTE, records.encode("e", 3, value))) == value


@pytest.mark.parametrize(
    ("epoch", "body", "generation"),
    [
        ("another", SAMPLES[records.GROUPS][0], 3),
        ("e", SAMPLES[records.GROUPS][0], 4),
        ("e", b"", 3),
    ],
)
def test_a_body_of_another_epoch_or_generation_and_a_removed_one_say_nothing(
    epoch: str, body: bytes, generation: int
) -> None:
    assert records.decode(epoch, record(records.GROUPS, body, generation)) is None


def test_a_namespace_of_a_later_version_says_nothing_yet() -> None:
    assert records.decode("e", record("volume", b"whatever")) is None


def test_a_broken_body_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        records.decode("e", record(records.GROUPS, b'["e",3,{}]'))
