"""From a message to members that can be decided: the service and whoever repeats its decisions do it alike."""

from __future__ import annotations

from skep.messages.to_scheduler import SelectDestinations
from skep.placement.deciding import Deciding, Seat
from skep.placement.knowledge import Knowledge
from skep.placement.request import placement_request
from skep.placement.settings import SchedulerSettings


def seats_of(message: SelectDestinations, settings: SchedulerSettings) -> list[Seat]:
    """Return the members of a request, none of them decided."""
    request = placement_request(
        message.spec,
        cell=message.cell,
        exclude_cells=message.exclude_cells,
        prefer=message.prefer,
        ignore=message.ignore,
        home=message.home,
        alternates=message.alternates,
        source_cell=message.source_cell,
        options=settings.options,
    )
    return [Seat(member.instance, member.attempt, request) for member in message.members]


def deciding_of(known: Knowledge, settings: SchedulerSettings, message: SelectDestinations, seed: int) -> Deciding:
    """Return the decisions of a request on what is known, none of them made."""
    seats = seats_of(message, settings)
    return Deciding(known, seats, min_count=message.min_count, seed=seed, dry_run=message.dry_run)
