"""Who has to wait after wrong passwords."""

from __future__ import annotations

import pytest

from skep.domain.clock import SECOND
from skep.http.addresses import network_of
from skep.standalone.identity.attempts import Applicant, Rules, SignInAttempts

RULES = Rules(
    free=3, free_of_address=10, attacked_after=20, longest_delay=60, longest_delay_of_address=30, remembered=50
)
ANN = Applicant("ann", "192.0.2.1")
ANN_ELSEWHERE = Applicant("ann", "192.0.2.2")
BOB = Applicant("bob", "192.0.2.1")


@pytest.fixture
def attempts() -> SignInAttempts:
    return SignInAttempts(RULES)


def fail(attempts: SignInAttempts, who: Applicant, count: int, now: int = 0) -> None:
    for _ in range(count):
        attempts.failed(who, now)


def test_the_first_failures_are_free(attempts: SignInAttempts) -> None:
    fail(attempts, ANN, 2)
    assert attempts.wait(ANN, 0) == 0


def test_delays_grow_to_a_bound(attempts: SignInAttempts) -> None:
    fail(attempts, ANN, 2)
    delays = []
    for _ in range(9):
        fail(attempts, ANN, 1)
        delays.append(attempts.wait(ANN, 0))
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_delay_passes(attempts: SignInAttempts) -> None:
    fail(attempts, ANN, 6)
    assert attempts.wait(ANN, 0) == 8
    assert attempts.wait(ANN, 7 * SECOND + 1) == 1
    assert attempts.wait(ANN, 8 * SECOND) == 0


def test_a_clock_that_goes_back_makes_no_delay_longer(attempts: SignInAttempts) -> None:
    fail(attempts, ANN, 6, now=3600 * SECOND)
    assert attempts.wait(ANN, 0) == 8


def test_failures_elsewhere_lock_nobody_out(attempts: SignInAttempts) -> None:
    fail(attempts, ANN, 1000)
    assert attempts.wait(ANN_ELSEWHERE, 0) == 0


def test_an_address_that_tries_many_users_waits_for_all_of_them(attempts: SignInAttempts) -> None:
    for number in range(10):
        attempts.failed(Applicant(f"user{number}", ANN.address), 0)
    assert attempts.wait(Applicant("another", ANN.address), 0) == 1
    fail(attempts, BOB, 1)
    assert attempts.wait(Applicant("another", ANN.address), 0) == 2


def test_who_signed_in_from_an_address_does_not_wait_for_others_there(attempts: SignInAttempts) -> None:
    attempts.succeeded(ANN)
    fail(attempts, BOB, 100)
    assert attempts.wait(ANN, 0) == 0
    fail(attempts, ANN, 3)
    assert attempts.wait(ANN, 0) == 1


def test_right_passwords_count_for_nothing_and_end_the_delay(attempts: SignInAttempts) -> None:
    fail(attempts, ANN, 2)
    attempts.succeeded(ANN)
    fail(attempts, ANN, 2)
    assert attempts.wait(ANN, 0) == 0


def test_a_user_who_is_guessed_from_everywhere_has_one_free_failure_at_new_addresses(attempts: SignInAttempts) -> None:
    attempts.succeeded(ANN)
    for number in range(20):
        attempts.failed(Applicant("ann", f"198.51.100.{number}"), 0)
    assert attempts.wait(ANN_ELSEWHERE, 0) == 0
    fail(attempts, ANN_ELSEWHERE, 1)
    assert attempts.wait(ANN_ELSEWHERE, 0) == 1
    fail(attempts, ANN, 2)
    assert attempts.wait(ANN, 0) == 0


def test_failures_are_forgotten(attempts: SignInAttempts) -> None:
    fail(attempts, ANN, 9)
    assert attempts.wait(ANN, RULES.forgotten_after * SECOND) == 0
    fail(attempts, ANN, 1, RULES.forgotten_after * SECOND)
    assert attempts.wait(ANN, RULES.forgotten_after * SECOND) == 0


def test_memory_is_bounded(attempts: SignInAttempts) -> None:
    for number in range(10_000):
        who = Applicant("x" * 10_000 + str(number), f"10.0.{number // 256}.{number % 256}")
        attempts.failed(who, number)
        attempts.succeeded(Applicant(str(number), "192.0.2.9"))
    assert attempts.remembered <= 4 * RULES.remembered


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("", ""),
        ("not an address", "not an address"),
    ],
)
def test_a_network_that_one_customer_gets_is_one_address(address: str, expected: str) -> None:
    assert network_of(address) == expected
