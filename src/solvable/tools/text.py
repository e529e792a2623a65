"""Clones of a text: which orders of interaction between characters a transformer learns first.

A text is cut into windows of L characters over its C−1 most common ones and *other*. Stacks of factored attention with one,
two and three layers (interactions of 2, 3 and 5 characters) are trained to predict hidden characters, each added to the
trained shallower ones. Gibbs sweeps with their conditionals, started from held-out windows, turn these windows into *clones*
without higher interactions. An encoder is then trained on the text, and its loss on the held-out text and on every clone is
followed: low orders saturate first (Rende, Gerace, Laio and Goldt 2024, arXiv:2410.19637).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..contract.input_files import regular_bytes
from ..errors import InvalidValue
from ..methods.sequences.monte_carlo import sweep
from ..methods.training.loops import (
    MaskedTokens,
    NextToken,
    Optimiser,
    geometric_steps,
    masked_loss,
    next_token_loss,
    train,
)
from ..methods.training.squared_attention import InteractionStack, SumOfStacks
from ..methods.training.transformers import Transformer

OTHER = "�"
LEAST_WINDOWS = 50
HELD_OUT = 0.1

LARGEST_FILE = 512 * 1024**2


class Windows(NamedTuple):
    """A text in tokens: training windows, held-out windows from its last tenth, and the character of each token."""

    train: np.ndarray
    test: np.ndarray
    characters: tuple[str, ...]


class Saturation(NamedTuple):
    """The loss on one set of windows while networks are trained on the text."""

    order: int
    """Order of interactions of the clone; 0 for the text itself."""
    losses: np.ndarray
    """Means over the networks at every recorded step."""
    runs: np.ndarray
    """The same for every network, (steps, seeds)."""
    best_step: int
    settled_step: int
    """The step from which the loss stays within 5 % of its last value."""


class Learnt(NamedTuple):
    """Results for the text and its clones, and the loss of each stack on held-out text."""

    steps: np.ndarray
    sets: tuple[Saturation, ...]
    stack_losses: dict[int, float]
    seeds: int


def read_text(file: Path) -> str:
    """Read a text file; raises `InvalidValue` if it cannot be read."""
    try:
        raw = regular_bytes(file, LARGEST_FILE)
    except OSError as problem:
        raise InvalidValue(f"the file {str(file)!r} cannot be read: {problem.strerror}.") from None
    if not raw.strip():
        raise InvalidValue(f"the file {str(file)!r} is empty.")
    if b"\0" in raw:
        raise InvalidValue(f"the file {str(file)!r} is not a text file: it contains zero bytes.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise InvalidValue(f"the file {str(file)!r} is not UTF-8 text: byte {problem.start} is invalid.") from None


def cut_windows(text: str, sites: int, colours: int, stride: int = 0) -> Windows:
    """Cut a text into windows of `sites` characters, `stride` apart (default: a quarter window); runs of blanks are merged.

    >>> windows = cut_windows("to be or not to be " * 40, sites=6, colours=5)
    >>> windows.train.shape[1], windows.characters
    (6, (' ', 'o', 't', 'b', '�'))
    """
    if not 3 <= sites <= 256 or not 2 <= colours <= 127:
        raise InvalidValue(f"sites = {sites} is not in [3, 256], or colours = {colours} is not in [2, 127].")
    text = " ".join(text.split())
    held = int(len(text) * (1 - HELD_OUT))
    stride = stride or max(1, sites // 4)
    if (len(text) - held - sites) // sites < LEAST_WINDOWS // 10:
        least = int((LEAST_WINDOWS // 10 + 2) * sites / HELD_OUT)
        raise InvalidValue(
            f"the text is too short: it has {len(text)} characters, but windows of {sites} need {least}."
        )
    common = [c for c, _ in sorted(Counter(text[:held]).items(), key=lambda item: (-item[1], item[0]))[: colours - 1]]
    place = {c: i for i, c in enumerate(common)}
    tokens = np.array([place.get(c, len(common)) for c in text], np.int8)
    every = np.lib.stride_tricks.sliding_window_view
    return Windows(
        every(tokens[:held], sites)[::stride].copy(), every(tokens[held:], sites)[::stride].copy(), (*common, OTHER)
    )


class ConditionalNetwork(eqx.Module):
    """A network's conditionals as a law for Gibbs sweeps: its prediction for a site when that site is hidden."""

    network: Any
    sites: int = eqx.field(static=True)
    colours: int = eqx.field(static=True)
    dtype: Any = eqx.field(static=True, default=jnp.float32)

    def begin(self, states: Array) -> Array:
        return jnp.asarray(states, jnp.int32)

    def logits(self, work: Array, site: Any) -> Array:
        hidden = jnp.arange(self.sites) == site
        return jax.vmap(self.network, in_axes=(0, None))(work, hidden)[:, site]

    def weights(self, work: Any, site: Any) -> None:
        """Exponentials are needed here."""
        return None

    def assign(self, work: Array, site: Any, colours: Array) -> Array:
        return work.at[:, site].set(colours)

    def states(self, work: Array) -> Array:
        return work


@eqx.filter_jit
def clone(law: ConditionalNetwork, key: Array, windows: Array, sweeps: int) -> Array:
    """Windows after some Gibbs sweeps with the conditionals of a network."""

    def step(work, key):
        return sweep(law, work, key), None

    return law.states(jax.lax.scan(step, law.begin(windows), jax.random.split(key, sweeps))[0])


class _OnSets(eqx.Module):
    """Losses on every set: of a hidden character given all others, or of the next one."""

    causal: bool = eqx.field(static=True, default=False)

    def __call__(self, network: Any, sets: Any) -> Array:
        with jax.default_matmul_precision("highest"):
            return jnp.stack(
                [next_token_loss(network, s) if self.causal else masked_loss(network, s, 64) for s in sets]
            )


