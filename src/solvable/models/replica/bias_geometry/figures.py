"""Bias against imbalance and similarity of rules; the effect of coupling; trade-offs of tuned reweighing and coupling.

Every learner has its own penalty (and coupling, and weights), chosen on the grids below for the highest overall accuracy;
the fronts of the trade-off are found by random search (scrambled Sobol points, then perturbations of points on the front).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, INK, label, standard_error
from solvable.study import Study

from .model import BiasGeometry

PENALTIES = np.geomspace(0.03, 3.0, 6)
COUPLINGS = np.geomspace(0.03, 10.0, 5)
TILTS = {"equal": (0.3, 0.3), "opposite": (0.3, -0.3)}
COARSE = {"nodes": 8, "tolerance": 1e-8}  # errors of 1e-6, which no scan over a grid sees
SEEN = ("test_error", "accuracy", "accuracy_gap", "parity_difference")


def _tuned(model: BiasGeometry, **values: Any) -> dict[str, np.ndarray]:
    """Observables at the best penalty (and coupling), for every point of the broadcast values."""
    shape = np.broadcast_shapes(*(np.shape(v) for v in values.values()))
    own: dict[str, Any] = {"penalty": PENALTIES}
    if model.learner == "coupled":
        mesh = np.meshgrid(PENALTIES, COUPLINGS, indexing="ij")
        own = {"penalty": mesh[0].ravel(), "coupling": mesh[1].ravel()}
    grid = {n: np.broadcast_to(v, shape)[..., None] for n, v in values.items()}
    outcome = model.replace(**grid, **own).theory(COARSE, only=SEEN)
    best = np.nanargmin(np.asarray(outcome.test_error), axis=-1)
    picked = {
        n: np.take_along_axis(np.asarray(outcome[n]), _at(best, np.ndim(outcome[n])), axis=len(shape)) for n in SEEN
    }
    return {n: np.squeeze(v, axis=len(shape)) for n, v in picked.items()}


def _at(best: np.ndarray, rank: int) -> np.ndarray:
    return best.reshape(best.shape + (1,) * (rank - best.ndim))


# --- maps -------------------------------------------------------------------------------------------------------------


def maps(quick: bool) -> dict[str, Any]:
    import xarray as xr

    shares = np.linspace(0.05, 0.95, 5 if quick else 9)
    dims = ("tilts", "similarity", "share")
    similarity = np.linspace(0.0, 1.0, 5 if quick else 9)
    data = xr.Dataset(coords={"tilts": list(TILTS), "similarity": similarity, "share": shares})
    for name in ("gap", "parity_single", "parity_coupled", "accuracy_single", "accuracy_coupled", "joint", "alone"):
        data[name] = (dims, np.full([data.sizes[d] for d in dims], np.nan))
    for tilts, (plus, minus) in TILTS.items():
        most = plus * minus + np.sqrt((1 - plus**2) * (1 - minus**2)) + 1e-9
        some = similarity[similarity <= most]
        at = {"share": shares[None, :], "similarity": np.minimum(some, most)[:, None]}
        here = {"tilts": tilts, "similarity": some}
        model = BiasGeometry(tilt_plus=plus, tilt_minus=minus)
        single, coupled = _tuned(model, **at), _tuned(model.replace(learner="coupled"), **at)
        data["gap"].loc[here] = single["accuracy_gap"]
        for name, outcome in (("single", single), ("coupled", coupled)):
            data[f"parity_{name}"].loc[here] = outcome["parity_difference"]
            data[f"accuracy_{name}"].loc[here] = 1 - outcome["test_error"]
        # the same samples of group + alone: does the other group help or harm?
        lonely = _tuned(model.replace(share=1 - 1e-9), samples=2.0 * shares[None, :], similarity=some[:1, None])
        data["joint"].loc[here] = single["accuracy"][..., 0]
        data["alone"].loc[here] = np.broadcast_to(lonely["accuracy"][..., 0], single["accuracy"].shape[:-1])
    size, seeds = (100, 4) if quick else (200, 12)
    model = BiasGeometry(tilt_plus=0.3, tilt_minus=0.3, penalty=0.3)
    curves = Study(model, {"similarity": [0.0, 0.6, 1.0], "share": shares})
    runs = Study(model, {"similarity": [0.0, 0.6, 1.0], "share": [0.1, 0.3, 0.5]}, sizes=[size], seeds=seeds)
    lines = curves.run()
    return {"": data.assign_attrs(lines.attrs), "lines": _some(lines), "runs": _some(runs.run())}


def _some(data: Any) -> Any:
    return data[[v for v in data.data_vars if str(v).startswith("accuracy")]]


def draw_maps(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table, lines, runs = data[""], data["lines"], data["runs"]
    figure, axes = plt.subplots(2, 3, figsize=(13.0, 7.2), layout="constrained")
    axis = axes[0, 0]
    for q, colour in zip(lines.similarity.values, COLOURS, strict=False):
        line = lines.accuracy_gap_theory.sel(similarity=q)
        axis.plot(lines.share, line, color=colour, label=rf"$q_T = {q:g}$")
        points = runs.accuracy_gap_simulated.sel(similarity=q).isel(size=-1)
        error = standard_error(points)
        axis.errorbar(runs.share, points.mean("seed"), error, fmt="o", color=colour)
    axis.axhline(0, color="0.5", linewidth=0.8, zorder=0)
    axis.set(xlabel=label("share of group +", r"\rho"), ylabel="accuracy gap, + minus −")
    axis.set_title(rf"bias persists at $q_T = 1$; $\lambda = 0.3$, points: $d = {int(runs['size'][-1])}$")
    axis.legend()

    _map(figure, axes[0, 1], table.gap.sel(tilts="equal"), "accuracy gap, + minus −", "gap of the tuned single learner")
    axis = axes[0, 2]
    chosen = table.share.values[[0, len(table.share) // 4, len(table.share) // 2]]
    for share, colour in zip(chosen, COLOURS, strict=False):
        gain = 100 * (table.joint - table.alone).sel(tilts="equal", share=share)
        axis.plot(table.similarity, gain, "o-", markersize=3, color=colour, label=rf"$\rho = {share:.2g}$")
    axis.axhline(0, color="0.5", linewidth=0.8, zorder=0)
    axis.set(xlabel=label("similarity of rules", "q_T"), ylabel="accuracy of group +, points (%)")
    axis.set_title("gain from the other group's samples:\nsingle learner minus group + alone, both tuned")
    axis.legend()

    for axis, tilts, words in ((axes[1, 0], "equal", "different"), (axes[1, 1], "opposite", "equal")):
        wider = abs(table.parity_coupled.sel(tilts=tilts)) - abs(table.parity_single.sel(tilts=tilts))
        plus, minus = TILTS[tilts]
        title = f"coupling widens (> 0) the gap in selection;\n{words} base rates, $m_T = ({plus:g}, {minus:g})$"
        _map(figure, axis, wider, r"$|\Delta P(\hat y = 1)|$, coupled minus single", title)
    gain = 100 * (table.accuracy_coupled - table.accuracy_single).sel(tilts="equal")
    _map(figure, axes[1, 2], gain, "points (%)", "gain in overall accuracy from coupling;\n$m_T = (0.3, 0.3)$")
    figure.suptitle(
        r"Two groups, two rules ($\alpha = 2$): every learner at its own best $\lambda$, $\gamma$", fontsize=11
    )
    return figure


def _map(figure: Any, axis: Any, values: Any, bar: str, title: str) -> None:
    values = values.transpose("similarity", "share").dropna("similarity")
    most = float(np.nanmax(np.abs(values)))
    mesh = axis.pcolormesh(
        values.share,
        values.similarity,
        values,
        cmap="RdBu_r",
        vmin=-most,
        vmax=most,
        shading="nearest",
        rasterized=True,
    )
    if float(values.min()) < 0 < float(values.max()):
        axis.contour(values.share, values.similarity, values, levels=[0.0], colors=INK, linewidths=1.0)
    axis.grid(False)
    axis.set(xlabel=label("share of group +", r"\rho"), ylabel=label("similarity of rules", "q_T"))
    axis.set_title(title)
    figure.colorbar(mesh, ax=axis, label=bar)


# --- trade-offs -------------------------------------------------------------------------------------------------------

MEASURES = {
    "accuracy_gap": "accuracy gap",
    "parity_difference": "demographic parity gap",
    "opportunity_difference": "equal opportunity gap",
    "odds_difference": "equalised odds gap",
    "predictive_difference": "predictive parity gap",
    "conditional_information": r"information on the group, $I(\hat y; c \mid y)$ (nats),",
}
METHODS = {
    "single": ("single", ("penalty",)),
    "reweighed": ("single", ("penalty", "group_weight", "positive_plus", "positive_minus")),
    "coupled": ("coupled", ("penalty", "coupling")),
    "coupled, reweighed": ("coupled", ("penalty", "coupling", "group_weight", "positive_plus", "positive_minus")),
}
RANGES = {"penalty": (0.02, 5.0), "coupling": (1e-3, 50.0), "group_weight": (0.1, 20.0), "positive_plus": (0.1, 10.0),
          "positive_minus": (0.1, 10.0)}  # fmt: skip
CLOSED = {"accuracy_gap": 0.01, "parity_difference": 0.01, "opportunity_difference": 0.01, "odds_difference": 0.02,
          "predictive_difference": 0.01, "conditional_information": 5e-4}  # fmt: skip
"""Gaps that count as closed."""
POINTS = {"most": "o", "near": "s", "closes": "D"}
"""Markers: the most accurate learner of its kind, one near parity, one that closes the panel's own gap."""
LEVELS = 40
SHOWN = {"accuracy_gap": 0.12, "parity_difference": 0.28, "opportunity_difference": 0.18, "odds_difference": 0.3,
         "predictive_difference": 0.06, "conditional_information": 0.015}  # fmt: skip


