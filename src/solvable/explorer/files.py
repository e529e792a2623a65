"""Exported figures and data."""

from __future__ import annotations

import io
import tempfile
import threading
from pathlib import Path
from typing import Any

from ..errors import InvalidValue

FORMATS = {
    "csv": "text/csv; charset=utf-8",
    "nc": "application/x-netcdf",
    "png": "image/png",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
    "html": "text/html; charset=utf-8",
}
drawing = threading.Lock()  # Matplotlib draws one figure at a time


OUTLINES = {"svg.fonttype": "path"}  # letters as shapes, which need no fonts where the picture is opened


def export(study: Any, observables: list[str], to: str, *, outlines: bool = False, **drawn: Any) -> bytes:
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

    with drawing:
        matplotlib.use("agg")
        import matplotlib.pyplot as plt

        from ..render.plots import house_style

        figure = study.plot(observables or None, **drawn)
        try:
            with house_style(), matplotlib.rc_context(OUTLINES if outlines else {}):  # type: ignore[arg-type]
                buffer = io.BytesIO()
                figure.savefig(buffer, format=to)
                return buffer.getvalue()
        finally:
            plt.close(figure)
