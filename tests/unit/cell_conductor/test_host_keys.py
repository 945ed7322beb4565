"""Who may speak for a node: the agent whose key is bound to it, and nobody else."""

from __future__ import annotations

import dataclasses
from functools import partial

import msgspec
import pytest
import sqlalchemy as sa
import structlog

from skep.cell_conductor.host_keys import HostKeys
from skep.cell_conductor.parts import Parts
from skep.config.sections import ConductorSettings
from skep.database.cell import host_keys
from skep.database.cell.tables import unsigned_hosts
from skep.domain.errors import BadRequest, Forbidden
from skep.domain.hosts import AgentIdentity, HostUsage
from skep.domain.ids import CellUuid, Incarnation, NodeUuid
from skep.domain.resources import Inventory
from skep.domain.signatures import Signer, new_challenge, new_seed
from skep.messages.to_cell_conductor import RegisterAgent, ReportHost, SignedReport

CELL, NODE = CellUuid("c"), NodeUuid("node-1")
EXCHANGE_KEY = b"x" * 32
IDENTITY = AgentIdentity(node=NODE, host="h1", process=Incarnation("p"))


@pytest.fixture
def signer() -> Signer:
    return Signer(new_seed(), CELL)


def registration(signer: Signer, identity: AgentIdentity = IDENTITY) -> RegisterAgent:
    return RegisterAgent(
        identity=identity,
        public_key=signer.public_key,
        signature=signer.registration(identity),
        number=7,
        exchange_key=EXCHANGE_KEY,
        challenge=b"challenge",
        run_signature=signer.run(identity, 7, EXCHANGE_KEY, b"challenge"),
    )


def of_release_050(signer: Signer) -> RegisterAgent:
    return RegisterAgent(identity=IDENTITY, public_key=signer.public_key, signature=signer.registration(IDENTITY))


async def was_there_before(parts: Parts) -> None:
    """Do what the revision does that made the table."""
    values = {"node": NODE, "host": "h1"}
    await parts.database.write(lambda connection: connection.execute(sa.insert(unsigned_hosts), values))


def report(node: NodeUuid = NODE, seq: int = 1) -> ReportHost:
    usage = HostUsage(host="h1", inventory={"VCPU": Inventory(total=4)}, used={})
    return ReportHost(node=node, incarnation=1, seq=seq, usage=usage)


def signed(signer: Signer, message: ReportHost, node: NodeUuid = NODE) -> SignedReport:
    body = msgspec.msgpack.encode(message)
    return SignedReport(node=node, body=body, signature=signer.report(body))


async def test_the_first_registration_binds_the_key_and_reports_are_read_by_it(parts: Parts, signer: Signer) -> None:
    assert await HostKeys(parts).admit(registration(signer))
    other_conductor = HostKeys(parts)
    assert await other_conductor.admit(registration(signer)), "a repeat"
    assert await other_conductor.opened(signed(signer, report())) == report()


async def test_another_key_for_the_same_node_is_refused_and_said_once(parts: Parts, signer: Signer) -> None:
    keys = HostKeys(parts)
    await keys.admit(registration(signer))
    thief = Signer(new_seed(), CELL)
    with structlog.testing.capture_logs() as logged:
        for _ in range(3):
            with pytest.raises(Forbidden, match="another key"):
                await keys.admit(registration(thief))
    assert [line["log_level"] for line in logged] == ["error"]
    with pytest.raises(Forbidden, match="not signed by the key"):
        await keys.opened(signed(thief, report()))
    assert await keys.opened(signed(signer, report())) == report()


async def test_a_key_that_is_borrowed_without_its_private_half_is_refused(parts: Parts, signer: Signer) -> None:
    message = registration(Signer(new_seed(), CELL))
    with pytest.raises(Forbidden, match="not signed by the key that it names"):
        await HostKeys(parts).admit(msgspec.structs.replace(message, public_key=signer.public_key))
    with pytest.raises(BadRequest, match="32 bytes"):
        await HostKeys(parts).admit(msgspec.structs.replace(message, public_key=b"short"))


