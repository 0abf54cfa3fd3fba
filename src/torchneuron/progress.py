"""What is shown on standard error while something long runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

EVERY = 10.0  # seconds between lines where standard error is no terminal


class Ticker:
    """Counts operators, on a spinner in a terminal and with a line now and then elsewhere."""

    def __init__(self, console: Console, what: str) -> None:
        self._console, self._what = console, what
        self._began = self._last = time.monotonic()
        self._live: Progress | None = None
        if console.is_terminal:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            # What the script prints goes where it would go without this.
            self._live = Progress(
                *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._task = self._live.add_task(what)

    def __call__(self, operators: int) -> None:
        if operators % 64:
            return
        if self._live is not None:
            self._live.update(self._task, description=f"{self._what}: {operators:,} operators")
        elif (now := time.monotonic()) - self._last > EVERY:
            self._last = now
            self._console.print(
                f"torchneuron: {self._what}: {operators:,} operators in {now - self._began:.0f} s", soft_wrap=True
            )


@contextmanager
def ticking(console: Console, what: str) -> Iterator[Ticker]:
    ticker = Ticker(console, what)
    if ticker._live is None:
        yield ticker
    else:
        with ticker._live:
            yield ticker
