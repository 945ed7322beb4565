"""Answers how many more servers fit, from what one scheduler holds."""

from __future__ import annotations

from collections.abc import Callable

from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest
from skep.messages.to_scheduler_capacity import GetCapacity, GetCapacityReply
from skep.placement.request import placement_request
from skep.placement.settings import SchedulerSettings
from skep.scheduler.states import HostStates
from skep.transport.base import Handlers


class CountingRoom:
    """The handler of `messages/to_scheduler_capacity.py`."""

    def __init__(self, states: HostStates, settings: SchedulerSettings, monotonic: Callable[[], float]) -> None:
        self._states = states
        self._settings = settings
        self._monotonic = monotonic

    @property
    def handlers(self) -> Handlers:
        """By message."""
        return {GetCapacity: self._capacity}

    async def _capacity(self, message: GetCapacity, _: RequestContext | None) -> GetCapacityReply:
        if message.keep_free_hosts < 0:
            raise BadRequest("keep_free_hosts: expected 0 or more.")
        self._states.observe(self._monotonic())
        request = placement_request(message.spec, cell=message.cell, options=self._settings.options)
        counted = self._states.placement.capacity(request, message.keep_free_hosts)
        return GetCapacityReply(capacity=counted, epoch=self._states.epoch)
