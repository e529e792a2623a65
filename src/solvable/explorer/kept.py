"""Kept figures: results that took minutes or hours, shown where a page would otherwise begin empty."""

from __future__ import annotations

import importlib
import io
from functools import lru_cache
from typing import Any

from ..models import FIGURES, figure_named
from .prose import line


def figures(id: str) -> list[dict[str, Any]]:
    """The kept figures that show a model, its own first, with their captions.

    >>> [f["name"] for f in figures("binary-digits")]
    ['binary-digits-depth', 'binary-digits-training']
    """
    found = sorted((f for f in FIGURES if f.shows(id)), key=lambda f: f.model != id)
    return [{"name": f.name, "sentence_html": line(f.sentence), "command": f"solvable figure {f.name}"} for f in found]


@lru_cache(maxsize=16)
def picture(name: str) -> bytes:
    """A figure from its kept results, as SVG; raises `UnknownName` or `InvalidValue`."""
    import matplotlib

    from ..errors import InvalidValue
    from ..render.figures import kept
    from ..render.plots import house_style
    from .files import OUTLINES, drawing

    listing, datasets = figure_named(name), kept(name)
    if datasets is None:
        raise InvalidValue(f"{name} has no kept results.")
    with drawing, house_style(), matplotlib.rc_context(OUTLINES):  # type: ignore[arg-type]
        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        figure = importlib.import_module(listing.module).RECIPES[name].picture(datasets)
        try:
            buffer = io.BytesIO()
            figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
            return buffer.getvalue()
        finally:
            plt.close(figure)
