"""What agents say that they understand belongs to the process that said it; what was asked stands in the row."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.cell import agents, tables, tasks
from skep.domain.actions import ACTIONS
from skep.domain.hosts import AgentIdentity
from skep.domain.ids import Incarnation, NodeUuid
from skep.domain.instances import State
from tests.support.rows import ONE, bring_to, context

NODE = NodeUuid("n1")
NOW = 100


def run(process: str) -> AgentIdentity:
    return AgentIdentity(node=NODE, host="h1", process=Incarnation(process))


def older_release_registers(cell: sa.Connection, process: str) -> None:
    """Write what conductors of before 0.7.0 write when a run of the agent registers."""
    row = tables.agents.c
    mine = tables.agents.update().where(row.node == NODE)
    cell.execute(mine.values(process=process, incarnation=row.incarnation + 1))


def test_what_one_run_said_is_not_believed_of_another(cell: sa.Connection) -> None:
    assert agents.register(cell, run("p"), 1, ["RunAction"]).understands == frozenset({"RunAction"})
    assert agents.taking(cell, ["h1", "h2"], "RunAction") == {"h1"}
    assert agents.taking(cell, ["h1"], "Levitate") == set()
    older_release_registers(cell, "q")
    assert agents.taking(cell, ["h1"], "RunAction") == set()
    found = agents.register(cell, run("q"), 2, ["RunAction"])
    assert (found.understands, found.incarnation) == (frozenset({"RunAction"}), 2), "it only says it once more"
    assert agents.get(cell, NODE) == found


def test_an_older_agent_is_known_to_say_nothing(cell: sa.Connection) -> None:
    agents.register(cell, run("p"), 1, ["RunAction"])
    assert agents.register(cell, run("q"), 2).understands is None
    assert agents.taking(cell, ["h1"], "RunAction") == set()


def test_a_capability_is_lacking_only_where_the_present_run_said_so(cell: sa.Connection) -> None:
    assert not agents.lacks(cell, "h1", "pause"), "nobody knows the host"
    agents.register(cell, run("p"), 1, ["RunAction"])
    assert not agents.lacks(cell, "h1", "pause"), "it did not say"
    found = agents.register(cell, run("p"), 1, ["RunAction"], ["power"])
    assert found.capabilities == frozenset({"power"})
    assert agents.get(cell, NODE) == found
    assert agents.lacks(cell, "h1", "pause")
    assert not agents.lacks(cell, "h1", "power")
    agents.register(cell, run("q"), 2, ["RunAction"], [])
    assert agents.lacks(cell, "h1", "power"), "its driver has the core alone"
    older_release_registers(cell, "r")
    assert not agents.lacks(cell, "h1", "power")


class Force(msgspec.Struct, frozen=True):
    newtons: int


def test_the_row_keeps_the_whole_request_while_the_action_runs(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    asked = msgspec.structs.replace(context("req-t"), roles=("member",), project_domain_id="elsewhere")
    assert tasks.begin(cell, ONE, ACTIONS["stop"], asked, NOW, arguments=Force(7), secrets=b"sealed")
    [task] = tasks.due(cell, NOW, NOW, 5)
    assert (task.action, task.request.context) == (ACTIONS["stop"], asked)
    assert (task.request.arguments, task.request.secrets) == ({"newtons": 7}, b"sealed")
    assert tasks.give_up(cell, task, NOW)
    assert cell.execute(sa.select(tables.instances.c.action_request)).scalar_one() is None


def test_of_an_action_that_an_older_release_began_its_columns_tell(cell: sa.Connection) -> None:
    bring_to(cell, State.ACTIVE)
    assert tasks.begin(cell, ONE, ACTIONS["stop"], context("req-old"), NOW, secrets=b"of another action")
    older = {"task": "rebooting", "task_id": "req-new"}
    cell.execute(tables.instances.update().values(**older))
    [task] = tasks.due(cell, NOW, NOW, 5)
    assert (task.request.action, task.request.context.request_id) == ("reboot_soft", "req-new")
    assert task.request.secrets is None
    cell.execute(tables.instances.update().values(action_request=b"damaged", sent_at=None))
    assert tasks.due(cell, NOW, NOW, 5) == [task]
