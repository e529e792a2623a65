"""Which orders of interaction a network learns, and when: depths against floors, learning curves, clones of every order.

The full version takes minutes on an accelerator; everything runs over its seeds side by side.
"""

from __future__ import annotations

import itertools
import json
import math
import warnings
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array

from solvable.methods.sequences.interactions import (
    GroupPseudoLikelihood,
    PopulationLoss,
    SumOfBodies,
    TablesOfGroups,
    conditional_tables,
    interaction_floors,
    law_loss,
    log_probabilities,
    maximum_entropy,
    optimal_conditional_loss,
    order_components,
    population_rows,
    subgroups,
)
from solvable.methods.sequences.monte_carlo import sample
from solvable.methods.sequences.potts import ManyBody, random_groups
from solvable.methods.training.loops import (
    MaskedTokens,
    Optimiser,
    evaluate,
    geometric_steps,
    logits_at_hidden_site,
    masked_loss,
    train,
)
from solvable.methods.training.squared_attention import InteractionStack, displacement
from solvable.methods.training.transformers import Transformer
from solvable.render.figures import Recipe
from solvable.render.pieces import Pieces, threads
from solvable.render.plots import COLOURS, INK, log_axis
from solvable.study import provenance

from .model import ManyBodyBias

DEPTHS = (1, 2, 3)
LEARNERS = ("stack", "encoder")
ORDERS = (2, 3, 4)

SETTINGS = (("sgd", 1.5, 2.0), ("adam", 1e-3, 2.0))
"""Optimiser, rate (which falls to zero) and initial scale of the networks on long sequences."""

LAWS = {"hierarchy": {2: 1.0, 3: 0.75, 4: 0.55}}
"""Strength of a group of every order, on long sequences."""

FULL = {"sites": 20, "colours": 10, "groups": 20, "sequences": 400_000, "tested": 4096, "fitted": 1_600_000,
        "steps": {"sgd": 1_000_000, "adam": 40_000}, "seeds": 2, "batch": 256, "heads": 16, "width": 32,
        "chains": 4096, "sweeps": 1024, "fit": (15_000, 1024, 0.03, 1e-8),
        "encoder": {"width": 64, "depth": 2, "heads": 4}}  # fmt: skip
QUICK = {"sites": 8, "colours": 4, "groups": 8, "sequences": 3000, "tested": 1024, "fitted": 6000,
         "steps": {"sgd": 400, "adam": 400}, "seeds": 1, "batch": 128, "heads": 4, "width": 12,
         "chains": 1024, "sweeps": 512, "fit": (200, 256, 0.05, 1e-6),
         "encoder": {"width": 32, "depth": 1, "heads": 4}}  # fmt: skip
"""Sequences must be many: 40,000 leave a three-body fit on the planted graph 0.28 nats above its training loss, 400,000
0.023, 1,600,000 0.003. So must be the steps of plain gradient descent: three layers pass the floor of pairs after 60,000 to
90,000 and that of triplets in the last fifth of a million, when the rate falls. The rate is near the largest that holds: one of
two runs of three layers diverged after 110,000 steps, and at twice the rate both do within a hundred."""
QUICK_SETTINGS, QUICK_LAWS = (("sgd", 0.1, 2.5),), {"hierarchy": {2: 0.7, 3: 0.5, 4: 0.4}}


class Tracked(eqx.Module):
    """A network that remembers where it began (what a loss does not see, an optimiser does not move)."""

    network: Any
    begin: Any

    def __call__(self, tokens: Any, masked: Any) -> Array:
        return self.network(tokens, masked)

    def at_hidden_site(self, tokens: Any, hidden: Any) -> Array:
        return logits_at_hidden_site(self.network, tokens, hidden)


def _with_provenance(data: xr.Dataset, **study: Any) -> xr.Dataset:
    return data.assign_attrs(study=json.dumps({"models": ["many-body"], **study}), **provenance())


