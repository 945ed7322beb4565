"""Wrong passwords: who has to wait before the next one is looked at. Decided without any I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple, TypeVar

from skep.domain.clock import SECOND
from skep.http.addresses import network_of

KeyT = TypeVar("KeyT", bound=Hashable)


class Applicant(NamedTuple):
    """Whoever shows a password: a user's id or the name given, and the address it comes from."""

    user: str
    address: str


@dataclass(frozen=True, slots=True)
class Rules:
    """How many failures are free, and how the delays grow."""

    free: int = 5
    """Failures of one user from one address without a delay."""
    free_of_address: int = 20
    """Failures of one address, whoever the user, without a delay."""
    attacked_after: int = 50
    """Failures of one user from all addresses, after which an address that it never signed in from has one free."""
    longest_delay: int = 300
    """Seconds."""
    longest_delay_of_address: int = 60
    forgotten_after: int = 900
    """Seconds after its last failure that a count is forgotten; longer than any delay."""
    lockout: int = 0
    """Failures of one user from all addresses after which the user is locked out everywhere; 0: never."""
    lockout_duration: int = 1800
    """Seconds after the last failure."""
    remembered: int = 10_000
    """Users, addresses and pairs of both that are remembered, each; of more the oldest are forgotten."""


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: int = 0


class _Counts(Generic[KeyT]):
    """Failures by key; bounded, and forgotten some time after the last one."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._known: OrderedDict[KeyT, _Failures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, key: KeyT, now: int) -> _Failures:
        found = self._known.get(key)
        if found is None:
            return _Failures()
        if now - found.last >= self._rules.forgotten_after * SECOND:
            del self._known[key]
            return _Failures()
        return found

    def add(self, key: KeyT, now: int) -> None:
        self._known[key] = _Failures(self.get(key, now).count + 1, now)
        self._known.move_to_end(key)
        if len(self._known) > self._rules.remembered:
            self._known.popitem(last=False)

    def forget(self, key: KeyT) -> None:
        self._known.pop(key, None)


@dataclass
class SignInAttempts:
    """What is remembered of wrong and right passwords. Only failures count.

    No failure from one address delays a user at another one: the delays are of an address, or of a user at an address.
    """

    rules: Rules = field(default_factory=Rules)

    def __post_init__(self) -> None:
        """Remember nothing yet."""
        self._pairs: _Counts[Applicant] = _Counts(self.rules)
        self._addresses: _Counts[str] = _Counts(self.rules)
        self._users: _Counts[str] = _Counts(self.rules)
        locked = replace(self.rules, forgotten_after=self.rules.lockout_duration)
        self._locked: _Counts[str] = _Counts(locked)
        self._proven: OrderedDict[Applicant, None] = OrderedDict()

    @property
    def remembered(self) -> int:
        """How many entries there are."""
        return len(self._pairs) + len(self._addresses) + len(self._users) + len(self._locked) + len(self._proven)

    def is_proven(self, who: Applicant) -> bool:
        """Tell whether this user signed in from this address before."""
        return _known_as(who) in self._proven

    def wait(self, who: Applicant, now: int) -> int:
        """Return how many seconds must pass until a password is looked at; 0: none."""
        who = _known_as(who)
        rules = self.rules
        proven = who in self._proven
        attacked = self._users.get(who.user, now).count >= rules.attacked_after
        free = 1 if attacked and not proven else rules.free
        seconds = max(_left(self._pairs.get(who, now), free, rules.longest_delay, now), self._locked_out(who.user, now))
        if proven:
            return seconds
        failures = self._addresses.get(who.address, now)
        return max(seconds, _left(failures, rules.free_of_address, rules.longest_delay_of_address, now))

    def _locked_out(self, user: str, now: int) -> int:
        """Return how many seconds a user is locked out everywhere."""
        found, duration = self._locked.get(user, now), self.rules.lockout_duration
        if not self.rules.lockout or found.count < self.rules.lockout:
            return 0
        return min(duration, max(0, -((now - found.last - duration * SECOND) // SECOND)))

    def failed(self, who: Applicant, now: int) -> None:
        """Count a wrong password."""
        who = _known_as(who)
        self._pairs.add(who, now)
        self._addresses.add(who.address, now)
        self._users.add(who.user, now)
        if self.rules.lockout:
            self._locked.add(who.user, now)

    def succeeded(self, who: Applicant) -> None:
        """Note a right password: this user is known at this address, and its failures there are forgotten."""
        who = _known_as(who)
        self._pairs.forget(who)
        self._locked.forget(who.user)
        self._proven[who] = None
        self._proven.move_to_end(who)
        if len(self._proven) > self.rules.remembered:
            self._proven.popitem(last=False)


def _left(failures: _Failures, free: int, longest: int, now: int) -> int:
    """Return what is left of the delay after the last failure: 1, 2, 4, ... seconds beyond the free ones."""
    beyond = failures.count - free
    if beyond < 0:
        return 0
    delay = min(longest, 1 << min(beyond, 20))
    # A clock that was set back makes no delay longer.
    return min(delay, max(0, -((now - failures.last - delay * SECOND) // SECOND)))


def _known_as(who: Applicant) -> Applicant:
    """Return the form to remember: names are cut, and a customer's network of IPv6 counts as one address."""
    return Applicant(who.user[:255], network_of(who.address))
