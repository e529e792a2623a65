"""Clocks of two classes over training time, what imbalance does to them, and when noised samples lose their class."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, label, standard_error
from solvable.study import Study

from . import images
from .model import EDGES, FeatureDiffusion

SPREADS = {"unequal": {"first_spread": 0.5, "second_spread": 2.0}, "equal": {"first_spread": 1.0, "second_spread": 1.0}}
NAMES = ("variance 0.5", "variance 2")


def _points(axis: Any, x: Any, runs: Any, **style: Any) -> None:
    """Means over seeds with their standard errors."""
    error = standard_error(runs)
    axis.errorbar(x, runs.mean("seed"), error, linestyle="none", markersize=3.4, **style)


# --- learning and memorisation ------------------------------------------------------------------------------------------


def training(quick: bool) -> dict[str, Any]:
    arms = {
        f"{name}, share {share:g}": {**spreads, "share": share}
        for name, spreads in SPREADS.items()
        for share in (0.5, 0.9)
    }
    model = FeatureDiffusion()
    runs = Study(model, arms=arms, sizes=[40 if quick else 100], seeds=4 if quick else 24).run()
    samples = np.geomspace(0.5, 64, 8 if quick else 29)
    growth = Study(model, {"width": [8.0, 32.0, 128.0], "samples": samples}).run()
    size, seeds = (20, 4) if quick else (50, 6)
    check = Study(model.replace(width=8.0), {"samples": [1.0, 4.0]}, sizes=[size], seeds=seeds).run()
    return {"": runs, "growth": growth[["memorisation_time_theory"]], "growth_runs": check}


def draw_training(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs, growth, check = (data[part] for part in ("", "growth", "growth_runs"))
    lines = runs
    size, arm = int(runs["size"][-1]), "unequal, share 0.5"
    figure, axes = plt.subplots(1, 3, figsize=(13.0, 4.0), layout="constrained")
    for c, name in enumerate(NAMES):
        for kind, style, marker in (("test_loss", LINES[0], "o"), ("train_loss", LINES[1], "s")):
            axes[0].plot(lines.time, lines[f"{kind}_theory"].sel(arm=arm).isel(group=c), style, color=COLOURS[c],
                         label=f"{name}, {kind.split('_')[0]}")  # fmt: skip
            _points(axes[0], runs.time, runs[f"{kind}_simulated"].sel(arm=arm).isel(group=c, size=-1), fmt=marker,
                    color=COLOURS[c])  # fmt: skip
        for clock, style in (("best_time", ":"), ("memorisation_time", "-.")):
            axes[0].axvline(float(lines[f"{clock}_theory"].sel(arm=arm).isel(group=c)), linestyle=style, color=COLOURS[c],
                            linewidth=0.8)  # fmt: skip
    axes[0].set(xscale="log", xlabel=label("training time", r"\tau"), ylabel="loss per dimension", ylim=(0.5, 2.2))
    axes[0].set_title("best stopping (dotted), memorisation (dash-dotted)", fontsize=9)
    axes[0].legend(fontsize=7)
    for c, (name, title) in enumerate(
        (
            (arm, "variances 0.5, 2"),
            ("unequal, share 0.9", "the same, share 0.9"),
            ("equal, share 0.5", "variances 1, 1"),
        )
    ):
        axes[1].stairs(lines.spectrum_theory.sel(arm=name), EDGES, color=COLOURS[c], label=title)
        _points(
            axes[1], runs.eigenvalue, runs.spectrum_simulated.sel(arm=name).isel(size=-1), fmt=".", color=COLOURS[c]
        )
    axes[1].set(xscale="log", yscale="log", ylim=(1e-3, 1), xlim=(5e-3, 30))
    axes[1].set(xlabel=label("eigenvalue", r"\lambda"), ylabel="fraction of eigenvalues, per bin")
    axes[1].set_title("slow modes memorise (left), fast ones generalise", fontsize=9)
    axes[1].legend(fontsize=7)
    for i, width in enumerate(growth.width.values):
        for c, name in enumerate(NAMES):
            time = growth.memorisation_time_theory.sel(width=width).isel(group=c)
            axes[2].plot(growth.samples, time, LINES[c], color=COLOURS[i + 2],
                         label=f"p/d = {width:g}, {name}" if i == 0 or c == 0 else None)  # fmt: skip
    for c in (0, 1):
        _points(axes[2], check.samples, check.memorisation_time_simulated.isel(group=c, size=-1), fmt="os"[c],
                color=COLOURS[2])  # fmt: skip
    guide = np.array([0.5, 16.0])
    axes[2].plot(guide, 20 * guide, color="grey", linewidth=0.8, label="proportional to n")
    axes[2].set(xscale="log", yscale="log", xlabel=label("samples per dimension", "n/d"), ylabel="memorisation time")
    axes[2].set_title("half of the final gap of test and train loss", fontsize=9)
    axes[2].legend(fontsize=7)
    figure.suptitle(
        f"Diffusion with random features on two classes: limit (lines), d = {size} and, right, d = {int(check['size'][-1])} "
        "(points); p = 4d features, n = 2d samples, noising time 0.1", fontsize=11,
    )  # fmt: skip
    return figure


# --- imbalance ----------------------------------------------------------------------------------------------------------

CLOCKS = {
    "learning_time": "half-way down",
    "best_time": "lowest test loss",
    "memorisation_time": "half of the final gap",
}
PAIRS = {"variances 0.5, 2": (0.5, 2.0), "variances 0.8, 1.2": (0.8, 1.2)}


def _measure(
    size: int, width: int, labels: Any, centres: Any, spreads: Any, time: float, times: Any, seeds: int
) -> Any:
    """Train and test losses at times and the clocks, for every seed, of classes with any centres and axes."""
    import jax
    import jax.numpy as jnp

    from .clocks import clocks
    from .training import Population, experiment

    log_time = jnp.log(jnp.asarray(times, "float32"))

    @jax.jit
    def run(key: Any, labels: Any, population: Population) -> Any:
        trained = experiment(jnp.tanh, key, width, labels, population, jnp.asarray(time))
        slow = 40 / (trained.decay * trained.eigenvalues[0])
        return clocks(
            trained.losses, log_time, jnp.log(1e-3 / (trained.decay * trained.eigenvalues[-1])), jnp.log(slow)
        )

    ones = np.ones((2, size))
    found = []
    for label_set, centre, spread in zip(labels, centres, spreads, strict=True):
        population = Population(jnp.asarray(centre * ones, "float32"), jnp.asarray(spread * ones, "float32"))
        each = [run(jax.random.key(seed), jnp.asarray(label_set), population) for seed in range(seeds)]
        found.append(jax.tree.map(lambda *x: np.stack([np.asarray(y) for y in x]), *each))
    return jax.tree.map(lambda *x: np.stack(x), *found)


def imbalance(quick: bool) -> dict[str, Any]:
    import xarray as xr

    arms = {name: {"first_spread": a, "second_spread": b} for name, (a, b) in PAIRS.items()}
    model = FeatureDiffusion()
    lines = Study(model, {"share": np.linspace(0.02, 0.98, 9 if quick else 25)}, arms=arms).run()
    lines = lines[[f"{clock}_theory" for clock in CLOCKS]]
    runs = Study(
        model, {"share": [0.1, 0.5, 0.9]}, arms=arms, sizes=[40 if quick else 100], seeds=4 if quick else 5
    ).run()
    runs = runs[[f"{clock}_{source}" for clock in CLOCKS for source in ("simulated", "expected")]]
    # classes with their own axes: variance 2 on half of the axes (0.1 elsewhere), and 1 on the other half
    size, seeds = (20, 2) if quick else (80, 4)
    half = np.arange(size) < size // 2
    axes = np.stack([np.where(half, 2.0, 0.1), np.where(half, 0.1, 1.0)])
    rare = [0.5, 0.3, 0.2, 0.1, 0.05]
    number = 6 * size
    labels = [np.arange(number) >= round(share * number) for share in rare]
    times = [1.0, 1e5]
    _, _, own = _measure(size, 4 * size, [x.astype(int) for x in labels], [0.0] * 5, [axes] * 5, 0.3, times, seeds)
    dims = ("share", "seed", "group")
    table = {f"{name}_time": (dims, getattr(own, name)) for name in ("learning", "best", "memorisation")}
    axes_table = xr.Dataset({**table, "best_loss": (dims, own.best_loss)}, {"share": rare, "group": [1, 2]})
    # centres at ± offset √d along the diagonal, the same data otherwise
    size, seeds = (20, 2) if quick else (100, 4)
    spread = np.array([[0.5], [2.0]])
    offsets, times = [0.0, 0.5], [3.0, 30.0, 300.0, 1e5]
    centres = [offset * np.array([[1.0], [-1.0]]) for offset in offsets]
    labels = np.repeat([0, 1], size)
    _, test, moved = _measure(size, 4 * size, [labels] * 2, centres, [spread] * 2, 0.1, times, seeds)
    dims = ("offset", "seed", "group")
    table = {f"{name}_time": (dims, getattr(moved, name)) for name in ("learning", "best", "memorisation")}
    centre_table = xr.Dataset(
        {**table, "test_loss": (("offset", "seed", "time", "group"), test)},
        {"offset": offsets, "time": times, "group": [1, 2]},
    )
    return {"": lines, "runs": runs, "axes": axes_table, "centres": centre_table}


def draw_imbalance(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, runs, own = data[""], data["runs"], data["axes"]
    figure, axes = plt.subplots(1, 4, figsize=(15.0, 3.9), layout="constrained")
    for axis, (clock, words) in zip(axes, CLOCKS.items(), strict=False):
        for i, pair in enumerate(PAIRS):
            for c in (0, 1):
                line = lines[f"{clock}_theory"].sel(arm=pair).isel(group=c)
                axis.plot(lines.share, line, LINES[c], color=COLOURS[i],
                          label=f"{('smaller', 'larger')[c]} of {pair}")  # fmt: skip
                seen = runs[f"{clock}_simulated"].sel(arm=pair).isel(group=c, size=-1)
                _points(axis, runs.share, seen, fmt="os"[c], color=COLOURS[i])
        axis.set(xlabel="share of the class of smaller variance", ylabel=f"time: {words}", yscale="log")
    axes[0].set_ylim(bottom=0.35)
    axes[0].legend(fontsize=7, loc="lower left")
    for i, (clock, words) in enumerate(CLOCKS.items()):
        ratio = np.log2(own[clock].isel(group=1) / own[clock].isel(group=0))
        _points(axes[3], own.share * (1 + 0.04 * (i - 1)), ratio, fmt="osD"[i], color=COLOURS[i], label=words)
    axes[3].axhline(0, color="grey", linewidth=0.8)
    axes[3].set(xscale="log", xlabel="share of the class with variance 2", ylabel="log₂ time of class 2 over class 1")
    axes[3].set_xticks(own.share.values, [f"{share:g}" for share in own.share.values])
    axes[3].minorticks_off()
    axes[3].set_title("classes with axes of their own, variances 2 and 1", fontsize=9)
    axes[3].legend(fontsize=7)
    figure.suptitle(f"Which class comes first, by three definitions of its time: limit (lines), d = {int(runs['size'][-1])} "
                    "(points)", fontsize=11)  # fmt: skip
    return figure


# --- speciation ---------------------------------------------------------------------------------------------------------

MINORITY = (0.5, 0.3, 0.1, 0.01, 0.001)


def three_classes(shares: np.ndarray, separation: float, times: np.ndarray, nodes: int = 121) -> np.ndarray:
    """φ_c(t) of three classes of unit variance at the corners of an equilateral triangle, by quadrature in its plane."""
    side = np.sqrt(separation)
    corners = side * np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    z = np.linspace(-8.0, 8.0, nodes)
    weight = np.exp(-0.5 * (z[:, None] ** 2 + z[None, :] ** 2))
    weight /= weight.sum()
    found = np.empty((len(times), 3))
    for k, t in enumerate(times):
        centres = np.exp(-t) * corners
        for c in range(3):
            x, y = centres[c, 0] + z[:, None], centres[c, 1] + z[None, :]
            log_p = np.stack(
                [np.log(p) - 0.5 * ((x - a) ** 2 + (y - b) ** 2) for p, (a, b) in zip(shares, centres, strict=True)]
            )
            log_p -= log_p.max(axis=0)
            found[k, c] = np.sum(weight * np.exp(log_p[c]) / np.exp(log_p).sum(axis=0))
    return found


def speciation(quick: bool) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import xarray as xr

    from .speciation import class_probabilities, sampled_probabilities, speciation_time

    noising, minority = np.linspace(0.5, 5.0, 37), np.geomspace(5e-4, 0.5, 31)
    separation, size = 800.0, 200.0

    def shares(rare: Any) -> Any:
        return jnp.stack([1 - rare, rare])

    def sampled(key: Any, rare: Any) -> Any:
        mixture = shares(rare), jnp.ones(2), jnp.asarray(separation), jnp.asarray(size)
        return sampled_probabilities(key, *mixture, jnp.asarray(noising[::4]), 8192)

    # the first class is the majority
    rare = jnp.asarray(MINORITY)
    exact = jax.vmap(lambda r: class_probabilities(shares(r), jnp.ones(2), separation, size, jnp.asarray(noising), 96))(
        rare
    )
    falls = jax.vmap(lambda r: speciation_time(shares(r), jnp.ones(2), separation, size, 96))(jnp.asarray(minority))
    keys = jax.random.split(jax.random.key(0), 8)
    drawn = jax.jit(jax.vmap(jax.vmap(sampled, (0, None)), (None, 0)))(keys, rare[:4])
    dims, share = ("share", "noising_time", "group"), 1 - np.array(MINORITY)
    lines = xr.Dataset(
        {"class_probability_theory": (dims, np.asarray(exact))}, {"share": share, "noising_time": noising}
    )
    runs = xr.Dataset(
        {
            "class_probability_simulated": (("share", "seed", *dims[1:]), np.asarray(drawn)),
            "class_probability_expected": (dims, np.asarray(exact)[:4, ::4]),
        },
        {"share": share[:4], "noising_time": noising[::4]},
    )
    # three classes: a frequent, a less frequent and a rare one
    third = np.geomspace(1e-3, 1 / 3, 5 if quick else 13)
    times = np.linspace(1.0, 4.5, 71)
    halfway = np.empty((len(third), 3))
    for i, p in enumerate(third):
        each = np.array([(1 - p) * 2 / 3, (1 - p) / 3, p])
        curve = (three_classes(each, separation, times) - each) / (1 - each)
        halfway[i] = [np.interp(-0.5, -curve[:, c], times) for c in range(3)]
    return {
        "": lines,
        "runs": runs,
        "times": xr.Dataset({"speciation_time": ("minority", np.asarray(falls))}, {"minority": minority}),
        "three": xr.Dataset({"halfway": (("rare", "kind"), halfway)}, {"rare": third, "kind": ["2/3", "1/3", "rare"]}),
    }


def draw_speciation(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, runs, falls, three = (data[part] for part in ("", "runs", "times", "three"))
    figure, axes = plt.subplots(1, 3, figsize=(12.6, 3.8), layout="constrained")

    def normalised(table: Any, c: int, source: str) -> Any:
        share = table.share if c == 0 else 1 - table.share
        return (table[f"class_probability_{source}"].isel(group=c) - share) / (1 - share)

    theory = normalised(lines, 1, "theory")
    for i, share in enumerate(lines.share.values):
        axes[0].plot(lines.noising_time, theory.sel(share=share), color=COLOURS[i], label=f"{1 - share:.3g}")
        if i < runs.sizes["share"]:
            for c in (0, 1):
                seen = normalised(runs, c, "simulated").isel(share=i)
                _points(axes[0], runs.noising_time, seen, fmt="so"[c], color=COLOURS[i], fillstyle=("none", "full")[c])
    axes[0].axhline(0.5, color="grey", linewidth=0.8)
    axes[0].set(xlabel=label("diffusion time", "t"), ylim=(-0.1, 1.1))
    axes[0].set(ylabel="probability of the own class,\nfrom its share (0) to certainty (1)")
    axes[0].set_title("minority (full) and majority (open) share a curve", fontsize=9)
    axes[0].legend(title="share of the minority", fontsize=7, title_fontsize=7)
    axes[1].plot(falls.minority, falls.speciation_time, color=COLOURS[0])
    axes[1].set(xscale="log", xlabel="share of the minority", ylabel=label("speciation time", "t_S"))
    axes[1].set_title("two classes: rarer means later on the way back", fontsize=9)
    for i, kind in enumerate(("2/3", "1/3", "rare")):
        name = "rare class" if kind == "rare" else f"{kind} of the rest"
        axes[2].plot(three.rare, three.halfway.sel(kind=kind), LINES[i], color=COLOURS[i], label=name)
    axes[2].set(xscale="log", xlabel="share of the rare class", ylabel="half-way time of a class")
    axes[2].set_title("three classes on a triangle have times of their own", fontsize=9)
    axes[2].legend(fontsize=7)
    figure.suptitle(
        r"Speciation: how long a noised sample tells its class (squared distance of the centres 800, unit variances)",
        fontsize=11,
    )
    return figure


def pictures(quick: bool) -> dict[str, Any]:
    shape = {"samples": 16, "steps": 8, "channels": 2, "records": 4} if quick else IMAGES
    return {"": images.curves(2 if quick else 12, time=0.1, **shape)}


IMAGES = {"samples": 48, "steps": 600, "channels": 8, "records": 24}


def draw_pictures(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    runs = data[""]
    figure, axes = plt.subplots(1, 4, figsize=(15.5, 3.9), layout="constrained")
    steps = np.maximum(runs.step.values, 0.5)
    for axis, arm in zip(axes, list(images.ARMS)[:1] + list(images.ARMS)[2:4], strict=False):
        spreads = images.ARMS[arm][0]
        for c in (0, 1):
            for name, line in (("test_loss", LINES[0]), ("train_loss", LINES[1])):
                values = runs[name].sel(arm=arm).isel(group=c)
                error = values.std("seed", ddof=1) / np.sqrt(values.sizes["seed"])
                words = f"class {c + 1}, variance {spreads[c]:g}, {name.split('_')[0]}"
                axis.plot(steps, values.mean("seed"), line, color=COLOURS[c], label=words)
                axis.fill_between(
                    steps, values.mean("seed") - error, values.mean("seed") + error, color=COLOURS[c], alpha=0.2
                )
        axis.set(xscale="log", xlabel="steps of Adam", ylim=(0.4, 1.05))
        axis.set_title(arm, fontsize=9)
        axis.legend(fontsize=7, loc="lower left")
    axes[0].set_ylabel("denoising loss per pixel")
    times = images.clocks_of(runs)
    places = np.arange(runs.sizes["arm"])
    for i, (name, words) in enumerate((("learning_time", "half-way down"), ("memorisation_time", "half of the gap"))):
        ratio = times[name].isel(group=0) / times[name].isel(group=1)
        error = ratio.std("seed", ddof=1) / np.sqrt(ratio.sizes["seed"])
        axes[3].errorbar(places + 0.1 * i, ratio.mean("seed"), error, fmt="os"[i], color=COLOURS[i + 2], label=words)
    axes[3].axhline(1, color="0.6", linewidth=0.8)
    labels = [
        str(arm).replace("equal variances", "1 and 1").replace("variances ", "").replace(", ", "\n")
        for arm in runs.arm.values
    ]
    axes[3].set_xticks(places, labels, fontsize=7)
    axes[3].set_title("time of class 1 over that of class 2, by arm (variances)", fontsize=9)
    axes[3].legend(fontsize=8)
    figure.suptitle(
        f"A small U-Net on digits of two classes ({runs.attrs.get('samples', IMAGES['samples'])} images)", fontsize=11
    )
    return figure


RECIPES = {
    "feature-diffusion-training": Recipe(
        training,
        draw_training,
        sentence="Each class of a mixture is learnt and then memorised at times that the spectrum of the features contains.",
    ),
    "feature-diffusion-imbalance": Recipe(
        imbalance,
        draw_imbalance,
        sentence="Times of learning and memorisation of two classes against their shares, by three definitions.",
    ),
    "feature-diffusion-speciation": Recipe(
        speciation,
        draw_speciation,
        sentence="A rare class separates later on the way back from noise; with two classes the majority separates as late.",
    ),
    "feature-diffusion-images": Recipe(
        pictures,
        draw_pictures,
        sentence="A small convolutional denoiser on images of two classes: the class of larger variance and its clocks.",
    ),
}