@eqx.filter_jit
def _stacks(keys: Any, colours: int, sites: int, depth: int, heads: int, width: int, scale: float) -> Any:
    return eqx.filter_vmap(lambda k: InteractionStack(colours, sites, depth, heads, width, k, scale=scale))(keys)


def _rows(probability: Any, sites: int, colours: int) -> Any:
    tokens, masks, targets = population_rows(probability, sites, colours)
    return jnp.asarray(tokens), jnp.asarray(masks), jnp.asarray(targets, jnp.float32)


# --- everything exact: short sequences ----------------------------------------------------------------------------------


def depths(quick: bool) -> xr.Dataset:
    """Networks of one, two, three layers, trained on the whole distribution: their last losses beside the floors."""
    model = ManyBodyBias(sites=5 if quick else 6, inverse_temperature=1.0 if quick else 1.5, depth=0)
    heads, width, steps, seeds = (4, 12, 300, 2) if quick else (4, 12, 800, 4)
    probability = jnp.exp(log_probabilities(model.law()))
    rows, theory = _rows(probability, model.sites, model.colours), model.theory()
    keys, final = jax.random.split(jax.random.key(0), seeds), []
    rule = Optimiser("adam", rate=1e-2 if quick else 5e-3, steps=steps)
    for depth in DEPTHS:
        begin = _stacks(keys, model.colours, model.sites, depth, heads, width, 1.0)
        run = train(begin, _exact, rows, rule, steps, keys, record=[steps], measure=_exact, held_out=rows)
        final.append(run.measures[-1])
    return _with_provenance(
        xr.Dataset(
            {"loss": (("depth", "seed"), np.array(final)), "floor": (("order",), np.asarray(theory.floor))},
            {"depth": list(DEPTHS), "order": model.coordinates()["order"]},
        ),
        model=str(model), heads=heads, width=width, steps=steps, optimiser="adam, cosine",
    )  # fmt: skip


_exact = PopulationLoss()


class _Watch(eqx.Module):
    """Exact loss on a law and on clones of it, the share of every order in the true logits, and displacements."""

    truth: Array
    orders: int = eqx.field(static=True)
    sites: int = eqx.field(static=True)
    colours: int = eqx.field(static=True)

    def __call__(self, tracked: Any, held_out: Any) -> dict[str, Array]:
        tokens, masks, targets = held_out
        logits = jnp.sum(jnp.where(masks[:, :, None], jax.vmap(tracked)(tokens, masks), 0.0), axis=1)
        losses = -jnp.sum(targets * jax.nn.log_softmax(logits, axis=1)[None], axis=(1, 2))
        parts = order_components(logits, self.sites, self.colours, self.orders)
        size = jnp.sum(self.truth**2, axis=(1, 2))
        missing = jnp.sum((parts - self.truth) ** 2, axis=(1, 2)) / size
        seen = {"loss": losses, "share": jnp.where(size > 1e-9 * jnp.sum(size), 1.0 - missing, jnp.nan)}
        if isinstance(tracked.network, InteractionStack):
            seen["msd"] = displacement(tracked.network, tracked.begin)
        return seen


