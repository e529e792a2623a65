"""From the names of a composed model to its parts, and the labels of a simulation.

Simulated labels come from a Gaussian draw g per sample, as quantiles of u = Φ(g), not from the mixtures of the theory.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array

from solvable.contract.functions import function_named
from solvable.errors import InvalidValue
from solvable.methods.risk import mixtures, real_losses
from solvable.methods.risk.losses import Custom, Loss, loss_named, smooth_loss
from solvable.methods.risk.outputs import Additive, Channel, Labels, Table, own_channel, poisson
from solvable.methods.risk.penalties import Elastic, OwnPenalty, Penalty
from solvable.methods.risk.priors import Prior, named, own_prior

if TYPE_CHECKING:
    from .model import GLM

PRIORS = ("gaussian", "sparse", "binary", "laplace")
CHANNELS = ("gaussian", "laplace", "quantile", "sign", "probit", "logistic", "poisson")
LOSSES = ("square", "absolute", "huber", "quantile", "logistic", "hinge", "exponential", "poisson")
REGULARISERS = ("ridge", "lasso", "elastic-net", "box")
LABELLED = ("sign", "probit", "logistic")
"""Channels with labels ±1."""

REAL = ("square", "absolute", "huber", "quantile")
"""Losses for labels of any kind."""


def refuse_misfits(model: GLM) -> None:
    """Raise unless the parts fit each other and functions of one's own are usable; controls may be arrays."""
    if model.prior not in PRIORS:
        _own_prior(model.prior)
    counts = model.channel == "poisson"
    signs = model.channel in LABELLED
    if model.channel not in CHANNELS:
        _own_channel(model.channel)
        kind = _function(model.channel).labels
        counts, signs = kind == "count", kind == "sign"
    if model.learner == "bayes" or model.loss in REAL:
        return
    needs = "" if counts or model.loss != "poisson" else "counts"
    if model.loss in ("logistic", "hinge", "exponential") and not signs:
        needs = "labels ±1"
    if needs:
        raise InvalidValue(f"loss = {model.loss!r} needs {needs}, which channel = {model.channel!r} does not give.")
    if model.loss not in LOSSES:
        _own_loss(model.loss)


def prior_of(model: GLM) -> Prior:
    """The law of a teacher's weight, of mean square `strength`²."""
    unit = named(model.prior, model.fraction) if model.prior in PRIORS else _own_prior(model.prior)
    return unit.scaled(model.strength)


@cache
def _own_prior(name: str) -> Prior:
    function = _function(name)
    with jax.ensure_compile_time_eval():
        return own_prior(function, getattr(function, "between", None))


def channel_of(model: GLM) -> Channel:
    """The channel of the labels."""
    if model.channel == "gaussian":
        return Additive(mixtures.gaussian(model.noise))
    if model.channel == "laplace":
        return Additive(mixtures.asymmetric_laplace(model.noise, 0.5))
    if model.channel == "quantile":
        return Additive(mixtures.asymmetric_laplace(model.noise, model.noise_level))
    if model.channel == "sign":
        return Labels(mixtures.gaussian(0.0), model.flips)
    if model.channel == "probit":
        return Labels(mixtures.gaussian(model.noise))
    if model.channel == "logistic":
        return Labels(mixtures.logistic())
    return poisson() if model.channel == "poisson" else _own_channel(model.channel)


@cache
def _own_channel(name: str) -> Table:
    function = _function(name)
    kind = getattr(function, "labels", None)
    if kind not in ("sign", "count", "real"):
        raise InvalidValue(
            f"channel = {name!r} does not say its labels: set the function's attribute `labels` to 'sign', 'count' or 'real'."
        )
    with jax.ensure_compile_time_eval():
        return own_channel(function, kind, getattr(function, "between", None))


def loss_of(model: GLM) -> Loss:
    """The training loss."""
    if model.loss in ("logistic", "hinge"):
        return loss_named(model.loss)
    if model.loss == "huber":
        return real_losses.huber(model.threshold)
    if model.loss == "quantile":
        return real_losses.quantile(model.level)
    simple: dict[str, Any] = {
        "square": real_losses.square,
        "absolute": real_losses.absolute,
        "exponential": real_losses.Exponential,
        "poisson": real_losses.Counts,
    }
    return simple[model.loss]() if model.loss in simple else _own_loss(model.loss)


@cache
def _own_loss(name: str) -> Custom:
    try:
        with jax.ensure_compile_time_eval():
            return smooth_loss(_function(name))
    except InvalidValue as problem:
        raise InvalidValue(
            f"loss = {name!r} is not smooth and convex: its {str(problem).partition('. Pass')[0]}"
        ) from None


def penalty_of(model: GLM) -> Penalty:
    """The penalty on every weight."""
    strength = model.penalty
    if model.regulariser == "ridge":
        return Elastic(l2=strength)
    if model.regulariser == "lasso":
        return Elastic(strength)
    if model.regulariser == "elastic-net":
        return Elastic(strength * model.mixing, strength * (1 - model.mixing))
    if model.regulariser == "box":
        return Elastic(l2=strength, bound=model.bound)
    function = _function(model.regulariser)
    return OwnPenalty(function, strength, getattr(function, "cost", None))


def _function(name: str) -> Any:
    function = function_named(name)
    if function is None:
        raise InvalidValue(f"the function {name!r} cannot be found.")
    return function


# --- simulation -----------------------------------------------------------------------------------------------------------


def labels(model: GLM, field: Array, draw: Array) -> Array:
    """Labels given the teacher's field, from one standard Gaussian draw each."""
    dtype, name = field.dtype, model.channel
    noise, one = jnp.sqrt(model.noise).astype(dtype), jnp.ones_like(field)
    u = jnp.clip(ndtr(draw), 1e-7, 1 - 1e-7)
    if name == "gaussian":
        return field + noise * draw
    if name in ("laplace", "quantile"):
        k = model.noise_level.astype(dtype) if name == "quantile" else jnp.asarray(0.5, dtype)
        scale = noise * k * (1 - k) / jnp.sqrt(1 - 2 * k * (1 - k))
        return field + scale * jnp.where(u < k, jnp.log(u / k) / (1 - k), -jnp.log((1 - u) / (1 - k)) / k)
    if name == "sign":
        return jnp.where(field >= 0, one, -one) * jnp.where(u < model.flips.astype(dtype), -one, one)
    if name == "probit":
        return jnp.where(field + noise * draw >= 0, one, -one)
    if name == "logistic":
        return jnp.where(u < jax.nn.sigmoid(field), one, -one)
    table = channel_of(model)
    assert isinstance(table, Table)
    values = table.values.astype(dtype)
    logs = table.log_likelihood(values[None, :], field[:, None]) + jnp.log(table.weights.astype(dtype))[None, :]
    cumulative = jnp.cumsum(jnp.exp(logs), axis=1)
    index = jnp.sum((cumulative < (u * cumulative[:, -1])[:, None]).astype(jnp.int32), axis=1)
    return values[jnp.minimum(index, values.shape[0] - 1)]