def _front(
    method: str, quick: bool, also: dict[str, np.ndarray] | None = None
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """All points tried, as values and observables; `also` are points from which the search starts as well."""
    from scipy.stats import qmc

    learner, names = METHODS[method]
    model = BiasGeometry(learner=learner)
    low, high = (np.log([RANGES[n][i] for n in names]) for i in (0, 1))
    if len(names) == 1:
        values = np.geomspace(*RANGES[names[0]], 64)
        return {names[0]: values}, _observe(model, names, values[:, None])
    first, rounds, number = (256, 1, 256) if quick else (1024, 3, 512)
    rng = np.random.default_rng(0)
    sobol: Any = qmc.Sobol
    u = sobol(len(names), seed=0).random(first)
    if also is not None:
        u = np.concatenate([u, (np.log(np.stack([also[n] for n in names], axis=1)) - low) / (high - low)])
    tried, seen = u, _observe(model, names, np.exp(low + (high - low) * u))
    for step in 0.08 * 0.5 ** np.arange(rounds):
        parents = np.unique(np.concatenate([_best(seen, m) for m in MEASURES]))
        u = tried[rng.choice(parents, number)] + step * rng.normal(size=(number, len(names)))
        u = np.clip(u, 0.0, 1.0)
        more = _observe(model, names, np.exp(low + (high - low) * u))
        tried, seen = np.concatenate([tried, u]), {n: np.concatenate([seen[n], more[n]]) for n in seen}
    values = np.exp(low + (high - low) * tried)
    return {n: values[:, i] for i, n in enumerate(names)}, seen


def _observe(model: BiasGeometry, names: tuple[str, ...], values: np.ndarray) -> dict[str, np.ndarray]:
    outcome = model.replace(**dict(zip(names, values.T, strict=True))).theory(COARSE, only=("test_error", *MEASURES))
    return {n: np.asarray(outcome[n]) for n in ("test_error", *MEASURES)}


def _best(seen: dict[str, np.ndarray], measure: str) -> np.ndarray:
    """The most accurate point below each level of the gap."""
    gap = np.where(np.isfinite(seen["test_error"]), np.abs(seen[measure]), np.inf)
    levels = np.linspace(0.0, np.quantile(gap[np.isfinite(gap)], 0.5), LEVELS + 1)[1:]
    ok = gap[None, :] <= np.maximum(levels, np.min(gap))[:, None]
    return np.argmin(np.where(ok, np.nan_to_num(seen["test_error"], nan=1.0)[None, :], 2.0), axis=1)


def search_fronts(quick: bool) -> tuple[Any, dict[str, dict[str, Any]]]:
    """The fronts in theory, and the arms to be simulated: all controls of each, by name."""
    import jax.numpy as jnp
    import xarray as xr

    from .fairness import balancing_weights

    widest = {"accuracy_gap": 0.12, "parity_difference": 0.35, "opportunity_difference": 0.2, "odds_difference": 0.35,
              "predictive_difference": 0.2, "conditional_information": 0.02}  # fmt: skip
    levels = np.stack([np.linspace(0.0, widest[m], LEVELS + 1)[1:] for m in MEASURES])
    front = np.full((len(METHODS), len(MEASURES), LEVELS), np.nan)
    arms: dict[str, dict[str, Any]] = {}
    weights: dict[str, np.ndarray] = {}
    for i, method in enumerate(METHODS):
        # reweighing alone is the limit of infinite coupling, so its points are tried there too
        values, seen = _front(method, quick, weights if method == "coupled, reweighed" else None)
        for j, measure in enumerate(MEASURES):
            gap = np.where(np.isfinite(seen["test_error"]), np.abs(seen[measure]), np.inf)
            for k, level in enumerate(levels[j]):
                below = seen["test_error"][gap <= level]
                front[i, j, k] = 1 - below.min() if len(below) else np.nan
        if method == "reweighed":
            good = np.unique(np.concatenate([_best(seen, m) for m in MEASURES]))
            weights = {n: v[good] for n, v in values.items()} | {"coupling": np.full(len(good), RANGES["coupling"][1])}
            for measure, most in CLOSED.items():
                closed = np.where(np.abs(seen[measure]) <= most, seen["test_error"], np.nan)
                if not np.isnan(closed).all():
                    at = int(np.nanargmin(closed))
                    arms[f"reweighed: closes {measure}"] = {
                        "learner": "single",
                        **{n: float(v[at]) for n, v in values.items()},
                    }
        best = int(np.nanargmin(seen["test_error"]))
        fair = np.where(np.abs(seen["parity_difference"]) <= 0.05, seen["test_error"], np.nan)
        for name, at in ((f"{method}: most accurate", best), (f"{method}: near parity", fair)):
            if not isinstance(at, int):
                if np.isnan(at).all():
                    continue
                at = int(np.nanargmin(at))
            arms[name] = {"learner": METHODS[method][0], **{n: float(v[at]) for n, v in values.items()}}
    # Kamiran and Calders' weights make group and label independent; the penalty is the most accurate one
    model = BiasGeometry()
    base = np.asarray(model.theory(COARSE, only=("base_rate",)).base_rate)
    joint = np.array([0.2, 0.8])[:, None] * np.stack([1 - base, base], axis=1)
    k = np.asarray(balancing_weights(jnp.asarray(np.stack([joint, 0 * joint], axis=2))))
    own = {"group_weight": k[0, 0] / k[1, 0], "positive_plus": k[0, 1] / k[0, 0], "positive_minus": k[1, 1] / k[1, 0]}
    outcome = model.replace(penalty=np.geomspace(0.02, 5, 25), **own).theory(COARSE, only=("test_error",))
    arms["balancing weights"] = {
        "learner": "single", "penalty": float(np.geomspace(0.02, 5, 25)[np.argmin(outcome.test_error)]),
        **{n: float(v) for n, v in own.items()}}  # fmt: skip
    full = {
        n: {"coupling": 1.0, "group_weight": 1.0, "positive_plus": 1.0, "positive_minus": 1.0, **v}
        for n, v in arms.items()
    }
    fronts = xr.Dataset({"accuracy": (("remedy", "measure", "level"), front), "gap": (("measure", "level"), levels)},
                        coords={"remedy": list(METHODS), "measure": list(MEASURES)})  # fmt: skip
    return fronts, full


def simulated(arms: dict[str, dict[str, Any]], quick: bool) -> Study:
    """The study of some arms, by risk minimisation."""
    return Study(BiasGeometry(), {"samples": [2.0]}, arms=arms, sizes=[100 if quick else 400], seeds=4 if quick else 40)


def tradeoffs(quick: bool) -> dict[str, Any]:
    fronts, arms = search_fronts(quick)
    runs = simulated(arms, quick).run()
    alike = {"learner": "single", "similarity": 1.0, "tilt_plus": 0.0, "tilt_minus": 0.0, "penalty": 0.3}
    control = simulated({"equal rules": alike}, quick).run().isel(arm=0)
    kept = [v for v in runs.data_vars if str(v).rsplit("_", 1)[0] in ("test_error", *MEASURES)]
    return {"": fronts.assign_attrs(runs.attrs), "runs": runs[kept], "control": control[kept]}


def draw_tradeoffs(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    fronts, runs = data[""], data["runs"].isel(samples=0, size=-1)
    figure, axes = plt.subplots(2, 3, figsize=(13.0, 7.0), layout="constrained")
    colours = dict(zip(METHODS, (INK, *COLOURS), strict=False))
    for axis, (measure, words) in zip(axes.flat, MEASURES.items(), strict=True):
        for method in METHODS:
            line = fronts.accuracy.sel(remedy=method, measure=measure)
            axis.plot(fronts.gap.sel(measure=measure), 100 * line, color=colours[method], label=method)
        for arm in runs.arm.values:
            method, _, kind = str(arm).partition(": ")
            if kind.startswith("closes") and kind != f"closes {measure}":
                continue
            marker = POINTS.get(kind.partition(" ")[0], "*")
            point, colour = runs.sel(arm=arm), colours.get(method, COLOURS[4])
            gaps, right = point[f"{measure}_simulated"], 100 * (1 - point.test_error_simulated)
            number = np.sqrt(point.sizes["seed"])
            errors = {"yerr": right.std("seed", ddof=1) / number, "xerr": gaps.std("seed", ddof=1) / number}
            look = {"fmt": marker, "color": colour, "markersize": 9 if marker == "*" else 5}
            axis.errorbar(abs(gaps.mean("seed")), right.mean("seed"), **errors, **look)
            theory = [np.asarray(point[f"{n}_expected"]).reshape(-1)[0] for n in (measure, "test_error")]
            axis.plot(abs(theory[0]), 100 * (1 - theory[1]), marker, color=colour, markerfacecolor="none", markersize=9)
        axis.set(xlabel=f"largest {words} allowed", ylabel="overall accuracy (%)")
        axis.set(xlim=(0, SHOWN[measure]), ylim=(73.0, 79.8))
        axis.xaxis.set_major_locator(MaxNLocator(5))
    axes[0, 2].legend(loc="lower right")
    named = {"o": "most accurate", "s": "parity gap ≤ 0.05", "D": "closes this gap", "*": "balancing weights"}
    for marker, words in named.items():
        axes[1, 2].plot([], [], marker, color="0.3", label=words)
    axes[1, 2].plot([], [], "o", color="0.3", markerfacecolor="none", markersize=9, label="theory at the same weights")
    axes[1, 2].legend(loc="lower right", fontsize=8)
    size = int(data["runs"]["size"][-1])
    setting = "two samples per input, a fifth in group +, rules of similarity 0.6"
    figure.suptitle(
        f"Accuracy against fairness, every method tuned separately ({setting}); points: minimised risk, d = {size}",
        fontsize=11,
    )
    return figure


RECIPES = {
    "bias-geometry-maps": Recipe(
        maps,
        draw_maps,
        sentence=(
            "Bias of a classifier of two groups against their imbalance and the similarity of their rules; "
            "the effect of coupling."
        ),
    ),
    "bias-geometry-tradeoffs": Recipe(
        tradeoffs,
        draw_tradeoffs,
        sentence="Accuracy against each fairness gap, for reweighed and for coupled learners, each tuned separately.",
    ),
}
