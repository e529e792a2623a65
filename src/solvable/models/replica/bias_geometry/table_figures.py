"""Two groups in real tables: accuracy gap of one classifier against the share of a group, beside the model's and a control."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.errors import InvalidValue
from solvable.methods.data.digits import digit_images
from solvable.methods.data.own import own_table
from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import loss_named
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, label, standard_error

from .model import BiasGeometry

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
PENALTY = 0.3
TRAINED = {"diabetes": 120, "digits": 320}
WORDS = {
    "diabetes": "diabetes: progress above the median;\ngroups: sex",
    "digits": "digits: even or odd;\ngroups: 0 to 4, 5 to 9",
}


def tables() -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Inputs (with a constant), labels ±1 and groups ±1 of tables that come with scikit-learn."""
    from sklearn.datasets import load_diabetes

    rows, progress = (np.asarray(part) for part in load_diabetes(return_X_y=True))
    sex, rows = np.sign(rows[:, 1]), np.delete(rows, 1, axis=1)
    pixels, shown = digit_images()
    found = {
        "diabetes": (rows / rows.std(0), np.where(progress > np.median(progress), 1.0, -1.0), sex),
        "digits": (pixels, np.where(shown % 2 == 0, 1.0, -1.0), np.where(shown < 5, 1.0, -1.0)),
    }
    return {name: (np.column_stack([x, np.ones(len(x))]), y, c) for name, (x, y, c) in found.items()}


def _fit() -> Any:
    loss = loss_named("logistic")
    return jax.jit(lambda a, y: minimise_risk(loss, a, y, jnp.asarray(PENALTY), jnp.ones_like(y)).weights)


def gaps(
    rows: np.ndarray, labels: np.ndarray, group: np.ndarray, number: int, seeds: int, shuffled: bool
) -> np.ndarray:
    """Accuracy of group + minus that of group − on held-out rows, (shares, seeds)."""
    fit, found = _fit(), np.full((len(SHARES), seeds), np.nan)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        own = rng.permutation(group) if shuffled else group
        pools = [rng.permutation(np.flatnonzero(own == c)) for c in (1, -1)]
        kept = [pool[: -len(pool) // 4] for pool in pools]
        tests = [pool[-len(pool) // 4 :] for pool in pools]
        for i, share in enumerate(SHARES):
            counts = (round(share * number), number - round(share * number))
            train = np.concatenate([pool[:n] for pool, n in zip(kept, counts, strict=True)])
            w = np.asarray(fit(jnp.asarray(rows[train]), jnp.asarray(labels[train])))
            right = [np.mean(labels[test] * (rows[test] @ w) > 0) for test in tests]
            found[i, seed] = right[0] - right[1]
    return found


def similarity(rows: np.ndarray, labels: np.ndarray, group: np.ndarray) -> float:
    """Cosine of the two groups' rules, each learnt from all of its rows, on the scale of the inputs' covariance."""
    x = rows[:, :-1]
    values, vectors = np.linalg.eigh(np.cov(x.T))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    fit = _fit()
    plus, minus = (
        root.T @ np.asarray(fit(jnp.asarray(rows[group == c]), jnp.asarray(labels[group == c])))[:-1] for c in (1, -1)
    )
    return float(plus @ minus / np.linalg.norm(plus) / np.linalg.norm(minus))


LEAST = 60
"""Rows that a table of the reader's must have, and a third of that number in each group."""


def table(quick: bool) -> dict[str, Any]:
    return {"": _gaps_of(tables(), TRAINED, 2 if quick else 200)}


def own_groups(quick: bool, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The same on rows X of two classes y and two groups; as many rows are learnt from as both groups have at all shares."""
    known = own_table(arrays, least_rows=LEAST, most_classes=2, grouped=True)
    assert known.groups is not None
    fewest = int(np.bincount(known.groups).min())
    if fewest < LEAST // 3:
        raise InvalidValue(f"group has only {fewest} rows of one group, but at least {LEAST // 3} are needed of each.")
    labels, groups = (2.0 * part - 1.0 for part in (known.classes, known.groups))
    rows = np.column_stack([known.rows / known.rows.std(0), np.ones(len(labels))])
    name = "your own table"
    return {"": _gaps_of({name: (rows, labels, groups)}, {name: int(0.75 * fewest / max(SHARES))}, 2 if quick else 200)}


def _gaps_of(known: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]], trained: dict[str, int], seeds: int) -> Any:
    import xarray as xr

    found = xr.Dataset(coords={"table": list(known), "share": list(SHARES)})
    for kind in (False, True):
        runs = [gaps(*parts, trained[name], seeds, kind) for name, parts in known.items()]
        found["shuffled" if kind else "gap"] = (("table", "share", "seed"), np.stack(runs))
    alike = [similarity(*parts) for parts in known.values()]
    found["similarity"] = ("table", np.array(alike))
    # the model: as many samples per dimension, rules of this similarity, nothing else known about the groups
    lines = []
    for (name, (rows, _, _)), overlap in zip(known.items(), alike, strict=True):
        ratio = trained[name] / (rows.shape[1] - 1)
        model = BiasGeometry(samples=ratio, similarity=overlap, tilt_plus=0.0, tilt_minus=0.0, penalty=PENALTY)
        lines.append(np.asarray(model.replace(share=np.array(SHARES)).theory(only=["accuracy_gap"]).accuracy_gap))
    found["model"] = (("table", "share"), np.stack(lines))
    return found


def draw_table(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    found = data[""]
    number = found.sizes["table"]
    figure, grid = plt.subplots(1, number, figsize=(4.7 * number, 4.0), layout="constrained", squeeze=False)
    for axis, name in zip(grid[0], found.table.values, strict=True):
        here = found.sel(table=name)
        axis.plot(found.share, here.model, color="0.3", label=f"model, $q_T = {float(here.similarity):.2f}$")
        for kind, words, colour in (("gap", "real groups", COLOURS[0]), ("shuffled", "groups shuffled", COLOURS[1])):
            error = standard_error(here[kind])
            axis.errorbar(
                found.share, here[kind].mean("seed"), error, fmt="o-", color=colour, markersize=4, label=words
            )
        axis.axhline(0, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xlabel=label("share of group +", r"\rho"), ylabel="accuracy gap, + minus −")
        axis.set_title(WORDS.get(str(name), str(name)))
        axis.legend()
    figure.suptitle(
        "Real tables: the accuracy gap grows with the share of a group, less steeply than in the model"
        if number > 1
        else "Accuracy gap against the share of a group",
        fontsize=11,
    )
    return figure


RECIPES = {
    "bias-geometry-table": Recipe(
        table,
        draw_table,
        sentence="Accuracy gap of one classifier on real tables with two groups, against the share of a group.",
        own=own_groups,
    )
}
