"""Text of nft: a table with named sets, maps and chains, which takes the place of that before in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

TABLE = "skep"


class NftTable:
    """One table while it is written. Elements and rules are words that the caller has checked."""

    def __init__(self, family: str, name: str = TABLE) -> None:
        self._name = f"table {family} {name}"
        self._sets: list[str] = []
        self._chains: list[str] = []

    def set(self, name: str, kind: str, elements: Iterable[str], *, interval: bool = False) -> None:
        """Add a set; `interval`: its elements may be blocks of addresses, which may overlap."""
        flags = ("  flags interval", "  auto-merge") if interval else ()
        self._sets += [f" set {name} {{", f"  type {kind}", *flags, *_elements(sorted(set(elements))), " }"]

    def map(self, name: str, kind: str, elements: Mapping[str, str]) -> None:
        """Add a map, for example of names of links to verdicts."""
        pairs = (f"{key} : {value}" for key, value in sorted(elements.items()))
        self._sets += [f" map {name} {{", f"  type {kind}", *_elements(pairs), " }"]

    def chain(self, name: str, rules: Iterable[str], *, hook: str = "", policy: str = "accept") -> None:
        """Add a chain; `hook`: type, hook and priority, where the kernel calls it itself."""
        begin = (f"  type {hook}; policy {policy};",) if hook else ()
        self._chains += [f" chain {name} {{", *begin, *(f"  {rule}" for rule in rules), " }"]

    def text(self) -> str:
        """Return what `nft -f` takes: the table is made anew, or everything stays as it was."""
        name = self._name
        return "\n".join((name, f"delete {name}", f"{name} {{", *self._sets, *self._chains, "}", ""))


def quoted(names: Iterable[str]) -> Iterator[str]:
    """Yield names of links as nft reads them."""
    return (f'"{name}"' for name in names)


def _elements(elements: Iterable[str]) -> tuple[str, ...]:
    text = ", ".join(elements)
    return (f"  elements = {{ {text} }}",) if text else ()
