"""Beats: who lives, as the conductors of cells tell it. A beat costs what changed since the one before."""

from __future__ import annotations

import asyncio

from skep.domain.errors import BadRequest
from skep.domain.hosts import nodes_version
from skep.messages.to_scheduler_liveness import Beat, BeatReply, HeardPage
from skep.scheduler import changes
from skep.scheduler.asserting import lost_records
from skep.scheduler.commits import Commits
from skep.scheduler.records import beat_key, hearing_key
from skep.scheduler.states import HostStates

MOST_NODES = 5000
"""Nodes of one page: a record of about 200 kB."""
MOST_PAGES = 200
LONGEST_NAME = 255


async def take_beat(states: HostStates, commits: Commits, beat: Beat, at: int, now: float) -> BeatReply:
    """Store whom a conductor of a cell hears, and remove the beats of its conductors that are no more.

    Lists that changed are stored before the beat that stands on them. `at`: now, microseconds since the epoch; `now`:
    the reading of the monotonic clock. Raises BadRequest for a beat that no record can hold.
    """
    versions, told = _pages(beat)
    key = beat_key(beat.cell, beat.conductor)
    surplus = [page for page in states.hearing.pages_of(key.name) if page >= len(versions)]
    await asyncio.gather(
        *(commits.change(hearing_key(beat.cell, beat.conductor, page.page), changes.set_hearing(page)) for page in told)
    )
    await commits.change(key, changes.set_beat(versions, at, listening=beat.listening))
    for page in surplus:
        await commits.change(hearing_key(beat.cell, beat.conductor, page), changes.set_value(None))
    await _forget_gone(states, commits, beat, now)
    wanted = states.hearing.missing(key.name, versions)
    if wanted:
        # Another scheduler may have been told a moment ago.
        await commits.look()
        wanted = states.hearing.missing(key.name, versions)
    nodes, groups = lost_records(states, beat.cell)
    return BeatReply(epoch=states.epoch, asserted=states.asserted(beat.cell), wanted=wanted, nodes=nodes, groups=groups)


def _pages(beat: Beat) -> tuple[tuple[int, ...], tuple[HeardPage, ...]]:
    """Return the version of each page and the pages that are told; a list without pages is cut into some."""
    if beat.pages is None:
        cut = [beat.heard[start : start + MOST_NODES] for start in range(0, len(beat.heard), MOST_NODES)] or [()]
        told = tuple(HeardPage(page=page, version=nodes_version(nodes), nodes=nodes) for page, nodes in enumerate(cut))
        versions = tuple(page.version for page in told)
    else:
        versions, told = beat.pages, beat.told
    _check(beat, versions, told)
    return versions, told


def _check(beat: Beat, versions: tuple[int, ...], told: tuple[HeardPage, ...]) -> None:
    if not (0 < len(beat.cell) <= LONGEST_NAME and len(beat.conductor) <= LONGEST_NAME):
        raise BadRequest(f"cell, conductor: expected at most {LONGEST_NAME} characters.")
    if len(versions) > MOST_PAGES or not all(0 <= version < 2**53 for version in versions):
        raise BadRequest(f"pages: expected at most {MOST_PAGES} versions from 0 to 2^53 - 1.")
    for page in told:
        if not 0 <= page.page < len(versions) or versions[page.page] != page.version:
            raise BadRequest(f"told: page {page.page} in version {page.version} is not part of the beat.")
        if len(page.nodes) > MOST_NODES or not all(0 < len(node) <= LONGEST_NAME for node in page.nodes):
            raise BadRequest(f"told: expected at most {MOST_NODES} nodes, their names 1 to {LONGEST_NAME} characters.")


async def _forget_gone(states: HostStates, commits: Commits, beat: Beat, now: float) -> None:
    for conductor in states.conductors_gone(beat.cell, now):
        key = beat_key(beat.cell, conductor)
        pages = states.hearing.pages_of(key.name)
        removed = await commits.change(key, changes.remove_unchanged(states.held(key).value))
        if removed.answer:
            await asyncio.gather(
                *(commits.change(hearing_key(beat.cell, conductor, page), changes.set_value(None)) for page in pages)
            )