def exact(quick: bool) -> xr.Dataset:
    """Learning on a whole distribution with pure interactions of two, three and four bodies, and on its exact clones.

    A clone of order p is the law of largest entropy with the same joint law of every p sites.
    """
    sites, colours, seeds, heads, width = (5, 2, 2, 4, 12) if quick else (5, 3, 3, 4, 12)
    strengths: dict[int, float] = dict.fromkeys(
        ORDERS, 1.0 if quick else 0.4
    )  # so that every order has its share of the loss
    law = pure_law(sites, colours, strengths, 1)
    probability = jnp.exp(log_probabilities(law))
    found = eqx.filter_jit(interaction_floors)(probability, sites, colours, 3)
    clones = [maximum_entropy(probability, sites, colours, p, tolerance=1e-10) for p in (1, 2, 3)]
    laws = [*clones, np.asarray(probability)]
    optimal = [float(optimal_conditional_loss(conditional_tables(jnp.asarray(q), sites, colours))) for q in laws]
    tokens, masks, targets = _rows(probability, sites, colours)
    several = jnp.stack([_rows(q, sites, colours)[2] for q in laws])
    truth = np.log(population_rows(probability, sites, colours)[2])
    truth = order_components(jnp.asarray(truth), sites, colours, 4)
    watch = _Watch(jnp.asarray(truth, jnp.float32), 4, sites, colours)
    keys = jax.random.split(jax.random.key(1), seeds)
    steps = 600 if quick else 3000
    record = geometric_steps(steps, 50 if quick else 80)
    runs = [
        ("stack, gradient descent", "sgd", 0.3, 2.0),
        ("stack, Adam", "adam", 3e-3, 1.0),
        *(() if quick else (("encoder, Adam", "adam", 1e-3, 0.0),)),
    ]
    losses, shares, moved = [], [], []
    for label, kind, rate, scale in runs:
        if label.startswith("encoder"):
            make = partial(Transformer, colours, sites, width=32, depth=2 if quick else 3, heads=4)
            begin = eqx.filter_vmap(lambda k, make=make: make(key=k))(keys)
            begin = Tracked(begin, None)
        else:
            begin = _stacks(keys, colours, sites, 3, heads, width, scale)
            begin = Tracked(begin, begin)
        run = train(begin, _exact, (tokens, masks, targets), Optimiser(kind, rate=rate), steps, keys,
                    record=record, measure=watch, held_out=(tokens, masks, several))  # fmt: skip
        losses.append(run.measures["loss"])
        shares.append(run.measures["share"])
        moved.append(run.measures.get("msd", np.full((len(record), seeds, 3), np.nan)))
    dims = ("run", "step", "seed")
    levels = np.append(found.floors, found.optimal)
    curve = np.array(losses)[..., -1]
    late = dict(
        dwell=(("run", "seed", "order"), dwelling(np.moveaxis(curve, 1, -1), record, levels)),
        half_time=(("run", "seed", "order"), first_time(np.moveaxis(np.array(shares) > 0.5, 1, -1), record)),
        best_time=(("run", "seed", "clone"), record[np.argmin(losses, axis=1)]),
    )
    return _with_provenance(
        xr.Dataset(
            {"loss": ((*dims, "clone"), np.array(losses, "f4")), "share": ((*dims, "order"), np.array(shares, "f4")),
             "msd": ((*dims, "layer"), np.array(moved, "f4")), "clone_optimal": (("clone",), optimal),
             "floor": (("order",), levels), **late},
            {"run": [r[0] for r in runs], "step": record, "clone": [1, 2, 3, 4], "order": [1, 2, 3, 4], "layer": [1, 2, 3]},
        ),
        sites=sites, colours=colours, strengths=strengths, heads=heads, width=width, runs=runs,
    )  # fmt: skip


def dwelling(curves: np.ndarray, record: np.ndarray, levels: np.ndarray, width: float = 0.05) -> np.ndarray:
    """Steps that loss curves (…, step) spend within `width` of the whole fall ℓ_1 − ℓ_opt around each level (…, level)."""
    near = np.abs(curves[..., None] - levels) < width * (levels[0] - levels[-1])
    return np.sum(near[..., :-1, :] * np.diff(record)[:, None], axis=-2)


def first_time(reached: np.ndarray, record: np.ndarray) -> np.ndarray:
    """The first recorded step at which something (…, step) is so; NaN if it never is."""
    return np.where(reached.any(-1), record[np.argmax(reached, -1)], np.nan)


