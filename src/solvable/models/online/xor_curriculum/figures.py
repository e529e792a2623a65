"""Gain of a curriculum on XOR against width and training time, from many random starts."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from solvable.render.figures import Recipe
from solvable.render.pieces import threads
from solvable.render.plots import COLOURS, MARKERS, label, standard_error
from solvable.study import Study

from .model import XorCurriculum

SETTINGS = {
    "plain, 0.4": {"scaling": "plain", "hard": 0.4},
    "plain, 0.5": {"scaling": "plain", "hard": 0.5},
    "inverse-root, 0.4": {"scaling": "inverse-root", "hard": 0.4},
    "inverse-root, 0.5": {"scaling": "inverse-root", "hard": 0.5},
}
TITLES = {"plain": "readouts $v \\sim N(0, 1)$", "inverse-root": "readouts $v \\sim N(0, 1/K)$"}
SIZE = 1000  # dimension in which the starts are drawn
LANES = 192  # flows followed at once: those of one horizon, which take equally many steps
GAINS = ("plain, 0.4", "inverse-root, 0.5")  # settings whose gain against training time is drawn
EARLY = 80.0  # training time at which curricula are compared; later, slow starts have won too
WIDE, TICKET = 16, 4  # units of the networks that are pruned, and units that are kept

NAMES = ("initial_norm", "initial_overlap", "initial_readout")
PROTOCOLS = ("hard", "curriculum")
ARMS = ("ticket", "random")


def drawn_starts(students: int, settings: list[dict[str, Any]], starts: int) -> list[list[XorCurriculum]]:
    """Random starts for every setting; all protocols and horizons use the same ones."""
    keys = [jax.random.fold_in(jax.random.key(7), i) for i in range(starts)]
    random = [XorCurriculum(students=students, start="random", **values) for values in settings]
    return [[model.prepare(key, SIZE) for key in keys] for model in random]


def follow(protocol: str, drawn: list[list[XorCurriculum]], horizons: list[float], nodes: int) -> dict[str, np.ndarray]:
    """Final errors (settings, horizons, starts), and the sizes |v_k||w_k| of the units at the end; NaN without convergence."""
    chosen = [(one, horizon) for horizon in horizons for row in drawn for one in row]
    lanes = {
        name: jnp.stack([jnp.asarray(getattr(one, name), float) for one, _ in chosen]) for name in (*NAMES, "hard")
    }
    lanes["horizon"] = jnp.asarray([horizon for _, horizon in chosen])
    model = XorCurriculum(protocol=protocol, students=drawn[0][0].students, points=1)
    errors, sizes, converged = _ends(model, lanes, XorCurriculum.numerics.updated({"nodes": nodes}))
    shape = (len(horizons), len(drawn), len(drawn[0]))
    errors = np.where(converged, errors, np.nan).reshape(shape).swapaxes(0, 1)
    sizes = np.where(np.asarray(converged)[:, None], sizes, np.nan)
    return {"error": errors, "unit": sizes.reshape(*shape, -1).swapaxes(0, 1)}


@eqx.filter_jit
def _ends(model: XorCurriculum, lanes: dict[str, Any], numerics: Any) -> Any:
    def end(fields: dict[str, Any]) -> Any:
        found = model.with_values(fields).point(numerics)
        size = jnp.abs(found["readout"][-1]) * jnp.sqrt(found["norm"][-1])
        return found["final_error"], size, found["converged"][-1]

    return jax.lax.map(end, lanes, batch_size=LANES)


def pruned(drawn: list[list[XorCurriculum]], sizes: np.ndarray, horizon: float, nodes: int) -> dict[str, np.ndarray]:
    """Final errors (settings, arms, starts) of a few units of wide networks, back at their start and trained alone.

    A ticket keeps the units that are largest at the end of the wide network's training (`sizes`), the control random ones.
    """
    errors = []
    for arm in ARMS:
        rows = []
        for wide, row in zip(drawn, sizes, strict=True):
            kept = []
            for number, (one, size) in enumerate(zip(wide, row, strict=True)):
                largest = np.argsort(-size)[:TICKET]
                any_units = np.random.default_rng(number).permutation(len(size))[:TICKET]
                at = np.sort(largest if arm == "ticket" else any_units)
                norm, overlap, readout = (np.asarray(getattr(one, name)) for name in NAMES)
                kept.append(one.replace(students=TICKET, initial_norm=norm[np.ix_(at, at)], initial_overlap=overlap[at],
                                        initial_readout=readout[at]))  # fmt: skip
            rows.append(kept)
        found = follow("hard", rows, [horizon], nodes)["error"][:, 0]
        errors.append(np.where(np.isfinite(sizes).all(-1), found, np.nan))
    return {"error": np.stack(errors, axis=1)}


def width(quick: bool, pieces: Any) -> dict[str, Any]:
    import xarray as xr

    units, horizons = ([2, 4], [10.0, 20.0]) if quick else ([2, 4, 8, 16], [10.0, 20.0, 40.0, 80.0, 160.0])
    wide, starts, nodes = (8, 4, 64) if quick else (WIDE, 48, 1024)
    settings = dict(list(SETTINGS.items())[:1]) if quick else SETTINGS
    shape = (len(settings), len(units), len(horizons), starts)
    dims = ("setting", "students", "horizon", "start")
    table = xr.Dataset(coords={"setting": list(settings), "students": units, "horizon": horizons})
    for protocol in PROTOCOLS:
        table[protocol] = (dims, np.full(shape, np.nan))

    def ends(protocol: str, students: int, horizons: list[float]) -> Any:
        def make() -> dict[str, np.ndarray]:
            return follow(protocol, drawn_starts(students, list(settings.values()), starts), horizons, own)

        own = min(nodes, 256) if students == 2 else nodes  # averages in two dimensions need fewer points
        what = [protocol, students, list(settings), horizons, starts, own]
        return pieces.get(f"{protocol}, K = {students}", what, make)

    with threads() as pool:
        jobs = {(p, k): pool.submit(ends, p, k, horizons) for k in units for p in PROTOCOLS}
        if wide not in units:
            jobs["hard", wide] = pool.submit(ends, "hard", wide, horizons)
        for (protocol, students), job in jobs.items():
            if students in units:
                table[protocol].loc[{"students": students}] = job.result()["error"]
        sizes = jobs["hard", wide].result()["unit"][:, -1]
    what = [wide, list(settings), horizons[-1], starts, nodes]
    wide_starts = drawn_starts(wide, list(settings.values()), starts)
    kept = pieces.get("tickets", what, lambda: pruned(wide_starts, sizes, horizons[-1], nodes))
    table["pruned"] = (("setting", "arm", "start"), kept["error"])
    table = table.assign_coords(arm=list(ARMS))
    size, seeds = (100, 4) if quick else (400, 8)
    shown = XorCurriculum(horizon=20.0, points=8)
    curves = Study(shown, {"protocol": ["hard", "curriculum", "anti"]}, sizes=[size], seeds=seeds).run()
    return {"": curves, "map": table.assign_attrs(curves.attrs)}


def least_error(spread: float) -> float:
    """Error of the best classifier: it is right if both coordinates across the clusters are on the right side, or neither is.

    >>> round(least_error(0.5), 6)
    0.144928
    """
    wrong = 0.5 * math.erfc(0.5 / spread)
    return 2 * wrong * (1 - wrong)


def won(table: Any, setting: str, units: int, protocol: str, horizon: float) -> np.ndarray:
    """Per start, 1 if it ends closer to the least error than to 1/4, the error with one misclassified cluster, else 0.

    NaN where the flow has not converged.
    """
    return _won(setting, table[protocol].sel(setting=setting, students=units, horizon=horizon).values)


def won_pruned(table: Any, setting: str, arm: str) -> np.ndarray:
    """The same for pruned networks: the ticket, or random units of the same networks."""
    return _won(setting, table.pruned.sel(setting=setting, arm=arm).values)


def _won(setting: str, errors: np.ndarray) -> np.ndarray:
    enough = 0.5 * (least_error(float(setting.split(", ")[1])) + 0.25)
    return np.where(np.isfinite(errors), (errors < enough).astype(float), np.nan)


def fraction(good: np.ndarray) -> tuple[float, float]:
    """Fraction of ones among the finite values; two pseudo-counts keep its standard error finite.

    >>> fraction(np.array([1.0, 0.0, 1.0, 1.0, np.nan]))[0]
    0.75
    """
    good = good[np.isfinite(good)]
    safe = (good.sum() + 1) / (good.size + 2)
    return float(good.mean()) if good.size else math.nan, math.sqrt(safe * (1 - safe) / max(good.size, 1))


def draw_width(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    curves, table = data[""], data["map"]
    size = int(curves["size"][-1])
    figure, panels = plt.subplots(2, 3, figsize=(13.2, 7.6), layout="constrained")
    axes = panels.ravel()
    time = 10.0 * curves.stage.values
    names = (("hard", "hard only"), ("curriculum", "easy, then hard"), ("anti", "hard, then easy"))
    for (protocol, name), colour in zip(names, COLOURS, strict=False):
        runs = curves.test_error_simulated.sel(protocol=protocol, size=size)
        axes[0].plot(time, curves.test_error_theory.sel(protocol=protocol), color=colour, label=name)
        error = standard_error(runs)
        axes[0].errorbar(time, runs.mean("seed"), error, fmt="o", color=colour, markersize=3.2)
    axes[0].axvline(10.0, color="0.6", linewidth=0.8, zorder=0)
    axes[0].set(xlabel=label("time", "t"), ylabel="error on hard samples", ylim=(0, None))
    axes[0].set_title(f"four units, given start: theory (lines),\ndescent at d = {size} (points)")
    axes[0].legend()

    gain = table.hard - table.curriculum
    for axis, setting in zip(axes[1:3], [s for s in GAINS if s in table.setting.values], strict=False):
        for students, colour in zip(table.students.values, COLOURS, strict=False):
            here = gain.sel(setting=setting, students=students)
            error = here.std("start", ddof=1) / np.sqrt(here.notnull().sum("start"))
            axis.errorbar(
                table.horizon,
                here.mean("start"),
                error,
                fmt="o-",
                color=colour,
                markersize=4,
                label=f"{students} units",
            )
        axis.axhline(0, color="0.5", linewidth=0.8, zorder=0)
        axis.set(xlabel=label("training time", "T"), ylabel="gain of easy samples first, in error", xscale="log")
        _ticks(axis, table.horizon.values)
        axis.set_title(f"{_words(setting)};\n{table.sizes['start']} random starts each")
        axis.legend()

    early = [t for t in table.horizon.values if t <= EARLY][-1]
    late = table.horizon.values[-1]
    settings = list(table.setting.values)
    for setting, colour, marker in zip(settings, COLOURS, MARKERS, strict=False):
        at = [[won(table, setting, int(k), p, t) for k in table.students] for p, t in (("hard", late), ("hard", early),
                                                                                     ("curriculum", early))]  # fmt: skip
        found, alone, eased = (np.array([fraction(one) for one in row]) for row in at)
        look = {"fmt": f"{marker}-", "color": colour, "markersize": 4, "label": _short(setting)}
        axes[3].errorbar(table.students, found[:, 0], found[:, 1], **look)
        axes[4].errorbar(table.students, eased[:, 0] - alone[:, 0], np.hypot(alone[:, 1], eased[:, 1]), **look)
    axes[3].set(ylabel="fraction of starts that solve the task", ylim=(-0.05, 1.08))
    axes[3].set_title(f"wide networks win more often\n(hard samples alone, T = {late:g})")
    axes[4].set(ylabel="change of that fraction by a curriculum", ylim=(-1, 1))
    axes[4].axhline(0, color="0.5", linewidth=0.8, zorder=0)
    axes[4].set_title(f"a curriculum helps wide networks\nthat would be slow (T = {early:g})")
    for axis in axes[3:5]:
        axis.set(xlabel=label("units", "K"), xscale="log")
        _ticks(axis, table.students.values)
        axis.legend(fontsize=8, loc="lower right")

    units = int(table.students.max())
    bars = {
        f"all {units} units": [won(table, s, units, "hard", late) for s in settings],
        f"the {TICKET} that end largest": [won_pruned(table, s, "ticket") for s in settings],
        f"{TICKET} random ones": [won_pruned(table, s, "random") for s in settings],
    }
    for i, (name, good) in enumerate(bars.items()):
        found = np.array([fraction(one) for one in good])
        at = np.arange(len(settings)) + 0.27 * (i - 1)
        axes[5].bar(at, found[:, 0], 0.27, yerr=found[:, 1], color=COLOURS[i], label=name)
    axes[5].set_xticks(range(len(settings)), [_short(s).replace(", ", ",\n") for s in settings], fontsize=8)
    axes[5].set(ylabel="fraction that solve the task", ylim=(0, 1.45))
    axes[5].set_yticks([0, 0.5, 1])
    axes[5].set_axisbelow(True)
    axes[5].set_title(f"a few units, pruned and trained again\nfrom their start (hard samples alone, T = {late:g})")
    axes[5].legend(fontsize=8, loc="upper left", ncols=2)
    figure.suptitle("A curriculum helps at intermediate training times, which wide networks pass early\n"
                    "(lower row: variance of the readouts $v$, noise $\\sigma$ of the hard samples)", fontsize=11)  # fmt: skip
    return figure


def _short(setting: str) -> str:
    """A setting in a few characters: the variance of the readouts and the noise."""
    scaling, spread = setting.split(", ")
    return f"$v$: {'1' if scaling == 'plain' else '1/K'}, σ = {spread}"


def _words(setting: str) -> str:
    scaling, spread = setting.split(", ")
    return f"{TITLES[scaling]}, noise σ = {spread}"


def _ticks(axis: Any, values: np.ndarray) -> None:
    axis.set_xticks(values, [f"{x:g}" for x in values])
    axis.minorticks_off()


RECIPES = {
    "xor-curriculum-width": Recipe(
        width,
        draw_width,
        resumes=True,
        sentence="Gain of a curriculum on XOR against width and training time, and starts that win: whether wide networks gain "
        "less, and whether their largest units win alone.",
    )
}
