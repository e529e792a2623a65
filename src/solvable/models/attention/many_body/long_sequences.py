"""Networks on long sequences with sparse planted groups: learning curves of every depth, floors by fits, clones by Gibbs.

These are functions, not cells of a study. The full version trains for a million steps on one accelerator: every network, and the
fits, is a piece of its own that outlives an interruption (`Pieces`), where a cell would start again; and all networks share the
law, the sequences, the floors and the clones that they are held against, where a cell draws its own.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.methods.sequences.interactions import SumOfBodies, TablesOfGroups, law_loss
from solvable.methods.sequences.monte_carlo import sample
from solvable.methods.training.loops import MaskedTokens, Optimiser, evaluate, geometric_steps, masked_loss, train
from solvable.methods.training.squared_attention import InteractionStack, displacement
from solvable.methods.training.transformers import Transformer
from solvable.render.pieces import Pieces, threads

from .laws import graph_fits, graph_laws, planted_law
from .training import DEPTHS, Tracked, first_time, stacks

Setting = tuple[str, float, float]
"""Optimiser, rate (which falls to zero) and initial scale of the networks."""


class _WatchSets(eqx.Module):
    """Masked-token loss on several sets of sequences (every site hidden once) and displacements."""

    def __call__(self, tracked: Any, held_out: Any) -> dict[str, Array]:
        seen = {"loss": jnp.stack([masked_loss(tracked, s, 256) for s in held_out])}
        if isinstance(tracked.network, InteractionStack):
            seen["msd"] = displacement(tracked.network, tracked.begin)
        return seen


def _by_sequence(network: Any, sequences: Array) -> Array:
    """Masked-token loss on every sequence."""
    return jax.lax.map(lambda one: masked_loss(network, one[None]), sequences, batch_size=256)


def _drawn(law: Any, key: Any, number: int, size: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether chains mixed is stored with the data
        return sample(law, key, number, chains=size["chains"], sweeps=64, most_sweeps=size["sweeps"])


@eqx.filter_jit
def _losses_of(law: Any, sequences: Array) -> Array:
    """Masked-token loss of a law on every sequence."""
    return jax.lax.map(lambda one: law_loss(law, one[None]), sequences, batch_size=256)


class Sets(NamedTuple):
    """What all networks on one law share: sequences to learn from, sets that judge them, and the law's floors."""

    data: Array
    tests: tuple[Array, ...]
    """Fresh sequences, then clones of order one, two, three: drawn from the fits."""
    floors: np.ndarray
    """Loss on every fresh sequence of the fits of one, two, three bodies and of the law itself."""
    fitted: list[Any]
    """Their mean losses on sequences of the fits."""
    mixed: list[bool]
    r_hat: list[float]


def shared_sets(strengths: Mapping[int, float], size: dict[str, Any], pieces: Pieces) -> Sets:
    """Draw the sequences of a law, fit laws of lower order, and draw their clones."""
    law = planted_law(size["sites"], size["colours"], size["groups"], dict(strengths), 0)
    number, fitted, tested = size["sequences"], size["fitted"], size["tested"]
    drawn = _drawn(law, jax.random.key(0), number + fitted + tested, size)
    data, more, test = jnp.split(drawn.sequences, [number, number + fitted])
    fits = _fits(law, more, strengths, size, pieces)
    copies = [_drawn(f, jax.random.key(p), tested, size) for p, f in enumerate(fits)]
    return Sets(
        data,
        (test, *(c.sequences for c in copies)),
        np.array([_losses_of(f, test) for f in (*fits, law)]),
        [np.mean(_losses_of(f, more[:tested])) for f in (*fits, law)],
        [drawn.mixed, *(c.mixed for c in copies)],
        [float(x.mixing.r_hat) for x in (drawn, *copies)],
    )


def _fits(
    law: SumOfBodies, more: Array, strengths: Mapping[int, float], size: dict[str, Any], pieces: Pieces
) -> list[TablesOfGroups]:
    """The laws of one, two, three bodies on the planted graph, fitted, or as they were kept."""

    def made() -> dict[str, np.ndarray]:
        found = graph_fits(law, more, *size["fit"])
        return {f"{order} {i}": np.asarray(t) for order, fit in enumerate(found) for i, t in enumerate(fit.tables)}

    kept, fits = pieces.get("floors", [size, strengths], made), []
    for order, fit in enumerate(graph_laws(law)):
        tables = tuple(jnp.asarray(kept[f"{order} {i}"]) for i in range(len(fit.tables)))
        fits.append(eqx.tree_at(lambda fit: fit.tables, fit, tables))
    return fits


