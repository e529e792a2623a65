"""Single-unit FastICA on one data set, from many starts at once; whitened patches of images."""

from __future__ import annotations

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.errors import SolvableError

from .contrasts import first, second


@partial(jax.jit, static_argnames=("name", "steps"))
def iterate(x: Array, starts: Array, steps: int, name: str = "kurtosis") -> Array:
    """The unit vectors after 0, 1, …, `steps` steps of FastICA on the rows of x: (step, start, dimension)."""

    def step(w: Array, _: None) -> tuple[Array, Array]:
        a = x @ w.T
        moved = first(name, a).T @ x - jnp.sum(second(name, a), axis=0)[:, None] * w
        moved = moved / jnp.linalg.norm(moved, axis=1)[:, None]
        return moved, moved

    starts = starts / jnp.linalg.norm(starts, axis=1)[:, None]
    _, path = jax.lax.scan(step, starts, None, length=steps)
    return jnp.concatenate([starts[None], path])


def excess_kurtosis(x: Array, w: Array) -> Array:
    """Excess kurtosis of the projections of the rows of x on unit vectors (last axis of w)."""
    a = jnp.tensordot(w, x, axes=[[-1], [-1]])
    return jnp.mean(a**4, axis=-1) / jnp.mean(a**2, axis=-1) ** 2 - 3


def spiked(key: Array, number: int, size: int, snr: float) -> Array:
    """White samples with a sign along the first axis."""
    noise_key, sign_key = jax.random.split(key)
    x = jax.random.normal(noise_key, (number, size), jnp.float32)
    r = snr / (1 + snr)
    sign = jnp.where(jax.random.bernoulli(sign_key, 0.5, (number,)), 1.0, -1.0).astype(jnp.float32)
    return x.at[:, 0].set(np.float32(np.sqrt(r)) * sign + np.float32(np.sqrt(1 - r)) * x[:, 0])


@lru_cache(maxsize=4)
def image_patches(side: int, number: int, seed: int = 0, phases: bool = False, contrast: bool = False) -> np.ndarray:
    """Whitened greyscale patches of scikit-learn's two photographs, their means removed: number × (side² - 1).

    With `phases` the images' Fourier phases are randomised first, which keeps only the spectrum. With `contrast`
    every patch is scaled to the same variance before whitening, so that bright and flat regions do not cause heavy tails.
    """
    try:
        from sklearn.datasets import load_sample_images
    except ImportError:
        raise SolvableError(
            "the images come with scikit-learn, which is not installed; run `pip install scikit-learn`."
        ) from None
    rng, rows = np.random.default_rng(seed), []
    for image in load_sample_images().images:
        grey = np.log1p(np.asarray(image, float).mean(axis=2))
        grey = grey - grey.mean()
        if phases:
            # The phases are those of real noise, so that the image stays real.
            turned = np.fft.fft2(rng.normal(size=grey.shape))
            grey = np.fft.ifft2(np.abs(np.fft.fft2(grey)) * turned / np.abs(turned)).real
        top = rng.integers(0, grey.shape[0] - side, number // 2)
        left = rng.integers(0, grey.shape[1] - side, number // 2)
        patches = np.stack([grey[i : i + side, j : j + side].ravel() for i, j in zip(top, left, strict=True)])
        patches = patches - patches.mean(axis=1, keepdims=True)
        if contrast:
            patches = patches / np.maximum(patches.std(axis=1, keepdims=True), 1e-6)
        patches = patches - patches.mean(axis=0)
        values, vectors = np.linalg.eigh(patches.T @ patches / len(patches))
        # Whiten each image separately: a mixture of Gaussians with different covariances is not Gaussian. The mean is left out.
        rows.append(patches @ vectors[:, 1:] / np.sqrt(values[1:]))
    white = np.concatenate(rows)
    return white[rng.permutation(len(white))].astype(np.float32)