def pure_law(sites: int, colours: int, strengths: dict[int, float], seed: int) -> SumOfBodies:
    """Interactions of every order that contain nothing of lower ones: tables sum to zero over each of their colours."""
    rng, parts = np.random.default_rng(seed), []
    for order, strength in strengths.items():
        groups = np.array(list(itertools.combinations(range(sites), order)))
        raw = rng.normal(size=(colours,) * order)
        table = np.sum([np.transpose(raw, p) for p in itertools.permutations(range(order))], axis=0)
        for axis in range(order):
            table = table - table.mean(axis, keepdims=True)
        table = table / np.sqrt(np.mean(table**2))
        on = rng.uniform(size=len(groups)) < 0.5
        on[0] = True
        beta = strength / math.sqrt(on.sum())
        parts.append(ManyBody.of_groups(sites, groups[on], table, inverse_temperature=beta))
    return SumOfBodies(tuple(parts))


# --- long sequences: sampled, with planted groups -------------------------------------------------------------------------


def planted_law(sites: int, colours: int, groups: int, strengths: dict[int, float], seed: int) -> SumOfBodies:
    """Sparse random groups of every order; one standard Gaussian for every multiset of colours.

    (Summing a Gaussian array over permutations instead makes equal colours interact √p! times as strongly: the law then
    freezes into one colour before it has any structure.)
    """
    rng, parts = np.random.default_rng(seed), []
    for order, strength in strengths.items():
        raw = rng.normal(size=(colours,) * order)
        lookup = np.sort(np.indices(raw.shape).reshape(order, -1), axis=0)
        table = jnp.asarray(raw[tuple(lookup)].reshape(raw.shape), jnp.float32)
        members = random_groups(rng, sites, order, groups)
        parts.append(ManyBody.of_groups(sites, members, table, inverse_temperature=strength))
    return SumOfBodies(tuple(parts))


def graph_laws(law: SumOfBodies) -> list[TablesOfGroups]:
    """Laws of one, two, three bodies on the planted graph, all tables zero."""
    groups, empty = [np.asarray(part.groups) for part in law.parts], []
    for order in (1, 2, 3):
        every = [np.arange(law.sites)[:, None]]
        for size in range(2, order + 1):
            found = [tuple(g) for part in groups if part.shape[1] >= size for g in subgroups(part, size).tolist()]
            every += [np.array(sorted(set(found)))] if found else []
        empty.append(TablesOfGroups.zeros(law.sites, law.colours, every))
    return empty


def graph_fits(
    law: SumOfBodies, data: Array, steps: int, batch: int, rate: float, ridge: float
) -> list[TablesOfGroups]:
    """Those laws fitted by pseudo-likelihood: their losses bound the floors from above."""
    rule, loss = Optimiser("adam", rate=rate, steps=steps), GroupPseudoLikelihood(batch, ridge)
    return [
        train(begin, loss, data, rule, steps, jax.random.key(order), record=[steps]).network
        for order, begin in enumerate(graph_laws(law), 1)
    ]


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


