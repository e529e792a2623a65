"""Thumbnails of the gallery: `python -m solvable.explorer.thumbnails [MODEL ...]` (`make thumbnails`) makes them in advance.

A thumbnail is the most telling panel of a model's first kept figure, drawn anew for its small size: a few thick lines, large
points, no numbers. It is stored beside the model as a small SVG, so that the gallery needs neither Matplotlib nor JAX.
"""

from __future__ import annotations

import html
import re
import sys
from typing import Any

import numpy as np

from ..models import FIGURES, LISTINGS
from .gallery import HEIGHT, WIDTH, thumbnail_file

LEFT, RIGHT, TOP, BOTTOM = 14, 306, 30, 164  # of the panel
MOST_LINES, MOST_VERTICES, MOST_MARKERS = 7, 60, 14
CELLS = (36, 22)  # of a map


def drawn(id: str) -> str | None:
    """The thumbnail of a model from its kept figures; None without any. Models that share a figure get different panels."""
    import importlib

    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from ..render.figures import kept
    from ..render.plots import house_style

    found: list[tuple[float, str]] = []
    for listing in sorted((f for f in FIGURES if f.shows(id)), key=lambda f: f.model != id):
        datasets = kept(listing.name)
        if datasets is None:
            continue
        with house_style():
            figure = importlib.import_module(listing.module).RECIPES[listing.name].picture(datasets)
            figure.canvas.draw()
        panels = sorted((p for p in map(Panel, figure.axes) if p.score > 0), key=lambda p: -p.score)
        place = 0 if listing.model == id else 1 + listing.also.index(id)
        if panels:
            panel = panels[min(place, len(panels) - 1)]
            found.append((panel.score - 2.0 * bool(found), panel.svg()))  # the first figure is the most important one
        plt.close(figure)
    return max(found)[1] if found else None