def settled(steps: np.ndarray, losses: np.ndarray, share: float = 0.05) -> int:
    """The first recorded step from which a loss stays within a given fraction of its last value.

    >>> settled(np.array([0, 10, 20, 30]), np.array([2.0, 1.04, 1.06, 1.0]))
    30
    """
    far = np.flatnonzero(np.abs(losses - losses[-1]) > share * abs(losses[-1]))
    return int(steps[far[-1] + 1]) if far.size and far[-1] + 1 < len(steps) else int(steps[0 if not far.size else -1])


def learn_text(
    windows: Windows,
    *,
    depths: tuple[int, ...] = (1, 2, 3),
    steps: int = 2000,
    sweeps: int = 20,
    seeds: int = 2,
    heads: int = 4,
    width: int = 16,
    batch: int = 64,
    held: int = 256,
    seed: int = 0,
) -> Learnt:
    """Train the stacks, make the clones, train encoders, and follow the encoders' loss on text and clones."""
    sets, stack_losses = make_clones(
        windows, depths=depths, steps=steps, sweeps=sweeps, heads=heads, width=width, batch=batch, held=held, seed=seed
    )
    return Learnt(*follow(windows, sets, steps=steps, seeds=seeds, batch=batch, seed=seed), stack_losses, seeds)


def make_clones(
    windows: Windows,
    *,
    depths: tuple[int, ...],
    steps: int,
    sweeps: int,
    heads: int,
    width: int,
    batch: int,
    held: int,
    seed: int = 0,
) -> tuple[dict[int, Array], dict[int, float]]:
    """Held-out windows (order 0) and their clones by order of interaction, and the loss of each stack on the former."""
    if not depths or min(depths) < 1 or max(depths) > 4:
        raise InvalidValue(f"depths = {depths} must be integers in [1, 4], the numbers of layers of the stacks.")
    sites, colours = windows.train.shape[1], len(windows.characters)
    data = jnp.asarray(windows.train)
    chosen = np.random.default_rng(seed).permutation(len(windows.test))[:held]
    test = jnp.asarray(windows.test[np.sort(chosen)], jnp.int32)
    first, _, *own = jax.random.split(jax.random.key(seed), 2 + len(depths))
    sets, stack_losses, found = {0: test}, {}, SumOfStacks(())
    for depth, key in zip(sorted(depths), own, strict=True):
        stack = InteractionStack(colours, sites, depth, heads, width, key, scale=2.0)
        begin = found.deeper(stack) if found.stacks else SumOfStacks((stack,))
        run = train(begin, MaskedTokens(batch), data, Optimiser("adam", rate=3e-3, steps=steps, clip=1.0), steps, key,
                    record=[steps], measure=_OnSets(), held_out=(test,), precision="default")  # fmt: skip
        found = run.network
        stack_losses[begin.bodies] = float(run.measures[-1, 0])
        law = ConditionalNetwork(found, sites, colours)
        sets[begin.bodies] = clone(law, jax.random.fold_in(first, depth), test, sweeps)
    return sets, stack_losses


def follow(
    windows: Windows,
    sets: dict[int, Array],
    *,
    steps: int,
    seeds: int,
    batch: int,
    seed: int = 0,
    causal: bool = False,
    width: int = 48,
    depth: int = 2,
    heads: int = 4,
    recorded: int = 24,
) -> tuple[np.ndarray, tuple[Saturation, ...]]:
    """Train encoders on the text and return the recorded steps and their losses on every set.

    With `causal` they are decoders, trained on the next character and tested on it. On a GPU the factors of products are
    rounded to eleven bits in training, not in the losses.
    """
    sites, colours = windows.train.shape[1], len(windows.characters)
    keys = jax.random.split(jax.random.split(jax.random.key(seed), 3)[1], seeds)
    make = eqx.filter_vmap(
        lambda k: Transformer(colours, sites, width=width, depth=depth, heads=heads, causal=causal, key=k)
    )(keys)
    rule = Optimiser("adam", rate=2e-3, steps=steps, warmup=min(50, steps // 10 + 1))
    loss = NextToken(batch) if causal else MaskedTokens(batch)
    run = train(make, loss, jnp.asarray(windows.train), rule, steps, keys, record=geometric_steps(steps, recorded),
                measure=_OnSets(causal), held_out=tuple(sets.values()), precision="default")  # fmt: skip
    curves = []
    for i, order in enumerate(sets):
        losses = run.measures[:, :, i].mean(1)
        best = int(run.steps[np.argmin(losses)])
        curves.append(Saturation(order, losses, run.measures[:, :, i], best, settled(run.steps, losses)))
    return run.steps, tuple(curves)


def draw_learnt(learnt: Learnt, file: Path) -> None:
    """Plot the loss of the encoder on the text and on every clone against steps."""
    import matplotlib.pyplot as plt

    from ..render.plots import COLOURS, house_style, log_axis

    with house_style():
        figure, axis = plt.subplots(figsize=(5.4, 3.8))
        for colour, one in zip(COLOURS, learnt.sets, strict=False):
            label = f"clone of {one.order} bodies" if one.order else "text"
            axis.plot(learnt.steps[1:], one.losses[1:], color=colour, label=label)
            axis.axvline(max(one.settled_step, 1), color=colour, linewidth=0.7, linestyle=":")
        axis.set(xlabel="steps", ylabel="masked-character loss (nats)")
        log_axis(axis.xaxis)
        axis.legend()
        try:
            figure.savefig(file)
        except (OSError, ValueError) as problem:
            raise InvalidValue(f"the plot {str(file)!r} cannot be written: {problem}.") from None
        finally:
            plt.close(figure)
