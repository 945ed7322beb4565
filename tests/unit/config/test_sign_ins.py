"""When a connection signs in anew."""

from __future__ import annotations

from skep.config.sign_ins import LONGEST_PAUSE, SignIns, Version


def test_files_that_are_not_taken_are_tried_again_after_a_pause_and_others_at_once() -> None:
    now, files = 0.0, 0

    def version() -> Version:
        return ((files, 0),)

    one = SignIns(version, lambda: now)
    assert (one.is_due, one.is_followed) == (False, True)
    files = 1
    pauses = []
    for _ in range(6):
        assert (one.is_due, one.is_followed) == (True, False)
        one.begin()
        one.fail()
        before = now
        while not one.is_due:
            now += 0.25
        pauses.append(now - before)
    assert pauses == [0.5, 1.0, 2.0, 4.0, LONGEST_PAUSE, LONGEST_PAUSE]
    one.begin()
    one.fail()
    assert not one.is_due
    files = 2
    assert one.is_due
    one.begin()
    files = 3
    one.succeed()
    assert (one.is_due, one.is_followed, one.failures) == (True, False, 0)
    one.begin()
    one.succeed()
    assert (one.is_due, one.is_followed) == (False, True)
