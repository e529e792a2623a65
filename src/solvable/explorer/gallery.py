"""The list of models on the page, from the listings only: neither models nor JAX are imported."""

from __future__ import annotations

from typing import Any

from .._version import __version__
from ..models import FAMILIES
from ..registry import listings
from .prose import line as prose_line


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
