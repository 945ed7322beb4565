"""The task of an image that is made of a server: its phases, its end, and what is known of it above the cell."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from skep.database.cell import actions, deletes, guests, instances, tasks
from skep.database.cell.tasks import Named
from skep.domain.actions import ACTIONS, UPLOADING, Kind, MakeImage
from skep.domain.guests import GuestSeen, correction
from skep.domain.ids import InstanceUuid
from skep.domain.images import StoreFailure
from skep.domain.instances import PowerState, State, Task
from tests.support.rows import HOST, ONE, asking, bring_to, context

NOW = 100
SNAPSHOT = ACTIONS["snapshot"]
IMAGE = MakeImage(image_id="i", disk_format="raw")
ARGUMENTS = {"image_id": "i", "disk_format": "raw"}
NAMED: Named = (ONE, "req-t")


def running(cell: sa.Connection, state: State = State.ACTIVE) -> tasks.HostTask:
    bring_to(cell, state)
    assert tasks.begin(cell, ONE, SNAPSHOT, context("req-t"), NOW, arguments=IMAGE)
    [found] = tasks.due(cell, NOW, NOW, 5)
    return found


def asks(cell: sa.Connection) -> bool:
    return tasks.may_act(cell, ONE, 1, HOST, Task.IMAGE_SNAPSHOT_PENDING, "req-t", NOW)


def enters(cell: sa.Connection, phase: str, host: str = HOST, task_id: str = "req-t") -> Task | None:
    tasks.enter(cell, host, {(ONE, task_id): phase}, NOW)
    return shown(cell)


def shown(cell: sa.Connection) -> Task | None:
    found = instances.get(cell, ONE)
    assert found is not None
    return found.task


def ends(cell: sa.Connection, error: str | None = None, power_state: PowerState = PowerState.RUNNING) -> bool:
    return tasks.done(cell, ONE, 1, "req-t", power_state, error, NOW) is not None


def known(cell: sa.Connection) -> tuple[bool, bool]:
    """Whether the task is known to have begun, and to be under way."""
    found = tasks.known(cell, [NAMED, (InstanceUuid("other"), "req-t")])
    assert found.begun | found.under_way <= {NAMED}
    return NAMED in found.begun, NAMED in found.under_way


def test_users_see_how_far_it_is(cell: sa.Connection) -> None:
    task = running(cell)
    assert (task.request.arguments, shown(cell)) == (ARGUMENTS, Task.IMAGE_SNAPSHOT_PENDING)
    assert asks(cell)
    assert shown(cell) is Task.IMAGE_SNAPSHOT
    assert enters(cell, UPLOADING) is Task.IMAGE_UPLOADING
    assert asks(cell), "a repeat of the question is answered the same"
    assert shown(cell) is Task.IMAGE_UPLOADING, "and goes back to nothing"
    assert ends(cell)
    assert shown(cell) is None


@pytest.mark.parametrize("name", [name for name, one in ACTIONS.items() if one.kind is Kind.GUEST])
def test_a_host_that_restarts_may_go_on_in_every_phase(cell: sa.Connection, name: str) -> None:
    action = ACTIONS[name]
    assert action.task is not None
    bring_to(cell, State.ACTIVE)
    assert tasks.begin(cell, ONE, asking(action.task, frozenset(State)), context("req-t"), NOW)
    for phase in ("", *action.phases):
        tasks.enter(cell, HOST, {NAMED: phase}, NOW)
        assert tasks.may_act(cell, ONE, 1, HOST, action.task, "req-t", NOW)


def test_only_its_own_host_says_how_far_it_is(cell: sa.Connection) -> None:
    running(cell)
    assert asks(cell)
    for entered in (
        enters(cell, UPLOADING, host="another"),
        enters(cell, UPLOADING, task_id="req-old"),
        enters(cell, "levitating"),
    ):
        assert entered is Task.IMAGE_SNAPSHOT


def test_in_each_phase_it_is_heard_of_and_late(cell: sa.Connection) -> None:
    running(cell)
    for move in (lambda: asks(cell), lambda: enters(cell, UPLOADING)):
        assert move()
        assert tasks.progressed(cell, HOST, [NAMED], NOW) == 1
        assert [one.task_id for one in tasks.overdue(cell, NOW + 1, 5)] == ["req-t"]


def test_the_deadline_ends_it_also_after_a_yes(cell: sa.Connection) -> None:
    task = running(cell)
    assert asks(cell)
    enters(cell, UPLOADING)
    over = tasks.give_up(cell, task, NOW)
    assert over is not None
    assert (over.error, over.in_doubt, over.arguments) == ("The host did not answer", False, ARGUMENTS)
    assert shown(cell) is None
    assert not asks(cell)
    found = instances.get(cell, ONE)
    assert found is not None
    assert (found.state, found.fault) == (State.ACTIVE, None)


@pytest.mark.parametrize(
    ("error", "not_stored"),
    [
        (None, False),
        ("NoSpaceLeft: ImageUnavailable: is not said of it", False),
        *((failure.because("why"), True) for failure in StoreFailure),
    ],
)
def test_its_host_says_whether_the_image_was_stored(
    cell: sa.Connection, error: str | None, *, not_stored: bool
) -> None:
    running(cell)
    assert asks(cell)
    assert not tasks.known(cell, [NAMED]).not_stored
    assert ends(cell, error)
    assert tasks.known(cell, [NAMED]).not_stored == ({NAMED} if not_stored else set())
    assert tasks.known(cell, [(InstanceUuid("other"), "req-t")]).not_stored == set()


def test_a_host_that_is_silent_says_nothing_of_the_image(cell: sa.Connection) -> None:
    assert tasks.give_up(cell, running(cell), NOW) is not None
    assert tasks.known(cell, [NAMED]).not_stored == set()


def test_what_was_given_up_hides_no_report_of_the_guest(cell: sa.Connection) -> None:
    task = running(cell)
    assert asks(cell)
    assert tasks.give_up(cell, task, NOW)
    [known] = guests.known(cell, HOST, [ONE])
    found = correction(known, GuestSeen(ONE, 1, PowerState.SHUTDOWN))
    assert found is not None, "its host may never have taken it up, and then names it in no report"
    assert tasks.correct(cell, known, found, HOST, NOW) is None
    server = instances.get(cell, ONE)
    assert server is not None
    assert server.state is State.STOPPED


def test_a_failure_leaves_the_server_as_its_guest_is(cell: sa.Connection) -> None:
    running(cell, State.PAUSED)
    assert asks(cell)
    assert ends(cell, "ImageUnavailable: broke off", PowerState.PAUSED)
    found = instances.get(cell, ONE)
    assert found is not None
    assert (found.state, found.task) == (State.PAUSED, None)
    [event] = actions.events_of(cell, ONE, "req-t")
    assert (event.event, event.result) == ("compute_snapshot_instance", "Error")
    assert event.details == "ImageUnavailable: broke off"


def test_what_is_known_above_the_cell(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert known(cell) == (False, False)
    assert tasks.begin(cell, ONE, SNAPSHOT, context("req-t"), NOW, arguments=IMAGE)
    assert known(cell) == (True, True)
    assert asks(cell)
    assert known(cell) == (True, True)
    assert ends(cell)
    assert known(cell) == (True, False)
    assert tasks.begin(cell, ONE, ACTIONS["stop"], context("req-u"), NOW)
    assert known(cell) == (True, False)


def test_a_delete_ends_it(cell: sa.Connection) -> None:
    running(cell)
    assert asks(cell)
    over = deletes.begin(cell, ONE, context("req-d"), NOW)
    assert over is not None
    assert [(one.action, one.error) for one in over] == [("snapshot", tasks.OVERTAKEN)]
    assert known(cell) == (True, False)
