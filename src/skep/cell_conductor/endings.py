"""What is told of actions: a notification when one begins, and what `telemetry.endings` says when it is over."""

from __future__ import annotations

from collections.abc import Iterable

from skep.cell_conductor import notifications
from skep.cell_conductor.parts import Parts
from skep.domain.actions import ActionRequest, Over
from skep.domain.instances import Instance
from skep.telemetry import endings


def begun(parts: Parts, request: ActionRequest, instance: Instance | None) -> None:
    """Tell that a host may begin an action."""
    if instance is not None:
        notifications.action_start(parts.notifier, request, instance)


def ended(parts: Parts, over: Iterable[Over]) -> None:
    """Tell of actions that are over."""
    endings.ended(parts.steps.metrics, parts.notifier, over)
