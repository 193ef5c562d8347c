"""What the demo says while it runs: a line for each thing that happens, with the seconds since its start."""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table


class Say:
    """Prints to standard output."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._started = time.monotonic()

    def headline(self, text: str) -> None:
        """A new part of the story."""
        self._console.print(f"\n[bold]{escape(text)}[/bold]")

    def step(self, text: str) -> None:
        """Something happens."""
        self._console.print(f"{self._clock()}  {escape(text)}")

    def kill(self, text: str) -> None:
        """Something is broken on purpose."""
        self._console.print(f"{self._clock()}  [red]{escape(text)}[/red]")

    def detail(self, text: str) -> None:
        """Of interest when it takes long."""
        self._console.print(f"{self._clock()}  [dim]  {escape(text)}[/dim]")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Cells may have markup."""
        grid = Table(*columns, box=None, pad_edge=False)
        for row in rows:
            grid.add_row(*row)
        self._console.print()
        self._console.print(grid)

    def plain(self, markup: str) -> None:
        """As it stands, with markup."""
        self._console.print(markup)

    def _clock(self) -> str:
        return f"[dim]{time.monotonic() - self._started:6.1f} s[/dim]"
