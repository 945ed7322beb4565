"""How keys in files are replaced while everything runs: a new one is added, used, and the old ones are dropped.

Between the steps the files are copied to the other machines, so that every process reads by a key before any process
encrypts by it, and nothing is left that only the old key reads when that goes. How far a rotation is stands beside
the keys, and is copied with them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from skep.domain.clock import SECOND
from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured
from skep.processes import nats_secrets
from skep.processes.directory import StateDirectory, step_is_taken, write_private
from skep.standalone import key_ring, ownership

Secret = Literal["tokens", "sealing", "nats"]
"""What encrypts tokens of the embedded identity; what seals passwords and addresses in rows; what users and keys of
NATS follow from."""
Step = Literal["add", "use", "drop"]

ROTATION_FILE = "rotation.json"


class Ring(Protocol):
    """Secrets in a file: the first is used, every one is taken. What `key_ring` and `nats_secrets` are."""

    def names(self, path: Path) -> tuple[str, ...]:
        """Return by which words people know them."""

    def add(self, path: Path) -> str:
        """Put a new one last and return its name."""

    def use(self, path: Path, name: str) -> None:
        """Put one first."""

    def drop(self, path: Path) -> tuple[str, ...]:
        """Forget all but the first; return the names of those."""


RINGS: Mapping[Secret, Ring] = {"tokens": key_ring, "sealing": key_ring, "nats": nats_secrets}


class RotationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A rotation that is under way."""

    key: str
    """The name of the new key."""
    added_at: int
    used_at: int | None = None
    """Since when the new key encrypts."""


class StepRefusal(msgspec.Struct, frozen=True):
    """Why a step is not taken now."""

    reason: str


class StepTaken(msgspec.Struct, frozen=True, kw_only=True):
    """A step that was taken."""

    step: Step
    key: str
    """The name of the new key."""
    dropped: tuple[str, ...] = ()
    """The names of the keys that are gone."""


def next_step(record: RotationRecord | None) -> Step:
    """Return which step comes next. Pure."""
    if record is None:
        return "add"
    return "use" if record.used_at is None else "drop"


def refusal(
    record: RotationRecord | None, now: int, settled_after: int, needed: Mapping[str, int]
) -> StepRefusal | None:
    """Return why the next step may not be taken yet, None when it may. Pure.

    `settled_after`: seconds after which nothing encrypted by the old key counts any more by itself. `needed`: what is
    stored and only an old key reads, noun -> how many.
    """
    if record is None or record.used_at is None:
        return None
    left = record.used_at + settled_after * SECOND - now
    if left > 0:
        return StepRefusal(f"what the old keys encrypted is good for another {-(-left // SECOND)} s")
    stored = ", ".join(f"{count} {noun}" for noun, count in needed.items() if count)
    return StepRefusal(f"old keys are still needed by {stored}") if stored else None


class Rotation:
    """The rotations of one state directory."""

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory
        self._path = directory.keys / ROTATION_FILE

    def file_of(self, secret: Secret) -> Path:
        """Return where the keys of a secret are."""
        directory = self._directory
        files: dict[Secret, Path] = {
            "tokens": directory.token_keys,
            "sealing": directory.secrets_key,
            "nats": directory.nats_key,
        }
        return files[secret]

    def keys(self, secret: Secret) -> tuple[str, ...]:
        """Return the names of the keys, the one that encrypts first; none before a first start."""
        path = self.file_of(secret)
        return RINGS[secret].names(path) if path.exists() else ()

    def record(self, secret: Secret) -> RotationRecord | None:
        """Return how far a rotation is; None when none is under way. Raises Misconfigured when that cannot be read."""
        return self.records().get(secret)

    def advance(self, secret: Secret, now: int, step: Step | None = None) -> StepTaken:
        """Take the next step, which `refusal` has nothing against; `step`: only if it is this one.

        Raises Misconfigured when the keys are not here, InUse when another step comes next.
        """
        with self._held():
            if step is not None and next_step(self.record(secret)) != step:
                raise step_is_taken(step)
            return self._advance(secret, now)

    def _advance(self, secret: Secret, now: int) -> StepTaken:
        path, record, ring = self.file_of(secret), self.record(secret), RINGS[secret]
        if record is None:
            name = ring.add(path)
            self._write(secret, RotationRecord(key=name, added_at=now))
            return StepTaken(step="add", key=name)
        if record.used_at is None:
            ring.use(path, record.key)
            self._write(secret, msgspec.structs.replace(record, used_at=now))
            return StepTaken(step="use", key=record.key)
        if self.keys(secret)[0] != record.key:
            raise Misconfigured(
                f"{path} does not encrypt by the new key {record.key}: copy it from the machine that uses the new key"
            )
        dropped = ring.drop(path)
        self._write(secret, None)
        return StepTaken(step="drop", key=record.key, dropped=dropped)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Wait until no other process of this machine takes a step. Blocks."""
        lock = ownership.open_lock(self._directory.root / "rotation.lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def records(self) -> dict[str, RotationRecord]:
        """Return the rotations that are under way, by secret. Raises Misconfigured when that cannot be read."""
        try:
            return json_decoder(dict[str, RotationRecord]).decode(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.DecodeError) as error:
            raise Misconfigured(f"{self._path} cannot be read: {error}") from error

    def _write(self, secret: Secret, record: RotationRecord | None) -> None:
        kept = {name: one for name, one in self.records().items() if name != secret}
        records = kept if record is None else {**kept, secret: record}
        write_private(self._path, msgspec.json.format(msgspec.json.encode(records)) + b"\n")
