"""Exported figures and data, and the thumbnails of the gallery."""

from __future__ import annotations

import io
import tempfile
import threading
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import InvalidValue

FORMATS = {
    "csv": "text/csv; charset=utf-8",
    "nc": "application/x-netcdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
}
_drawing = threading.Lock()  # Matplotlib draws one figure at a time


def export(study: Any, observables: list[str], to: str, **drawn: Any) -> bytes:
    """Export a study to a file: data by the laboratory's export, figures by its plotting, with these options."""
    if to in ("csv", "nc"):
        from ..lab.export import export as write

        with tempfile.TemporaryDirectory(prefix="solvable-") as folder:
            file = Path(folder) / "data"
            write(study.dataset(), {"nc": "netcdf"}.get(to, to), file)
            return file.read_bytes()
    if to not in FORMATS:
        raise InvalidValue(f"there is no export to {str(to)[:40]!r}: {', '.join(FORMATS)}.")
    import matplotlib

    with _drawing:
        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        from ..render.plots import house_style

        figure = study.plot(observables or None, **drawn)
        try:
            with house_style():
                buffer = io.BytesIO()
                figure.savefig(buffer, format=to)
                return buffer.getvalue()
        finally:
            plt.close(figure)


@lru_cache(maxsize=128)
def thumbnail(id: str) -> tuple[str, bytes]:
    """Content type and bytes of a thumbnail: one of the model's kept figures, or else its initial."""
    from ..models import FIGURES

    for listing in FIGURES:
        if listing.shows(id):
            try:
                return "image/png", _drawn(listing)
            except Exception:  # a thumbnail must never cause a failure
                break
    return "image/svg+xml", _placeholder(id)


def _drawn(listing: Any) -> bytes:
    import importlib

    import matplotlib

    from ..render.figures import kept
    from ..render.plots import house_style

    datasets = kept(listing.name)
    if datasets is None:
        raise InvalidValue(f"{listing.name} has no kept figure.")
    with _drawing, house_style():
        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        figure = importlib.import_module(listing.module).RECIPES[listing.name].picture(datasets)
        try:
            buffer = io.BytesIO()
            width = figure.get_size_inches()[0]
            figure.savefig(buffer, format="png", dpi=max(20.0, 480 / width), bbox_inches="tight")
            return buffer.getvalue()
        finally:
            plt.close(figure)


def _placeholder(id: str) -> bytes:
    letter = next((c for c in id if c.isalnum()), "?").upper()
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 480 300"><rect width="480" height="300" fill="#f2f4f7"/>'
        '<path d="M40 240 C160 240 200 60 440 60" fill="none" stroke="#0072b2" stroke-width="6"/>'
        f'<text x="60" y="110" font-family="sans-serif" font-size="64" fill="#222">{letter}</text></svg>'
    ).encode()