class Panel:
    """One panel of a figure: its curves, its points, its map, in coordinates from 0 to 1."""

    def __init__(self, axes: Any):
        self.axes = axes
        lines = [line for line in axes.get_lines() if line.get_visible() and len(self._inside(line)) >= 2]
        own = [line for line in lines if line.get_transform().contains_branch(axes.transData)]
        curves = [line for line in own if line.get_linestyle() not in ("None", "", " ")]
        # Straight lines between two points are guides for the eye, not curves.
        self.curves = [line for line in curves if len(self._inside(line)) > 2][:MOST_LINES]
        self.points = [line for line in own if line.get_marker() not in ("None", "", " ", None, ",")][: 2 * MOST_LINES]
        self.meshes = [c for c in axes.collections if type(c).__name__ == "QuadMesh"] + list(axes.images)

    @property
    def score(self) -> float:
        """How much a small picture of it tells: curves and points on them most, a map less, a colour bar nothing."""
        if getattr(self.axes, "_colorbar", None) is not None or not self.axes.axison:
            return 0.0
        smooth = sum(len(self._inside(line)) > 12 for line in self.curves)
        if not self.curves and not self.points:
            return 1.0 if self.meshes else 0.0
        spread = 0.0  # a flat panel shows nothing
        for line in [*self.curves, *self.points]:
            heights = self._inside(line)[:, 1]
            spread = max(spread, float(np.ptp(heights)))
        if not self.curves:
            return 0.5 * (0.3 + spread)
        return (1.0 + min(smooth, 4) + min(len(self.curves), 4) + 2.0 * bool(self.points)) * (0.3 + spread)

    def _inside(self, line: Any) -> np.ndarray:
        """The vertices of a line that lie in the panel."""
        data = np.column_stack([np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)])
        with np.errstate(all="ignore"):
            places = self.axes.transAxes.inverted().transform(line.get_transform().transform(data))
        return places[np.isfinite(places).all(1) & (np.abs(places - 0.5) <= 0.53).all(1)]

    def svg(self) -> str:
        """The panel as an SVG document."""
        parts = self._map()
        parts += [f'<path d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}" fill="none" stroke="#9aa0a8" stroke-width="1.5"/>']
        for line in self.curves:
            where = _thinned(self._inside(line), MOST_VERTICES)
            dash = "" if line.get_linestyle() == "-" else ' stroke-dasharray="7 6"'
            parts.append(f'<path d="M{"L".join(_placed(where))}" stroke="{_colour(line.get_color())}"{dash}/>')
        for line in self.points:
            colour = _colour(line.get_color())
            marks = "".join(f"M{place}h0" for place in _placed(_thinned(self._inside(line), MOST_MARKERS)))
            parts.append(f'<path d="{marks}" stroke="{colour}" stroke-width="9" stroke-opacity=".85"/>')
        style = 'fill="none" stroke-width="4" stroke-linejoin="round" stroke-linecap="round"'
        captions = [
            _text(f'x="{LEFT}" y="20"', self.axes.get_ylabel() or self.axes.get_title()),
            _text(f'x="{RIGHT}" y="183" text-anchor="end"', self.axes.get_xlabel()),
        ]
        inside = "\n".join([f"<g {style}>", *parts, "</g>", *filter(None, captions)])
        return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">\n{inside}\n</svg>\n'

    def _map(self) -> list[str]:
        """The map as a coarse grid of coloured cells, one path for each colour."""
        if not self.meshes:
            return []
        mesh = self.meshes[0]
        values = np.ma.filled(np.ma.asarray(mesh.get_array(), float), np.nan)
        if values.ndim == 1 and hasattr(mesh, "_coordinates"):
            values = values.reshape(np.asarray(mesh._coordinates).shape[0] - 1, -1)
        if values.ndim != 2:
            return []
        if getattr(mesh, "origin", "lower") == "upper":
            values = values[::-1]
        across, up = (min(c, n) for c, n in zip(CELLS, values.shape[::-1], strict=True))
        spots = [np.linspace(0, n - 1, m).round().astype(int) for n, m in zip(values.shape, (up, across), strict=True)]
        picked = values[np.ix_(*spots)]
        wide, high = (RIGHT - LEFT) / across, (BOTTOM - TOP) / up
        cells: dict[str, list[str]] = {}
        steps = np.round(np.asarray(mesh.norm(picked), float) * 20) / 20  # few colours, few paths
        for (row, column), step in np.ndenumerate(steps):
            if np.isfinite(step):
                corner = f"M{LEFT + column * wide:.1f} {BOTTOM - (row + 1) * high:.1f}"
                place = f"{corner}h{wide + 0.3:.1f}v{high + 0.3:.1f}h-{wide + 0.3:.1f}z"
                cells.setdefault(_colour(mesh.cmap(step)), []).append(place)
        return [f'<path d="{"".join(places)}" fill="{colour}" stroke="none"/>' for colour, places in cells.items()]


def _thinned(places: np.ndarray, most: int) -> np.ndarray:
    if len(places) <= most:
        return places
    return places[np.unique(np.linspace(0, len(places) - 1, most).round().astype(int))]


def _placed(places: np.ndarray) -> list[str]:
    x = LEFT + places[:, 0] * (RIGHT - LEFT)
    y = BOTTOM - places[:, 1] * (BOTTOM - TOP)
    return [f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True)]


def _colour(colour: Any) -> str:
    from matplotlib.colors import to_hex

    return to_hex(colour)


def _text(where: str, label: str) -> str:
    words = html.escape(_caption(label))
    return (
        f'<text {where} font-family="system-ui,sans-serif" font-size="14" fill="#333">{words}</text>' if words else ""
    )


def _caption(label: str) -> str:
    """The words of an axis, without formulas, short enough to be read.

    >>> _caption("samples per dimension, $\\\\alpha$")
    'samples per dimension'
    """
    words = re.sub(r"\$[^$]*\$", " ", label).replace("\n", " ")
    words = re.sub(r"\([^)]*\)?", " ", words)
    words = re.sub(r" +([,;:])", r"\1", " ".join(words.split())).strip(" ,;:=")
    return words if len(words) <= 40 else words[:38].rsplit(" ", 1)[0] + " …"


def main(ids: list[str]) -> int:
    """Make the thumbnails of some models, or of all."""
    for id in ids or [line.id for line in LISTINGS]:
        file, made = thumbnail_file(id), drawn(id)
        if file is None or made is None:
            print(f"{id}: has no kept figure, and keeps its initial", file=sys.stderr)
            continue
        file.write_text(made, encoding="utf-8")
        print(f"{id}: {len(made)} bytes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
