"""What is remembered of tokens."""

from __future__ import annotations

from skep.neighbours.identity.token_cache import TokenCache


def test_it_is_bounded_and_drops_the_least_recently_used() -> None:
    cache: TokenCache[int] = TokenCache(2)
    for number, token in enumerate("ab"):
        cache.put(token, number, 100, cache.generation)
    assert cache.get("a", 1) == 0
    cache.put("c", 2, 100, cache.generation)
    assert [cache.get(token, 1) for token in "abc"] == [0, None, 2]
    assert len(cache) == 2


def test_an_entry_ends_at_its_time() -> None:
    cache: TokenCache[int] = TokenCache(2)
    cache.put("a", 1, 100, cache.generation)
    assert cache.get("a", 99) == 1
    assert cache.get("a", 100) is None
    assert len(cache) == 0


def test_what_was_read_before_something_was_forgotten_is_not_remembered() -> None:
    cache: TokenCache[int] = TokenCache(2)
    before = cache.generation
    cache.forget("a")
    cache.put("a", 1, 100, before)
    assert cache.get("a", 1) is None
    before = cache.generation
    cache.clear()
    cache.put("a", 1, 100, before)
    assert cache.get("a", 1) is None
