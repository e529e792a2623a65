r"""Hermite algebra: coefficients of activations, moments of non-Gaussian variables, and information exponents.

He_k are the probabilists' polynomials, E He_j(z) He_k(z) = k! δ_jk. A function has coefficients c_k = E[f(z) He_k(z)]; a
variable g of unit variance has Hermite moments h_k = E[He_k(g)], which vanish for a Gaussian. Noise only shrinks them: if
a² + b² = 1 and z is Gaussian, E_z He_k(ag + bz) = a^k He_k(g). The first order k ≥ 1 at which the product of the two does
not vanish, the information exponent, decides how many samples a learner needs.

>>> import jax.numpy as jnp
>>> quartic = coefficients(lambda z: z**4 / 4, 6)
>>> [round(float(c), 10) for c in quartic[::2]]
[0.75, 3.0, 6.0, 0.0]
>>> moments = hermite_moments(raw_moments("rademacher", 6))
>>> [round(float(h), 10) for h in moments]
[1.0, 0.0, 0.0, 0.0, -2.0, 0.0, 16.0]
>>> information_exponent(quartic * moments)
4
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import InvalidValue
from .quadrature import legendre

__all__ = [
    "LATENTS",
    "atoms_with_moments",
    "coefficients",
    "hermite_moments",
    "hermite_values",
    "information_exponent",
    "mixed_coefficients",
    "raw_moments",
]

# Panels of unit length, on which a polynomial times a Gaussian is smooth, out to where degree 20 still contributes.
PANELS = np.arange(-16.0, 17.0)

LATENTS = ("rademacher", "uniform", "laplace", "gaussian")
"""Variables of mean zero and variance one whose moments are known at every order."""


def hermite_values(x: Float[Array, "..."], order: int) -> Float[Array, "order_and_one ..."]:
    """He_0(x), …, He_order(x), along a new first axis.

    >>> hermite_values(jnp.asarray(2.0), 4).tolist()
    [1.0, 2.0, 3.0, 2.0, -5.0]
    """
    rows = [jnp.ones_like(x), x]
    for k in range(1, order):
        rows.append(x * rows[k] - k * rows[k - 1])
    return jnp.stack(rows[: order + 1])


def coefficients(
    function: Callable[[Array], Array], order: int, kinks: Sequence[float] = (), nodes: int = 24
) -> Float[Array, " order_and_one"]:
    """c_k = E[f(z) He_k(z)] up to `order`, for a function that is smooth except at `kinks`; f = Σ_k c_k He_k/k!.

    Uses panels of unit length that end at the kinks: accurate to 1e-13 of E|f He_k| for functions smooth on that scale.

    >>> relu = coefficients(lambda z: jnp.maximum(z, 0.0), 4, kinks=(0.0,))
    >>> bool(abs(relu[2] - 1 / np.sqrt(2 * np.pi)) < 1e-14), bool(abs(relu[4] + 1 / np.sqrt(2 * np.pi)) < 1e-13)
    (True, True)
    """
    edges = np.union1d(PANELS, np.asarray(kinks, float))
    u, w = legendre(nodes)
    z = (edges[:-1, None] + np.diff(edges)[:, None] * u).reshape(-1)
    weight = (np.diff(edges)[:, None] * w).reshape(-1) * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return hermite_values(jnp.asarray(z), order) @ (jnp.asarray(weight) * function(jnp.asarray(z)))


def raw_moments(latent: str, order: int) -> np.ndarray:
    """E[g^k], k = 0 … order, of a latent variable given by name, with mean zero and variance one.

    >>> raw_moments("laplace", 4).tolist(), raw_moments("uniform", 4).round(12).tolist()
    ([1.0, 0.0, 1.0, 0.0, 6.0], [1.0, 0.0, 1.0, 0.0, 1.8])
    """
    even = {
        "rademacher": lambda k: 1.0,
        "uniform": lambda k: 3.0 ** (k / 2) / (k + 1),
        "laplace": lambda k: math.exp(math.lgamma(k + 1) - 0.5 * k * math.log(2.0)) if k > 20
        else math.factorial(k) / 2.0 ** (k / 2),
        "gaussian": lambda k: float(math.prod(range(1, k, 2))),
    }  # fmt: skip
    if latent not in even:
        raise InvalidValue(f"latent = {latent!r} is not one of {', '.join(map(repr, LATENTS))}.")
    return np.array([even[latent](k) if k % 2 == 0 else 0.0 for k in range(order + 1)])


def hermite_moments(moments: Float[np.ndarray, " order_and_one"]) -> Float[np.ndarray, " order_and_one"]:
    """E[He_k(g)] from E[g^k], both from order 0: h_k/k! = Σ_j (-1/2)^j/j! · m_{k-2j}/(k-2j)!.

    They vanish for a Gaussian, and the fourth is the excess kurtosis:

    >>> hermite_moments(raw_moments("gaussian", 6)).round(9).tolist(), float(hermite_moments(raw_moments("laplace", 4))[4])
    ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 3.0)
    """
    moments = np.asarray(moments, float)
    found = np.zeros(len(moments))
    for k in range(len(moments)):
        # integers until the last product, to avoid needless cancellation
        for j in range(k // 2 + 1):
            weight = math.factorial(k) // (2**j * math.factorial(j) * math.factorial(k - 2 * j))
            found[k] += (-1) ** j * weight * moments[k - 2 * j]
    return found


def information_exponent(
    products: Float[np.ndarray, " order"] | Float[Array, " order"], tolerance: float = 1e-10
) -> int:
    """The first order k ≥ 1 at which `products` (orders 0, 1, …) does not vanish; 0 if there is none.

    >>> information_exponent(np.array([1.0, 0.0, 0.0, 0.0, -2.0])), information_exponent(np.array([1.0, 0.0]))
    (4, 0)
    """
    there = np.flatnonzero(np.abs(np.asarray(products)[1:]) > tolerance)
    return int(there[0]) + 1 if there.size else 0


def atoms_with_moments(moments: Float[np.ndarray, " order"]) -> tuple[np.ndarray, np.ndarray]:
    """The law with the fewest atoms that has the moments E[g^0] … E[g^(2m-1)]: m values and their probabilities.

    This is Gaussian quadrature for these moments. Raises `InvalidValue` if no variable has them.

    >>> values, chances = atoms_with_moments(np.array([1.0, 0.0, 1.0, 0.0]))
    >>> values.round(12).tolist(), chances.round(12).tolist()
    ([-1.0, 1.0], [0.5, 0.5])
    """
    from scipy.linalg import eigh

    moments = np.asarray(moments, float)
    if len(moments) % 2 or len(moments) < 2:
        raise InvalidValue(f"moments has {len(moments)} entries; it needs an even number, E[g^0] … E[g^(2m-1)].")
    m = len(moments) // 2
    index = np.add.outer(np.arange(m), np.arange(m))
    try:
        values, vectors = eigh(moments[index + 1], moments[index])
    except np.linalg.LinAlgError:
        raise InvalidValue(
            f"moments = {moments.tolist()} do not belong to any variable with {m} or more distinct values: "
            "their Hankel matrix is not positive."
        ) from None
    # eigenvectors are normalised by the Hankel matrix, so that their projections on the constant are √probability
    chances = (vectors.T @ moments[np.arange(m)]) ** 2 / moments[0]
    return values, chances


def mixed_coefficients(
    shift: Float[np.ndarray, " atoms"],
    latent: Float[np.ndarray, " atoms"],
    weights: Float[np.ndarray, " atoms"],
    ratio: float,
    order: int,
) -> Float[np.ndarray, "order_and_one order_and_one"]:
    """c_ij = E[He_i(s) He_j(t)] for s = `shift` + z and t = √ratio·`latent` + √(1-ratio)·z', with any joint law of both.

    s is a direction that keeps its larger variance, t a whitened one: c_ij = E[shift^i ratio^(j/2) He_j(latent)].

    >>> corner = mixed_coefficients(np.array([1.0, -1.0]), np.array([1.0, -1.0]), np.array([0.5, 0.5]), 0.25, 4)
    >>> float(corner[1, 1]), float(corner[2, 0]), float(corner[0, 4])
    (0.5, 1.0, -0.125)
    """
    powers = np.asarray(shift, float)[None, :] ** np.arange(order + 1)[:, None]
    hermite = (
        np.asarray(hermite_values(jnp.asarray(latent, float), order)) * ratio ** (np.arange(order + 1) / 2)[:, None]
    )
    return np.einsum("ia,ja,a->ij", powers, hermite, np.asarray(weights, float))
