"""Alive, ready and counted: without a token, and with reasons."""

from __future__ import annotations

from pathlib import Path

from skep.domain.ids import CELL0
from tests.support.admin import CELL1, CELL2, Admin, host_state


async def readiness(admin: Admin) -> tuple[int, list[str]]:
    response = await admin.ask("GET", "/readyz", token=None)
    body = response.json()
    assert body["ready"] == (response.status_code == 200)
    return response.status_code, body["reasons"] + body["warnings"]


async def test_alive(admin: Admin) -> None:
    response = await admin.ask("GET", "/healthz", token=None)
    assert (response.status_code, response.json()) == (200, {"alive": True})


async def test_metrics_are_what_the_process_counts(admin: Admin) -> None:
    response = await admin.ask("GET", "/metrics", token=None)
    assert (response.status_code, response.content) == (200, b"skep_things_total 1\n")
    assert response.headers["content-type"].startswith("text/plain")


async def test_ready_when_all_answer(admin: Admin) -> None:
    assert await readiness(admin) == (200, [])


async def test_a_cell_that_has_not_asserted_or_has_no_host_up_is_a_warning(admin: Admin) -> None:
    admin.scheduler.asserted = {CELL2}
    admin.scheduler.states[1] = host_state("h2", CELL2, up=False)
    assert await readiness(admin) == (
        200,
        ["cell cell1: the cell has not asserted its claims", "cell cell2: no host is up"],
    )


async def test_a_disabled_cell_is_no_warning(admin: Admin) -> None:
    admin.scheduler.asserted = {CELL2}
    await admin.good("PATCH", "/cells/cell1", json={"disabled": True})
    assert await readiness(admin) == (200, [])


async def test_no_scheduler_is_a_reason(admin: Admin) -> None:
    assert admin.scheduler.subscription is not None
    await admin.scheduler.subscription.close()
    status, (reason,) = await readiness(admin)
    assert (status, reason.startswith("scheduler: ")) == (503, True)


def make_unreadable(path: Path) -> None:
    path.unlink()
    path.mkdir()


async def test_a_database_that_does_not_answer_is_a_reason(admin: Admin) -> None:
    cell0 = admin.services.cells[CELL0]
    await cell0.close()
    make_unreadable(Path(cell0.location))
    cell0.__init__(cell0.location)  # type: ignore[misc] # reopens what cannot be opened any more
    status, reasons = await readiness(admin)
    assert status == 503
    assert any(reason.startswith("database cell0: ") for reason in reasons)


async def test_every_cell_is_looked_at_by_a_dry_run_of_nothing(admin: Admin) -> None:
    await readiness(admin)
    assert [(asked.cell, asked.spec.resources()) for asked in admin.scheduler.asked] == [(CELL1, {}), (CELL2, {})]
