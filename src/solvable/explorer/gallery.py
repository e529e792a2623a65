"""The list of models on the page, from the listings only: neither models nor JAX are imported."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from .._version import __version__
from ..models import FAMILIES, LISTINGS
from ..registry import listings
from .prose import line as prose_line

HOME = Path(__file__).parents[1] / "models"
WIDTH, HEIGHT = 320, 190  # of a thumbnail


def models() -> dict[str, Any]:
    """Every registered model in one line."""
    return {
        "version": __version__,
        "models": [
            {
                "id": line.id,
                "title": line.shown_title,
                "family": line.family,
                "family_title": FAMILIES.get(line.family, line.family.replace("-", " ").capitalize()),
                "sentence": line.sentence,
                "sentence_html": prose_line(line.sentence),
                "kind": line.kind,
                "has_theory": line.kind != "experiment",
                "badge": line.kind,
                "thumbnail": f"/thumbnails/{line.id}.svg",
            }
            for line in listings().values()
        ],
    }


def thumbnail_file(id: str) -> Path | None:
    """The file of a model's thumbnail, whether or not it exists; None for a model of another package.

    >>> thumbnail_file("perceptron").parts[-3:]
    ('replica', 'perceptron', 'thumbnail.svg')
    """
    line = next((line for line in LISTINGS if line.id == id), None)
    if line is None:
        return None
    _, _, family, model, _ = line.module.split(".")
    return HOME / family / model / "thumbnail.svg"


def thumbnail(id: str) -> bytes:
    """The stored thumbnail of a model, or else a placeholder with its initial."""
    file = thumbnail_file(id)
    return file.read_bytes() if file is not None and file.is_file() else _placeholder(id)


def _placeholder(id: str) -> bytes:
    letter = next((c for c in id if c.isalnum()), "?").upper()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">'
        '<path d="M24 150 C100 150 130 40 296 40" fill="none" stroke="#0072b2" stroke-width="5"/>'
        f'<text x="40" y="84" font-family="sans-serif" font-size="48" fill="#555">{html.escape(letter)}</text></svg>'
    ).encode()
