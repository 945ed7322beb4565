"""The life of a server in an answer: each action with what belongs to it, however many there are."""

from __future__ import annotations

from typing import ClassVar

from skep.admin import lives
from skep.admin.lives import LifeStory
from skep.database.cell.actions import Action, ActionEvent
from skep.domain.ids import InstanceUuid, ProjectId, UserId
from skep.domain.server_migrations import MigrationType, ServerMigration

ONE = InstanceUuid("i1")


class Counted(str):
    """A word that counts how often it is compared."""

    __slots__ = ()
    compared: ClassVar[int] = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def action(number: int) -> Action:
    return Action(
        instance=ONE,
        request_id=Counted(f"req-{number}"),
        action="unlock",
        user_id="u",
        project_id="p",
        started_at=10 * number,
    )


def event(number: int, name: str = "unlock") -> ActionEvent:
    return ActionEvent(
        instance=ONE, request_id=Counted(f"req-{number}"), event=name, started_at=10 * number, host="h1", details="why"
    )


def move(uuid: str, created_at: int) -> ServerMigration:
    return ServerMigration(
        id=1,
        uuid=uuid,
        instance=ONE,
        project_id=ProjectId("p"),
        user_id=UserId("u"),
        type=MigrationType.MIGRATION,
        status="confirmed",
        source_host="h1",
        created_at=created_at,
    )


def test_each_action_has_its_own_events_and_moves() -> None:
    life = LifeStory(
        actions=(action(1), action(2), action(2), action(3)),
        events=(event(1), event(3, "a"), event(3, "b")),
        migrations=(move("before", 9), move("m1", 19), move("m2", 20), move("m3", 31), move("m4", 32)),
    )
    shown = lives.view(life, admin=False)
    assert [[told["event"] for told in one["events"]] for one in shown] == [["unlock"], [], [], ["a", "b"]]
    assert [[told["id"] for told in one["migrations"]] for one in shown] == [["m1"], [], ["m2"], ["m3", "m4"]]
    assert "h1" not in str(shown)
    assert "why" not in str(shown)
    assert "h1" in str(lives.view(life, admin=True))


def test_the_work_grows_no_faster_than_the_life() -> None:
    taken = []
    for length in (100, 1000):
        life = LifeStory(
            actions=tuple(action(number) for number in range(length)),
            events=tuple(event(number) for number in range(length)),
        )
        Counted.compared = 0
        assert len(lives.view(life, admin=True)) == length
        taken.append(Counted.compared)
    few, many = taken
    assert many <= 10 * few + 10
