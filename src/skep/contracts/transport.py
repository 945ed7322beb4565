"""The contract of a transport as tests: a class to inherit, with fixtures of one's own.

    class TestMyTransport(TransportContract):
        @pytest.fixture
        async def transport(self): ...

        @pytest.fixture
        def raw(self, transport): ...   # sends bytes to an address as if they were a message

        @pytest.fixture
        async def crowded(self): ...    # a transport whose addresses work on CROWD messages at once

        @pytest.fixture
        async def tight(self): ...      # a transport whose wire takes messages of at most TIGHT bytes

Nothing here waits for a while: a handler that is to be slow waits for an event that the test sets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import structlog

from skep.contracts.eventually import eventually
from skep.contracts.transport_server import LONG, QUESTION, SHORT, Server
from skep.domain.context import RequestContext
from skep.domain.errors import (
    BadRequest,
    Conflict,
    NotFound,
    Overloaded,
    QuotaExceeded,
    SkepError,
    TooLarge,
    Unreachable,
)
from skep.domain.ids import CellUuid, InstanceUuid, ProjectId, RequestId, UserId
from skep.messages.to_cell_conductor import InstancesChanged, MayBuild, Permission
from skep.messages.to_scheduler import ListNamespaces, ListNamespacesReply
from skep.messages.to_super_conductor import CellChanged
from skep.transport.base import (
    SCHEDULER,
    Address,
    Transport,
    cell_conductor,
    compute,
    scheduler_for,
    super_conductor_for,
)

CROWD = 3
"""Messages that an address of the transport `crowded` works on at once."""
TIGHT = 10_000
"""Bytes of the largest message that the transport `tight` takes."""
ODD_NAMES = ("a", "a.b", "a.b.c", "a..b", ".", "*", ">", "a b", "a\r\nPING", "é", "%2E", "", "-", "h" * 255)
"""Names that hosts may have or pretend to have; on a wire some of them mean something."""

CONTEXT = RequestContext(
    request_id=RequestId("req-1"), project_id=ProjectId("p"), user_id=UserId("u"), roles=("member",)
)

Raw = Callable[[Address, bytes], Awaitable[None]]
"""Sends bytes to an address as if they were a message."""


class TransportContract:
    """What every transport must do."""

    @pytest.fixture
    def address(self) -> Address:
        """Where the server of a test listens; one that servers of other tests do not share."""
        return Address("cell.c.conductor")

    @pytest.fixture
    def server(self) -> Server:
        """A server that is not serving yet."""
        return Server()

    async def test_a_call_is_answered(self, transport: Transport, address: Address, server: Server) -> None:
        await transport.serve(address, server.handlers)
        assert await transport.call(address, QUESTION) == Permission(granted=True)
        assert server.taken == [(QUESTION, None)]

    async def test_who_asked_travels_with_the_message(
        self, transport: Transport, address: Address, server: Server
    ) -> None:
        await transport.serve(address, server.handlers)
        await transport.call(address, QUESTION, context=CONTEXT)
        assert server.taken[0][1] == CONTEXT

    async def test_a_cast_arrives_with_its_context_and_nobody_waits_for_it(
        self, transport: Transport, address: Address, server: Server
    ) -> None:
        server.hold()
        await transport.serve(address, server.handlers)
        await transport.cast(address, CellChanged(cell=CellUuid("c")), CONTEXT)
        await asyncio.wait_for(server.arrived.wait(), LONG)
        assert server.taken == [(CellChanged(cell=CellUuid("c")), CONTEXT)]
        assert server.finished == 0
        server.go_on.set()

    async def test_a_cast_to_nobody_is_lost_without_an_error(self, transport: Transport) -> None:
        await transport.cast(Address("cell.nowhere.conductor"), InstancesChanged())

    async def test_a_call_to_nobody_is_unreachable_before_its_deadline(self, transport: Transport) -> None:
        async with asyncio.timeout(LONG):
            with pytest.raises(Unreachable, match="nowhere"):
                await transport.call(Address("cell.nowhere.conductor"), QUESTION, timeout=1000.0)

    async def test_servers_of_one_address_take_turns(self, transport: Transport, address: Address) -> None:
        servers = [Server(granted=True), Server(granted=False)]
        for server in servers:
            await transport.serve(address, server.handlers)
        for _ in range(40):
            await transport.call(address, QUESTION)
        taken = [len(server.taken) for server in servers]
        assert sum(taken) == 40, "each message goes to one server"
        assert min(taken) > 0, "all servers get some"

    async def test_servers_of_other_addresses_hear_nothing(
        self, transport: Transport, address: Address, server: Server
    ) -> None:
        other = Server()
        await transport.serve(address, server.handlers)
        await transport.serve(Address("cell.other.conductor"), other.handlers)
        await transport.call(address, QUESTION)
        assert other.taken == []

    async def test_calls_under_way_do_not_wait_for_each_other(
        self, transport: Transport, address: Address, server: Server
    ) -> None:
        server.hold()
        await transport.serve(address, server.handlers)
        calls = [asyncio.create_task(transport.call(address, QUESTION, timeout=LONG)) for _ in range(5)]
        await eventually(_has_taken(server, 5), "all calls are under way")
        server.go_on.set()
        assert await asyncio.gather(*calls) == [Permission(granted=True)] * 5

    async def test_after_its_deadline_a_call_is_unreachable_and_the_handler_goes_on(
        self, transport: Transport, address: Address, server: Server
    ) -> None:
        server.hold()
        await transport.serve(address, server.handlers)
        with pytest.raises(Unreachable, match="MayBuild"):
            await transport.call(address, QUESTION, timeout=SHORT)
        server.go_on.set()
        await eventually(_has_finished(server, 1), "the handler came to its end")

    async def test_a_caller_that_gives_up_does_not_stop_the_handler(
        self, transport: Transport, address: Address, server: Server
    ) -> None:
        server.hold()
        await transport.serve(address, server.handlers)
        call = asyncio.create_task(transport.call(address, QUESTION, timeout=LONG))
        await asyncio.wait_for(server.arrived.wait(), LONG)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        server.go_on.set()
        await eventually(_has_finished(server, 1), "the handler came to its end")

    @pytest.mark.parametrize(
        "error",
        [BadRequest("name: too long"), QuotaExceeded("no cores left"), NotFound(""), Conflict("é"), SkepError("x")],
    )
    async def test_errors_of_the_tree_travel_by_class_and_text(
        self, transport: Transport, address: Address, server: Server, error: SkepError
    ) -> None:
        server.error = error
        await transport.serve(address, server.handlers)
        with pytest.raises(SkepError) as raised:
            await transport.call(address, QUESTION)
        assert type(raised.value) is type(error)
        assert str(raised.value) == str(error)

    async def test_an_unknown_exception_says_its_class_and_keeps_its_text_for_the_log(
        self, transport: Transport, address: Address, server: Server
    ) -> None:
        server.error = RuntimeError("password=secret")
        await transport.serve(address, server.handlers)
        with structlog.testing.capture_logs() as logged, pytest.raises(SkepError) as raised:
            await transport.call(address, QUESTION)
        assert str(raised.value) == "MayBuild failed: RuntimeError"
        assert any(line["log_level"] == "error" for line in logged)

    async def test_a_message_that_an_address_does_not_take_is_an_error_naming_it(
        self, transport: Transport, address: Address, server: Server
    ) -> None:
        await transport.serve(address, server.handlers)
        with pytest.raises(SkepError, match="does not accept ListNamespaces"):
            await transport.call(address, ListNamespaces())

    async def test_an_answer_of_another_kind_is_no_answer(self, transport: Transport, address: Address) -> None:
        async def answer(_message: Any, _context: RequestContext | None) -> Any:
            return ListNamespacesReply(namespaces={})

        await transport.serve(address, {MayBuild: answer})
        with pytest.raises(Unreachable, match="malformed reply"):
            await transport.call(address, QUESTION)

    async def test_every_call_gets_its_own_answer(self, transport: Transport, address: Address) -> None:
        async def answer(message: MayBuild, _context: RequestContext | None) -> Permission:
            return Permission(granted=message.attempt % 3 == 0)

        await transport.serve(address, {MayBuild: answer})
        questions = [MayBuild(instance=InstanceUuid("i"), attempt=number, host="h") for number in range(1000)]
        answers = await asyncio.gather(*(transport.call(address, question) for question in questions))
        assert [one.granted for one in answers] == [number % 3 == 0 for number in range(1000)]

    async def test_hosts_of_any_name_hear_only_what_is_meant_for_them(self, transport: Transport) -> None:
        servers = {name: Server() for name in ODD_NAMES}
        for name, server in servers.items():
            await transport.serve(compute(CellUuid("c"), name), server.handlers)
        for name in ODD_NAMES:
            question = MayBuild(instance=InstanceUuid("i"), attempt=1, host=name)
            await transport.call(compute(CellUuid("c"), name), question)
        heard = {name: [message.host for message, _ in server.taken] for name, server in servers.items()}
        assert heard == {name: [name] for name in ODD_NAMES}

    async def test_who_serves_all_cells_hears_which_one_speaks(self, transport: Transport, server: Server) -> None:
        heard: list[tuple[str, str]] = []

        async def answer(cell: CellUuid, message: MayBuild, _context: RequestContext | None) -> Permission:
            heard.append((cell, message.host))
            return Permission(granted=True)

        subscription = await transport.serve_cells(SCHEDULER, {MayBuild: answer})
        await transport.serve(cell_conductor("a"), server.handlers)
        for cell in ("a", "b"):
            question = MayBuild(instance=InstanceUuid("i"), attempt=1, host=f"of {cell}")
            assert await transport.call(scheduler_for(cell), question) == Permission(granted=True)
        assert heard == [("a", "of a"), ("b", "of b")]
        assert server.taken == [], "what else is served for a cell has its own address"
        with pytest.raises(Unreachable, match="no process serves"):
            await transport.call(super_conductor_for("a"), QUESTION)
        await subscription.close()
        with pytest.raises(Unreachable):
            await transport.call(scheduler_for("a"), QUESTION, timeout=SHORT)

    async def test_a_crowd_is_told_to_come_again_and_casts_of_it_are_dropped_and_counted(
        self, crowded: Transport, address: Address, server: Server
    ) -> None:
        server.hold()
        await crowded.serve(address, server.handlers)
        calls = [asyncio.create_task(crowded.call(address, QUESTION, timeout=LONG)) for _ in range(CROWD)]
        await eventually(_has_taken(server, CROWD), "all calls are under way")

        async def is_logged() -> bool:
            return any(line["event"] == "messages refused" and line["kind"] == "cast" for line in logged)

        with structlog.testing.capture_logs() as logged:
            with pytest.raises(Overloaded):
                await crowded.call(address, QUESTION, timeout=LONG)
            await crowded.cast(address, CellChanged(cell=CellUuid("c")))
            await eventually(is_logged, "the cast is counted")
        server.go_on.set()
        assert await asyncio.gather(*calls) == [Permission(granted=True)] * CROWD
        assert await crowded.call(address, QUESTION) == Permission(granted=True)
        assert len(server.taken) == CROWD + 1

    async def test_a_message_that_the_wire_does_not_take_is_named_with_its_size(
        self, tight: Transport, address: Address, server: Server
    ) -> None:
        await tight.serve(address, server.handlers)
        with pytest.raises(TooLarge, match=rf"MayBuild has \d{{5}} bytes, and at most {TIGHT}"):
            await tight.call(address, MayBuild(instance=InstanceUuid("i"), attempt=1, host="h" * 2 * TIGHT))
        with pytest.raises(TooLarge, match="CellChanged has"):
            await tight.cast(address, CellChanged(cell=CellUuid("c" * 2 * TIGHT)))
        assert await tight.call(address, QUESTION) == Permission(granted=True)
        assert server.taken == [(QUESTION, None)]

    async def test_an_answer_that_the_wire_does_not_take_is_an_error_that_says_so(
        self, tight: Transport, address: Address
    ) -> None:
        names = {"n" * 2 * TIGHT: 1}

        async def answer(_message: Any, _context: RequestContext | None) -> ListNamespacesReply:
            return ListNamespacesReply(namespaces=names)

        await tight.serve(address, {ListNamespaces: answer})
        with pytest.raises(TooLarge, match="the answer to ListNamespaces has"):
            await tight.call(address, ListNamespaces())
        names = {"n": 1}
        assert await tight.call(address, ListNamespaces()) == ListNamespacesReply(namespaces={"n": 1})

    @pytest.mark.parametrize("garbage", [b"", b"\xc1", b"garbage", b"\x93\xa1x\xc0\xc0", b"\x93\xa8MayBuild\xc0\x80"])
    async def test_garbage_is_logged_and_the_server_goes_on(
        self, transport: Transport, address: Address, server: Server, raw: Raw, garbage: bytes
    ) -> None:
        await transport.serve(address, server.handlers)

        async def is_logged() -> bool:
            return any(line["event"] == "message not understood" for line in logged)

        with structlog.testing.capture_logs() as logged:
            await raw(address, garbage)
            await eventually(is_logged, "the garbage is in the log")
        assert [line["log_level"] for line in logged] == ["warning"]
        assert server.taken == []
        assert await transport.call(address, QUESTION) == Permission(granted=True)

    async def test_a_cast_whose_handler_fails_is_logged_and_the_server_goes_on(
        self, transport: Transport, address: Address, server: Server
    ) -> None:
        server.error = Conflict("not now")

        async def is_logged() -> bool:
            return any(line["event"] == "cast failed" and line["error"] == "not now" for line in logged)

        await transport.serve(address, server.handlers)
        with structlog.testing.capture_logs() as logged:
            await transport.cast(address, CellChanged(cell=CellUuid("c")))
            await eventually(is_logged, "the failure is in the log")
        server.error = None
        assert await transport.call(address, QUESTION) == Permission(granted=True)

    async def test_closing_waits_for_what_is_under_way_and_takes_no_more(
        self, transport: Transport, address: Address, server: Server
    ) -> None:
        server.hold()
        subscription = await transport.serve(address, server.handlers)
        call = asyncio.create_task(transport.call(address, QUESTION, timeout=LONG))
        await asyncio.wait_for(server.arrived.wait(), LONG)
        closing = asyncio.create_task(subscription.close())

        async def takes_no_more() -> bool:
            try:
                await transport.call(address, QUESTION, timeout=SHORT)
            except Unreachable:
                return True
            return False

        await eventually(takes_no_more, "the address is served no more")
        assert not closing.done()
        server.go_on.set()
        assert await call == Permission(granted=True)
        await asyncio.wait_for(closing, LONG)

    async def test_closing_twice_is_once(self, transport: Transport, address: Address, server: Server) -> None:
        subscription = await transport.serve(address, server.handlers)
        await subscription.close()
        await subscription.close()

    async def test_one_of_two_servers_closes_and_the_other_takes_all(
        self, transport: Transport, address: Address
    ) -> None:
        first, second = Server(), Server()
        subscription = await transport.serve(address, first.handlers)
        await transport.serve(address, second.handlers)
        await subscription.close()
        for _ in range(10):
            await transport.call(address, QUESTION)
        assert (len(first.taken), len(second.taken)) == (0, 10)

    async def test_an_address_can_be_served_again(self, transport: Transport, address: Address, server: Server) -> None:
        subscription = await transport.serve(address, server.handlers)
        await subscription.close()
        with pytest.raises(Unreachable):
            await transport.call(address, QUESTION, timeout=SHORT)
        await transport.serve(address, server.handlers)
        assert await transport.call(address, QUESTION) == Permission(granted=True)


def _has_taken(server: Server, count: int) -> Callable[[], Awaitable[bool]]:
    async def probe() -> bool:
        return len(server.taken) == count

    return probe


def _has_finished(server: Server, count: int) -> Callable[[], Awaitable[bool]]:
    async def probe() -> bool:
        return server.finished == count

    return probe
