"""The commands that a page of the documentation tells its reader to type, and whether they can be typed so.

A fenced block is commands, unless it names another language (```` ```toml ````). Elsewhere a command is what stands in
backquotes and begins with the name of a program and something behind it.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from skep.cli.main import skep

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#+ ", re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_BEGINNING = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:skep|openstack|systemctl|journalctl|curl|df|truncate|rm|chown|git|pip|psql|createdb|pg_dump"
    r"|nats-server|runuser|install|\.venv/bin/python|scripts/bootstrap) \S"
)
_COMMENT = re.compile(r"\s+#.*$|^#.*$")


def commands_of(text: str) -> list[str]:
    """Return all commands of a page, each once, in its order."""
    found = [line for language, block in _BLOCK.findall(text) if not language for line in _lines(block)]
    found += [span for span in _SPAN.findall(_BLOCK.sub("", text)) if _BEGINNING.match(span)]
    return list(dict.fromkeys(found))


def blocks_under(page: Path, heading: str) -> list[list[str]]:
    """Return the lines of each block of commands of a section, which ends at the next heading."""
    section = _HEADING.split(page.read_text().partition(f"\n{heading}\n")[2], maxsplit=1)[0]
    return [block.splitlines() for language, block in _BLOCK.findall(section) if not language]


def _lines(block: str) -> list[str]:
    """Return the commands of a block: loops and lines that go on behind a backslash in one piece, without remarks."""
    lines: list[str] = []
    whole = ""
    for line in block.splitlines():
        bare = _COMMENT.sub("", line).rstrip()
        if not bare:
            continue
        whole = f"{whole}\n{bare}" if whole else bare
        if bare.endswith("\\") or (whole.startswith("for ") and bare != "done"):
            continue
        lines.append(whole)
        whole = ""
    return lines


def unknown_words(command: str) -> str | None:
    """Return what of a `skep` command line there is not: a command or an option. None if there is all of it."""
    words = [word.strip("[]") for word in shlex.split(re.split(r" [>|] ", command)[0])]
    words = words[words.index("skep") + 1 :]
    here: click.Command = skep
    context = click.Context(skep)
    for word in words:
        if word.startswith("-"):
            known = {name for parameter in here.get_params(context) for name in parameter.opts}
            if word not in known:
                return f"{here.name} has no {word}"
        elif isinstance(here, click.Group):
            inner = here.get_command(context, word)
            if inner is None:
                return f"{here.name} has no {word}"
            here, context = inner, click.Context(inner, parent=context)
    return None
