"""What the command prints, and how it ends (exit codes: docs/cli.md).

Results go to standard output, progress and messages to standard error. What came from outside is printed without
control characters and without markup.
"""

import errno
import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from aetheris.cli.embedded.errors import EmbeddedError, RefusedError
from aetheris.protocol.base.canonical import InvalidArgs
from aetheris.protocol.base.ids import InvalidName
from aetheris.runtime.base.refusal import REFUSED_STATUS, StartRefused

out = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
err = Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)

_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT})

Json = Annotated[bool, typer.Option("--json", is_eager=True, help="Print JSON, for programs.")]


class Exit(IntEnum):
    """How a command ends."""

    HOLDS = 0
    FAILED = 1
    BAD_INPUT = 2
    UNKNOWN_JOB = 4
    UNREACHABLE = 5
    REFUSED = REFUSED_STATUS


class CommandError(Exception):
    """A command can't go on: how it ends, why, and what to do next; never an argument's or a result's content."""

    def __init__(self, ends: Exit, code: str, message: str, /, **details: Any) -> None:
        super().__init__(message)
        self.ends = ends
        self.code = code
        self.message = message
        self.details = details


@contextmanager
def errors_as_exits(*, as_json: bool = False) -> Generator[None]:
    """Turn what can be expected to go wrong into a message and an exit code."""
    try:
        yield
    except CommandError as error:
        found = error
    except InvalidArgs as error:
        found = CommandError(Exit.BAD_INPUT, error.code, str(error), field=error.field)
    except InvalidName as error:
        found = CommandError(Exit.BAD_INPUT, error.code, str(error))
    except StartRefused as error:
        found = CommandError(Exit.REFUSED, error.code, str(error))
    except RefusedError as error:
        found = CommandError(Exit.REFUSED, "refused", str(error))
    except EmbeddedError as error:
        found = CommandError(Exit.UNREACHABLE, "not_ready", str(error))
    except OSError as error:
        if error.errno not in _NOT_WRITABLE or error.filename is None:
            raise
        message = f"{error.filename} can't be written: {error.strerror}. Make room, or choose another folder."
        found = CommandError(Exit.BAD_INPUT, "not_writable", message)
    else:
        return
    _say(found, as_json=as_json)
    raise typer.Exit(int(found.ends))


def end(code: Exit) -> None:
    """End the command; nothing to do where it holds.

    Raises:
        typer.Exit.
    """
    if code is not Exit.HOLDS:
        raise typer.Exit(int(code))


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_json_line(value: Any) -> None:
    """One JSON document on a line of its own, for streams; written out at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Columns under their names on standard output; cells are never cut."""
    cells = [["" if cell is None else shown(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    out.print(Text(_padded(columns, widths), "bold"))
    for row in cells:
        out.print(_padded(row, widths))


def fields(rows: Sequence[tuple[str, Any]]) -> None:
    """Names and values, one a line, on standard output, what is no text or number as JSON; empty ones are left out."""
    for name, value in rows:
        if value not in (None, ""):
            text = json.dumps(value, ensure_ascii=False) if isinstance(value, bool | dict | list) else value
            out.print(Text.assemble((f"{name:<14}", "bold"), " ", shown(text)))


def progress(part: str, state: str) -> None:
    """A line about a part that is being worked on, on standard error."""
    err.print(Text.assemble((f"{shown(part):<14}", "bold"), " ", shown(state)))


def shown(value: Any) -> str:
    """Text as it may go to a terminal: what could steer it is replaced."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(value))


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _say(error: CommandError, *, as_json: bool) -> None:
    if as_json:
        print_json({"error": {"code": error.code, "message": error.message, "details": error.details}})
    else:
        err.print(Text.assemble((error.code, "red"), ": ", shown(error.message)))
