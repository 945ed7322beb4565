"""A service that is away is not asked by each request; an answer of any kind, a refusal too, says that it is there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from structlog.testing import capture_logs

from skep.config.sections import IdentitySettings
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock
from skep.domain.errors import Unavailable
from skep.neighbours.answers import NETWORKS, VOLUMES
from skep.neighbours.circuits import NotAsked
from skep.neighbours.connections import ServiceAnswer
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.processes.keystone import circuits_of
from skep.telemetry.metrics import Metrics
from skep_lab.faulty_service import FaultyService, Mishap, faulty_service
from tests.support.service_clients import unencrypted_client

FAILURES, PAUSE, SECONDS = 3, 5.0, 1.0

ABSENCES = (Mishap.REFUSES, Mishap.SILENT, Mishap.BUSY, Mishap.HTML, Mishap.CUT, Mishap.LOST)


class TimedClock(SteppedClock):
    """A clock whose steady time stands still, too."""

    def __init__(self) -> None:
        super().__init__()
        self.steady = 0.0

    def elapsed(self) -> float:
        """Return the time that the test set."""
        return self.steady


class Asked:
    """A network service, and how one process asks it."""

    def __init__(self, service: FaultyService, session: ServiceSession, clock: TimedClock, metrics: Metrics) -> None:
        self.service = service
        self.session = session
        self.clock = clock
        self.metrics = metrics

    async def ask(self, method: str = "GET", path: str = "/v2.0/ports", service: str = NETWORKS) -> ServiceAnswer:
        return await self.session.as_skep(method, f"{self.service.url}{path}", {}, service=service)

    async def many(self, count: int) -> None:
        """Ask one time after the other; each request is sent, whatever comes of it."""
        for _ in range(count):
            [outcome] = await asyncio.gather(self.ask(), return_exceptions=True)
            assert isinstance(outcome, (ServiceAnswer, Unavailable))
            assert not isinstance(outcome, NotAsked)

    async def goes_away(self, fault: Mishap) -> None:
        """Fail at the requests after which it counts as away."""
        await self.service.fail(fault)
        await self.many(FAILURES)

    def counted(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"service": "network"})


@pytest.fixture
async def asked(cloud: ServedNeighbours, credentials: ServiceCredentials) -> AsyncIterator[Asked]:
    clock, metrics = TimedClock(), Metrics()
    section = IdentitySettings(breaker_failures=FAILURES, breaker_seconds=PAUSE, timeout=SECONDS)
    async with (
        faulty_service(cloud.networks_url) as service,
        unencrypted_client() as client,
    ):
        circuits = circuits_of(section, clock, metrics)
        hasty = msgspec.structs.replace(credentials, timeout=SECONDS)
        session = ServiceSession(hasty, client, clock, circuits)
        await session.sign_in()
        yield Asked(service, session, clock, metrics)


@pytest.mark.parametrize("fault", ABSENCES, ids=lambda fault: fault.name)
async def test_a_service_goes_away_and_comes_back(asked: Asked, fault: Mishap) -> None:
    with capture_logs() as lines:
        await asked.goes_away(fault)
        assert asked.counted("skep_neighbour_away") == 1
        met = len(asked.service.met)
        for method in ("GET", "POST", "DELETE"):
            with pytest.raises(NotAsked, match="the network service does not answer") as refused:
                await asked.ask(method)
            assert refused.value.retry_after == PAUSE
        assert len(asked.service.met) == met, "it is left in peace"
        assert asked.counted("skep_neighbour_spared_total") == 3
        await asked.service.heal()
        with pytest.raises(NotAsked):
            await asked.ask()
        asked.clock.steady += PAUSE
        assert (await asked.ask()).status_code == 200
        assert (await asked.ask()).status_code == 200
    assert asked.counted("skep_neighbour_away") == 0
    said = [line["event"] for line in lines]
    assert said.count("neighbour is away") == 1
    assert said.count("neighbour answers again") == 1


async def test_one_request_at_a_time_tries_it(asked: Asked) -> None:
    await asked.goes_away(Mishap.BUSY)
    await asked.service.fail(Mishap.SILENT)
    asked.clock.steady += PAUSE
    outcomes = await asyncio.gather(*(asked.ask() for _ in range(20)), return_exceptions=True)
    assert all(isinstance(one, Unavailable) for one in outcomes), outcomes
    assert sum(isinstance(one, NotAsked) for one in outcomes) == 19
    assert len(asked.service.met) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 418, 429])
async def test_a_refusal_never_sends_a_service_away(asked: Asked, status: int) -> None:
    await asked.service.refuse(status)
    await asked.many(2 * FAILURES)
    await asked.service.heal()
    assert (await asked.ask()).status_code == 200
    assert asked.counted("skep_neighbour_away") == 0


async def test_a_refusal_is_an_answer_of_a_service_that_was_away(asked: Asked) -> None:
    await asked.goes_away(Mishap.BUSY)
    await asked.service.refuse(409)
    asked.clock.steady += PAUSE
    assert (await asked.ask()).status_code == 409
    assert asked.counted("skep_neighbour_away") == 0


async def test_failures_with_answers_between_them_are_not_in_a_row(asked: Asked) -> None:
    for _ in range(FAILURES):
        await asked.service.fail(Mishap.BUSY)
        for _ in range(FAILURES - 1):
            with pytest.raises(Unavailable, match="answered 503"):
                await asked.ask()
        await asked.service.heal()
        assert (await asked.ask()).status_code == 200


async def test_other_services_and_other_projects_of_the_same_user(asked: Asked) -> None:
    """Whatever project it is asked for, it is the same service; another one is not."""
    await asked.goes_away(Mishap.BUSY)
    with pytest.raises(NotAsked):
        await asked.session.of_project("another").as_user(
            "GET", f"{asked.service.url}/v2.0/ports", "a token", {}, service=NETWORKS
        )
    await asked.service.heal()
    assert (await asked.ask(service=VOLUMES)).status_code == 200
