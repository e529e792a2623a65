"""Handwritten digits without a download: the 1797 images of 8 × 8 pixels that come with scikit-learn.

Tasks on them can have any degree of similarity: two groupings of the ten digits that share some of their labels, or
pairs of digits whose pixels are mixed.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ...errors import InvalidValue, SolvableError

PIXELS = 64


@lru_cache(maxsize=1)
def digit_images() -> tuple[np.ndarray, np.ndarray]:
    """All images as rows of 64 pixels, centred, with mean variance one per pixel, and their labels (0…9).

    >>> images, labels = digit_images()
    >>> images.shape, round(float((images**2).mean()), 6), np.bincount(labels).min() > 170
    ((1797, 64), 1.0, np.True_)
    """
    pixels, shown = _read()
    images = pixels - pixels.mean(axis=0)
    return images / np.sqrt(np.mean(images**2)), shown.astype(np.int32)


def _read() -> tuple[np.ndarray, np.ndarray]:
    """Pixels (0…16) and labels; from their file if it is found, because importing scikit-learn takes seconds."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise SolvableError("the digits come with scikit-learn, which is not installed: pip install scikit-learn.")
    try:
        table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    except OSError:
        from sklearn.datasets import load_digits

        pixels, shown = load_digits(return_X_y=True)
        return np.asarray(pixels), np.asarray(shown)
    return table[:, :-1], table[:, -1]


@lru_cache(maxsize=8)
def digit_components(size: int) -> tuple[np.ndarray, np.ndarray]:
    """The `size` leading principal components of the images, with mean variance one, and their labels.

    `size` = 64 is a rotation of the pixels: nothing is lost.

    >>> digit_components(20)[0].shape
    (1797, 20)
    """
    if not 1 <= size <= PIXELS:
        raise InvalidValue(f"size = {size} is not in [1, {PIXELS}]: the images have {PIXELS} pixels.")
    images, labels = digit_images()
    components = images @ np.linalg.svd(images, full_matrices=False)[2][:size].T
    return components / np.sqrt(np.mean(components**2)), labels
