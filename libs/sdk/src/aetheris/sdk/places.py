"""Places in code, as people are told them."""

import asyncio
import traceback
from pathlib import Path

_OURS = (str(Path(__file__).parent / "workflows"), str(Path(asyncio.__file__).parent))


def raised_at(error: BaseException) -> str:
    """Where a workflow's code has raised: the innermost line of its author's, else the innermost at all.

    What the exception says may hold anything, and is told to nobody.
    """
    frames = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__) if one.lineno is not None]
    own = [one for one in frames if is_an_authors(one[0])]
    places = own or frames
    return f"raised at {at_place(places[-1], 'an unknown place')}" if places else "raised at an unknown place"


def at_place(place: tuple[str, int] | None, otherwise: str) -> str:
    """A file and a line, seen from this folder where it lies below; `otherwise` where none is known."""
    if place is None:
        return otherwise
    path = Path(place[0])
    here = Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{place[1]}"


def is_an_authors(file: str) -> bool:
    """Whether a workflow's author may have written it: it isn't installed, nor what runs workflows."""
    return "site-packages" not in file and not file.startswith(_OURS) and not file.startswith("<")