async def test_what_was_signed_for_another_cell_host_or_run_is_worth_nothing(parts: Parts, signer: Signer) -> None:
    elsewhere = Signer(new_seed(), CellUuid("elsewhere"))
    with pytest.raises(Forbidden):
        await HostKeys(parts).admit(registration(elsewhere))
    for other in ({"host": "h2"}, {"process": Incarnation("q")}, {"node": NodeUuid("node-2")}):
        message = registration(signer)
        changed = msgspec.structs.replace(message, identity=msgspec.structs.replace(IDENTITY, **other))
        with pytest.raises(Forbidden):
            await HostKeys(parts).admit(changed)


async def test_a_changed_report_is_refused(parts: Parts, signer: Signer) -> None:
    keys = HostKeys(parts)
    await keys.admit(registration(signer))
    message = signed(signer, report())
    changed = msgspec.structs.replace(message, body=msgspec.msgpack.encode(report(seq=2)))
    with pytest.raises(Forbidden):
        await keys.opened(changed)
    with pytest.raises(BadRequest, match="node-2"):
        await keys.opened(signed(signer, report(NodeUuid("node-2"))))
    garbage = SignedReport(node=NODE, body=b"\xc1", signature=signer.report(b"\xc1"))
    with pytest.raises(BadRequest, match="body"):
        await keys.opened(garbage)


async def test_an_agent_that_does_not_sign_is_heard_until_its_node_has_a_key(parts: Parts, signer: Signer) -> None:
    keys = HostKeys(parts)
    await was_there_before(parts)
    assert not await keys.admit(RegisterAgent(identity=IDENTITY))
    await keys.refuse_unsigned(report())
    await HostKeys(parts).admit(of_release_050(signer))
    with pytest.raises(Forbidden, match="not signed"):
        await keys.refuse_unsigned(report())
    with pytest.raises(Forbidden, match="not signed"):
        await keys.admit(RegisterAgent(identity=IDENTITY))


async def test_a_key_that_an_operator_released_makes_room_for_another(parts: Parts, signer: Signer) -> None:
    keys = HostKeys(parts)
    await keys.admit(registration(signer))
    assert await parts.database.write(partial(host_keys.release, node=NODE))
    fresh = Signer(new_seed(), CELL)
    assert await HostKeys(parts).admit(registration(fresh)), "it registers with another conductor"
    assert await keys.opened(signed(fresh, report())) == report()


async def test_where_enrolment_is_required_only_enrolled_hosts_register(parts: Parts, signer: Signer) -> None:
    strict = HostKeys(dataclasses.replace(parts, settings=ConductorSettings(require_enrolment=True)))
    with pytest.raises(Forbidden, match="skep enrol"):
        await strict.admit(registration(signer))
    with pytest.raises(Forbidden, match="skep enrol"):
        await strict.admit(RegisterAgent(identity=IDENTITY))
    binding = partial(host_keys.bind, node=NODE, host="h1", public_key=signer.public_key, now=1)
    await parts.database.write(binding)
    assert await strict.admit(registration(signer))


async def test_an_agent_without_sessions_is_let_in_only_for_a_host_that_was_there_before(
    parts: Parts, signer: Signer
) -> None:
    for message in (of_release_050(signer), RegisterAgent(identity=IDENTITY)):
        with pytest.raises(Forbidden, match="the host is new"):
            await HostKeys(parts).admit(message)
    await was_there_before(parts)
    with pytest.raises(Forbidden, match=r"agents\.require_signatures"):
        await HostKeys(dataclasses.replace(parts, require_signatures=True)).admit(of_release_050(signer))
    assert await HostKeys(parts).admit(of_release_050(signer))


async def test_a_run_is_believed_only_as_it_was_signed(parts: Parts, signer: Signer) -> None:
    good = registration(signer)
    changes = ({"number": 8}, {"exchange_key": b"y" * 32}, {"challenge": b"other"}, {"run_signature": b""})
    for change in changes:
        with pytest.raises(Forbidden, match="the run is not signed"):
            await HostKeys(parts).admit(msgspec.structs.replace(good, **change))
    with pytest.raises(BadRequest, match="exchange_key: expected 32 bytes"):
        await HostKeys(parts).admit(msgspec.structs.replace(good, exchange_key=b"short"))
    assert await HostKeys(parts).admit(good)


def with_orders(signer: Signer, *orders: str, capabilities: tuple[str, ...] | None = None) -> RegisterAgent:
    challenge = new_challenge(orders, capabilities)
    run_signature = signer.run(IDENTITY, 7, EXCHANGE_KEY, challenge)
    return msgspec.structs.replace(
        registration(signer),
        challenge=challenge,
        run_signature=run_signature,
        understands=orders,
        capabilities=capabilities,
    )


