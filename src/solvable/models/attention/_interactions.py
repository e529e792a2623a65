"""Shared by the experiments on interactions of several orders: networks, their optimiser, and evaluation steps."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Int

from solvable.errors import InvalidValue
from solvable.methods.training.loops import Optimiser, logits_at_hidden_site
from solvable.methods.training.squared_attention import InteractionStack
from solvable.methods.training.transformers import Transformer
from solvable.model import Reference, choice, control, dimension, observable

SIMPLICITY = Reference(
    "rende2024distributional", "R. Rende, F. Gerace, A. Laio and S. Goldt", "A distributional simplicity bias in the learning "
    "dynamics of transformers", 2024, "NeurIPS", arxiv="2410.19637")  # fmt: skip

LADDER = (1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.3, 8.0)
"""Evaluated steps are these multiples of powers of ten, so training runs of different length share them."""


def evaluated_steps(steps: int) -> Int[np.ndarray, " recorded"]:
    """Zero, about ten whole steps per decade, and the last step.

    >>> evaluated_steps(11).tolist()
    [0, 1, 2, 3, 4, 5, 6, 8, 10, 11]
    """
    rungs = [round(10**power * rung) for power in range(len(str(steps))) for rung in LADDER]
    return np.array(sorted({0, steps, *(n for n in rungs if n <= steps)}))


class Tracked(eqx.Module):
    """A network together with its initial weights, which are not trained and do not affect the loss."""

    network: Any
    begin: Any

    def __call__(self, tokens: Array, masked: Array) -> Array:
        return self.network(tokens, masked)

    def at_hidden_site(self, tokens: Array, hidden: Array) -> Array:
        return logits_at_hidden_site(self.network, tokens, hidden)


@eqx.filter_jit
def networks(
    keys: Any, learner: str, colours: int, sites: int, depth: int, heads: int, width: int, scale: Array
) -> Tracked:
    """Stacks of squared attention, or encoders, batched: one for every key."""

    def one(key):
        if learner == "stack":
            stack = InteractionStack(colours, sites, depth, heads, width, key)
            # `scale` multiplies the initial values of every layer.
            return eqx.tree_at(lambda s: s.values, stack, tuple(scale * v for v in stack.values))
        return Transformer(colours, sites, width=width, depth=depth, heads=heads, key=key)

    made = eqx.filter_vmap(one)(keys)
    return Tracked(made, made if learner == "stack" else None)


def optimiser(model: Any) -> Optimiser:
    """The optimiser declared by a model with the fields of this module."""
    clip = float(model.clip) or None
    return Optimiser(
        model.optimiser, rate=float(model.rate), steps=model.steps if model.decay == "cosine" else None, clip=clip
    )


# --- fields that both experiments have ------------------------------------------------------------------------------------


def learner_field() -> Any:
    return choice(
        "stack",
        options=("stack", "encoder"),
        meaning="layers of factored attention with squares in between, or a transformer",
    )


def depth_field() -> Any:
    return choice(3, low=1, high=4, symbol="N", meaning="layers of the network")


def optimiser_field() -> Any:
    return choice("adam", options=("sgd", "adam"), meaning="gradient descent, or Adam")


def decay_field() -> Any:
    return choice(
        "cosine", options=("cosine", "constant"), meaning="learning-rate schedule: decay to zero, or constant"
    )


def rate_field(default: float) -> Any:
    return control(
        default, low=0.0, low_open=True, high=10.0, typical=(1e-3, 1.0), scale="log", symbol=r"\eta",
        meaning="learning rate at the start")  # fmt: skip


def scale_field() -> Any:
    return control(
        1.0, low=0.0, low_open=True, high=10.0, typical=(0.1, 3.0), scale="log", symbol="s",
        meaning="factor on the initial values of a stack")  # fmt: skip


def clip_field() -> Any:
    return control(
        0.0,
        low=0.0,
        high=1000.0,
        typical=(0.0, 10.0),
        meaning="largest norm of a gradient; longer ones are clipped, 0 means no clipping",
    )


STEP = dimension("step", "steps of training", symbol="t", scale="log", kind="time")
CLONE = dimension("clone", "order of the clone; 4 is the law itself", kind="label")
LAYER = dimension("layer", "layer of the network", symbol="l", kind="label")
DISPLACEMENT = observable(
    "displacement", "mean square displacement of a layer from its initial weights", low=0,
    dims=("step", "network", "layer"), predicted=False, when={"learner": "stack"})  # fmt: skip


def networks_field() -> Any:
    return choice(2, low=1, high=64, meaning="networks trained side by side on the same sequences")


def heads_field() -> Any:
    return choice(4, low=1, high=64, meaning="attention heads of a layer")


def check_heads(model: Any) -> None:
    """Refuse heads that do not divide the width of an encoder."""
    if model.learner == "encoder" and model.width % model.heads:
        raise InvalidValue(f"heads = {model.heads} does not divide width = {model.width}.")


PAIRED = (
    "learner",
    "depth",
    "optimiser",
    "decay",
    "rate",
    "scale",
    "clip",
    "heads",
    "width",
    "steps",
    "batch",
    "networks",
)
"""Fields of the learner: cells that differ only in these learn from the same sequences."""


def run_keys(key: Any, number: int) -> tuple[Any, Any]:
    """Keys of the initial weights and of the batches of `number` networks; the first ones do not depend on `number`."""
    each = jax.vmap(lambda n: jax.random.fold_in(key, n))(np.arange(number))
    both = jax.vmap(jax.random.split)(each)
    return both[:, 0], both[:, 1]
