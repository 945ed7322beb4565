"""Pages of the documentation with tables that are made from code, between two marks."""

from __future__ import annotations


def replaced(page: str, begin: str, end: str, made: str) -> str:
    """Return a page with `made` between its marks. Raises ValueError where it has no marks."""
    before, found, rest = page.partition(begin)
    _, ends, after = rest.partition(end)
    if not found or not ends:
        raise ValueError(f"the page has no lines {begin!r} and {end!r}")
    return f"{before}{begin}\n{made}\n{end}{after}"
