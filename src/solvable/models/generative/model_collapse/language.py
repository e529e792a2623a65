"""Language models trained on their own text: small transformers on Python's documentation, generation after generation.

Every generation is a new network, trained for the same number of steps on a text of the same length. The first reads real text;
the next ones read what the one before wrote (`replace`), the same with a part of real text (`fresh`), or everything there was
so far, real text first, of which each batch takes its share (`accumulate`). All are tested on the end of the documentation, which
none has read.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from solvable.methods.data.documentation import documentation_letters
from solvable.methods.training.loops import cross_entropies, draw_windows

from ...signals.transformer_scaling.network import GPT, parametrise

ARMS = ("replace", "fresh", "accumulate", "real")
FRESH = 0.25
"""Part of real text in the arm `fresh`."""
CONTEXT, BATCH, LETTERS, WINDOWS = 64, 16, 64, 256
HELD_OUT = 0.1


def texts() -> tuple[np.ndarray, np.ndarray]:
    """The text to train on and the one to test on, as letters."""
    text = documentation_letters(LETTERS)
    held = int(len(text) * (1 - HELD_OUT))
    return text[:held], text[held:]


def trained(key: PRNGKeyArray, text: Int[Array, " n"], *, width: int, depth: int, steps: int, rate: float) -> GPT:
    """A network trained on a text by AdamW, its rate falling to zero like a half cosine."""
    to_draw, to_train = jax.random.split(key)
    network: Any = GPT.draw(LETTERS, CONTEXT, width=width, depth=depth, heads=width // 16, key=to_draw)

    def schedule(step: Array) -> Array:
        at = step.astype(jnp.float32)
        return rate * jnp.minimum(1.0, (at + 1) / 16) * 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(at / steps, 1.0)))

    network, optimiser = parametrise(
        network, "mup", base_width=64, base_depth=depth, rate=schedule, scale=0.1, decay=0.0
    )

    def loss(network: GPT, batch: Array) -> Array:
        return jnp.mean(cross_entropies(jax.vmap(network)(batch[:, :-1]), batch[:, 1:]))

    def step(number: Array, state: tuple[Any, Any]) -> tuple[Any, Any]:
        network, memory = state
        batch = draw_windows(jax.random.fold_in(to_train, number), text, BATCH, CONTEXT + 1)
        slope = jax.grad(loss)(network, batch)
        with jax.numpy_dtype_promotion("standard"):  # optax mixes Python floats and integers
            moves, memory = optimiser.update(slope, memory, network)
        return jax.tree.map(jnp.add, network, moves), memory

    return jax.lax.fori_loop(0, steps, step, (network, optimiser.init(network)))[0]


def written(network: GPT, key: PRNGKeyArray, first: Int[Array, "rows sites"], length: int) -> Int[Array, " n"]:
    """Text of a network, of at least `length` letters: every row continues its first letters, which are then left out."""
    rows, sites = first.shape
    steps = -(-length // rows)

    def following(window: Array, key: PRNGKeyArray) -> tuple[Array, Array]:
        logits = jax.vmap(network)(window)[:, -1]
        letter = jax.random.categorical(key, logits).astype(window.dtype)
        return jnp.concatenate([window[:, 1:], letter[:, None]], axis=1), letter

    return jax.lax.scan(following, first, jax.random.split(key, steps))[1].T.reshape(-1)


@partial(jax.jit, static_argnames=("generations", "width", "depth", "steps", "rows", "rate"))
def chain(
    key: PRNGKeyArray,
    arm: Int[Array, ""],
    *,
    generations: int,
    width: int = 64,
    depth: int = 2,
    steps: int = 1000,
    rows: int = 512,
    rate: float = 2.0**-7,
) -> dict[str, Array]:
    """What happens over generations: the loss on real text, for common and for rare letters, and how much is still written.

    `common_loss` and `rare_loss` are means over letters of each kind: rare ones have a share of less than 1 % in the text.
    `lost_pairs` is the share of the pairs of letters of the real text, rarer than 1 in 10,000, that it does not write.
    """
    real, held = texts()
    number = len(real)
    counts = np.bincount(real, minlength=LETTERS) / number
    pairs = np.bincount(real[:-1] * LETTERS + real[1:], minlength=LETTERS**2)
    rare_pairs = jnp.asarray((pairs > 0) & (pairs < number * 1e-4))
    starts = np.linspace(0, len(held) - CONTEXT - 1, WINDOWS).astype(int)
    tested = jnp.asarray(held[starts[:, None] + np.arange(CONTEXT + 1)[None]])
    kinds = jnp.asarray(np.stack([counts >= 0.01, counts < 0.01]), jnp.float32)
    source = jnp.asarray(real)
    first = jnp.asarray(real[np.linspace(0, number - CONTEXT, rows).astype(int)[:, None] + np.arange(CONTEXT)[None]])

    def generation(text: Array, inputs: tuple[Array, PRNGKeyArray]) -> tuple[Array, dict[str, Array]]:
        index, key = inputs
        to_train, to_write, to_mix = jax.random.split(key, 3)
        network = trained(to_train, text, width=width, depth=depth, steps=steps, rate=rate)
        losses = cross_entropies(jax.vmap(network)(tested[:, :-1]), tested[:, 1:])
        which = kinds[:, tested[:, 1:]]
        of_kind = jnp.sum(which * losses[None], axis=(1, 2)) / jnp.sum(which, axis=(1, 2))
        wrote = written(network, to_write, first, number)[:number]
        seen = jnp.zeros(LETTERS**2, jnp.int32).at[wrote[:-1] * LETTERS + wrote[1:]].add(1)
        lost = jnp.sum(rare_pairs & (seen == 0)) / jnp.sum(rare_pairs)
        # Stretches of the next text, each from the real text, from this generation or from all before it.
        stretch = 1024
        share = jnp.stack([0.0, FRESH, 0.0, 1.0])[arm].astype(jnp.float32)
        kept = (index + 1.0) / (index + 2.0)  # accumulate: of index + 2 texts, one is new
        u = jnp.repeat(jax.random.uniform(to_mix, (-(-number // stretch),), jnp.float32), stretch)[:number]
        mixed = jnp.where(u < share, source, wrote)
        text = jnp.where(arm == 2, jnp.where(u < kept, text, wrote), mixed)
        seen_now = {"loss": jnp.mean(losses), "common_loss": of_kind[0], "rare_loss": of_kind[1], "lost_pairs": lost}
        return text, seen_now

    index = jnp.arange(generations, dtype=jnp.float32)
    return jax.lax.scan(generation, source, (index, jax.random.split(key, generations)))[1]


def chains(generations: int, seeds: int, **shape: Any) -> Any:
    """All arms as a dataset over arm, seed and generation; the first generation of a seed is the same in all arms."""
    import xarray as xr

    keys = jax.random.split(jax.random.key(0), seeds)
    run = jax.vmap(jax.vmap(partial(chain, generations=generations, **shape), (0, None)), (None, 0))
    found = run(keys, jnp.arange(len(ARMS)))
    columns = {name: (("arm", "seed", "generation"), np.asarray(values)) for name, values in found.items()}
    return xr.Dataset(columns, {"arm": list(ARMS), "generation": np.arange(1, generations + 1)})
