"""Prints what came of each test of a run as a line of JSON, from the stream of its runner."""

import json
import sys
from pathlib import Path
from typing import Any

import subunit
import testtools

LINES = 4
"""Of a traceback: so many from its end."""


def _said(details: dict[str, Any]) -> str:
    for name, content in sorted(details.items()):
        if name == "reason":
            return str(content.as_text().strip())
        if name.startswith("traceback"):
            return "\n".join(content.as_text().strip().splitlines()[-LINES:])
    return ""


def _tell(test: dict[str, Any]) -> None:
    began, ended = test["timestamps"]
    seconds = (ended - began).total_seconds() if began and ended else 0.0
    told = {"test": test["id"], "status": test["status"], "said": _said(test["details"]), "seconds": seconds}
    sys.stdout.write(json.dumps(told) + "\n")


def main() -> None:
    """Read the stream whose file is named."""
    with Path(sys.argv[1]).open("rb") as stream:
        case = subunit.ByteStreamToStreamResult(stream, non_subunit_name="stdout")
        result = testtools.StreamToDict(_tell)
        result.startTestRun()
        case.run(result)
        result.stopTestRun()


main()