def long(quick: bool, pieces: Pieces) -> dict[str, xr.Dataset]:
    """Sparse planted groups on long sequences, mini-batches: curves of every depth and setting, and clones by Gibbs."""
    size = QUICK if quick else FULL
    settings, laws = (QUICK_SETTINGS, QUICK_LAWS) if quick else (SETTINGS, LAWS)
    seeds, steps = size["seeds"], size["steps"]
    record = np.union1d(geometric_steps(max(steps.values()), 12 if quick else 70), list(steps.values()))
    out: dict[str, list[Any]] = {n: [] for n in ("loss", "msd", "clones", "floor", "fitted", "above", "mixed", "r_hat")}
    watch, loss = _WatchSets(), MaskedTokens(size["batch"])
    keys = jax.random.split(jax.random.key(2), seeds)
    colours, sites = size["colours"], size["sites"]
    for name in laws:
        law = planted_law(sites, colours, size["groups"], laws[name], 0)
        number, fitted, tested = size["sequences"], size["fitted"], size["tested"]
        drawn = _drawn(law, jax.random.key(0), number + fitted + tested, size)
        data, more, test = jnp.split(drawn.sequences, [number, number + fitted])

        def floors_of(law=law, more=more):
            fits = graph_fits(law, more, *size["fit"])
            return {f"{order} {i}": np.asarray(t) for order, fit in enumerate(fits) for i, t in enumerate(fit.tables)}

        kept = pieces.get("floors", [size, laws[name]], floors_of)
        fits = []
        for order, fit in enumerate(graph_laws(law)):
            tables = tuple(jnp.asarray(kept[f"{order} {i}"]) for i in range(len(fit.tables)))
            fits.append(eqx.tree_at(lambda fit: fit.tables, fit, tables))
        floors = np.array([_losses_of(f, test) for f in (*fits, law)])
        out["floor"].append(floors.mean(1))
        out["fitted"].append([np.mean(_losses_of(f, more[:tested])) for f in (*fits, law)])
        copies = [_drawn(f, jax.random.key(p), tested, size) for p, f in enumerate(fits)]
        sets = (test, *(c.sequences for c in copies))
        out["mixed"].append([drawn.mixed, *(c.mixed for c in copies)])
        out["r_hat"].append([float(x.mixing.r_hat) for x in (drawn, *copies)])

        def learn(begin, kind, rate, own, sets, data=data):
            with jax.default_matmul_precision("highest"):  # every thread has its own
                run = train(Tracked(begin, own), loss, data, Optimiser(kind, rate=rate, steps=steps[kind]), steps[kind],
                            keys, record=record, measure=watch, held_out=sets)  # fmt: skip
            after = len(record) - len(run.steps)  # a shorter training has nothing there
            seen = {n: np.pad(v, [(0, after)] + [(0, 0)] * (v.ndim - 1), constant_values=np.nan)
                    for n, v in run.measures.items()}  # fmt: skip
            return seen | {"at_end": np.asarray(evaluate(run.network, _by_sequence, sets[0], True))}

        def stack(kind, rate, scale, depth, sets=sets, learn=learn):
            begin = _stacks(keys, colours, sites, depth, size["heads"], size["width"], scale)
            return learn(begin, kind, rate, begin, sets if depth == 3 else sets[:1])

        def encoder(sets=sets, learn=learn):
            make = eqx.filter_jit(eqx.filter_vmap(lambda k: Transformer(colours, sites, **size["encoder"], key=k)))
            return learn(make(keys), "adam", 1e-3, None, sets)

        def piece(label, make, *arguments, law=laws[name]):
            return pieces.get(label, [size, law, *arguments], lambda: make(*arguments))

        with threads() as pool:
            of_encoder = pool.submit(piece, "encoder", encoder)
            runs = [
                pool.submit(piece, f"{setting[0]}, {depth} layers", stack, *setting, depth)
                for setting in settings
                for depth in DEPTHS
            ]
            found = [run.result() for run in runs]
            clones = [*(run["loss"] for run in found[2::3]), of_encoder.result()["loss"]]
        curves = [run["loss"][..., 0] for run in found]
        msd = [
            np.pad(run["msd"], ((0, 0), (0, 0), (0, 3 - run["msd"].shape[-1])), constant_values=np.nan) for run in found
        ]
        out["loss"].append(np.reshape(curves, (len(settings), 3, len(record), seeds)))
        out["msd"].append(np.reshape(msd, (len(settings), 3, len(record), seeds, 3)))
        out["clones"].append(np.array(clones))
        # On the same sequences, so that what is hard about them does not count.
        above = np.array([run["at_end"][:, None] - floors for run in found])
        out["above"].append([above.mean(-1), above.std(-1, ddof=1) / np.sqrt(tested)])
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
    attributes = {k: v for k, v in size.items() if k not in ("seeds", "tested", "fitted", "chains", "sweeps")} | {
        "laws": laws
    }
    return {"long": _with_provenance(curves, **attributes), "clones": _with_provenance(clones, **attributes)}


