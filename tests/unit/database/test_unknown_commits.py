"""A COMMIT without an answer: it came true, it did not, or nobody knows."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy import event, exc

from skep.database.dialects import Sqlite
from skep.database.engine import Database
from skep.domain.errors import OutcomeUnknown, StorageUnavailable


@pytest.mark.parametrize(
    ("came_true", "raised"), [(True, None), (False, StorageUnavailable), (None, OutcomeUnknown), (exc, OutcomeUnknown)]
)
async def test_what_is_said_of_a_commit_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, came_true: object, raised: type[Exception] | None
) -> None:
    def asked(self: Sqlite, connection: sa.Connection, name: str) -> bool | None:
        assert name == "transaction 1"
        if came_true is exc:
            raise exc.OperationalError("SELECT", {}, OSError("gone"))
        assert came_true is None or isinstance(came_true, bool)
        return came_true

    begin = Sqlite.begin_write

    def named(self: Sqlite, connection: sa.Connection) -> str:
        begin(self, connection)
        return "transaction 1"

    monkeypatch.setattr(Sqlite, "came_true", asked)
    monkeypatch.setattr(Sqlite, "begin_write", named)
    database = Database(tmp_path / "one.db")

    def cut_off(_connection: sa.Connection) -> None:
        raise exc.OperationalError("COMMIT", {}, OSError("the server closed the connection"))

    event.listen(database.engine, "commit", cut_off)
    try:
        if raised is None:
            assert await database.write(lambda _: "done") == "done"
        else:
            with pytest.raises(StorageUnavailable) as failed:
                await database.write(lambda _: "done")
            assert type(failed.value) is raised
    finally:
        await database.close()
