"""Designs of a composed model: eigenvalues for the theory, and matrices drawn for the simulation.

The matrices are drawn from the definition: Gaussian rows times a square root of the covariance, or singular vectors of a Gaussian
matrix with singular values of one's own. The theory uses eigenvalues only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from solvable.errors import InvalidValue
from solvable.methods.fixed_points.linear_algebra import cholesky, orthonormal_columns
from solvable.methods.risk.designs import Design

if TYPE_CHECKING:
    from .model import GLM

DESIGNS = ("gaussian", "power-law", "eigenvalues", "covariance", "orthogonal", "invariant")
COVARIANCES = ("power-law", "eigenvalues", "covariance")
"""Gaussian rows that are not independent; their covariance has a basis."""
INVARIANT = ("orthogonal", "invariant")
MODES = 32
"""Different eigenvalues of the power law, each of an equal share of directions."""


def refuse_designs(model: GLM) -> None:
    """Raise unless the design is one, and the theory covers it; arrays may be traced."""
    if (model.design == "covariance") != (model.matrix is not None):
        raise InvalidValue(
            "design = 'covariance' needs `matrix`, a d×d covariance, and only design = 'covariance' takes one."
        )
    if model.design in ("eigenvalues", "invariant") and not isinstance(model.eigenvalues, Tracer):
        given = np.asarray(model.eigenvalues)
        if given.size == 0 or given.max() <= 0:
            raise InvalidValue("eigenvalues has no positive entry: at least one must be.")
        if model.design == "eigenvalues" and given.min() <= 0:
            raise InvalidValue(
                "eigenvalues has a zero: those of a covariance are positive (design = 'invariant' takes zeros)."
            )
    matrix = model.matrix
    if matrix is None or isinstance(matrix, Tracer):
        return
    own = np.asarray(matrix)
    if own.ndim != 2 or own.shape[0] != own.shape[1] or not np.allclose(own, own.T) or np.linalg.eigvalsh(own)[0] <= 0:
        raise InvalidValue("matrix is not a covariance: it must be square and symmetric with positive eigenvalues.")
    if model.basis == "aligned":
        if not np.array_equal(own, np.diag(np.diag(own))):
            raise InvalidValue(
                "matrix is not diagonal: basis = 'aligned' needs a diagonal one, basis = 'rotated' takes any."
            )
        return
    # Only eigenvalues matter to a ridge penalty and to Gaussian weights.
    name, value, fine = (
        ("prior", model.prior, "gaussian") if model.learner == "bayes" else ("regulariser", model.regulariser, "ridge")
    )
    if value != fine:
        raise InvalidValue(
            f"{name} = {value!r} has no theory for a matrix that is not diagonal, {name} = {fine!r} has one; for random "
            "eigenvectors use design = 'eigenvalues' with basis = 'rotated'."
        )


def design_of(model: GLM) -> Design | None:
    """The eigenvalues of the theory; none for independent Gaussians."""
    kind = model.kind_of_design
    if model.design == "gaussian":
        return None
    if model.design == "orthogonal":
        return Design(jnp.ones(1), kind)
    if model.design == "covariance":
        assert model.matrix is not None
        return Design(jnp.diag(model.matrix) if kind == "aligned" else jnp.linalg.eigvalsh(model.matrix), kind)
    if model.design == "power-law":
        return Design(jnp.arange(1, MODES + 1, dtype=float) ** -model.decay, kind)
    return Design(model.eigenvalues, kind)


# --- simulation -----------------------------------------------------------------------------------------------------------


def covariance_root(model: GLM, key: Array, size: int, dtype: Any) -> Float[Array, "d d"] | Float[Array, " d"] | None:
    """A square root L of the covariance LᵀL of Gaussian rows, of mean eigenvalue one: a diagonal, a matrix, or none."""
    if model.design == "gaussian" or model.design in INVARIANT:
        return None
    if model.design == "covariance":
        assert model.matrix is not None
        if size != model.matrix.shape[0]:
            raise InvalidValue(f"size = {size} does not match `matrix`: use size = {model.matrix.shape[0]}.")
        matrix = (model.matrix * (size / jnp.trace(model.matrix))).astype(dtype)
        return jnp.sqrt(jnp.diag(matrix)) if model.kind_of_design == "aligned" else cholesky(matrix).T
    if model.design == "power-law":
        values = (1.0 + np.arange(size) * MODES // size) ** -model.decay
    else:
        values = model.eigenvalues[np.arange(size) * model.eigenvalues.shape[0] // size]
    scales = jnp.sqrt(values / jnp.mean(values)).astype(dtype)
    if model.basis == "aligned":
        return scales
    vectors = orthonormal_columns(jax.random.normal(key, (size, size), dtype))
    return scales[:, None] * vectors.T


def invariant_rows(model: GLM, draws: Float[Array, "n d"], mask: Float[Array, " n"]) -> Float[Array, "n d"]:
    """A matrix with the singular vectors of the Gaussian `draws` and given singular values; rows of mean square norm one."""
    n, d = draws.shape
    left, s, right = jnp.linalg.svd(draws * mask[:, None], full_matrices=False)
    there = s > 1e-6 * s[0]
    rank = jnp.sum(there)
    values = jnp.ones(1, draws.dtype) if model.design == "orthogonal" else model.eigenvalues.astype(draws.dtype)
    index = jnp.arange(min(n, d)) * values.shape[0] // jnp.maximum(rank, 1)
    squares = jnp.where(there, values[jnp.minimum(index, values.shape[0] - 1)], 0.0)
    singular = jnp.sqrt(squares * jnp.sum(mask) / jnp.sum(squares))
    return (left * singular[None, :]) @ right


def drawn_rows(
    model: GLM, draws: Float[Array, "n d"], mask: Float[Array, " n"], root: Array | None
) -> Float[Array, "n d"]:
    """The design: rows of mean square norm one, from standard Gaussian `draws`."""
    if model.design in INVARIANT:
        return invariant_rows(model, draws, mask)
    scaled = draws / math.sqrt(draws.shape[1])
    if root is None:
        return scaled
    return scaled * root[None, :] if root.ndim == 1 else scaled @ root


def seen_by_samples(weights: Float[Array, " d"], root: Array | None) -> Float[Array, " d"]:
    """L w, whose inner products are those of fields on fresh samples."""
    if root is None:
        return weights
    return root * weights if root.ndim == 1 else root @ weights
