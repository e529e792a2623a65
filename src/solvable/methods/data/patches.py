"""Patches of the two photographs that come with scikit-learn (a temple, a flower): natural images without a download."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ...errors import SolvableError


@lru_cache(maxsize=4)
def image_patches(side: int, number: int) -> np.ndarray:
    """Grey square patches as rows, drawn at random, centred by column, with mean variance one.

    The mean grey of a patch is one of its directions; the same patches are drawn each time.

    >>> rows = image_patches(8, 100)
    >>> rows.shape, round(float((rows**2).mean()), 6)
    ((100, 64), 1.0)
    """
    try:
        from sklearn.datasets import load_sample_images
    except ImportError:
        raise SolvableError(
            "the photographs come with scikit-learn, which is not installed: pip install scikit-learn."
        ) from None
    rng, rows = np.random.default_rng(0), []
    images = [np.asarray(image, float).mean(2) for image in load_sample_images().images]
    for which in rng.integers(len(images), size=number):
        top, left = (rng.integers(n - side + 1) for n in images[which].shape)
        rows.append(images[which][top : top + side, left : left + side].ravel())
    patches = np.array(rows) - np.mean(rows, axis=0)
    return patches / np.sqrt(np.mean(patches**2))