def _drawn(law: Any, key: Any, number: int, size: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether chains mixed is stored with the data
        return sample(law, key, number, chains=size["chains"], sweeps=64, most_sweeps=size["sweeps"])


@eqx.filter_jit
def _losses_of(law: Any, sequences: Array) -> Array:
    """Masked-token loss of a law on every sequence."""
    return jax.lax.map(lambda one: law_loss(law, one[None]), sequences, batch_size=256)


def simplicity(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    # Accelerators round the factors of products in single precision unless told otherwise.
    with jax.default_matmul_precision("highest"):
        return {"depths": depths(quick), "exact": exact(quick), **long(quick, pieces or Pieces())}


# --- the picture ----------------------------------------------------------------------------------------------------------


def draw_simplicity(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(12.4, 7.0))
    _draw_depths(axes[0, 0], data["depths"])
    _draw_shares(axes[0, 1], data["exact"])
    _draw_exact_clones(axes[0, 2], data["exact"])
    long = data["long"].isel(law=0)
    # The setting in which the deepest network ends lowest.
    ends = long.loss.sel(depth=3).isel(step=-1).mean("seed")
    best = int(np.nanargmin(ends)) if np.isfinite(ends).any() else 0
    _draw_long(axes[1, 0], long.isel(setting=best))
    _draw_msd(axes[1, 1], long.isel(setting=best))
    _draw_long_clones(axes[1, 2], data["clones"].isel(law=0).sel(learner="encoder"), long)
    figure.suptitle(
        "Pairs are learnt first and low-order clones left behind in turn, without a halt at the floors between",
        fontsize=11,
    )
    return figure


def _draw_depths(axis: Any, data: Any) -> None:
    for order, floor in zip(data.order.values, data.floor.values, strict=True):
        axis.axhline(floor, color=COLOURS[(order - 1) % 6], linewidth=1, linestyle="--")
        axis.annotate(rf"$\ell_{order}$", (3.42, floor), va="bottom", fontsize=8, color=COLOURS[(order - 1) % 6])
    for i, depth in enumerate(data.depth.values):
        losses = data.loss.sel(depth=depth).values
        axis.plot(depth + np.linspace(-0.15, 0.15, losses.size), losses, "o", color=INK, markersize=3.5, alpha=0.8)
        axis.annotate(f"≤ {2**i + 1} bodies", (depth, losses.max()), xytext=(0, 7), textcoords="offset points",
                      ha="center", fontsize=8)  # fmt: skip
    axis.set(xlabel="layers", ylabel="loss (nats)", xticks=DEPTHS, xlim=(0.5, 3.7))
    log_axis(axis.yaxis)
    axis.set_title("depth caps the order: trained networks and floors")


def _draw_shares(axis: Any, data: Any) -> None:
    for run, style in ((0, "-"), (1, ":")):
        for order in ORDERS:
            every = data.share.isel(run=run).sel(order=order)
            for seed in range(1, every.sizes["seed"]) if run == 0 else ():
                axis.plot(data.step, every.isel(seed=seed), color=COLOURS[order - 1], linewidth=0.5, alpha=0.35)
            label = f"{order} bodies" if run == 0 else None
            axis.plot(data.step, every.isel(seed=0), style, color=COLOURS[order - 1], label=label)
    axis.set(xlabel="steps", ylabel="share of the true logits' part", ylim=(-0.3, 1.02), xlim=(10, None))
    log_axis(axis.xaxis)
    axis.legend(loc="lower right")
    axis.set_title("three layers: gradient descent (–), Adam (:)")


def _draw_exact_clones(axis: Any, data: Any) -> None:
    for clone in data.clone.values:
        excess = (data.loss.isel(run=0, seed=0) - data.clone_optimal).sel(clone=clone)
        label = f"clone of order {clone}" if clone < 4 else "data"
        axis.plot(data.step, excess, color=COLOURS[clone - 1], label=label)
        least = int(np.argmin(excess.values)) if clone < 4 else None
        if least is not None:
            axis.plot(data.step[least], excess[least], "v", color=COLOURS[clone - 1])
    axis.set(xlabel="steps", ylabel="loss above the clone's own optimum", xlim=(10, None))
    log_axis(axis.xaxis)
    axis.legend()
    axis.set_title("low-order clones are left behind first (▼ best)")


def _draw_long(axis: Any, long: Any) -> None:
    steps = long.step.values
    for depth in long.depth.values:
        curves = long.loss.sel(depth=depth)
        for seed in range(curves.sizes["seed"]):
            label = f"{depth} layer{'s' if depth > 1 else ''}" if seed == 0 else None
            curve = curves.isel(seed=seed).values
            axis.plot(steps[1:], curve[1:], color=COLOURS[depth - 1], linewidth=1.1, label=label)
            last = np.flatnonzero(np.isfinite(curve))[-1]
            if last < np.flatnonzero(np.isfinite(curves).any("seed"))[-1]:  # others go on: this one has diverged
                axis.plot(steps[last], curve[last], "x", color=COLOURS[depth - 1], markersize=6)
                axis.annotate("one diverged", (steps[last], curve[last]), xytext=(-6, -20), textcoords="offset points",
                              ha="right", fontsize=7, color=COLOURS[depth - 1])  # fmt: skip
    for order, level in zip(long.order.values, long.floor.values, strict=True):
        axis.axhline(level, color=INK, linewidth=0.8, linestyle="--" if order < 4 else "-")
        name = rf"$\ell_{order}$" if order < 4 else "optimal"
        axis.annotate(name, (steps[1], level), va="bottom", fontsize=8)
    top = float(long.floor.values[0])
    axis.set(xlabel="steps", ylabel="test loss (nats)", ylim=(0.85 * float(long.floor.values[-1]), 1.25 * top))
    log_axis(axis.xaxis)
    axis.legend()
    law = json.loads(long.attrs["study"])
    axis.set_title(f"L = {law['sites']}, C = {law['colours']}, {long.setting.values!s}")


def _draw_msd(axis: Any, long: Any) -> None:
    moved = long.msd.sel(depth=3)
    for layer in moved.layer.values:
        for seed in range(moved.sizes["seed"]):
            label = f"layer {layer}" if seed == 0 else None
            axis.plot(long.step[1:], moved.sel(layer=layer).isel(seed=seed)[1:], color=COLOURS[layer - 1],
                      linewidth=1.1, label=label)  # fmt: skip
    axis.set(xlabel="steps", ylabel=r"MSD $|\Delta A|^2/L + |\Delta V|^2/C$")
    log_axis(axis.xaxis)
    log_axis(axis.yaxis)
    axis.legend()
    axis.set_title("three layers: how far each has moved")


def _draw_long_clones(axis: Any, clones: Any, long: Any) -> None:
    names = {"1": "clone of order 1", "2": "clone of order 2", "3": "clone of order 3", "data": "data"}
    for colour, (which, label) in zip((0, 1, 2, 3), names.items(), strict=True):
        curve = clones.loss.sel(set=which).mean("seed")
        axis.plot(clones.step[1:], curve[1:], color=COLOURS[colour], label=label)
        if which != "data":
            least = 1 + int(np.nanargmin(curve.values[1:]))
            axis.plot(clones.step[least], curve[least], "v", color=COLOURS[colour])
    axis.set(xlabel="steps", ylabel="loss of an encoder (nats)")
    log_axis(axis.xaxis)
    axis.legend()
    axis.set_title("clones of long sequences, by Gibbs sampling")


RECIPES = {
    "many-body-simplicity": Recipe(
        simplicity,
        draw_simplicity,
        resumes=True,
        sentence="Depth caps the order of interactions that a network learns; low orders and their clones come first.",
    )
}