class Trainings:
    """The networks of one law, every seed of each: x² networks of some depth, and an encoder."""

    def __init__(self, sets: Sets, size: dict[str, Any], record: np.ndarray):
        self.sets, self.size, self.record = sets, size, record
        self.keys = jax.random.split(jax.random.key(2), size["seeds"])

    def stack(self, kind: str, rate: float, scale: float, depth: int) -> dict[str, np.ndarray]:
        """x² networks; the deepest are held against the clones too."""
        size = self.size
        begin = stacks(self.keys, size["colours"], size["sites"], depth, size["heads"], size["width"], scale)
        return self._learn(begin, kind, rate, begin, self.sets.tests if depth == 3 else self.sets.tests[:1])

    def encoder(self) -> dict[str, np.ndarray]:
        """Encoders, by Adam."""
        size = self.size
        make = eqx.filter_jit(
            eqx.filter_vmap(lambda k: Transformer(size["colours"], size["sites"], **size["encoder"], key=k))
        )
        return self._learn(make(self.keys), "adam", 1e-3, None, self.sets.tests)

    def _learn(self, begin: Any, kind: str, rate: float, own: Any, tests: tuple[Array, ...]) -> dict[str, np.ndarray]:
        steps = self.size["steps"][kind]
        with jax.default_matmul_precision("highest"):  # every thread has its own
            run = train(Tracked(begin, own), MaskedTokens(self.size["batch"]), self.sets.data,
                        Optimiser(kind, rate=rate, steps=steps), steps, self.keys,
                        record=self.record, measure=_WatchSets(), held_out=tests)  # fmt: skip
        after = len(self.record) - len(run.steps)  # a shorter training has nothing there
        seen = {
            n: np.pad(v, [(0, after)] + [(0, 0)] * (v.ndim - 1), constant_values=np.nan)
            for n, v in run.measures.items()
        }
        return seen | {"at_end": np.asarray(evaluate(run.network, _by_sequence, tests[0], True))}


def on_one_law(
    strengths: Mapping[int, float],
    settings: Sequence[Setting],
    size: dict[str, Any],
    record: np.ndarray,
    pieces: Pieces,
) -> dict[str, Any]:
    """Networks of every setting and depth, and an encoder, on sequences of one law."""
    sets = shared_sets(strengths, size, pieces)
    trainings, seeds = Trainings(sets, size, record), size["seeds"]

    def piece(label: str, make: Any, *arguments: Any) -> Any:
        return pieces.get(label, [size, strengths, *arguments], lambda: make(*arguments))

    with threads() as pool:
        of_encoder = pool.submit(piece, "encoder", trainings.encoder)
        runs = [
            pool.submit(piece, f"{setting[0]}, {depth} layers", trainings.stack, *setting, depth)
            for setting in settings
            for depth in DEPTHS
        ]
        found = [run.result() for run in runs]
        clones = [*(run["loss"] for run in found[2::3]), of_encoder.result()["loss"]]
    curves = [run["loss"][..., 0] for run in found]
    msd = [np.pad(run["msd"], ((0, 0), (0, 0), (0, 3 - run["msd"].shape[-1])), constant_values=np.nan) for run in found]
    # On the same sequences, so that what is hard about them does not count.
    above = np.array([run["at_end"][:, None] - sets.floors for run in found])
    return {
        "loss": np.reshape(curves, (len(settings), 3, len(record), seeds)),
        "msd": np.reshape(msd, (len(settings), 3, len(record), seeds, 3)),
        "clones": np.array(clones),
        "floor": sets.floors.mean(1),
        "fitted": sets.fitted,
        "above": [above.mean(-1), above.std(-1, ddof=1) / np.sqrt(size["tested"])],
        "mixed": sets.mixed,
        "r_hat": sets.r_hat,
    }


def learning_curves(
    laws: Mapping[str, Mapping[int, float]],
    settings: Sequence[Setting],
    size: dict[str, Any],
    points: int,
    pieces: Pieces,
) -> tuple[xr.Dataset, xr.Dataset]:
    """Losses of every law, setting and depth at about `points` steps beside the floors, and those on the clones."""
    seeds, steps = size["seeds"], size["steps"]
    record = np.union1d(geometric_steps(max(steps.values()), points), list(steps.values()))
    each = [on_one_law(strengths, settings, size, record, pieces) for strengths in laws.values()]
    out = {name: [one[name] for one in each] for name in each[0]}
    labels = [f"{kind} {rate:g}, scale {scale:g}" for kind, rate, scale in settings]
    curve, level = np.array(out["loss"], "f4"), np.array(out["floor"])
    below = np.moveaxis(curve, 3, -1)[..., None, :] < level[:, None, None, None, :, None]
    by_seed = ("law", "setting", "depth", "step", "seed")
    above = np.moveaxis(np.reshape(out["above"], (len(laws), 2, len(settings), 3, seeds, 4)), 1, 0)
    by_end = ("law", "setting", "depth", "seed", "order")
    floors = {
        "floor": (("law", "order"), level),
        "floor_fitted": (("law", "order"), np.array(out["fitted"])),
        "mixed": (("law", "set"), np.array(out["mixed"])),
        "r_hat": (("law", "set"), np.array(out["r_hat"])),
    }
    where = {"law": list(laws), "order": [1, 2, 3, 4], "step": record}
    curves = xr.Dataset(
        floors | {"loss": (by_seed, curve), "msd": ((*by_seed, "layer"), np.array(out["msd"], "f4")),
                  "passed": (by_end, first_time(below, record)), "above": (by_end, above[0]), "above_error": (by_end, above[1])},
        where | {"setting": labels, "depth": list(DEPTHS), "layer": [1, 2, 3], "set": ["data", "1", "2", "3"]},
    )  # fmt: skip
    clones = xr.Dataset(
        {"loss": (("law", "learner", "step", "seed", "set"), np.array(out["clones"], "f4"))},
        where | {"learner": [*labels, "encoder"], "set": ["data", "1", "2", "3"]},
    )
    return curves, clones
