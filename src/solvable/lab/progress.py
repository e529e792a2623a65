"""Progress of a study on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(show: bool | None, total: int, finished: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error; yields the function that advances it. `show=None` means only on a terminal.

    >>> with progress_bar(False, total=3, finished=0) as advance:
    ...     advance(2)
    """
    if show is None:
        show = sys.stderr.isatty()
    if not show or finished == total:
        yield lambda number: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("cells", total=total, completed=finished)
        yield lambda number: bar.advance(task, number)
