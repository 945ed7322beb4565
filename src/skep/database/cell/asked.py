"""What was asked of a server that is under a task, as its row tells."""

from __future__ import annotations

from typing import Any

from skep.database.cell import unreadable
from skep.database.cell.tables import instances
from skep.database.stored import load
from skep.domain.actions import ACTIONS, Action, ActionRequest
from skep.domain.context import RequestContext
from skep.domain.ids import RequestId

row = instances.c

COLUMNS = (row.uuid, row.task_id, row.project_id, row.user_id, row.action_request)
"""What `request_of` reads."""


def request_of(found: Any, action: Action) -> ActionRequest:
    """Return what was asked; `action`, as far as its columns tell, where the row does not say it or cannot be read.

    Releases before 0.7.0 begin actions without writing it, and leave what stood there before.
    """
    if found.action_request is not None:
        kept = unreadable.or_none(found, _kept)
        if kept is not None and kept.context.request_id == found.task_id and kept.action in ACTIONS:
            return kept
    context = RequestContext(request_id=RequestId(found.task_id), project_id=found.project_id, user_id=found.user_id)
    return ActionRequest(action=action.name, context=context)


def _kept(found: Any) -> ActionRequest:
    request: ActionRequest = load(found.action_request, ActionRequest)
    return request