@pytest.mark.parametrize("orders", [(), ("Levitate",), ("ChangePower", "Levitate", "RunAction")])
async def test_a_repeat_of_a_registration_cannot_change_the_orders_that_an_agent_takes(
    parts: Parts, signer: Signer, orders: tuple[str, ...]
) -> None:
    keys, good = HostKeys(parts), with_orders(signer, "ChangePower", "RunAction")
    assert await keys.admit(good)
    assert keys.said_by(good) == (("ChangePower", "RunAction"), None)
    with pytest.raises(Forbidden, match="understands"):
        await keys.admit(msgspec.structs.replace(good, understands=orders))


@pytest.mark.parametrize("capabilities", [None, (), ("power", "pause")])
async def test_a_repeat_of_a_registration_cannot_change_what_a_driver_can_do(
    parts: Parts, signer: Signer, capabilities: tuple[str, ...] | None
) -> None:
    keys, good = HostKeys(parts), with_orders(signer, "RunAction", capabilities=("power",))
    assert await keys.admit(good)
    assert keys.said_by(good) == (("RunAction",), ("power",))
    with pytest.raises(Forbidden, match="capabilities"):
        await keys.admit(msgspec.structs.replace(good, capabilities=capabilities))


async def test_an_agent_of_before_actions_registers_and_nobody_can_name_orders_for_it(
    parts: Parts, signer: Signer
) -> None:
    keys, of_060 = HostKeys(parts), registration(signer)
    assert await keys.admit(of_060)
    assert keys.said_by(of_060) == ((), None)
    with pytest.raises(Forbidden, match="understands"):
        await keys.admit(msgspec.structs.replace(of_060, understands=("RunAction",)))
    await was_there_before(parts)
    unsigned = msgspec.structs.replace(of_release_050(signer), understands=("RunAction",))
    assert await keys.admit(unsigned)
    assert keys.said_by(unsigned) == ((), None)


def with_next(old: Signer, new: Signer, *, number: int = 7) -> RegisterAgent:
    return msgspec.structs.replace(
        registration(old),
        next_key=new.public_key,
        next_signature=old.next_key(IDENTITY, new.public_key),
        next_run_signature=new.run(IDENTITY, number, EXCHANGE_KEY, b"challenge"),
    )


async def test_a_key_names_the_one_that_follows_it_and_ends(parts: Parts, signer: Signer) -> None:
    keys, new = HostKeys(parts), Signer(new_seed(), CELL)
    await keys.admit(registration(signer))
    assert keys.bound(NODE) == signer.public_key
    assert await keys.admit(with_next(signer, new))
    assert keys.bound(NODE) == new.public_key
    assert await HostKeys(parts).admit(with_next(signer, new)), "a repeat, because its answer was lost"
    assert await HostKeys(parts).admit(registration(new))
    with pytest.raises(Forbidden, match="another key"):
        await HostKeys(parts).admit(registration(signer))


@pytest.mark.parametrize("lacking", ["next_key", "next_signature", "next_run_signature"])
async def test_without_both_proofs_no_key_follows(parts: Parts, signer: Signer, lacking: str) -> None:
    keys, new, thief = HostKeys(parts), Signer(new_seed(), CELL), Signer(new_seed(), CELL)
    await keys.admit(registration(signer))
    values = {"next_key": thief.public_key, "next_signature": b"x" * 64, "next_run_signature": b"x" * 64}
    assert await keys.admit(msgspec.structs.replace(with_next(signer, new), **{lacking: values[lacking]}))
    assert keys.bound(NODE) == signer.public_key


async def test_who_has_the_old_key_gains_nothing_by_a_recorded_change(parts: Parts, signer: Signer) -> None:
    new = Signer(new_seed(), CELL)
    keys = HostKeys(parts)
    await keys.admit(registration(signer))
    recorded = with_next(signer, new)
    await keys.admit(recorded)
    run = signer.run(IDENTITY, 8, b"y" * 32, b"challenge")
    again = msgspec.structs.replace(recorded, number=8, exchange_key=b"y" * 32, run_signature=run)
    with pytest.raises(Forbidden, match="another key"):
        await keys.admit(again)
