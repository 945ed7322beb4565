"""Names of records in their order, whatever came and went."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.scheduler.names import Names
from skep.synchronizer.base import Key

letters = st.sampled_from("abcdefgh")


@given(
    steps=st.lists(st.tuples(letters, st.booleans(), st.booleans()), max_size=40),
    after=letters | st.just(""),
    until=letters | st.none(),
)
def test_a_range_is_what_a_naive_look_finds(steps: list[tuple[str, bool, bool]], after: str, until: str | None) -> None:
    names = Names()
    naive: set[str] = set()
    for name, present, look in steps:
        names.note(Key("one", name), present=present)
        names.note(Key("other", "x"), present=present)
        naive = naive | {name} if present else naive - {name}
        if look:
            assert names.between("one", "", None) == sorted(naive)
    assert sorted(names.of("one")) == sorted(naive)
    wanted = sorted(name for name in naive if after < name and (until is None or name <= until))
    assert names.between("one", after, until) == wanted
    assert names.between("none", after, until) == []
