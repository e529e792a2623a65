"""Handwritten digits without a download: the 1797 images of 8 × 8 pixels that come with scikit-learn.

Tasks on them can have any degree of similarity: two groupings of the ten digits that share some of their labels, or
pairs of digits whose pixels are mixed.
"""

from __future__ import annotations

from functools import lru_cache

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
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise SolvableError(
            "the digits come with scikit-learn, which is not installed: pip install scikit-learn."
        ) from None
    pixels, shown = (np.asarray(part) for part in load_digits(return_X_y=True))
    images = pixels - pixels.mean(axis=0)
    return images / np.sqrt(np.mean(images**2)), shown.astype(np.int32)


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
