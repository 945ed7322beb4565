"""Whom a conductor hears: pages that change only with their nodes, and one line for any number of silent hosts."""

from __future__ import annotations

from skep.cell_conductor.hearing import GATHERED_LOOKS, PAGE_NODES, SILENT_SECONDS, Hearing
from skep.domain.hosts import nodes_version
from skep.domain.ids import NodeUuid


def nodes_of(number: int) -> list[NodeUuid]:
    return [NodeUuid(f"{one:08d}-node") for one in range(number)]


def hear(hearing: Hearing, nodes: list[NodeUuid], now: float) -> None:
    for node in nodes:
        hearing.hear(node, now)


def test_a_page_is_told_when_its_nodes_change_and_not_otherwise() -> None:
    hearing, nodes = Hearing(), nodes_of(3)
    hear(hearing, nodes, 0.0)
    hearing.look(0.0)
    told = hearing.pages(hearing.untold())
    assert [page.nodes for page in told] == [tuple(nodes)]
    assert hearing.versions == (nodes_version(nodes),)
    hearing.note_told(told)
    hear(hearing, nodes, 1.0)
    hearing.look(1.0)
    assert hearing.untold() == []
    hear(hearing, nodes[:2], 1.0 + SILENT_SECONDS)
    hearing.look(1.0 + SILENT_SECONDS)
    assert [page.nodes for page in hearing.pages(hearing.untold())] == [tuple(nodes[:2])]


def test_many_nodes_are_spread_over_pages_and_one_change_touches_one_of_them() -> None:
    hearing, nodes = Hearing(), nodes_of(4 * PAGE_NODES)
    hear(hearing, nodes, 0.0)
    hearing.look(0.0)
    pages = hearing.pages(hearing.untold())
    assert len(pages) == 4
    assert max(len(page.nodes) for page in pages) < 2 * PAGE_NODES
    assert sorted(node for page in pages for node in page.nodes) == nodes
    hearing.note_told(pages)
    hear(hearing, nodes[1:], SILENT_SECONDS)
    hearing.look(SILENT_SECONDS)
    [page] = hearing.pages(hearing.untold())
    assert nodes[0] not in page.nodes
    assert page.version == nodes_version(page.nodes)


def test_hosts_that_vanish_by_the_hundred_are_one_piece_of_news() -> None:
    hearing, nodes = Hearing(), nodes_of(300)
    hear(hearing, nodes, 0.0)
    assert hearing.look(0.0) is None, "a host that registers is no news"
    # They fall silent one hundred after the other, as heartbeats go.
    hear(hearing, nodes[100:], 1.0)
    hear(hearing, nodes[200:], 2.0)
    assert [hearing.look(SILENT_SECONDS + late) for late in (0.5, 1.5, 2.5)] == [None, None, None]
    news = hearing.look(SILENT_SECONDS + 3.5)
    assert news is not None
    assert (len(news.silent), len(news.heard_again)) == (300, 0)
    assert hearing.silent == 300
    assert hearing.look(SILENT_SECONDS + 4.5) is None
    hear(hearing, nodes, 20.0)
    hearing.look(20.0)
    hear(hearing, nodes, 21.0)
    news = hearing.look(21.0)
    assert news is not None
    assert (len(news.silent), len(news.heard_again)) == (0, 300)
    assert hearing.silent == 0


def test_news_does_not_wait_for_ever() -> None:
    hearing, nodes = Hearing(), nodes_of(100)
    hear(hearing, nodes, 0.0)
    hearing.look(0.0)
    told = []
    for look in range(GATHERED_LOOKS):
        hear(hearing, nodes[look + 1 :], look + 1.0)
        told.append(hearing.look(SILENT_SECONDS + look))
    assert told[:-1] == [None] * (GATHERED_LOOKS - 1)
    assert told[-1] is not None
    assert len(told[-1].silent) == GATHERED_LOOKS


def test_a_host_that_falls_silent_and_comes_back_meanwhile_is_no_news() -> None:
    hearing, nodes = Hearing(), nodes_of(2)
    hear(hearing, nodes, 0.0)
    hearing.look(0.0)
    hear(hearing, nodes[:1], 4.0)
    assert hearing.look(SILENT_SECONDS) is None
    hear(hearing, nodes, 6.0)
    assert hearing.look(6.0) is None
    news = hearing.look(7.0)
    assert news is None or not news.silent
