"""Which algorithms find the spike, how many spurious minima there are, and message passing at finite size."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, LINES, label, log_axis
from solvable.study import Study

from .. import _thresholds as thresholds
from .._landscape import Covariance
from .model import SpikedMatrixTensor

ORDERS = (3, 4)
SHADES = ("#e8e8e8", "#f9dcc4", "#d8ecd9")  # impossible, hard, easy
NAMES = {  # in the order of Δ₂
    "spinodal": ("informed solution exists", "0.45", ":"),
    "information": ("information-theoretic", "#000000", "-"),
    "message passing": ("message passing (Bayes)", COLOURS[0], "-"),
    "Langevin": ("Langevin sampling, T = 1", COLOURS[1], "-"),
    "likelihood message passing": ("message passing (likelihood)", COLOURS[5], "-"),
    "gradient flow": ("gradient flow, T = 0", COLOURS[2], "-"),
    "trivial landscape": ("trivial landscape, m ≥ 0", COLOURS[3], "-"),
    "trivial sphere": ("trivial landscape, all m", COLOURS[3], "--"),
}


# --- thresholds -------------------------------------------------------------------------------------------------------


def diagram(quick: bool) -> dict[str, Any]:
    import xarray as xr

    number, cells = (31, 60) if quick else (201, 301)
    noise = np.geomspace(0.1, 10.0, number)
    coarse, strength = np.geomspace(0.1, 10.0, cells), np.linspace(0.4, 5.2, cells)
    lines = xr.Dataset(coords={"tensor_noise": noise, "order": list(ORDERS), "coarse": coarse, "strength": strength})
    for name in NAMES:
        each = [1 / thresholds.LINES[name](order, noise) for order in ORDERS]
        lines[name.replace(" ", "_")] = (("order", "tensor_noise"), np.stack(each))
    along = np.linspace(0.02, 1.0, 400)  # Δ₂ on the line of Langevin dynamics, which bends back for p ≥ 4
    lines["along"] = along
    lines["langevin_noise"] = (
        ("order", "along"),
        np.stack([(order - 1) * along**2 * (1 - along) ** (order - 3) for order in ORDERS]),
    )
    lines["lower_spinodal"] = (
        ("order", "tensor_noise"),
        np.stack([1 / np.asarray(thresholds.spinodals(order, noise)[1]) for order in ORDERS]),
    )
    phases = [
        SpikedMatrixTensor(order=order, tensor_noise=coarse[None, :], matrix_noise=1 / strength[:, None]).theory(
            only=["phase"]
        )
        for order in ORDERS
    ]
    lines["phase"] = (("order", "strength", "coarse"), np.stack([np.asarray(p.phase) for p in phases]).astype("int8"))
    return {"": lines}


def draw_diagram(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt
    from matplotlib.colors import ListedColormap

    lines = data[""]
    figure, axes = plt.subplots(1, 2, figsize=(12.4, 5.0), sharey=True)
    for axis, order in zip(axes, ORDERS, strict=True):
        at = lines.sel(order=order)
        shade = axis.pcolormesh(at.coarse, at.strength, at.phase, cmap=ListedColormap(SHADES), vmin=-0.5, vmax=2.5)
        shade.set_rasterized(True)
        for name, (words, colour, style) in NAMES.items():
            if name == "trivial sphere" and order % 2 == 0:
                continue  # the same line
            if name == "Langevin":
                axis.plot(at.langevin_noise, 1 / at.along, linestyle=style, color=colour, linewidth=1.6, label=words)
            else:
                line = at[name.replace(" ", "_")]
                axis.plot(at.tensor_noise, line, linestyle=style, color=colour, linewidth=1.6, label=words)
        if order > 3:  # message passing may stop at a low overlap
            axis.plot(at.tensor_noise, at.lower_spinodal, ":", color=COLOURS[0], label="Bayes leaves a low overlap")
        axis.set(xlabel=label("tensor_noise", r"\Delta_p"), ylim=(0.4, 5.2), xlim=(0.1, 10.0))
        log_axis(axis.xaxis)
        axis.set_title(
            f"order p = {order}" + (" (Langevin dynamics fails to the left of its line)" if order > 3 else "")
        )
        axis.grid(False)
        axis.legend(loc="upper right", fontsize=8)
    axes[0].set_ylabel(r"signal in the matrix, $1/\Delta_2$")
    for axis, places in zip(
        axes, ({"impossible": (3, 0.7), "easy": (0.13, 1.35), "hard": (0.13, 0.7)},) * 2, strict=True
    ):
        for word, place in places.items():
            axis.text(*place, word, fontsize=9, color="0.25", style="italic")
    figure.suptitle("A spike in a matrix and a tensor: each algorithm succeeds above its line", fontsize=11)
    return figure


# --- minima -----------------------------------------------------------------------------------------------------------

SHOWN = (0.6, 0.5, 0.45, 0.406, 0.3)  # Δ₂ at p = 3, Δ₃ = 1


def minima(quick: bool) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import xarray as xr

    from solvable.methods.random_matrices.kac_rice import complexity

    latitude = np.linspace(-0.6, 0.95, 63 if quick else 621)
    model = SpikedMatrixTensor(learner="likelihood", matrix_noise=list(SHOWN), latitudes=latitude, initial_overlap=1.0)
    at = model.theory(only=["minima", "final_overlap"])
    energy = np.linspace(-2.4, -1.4, 51 if quick else 401)

    def resolved(noise: float) -> np.ndarray:
        q = Covariance(noise, 1.0, 3)
        count = jax.jit(jax.vmap(lambda e: complexity(q.value, jnp.asarray(0.0), energy=e).complexity))
        return np.asarray(count(jnp.asarray(energy)))

    strength = np.linspace(1.0, 3.4, 41 if quick else 401)
    orders = [
        np.asarray(SpikedMatrixTensor(order=order, matrix_noise=1 / strength).theory(only=["spurious"]).spurious)
        for order in ORDERS
    ]
    table = xr.Dataset(
        {
            "minima": (("matrix_noise", "latitude"), np.asarray(at.minima)),
            "likelihood_overlap": (("matrix_noise",), np.asarray(at.final_overlap)),
            "by_energy": (("matrix_noise", "energy"), np.stack([resolved(noise) for noise in SHOWN])),
            "spurious": (("order", "strength"), np.stack(orders)),
        },
        coords={
            "matrix_noise": list(SHOWN),
            "latitude": latitude,
            "energy": energy,
            "order": list(ORDERS),
            "strength": strength,
        },
    )
    for name in ("likelihood message passing", "gradient flow", "trivial landscape"):
        each = [1 / float(thresholds.LINES[name](order, np.asarray(1.0))) for order in ORDERS]
        table[name.replace(" ", "_")] = (("order",), each)
    return {"": table}


def draw_minima(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    table = data[""]
    figure, axes = plt.subplots(1, 3, figsize=(13.2, 4.2))
    for i, noise in enumerate(table.matrix_noise.values):
        at, colour = table.sel(matrix_noise=noise), COLOURS[i]
        axes[0].plot(at.latitude, 1e3 * at.minima, color=colour, label=rf"$\Delta_2 = {noise:g}$")
        axes[0].plot(at.likelihood_overlap, 0.0, "o", color=colour, markersize=6, zorder=5)
        axes[1].plot(at.energy, 1e3 * at.by_energy, color=colour)
    axes[0].plot([], [], "o", color="0.4", label="likelihood\nmessage passing")
    axes[0].axhline(0.0, color="0.5", linewidth=0.8)
    axes[0].set(
        ylim=(-12, 5.5), xlabel=label("overlap with the signal", "m"), ylabel=r"complexity of minima, $10^3\,\Sigma$"
    )
    axes[0].set_title(r"at given overlap ($p = 3$, $\Delta_3 = 1$)")
    axes[0].legend(fontsize=8, loc="upper center", ncols=3)
    axes[1].axhline(0.0, color="0.5", linewidth=0.8)
    axes[1].set(ylim=(-6, 1.5), xlim=(-1.95, -1.5), xlabel=label("energy", "e"))
    axes[1].set(ylabel=r"complexity without overlap, $10^3\,\Sigma(m = 0, e)$")
    axes[1].set_title("without overlap, at given energy")
    names = {
        "likelihood_message_passing": "likelihood\nmessage passing",
        "gradient_flow": "gradient flow",
        "trivial_landscape": "trivial landscape",
    }
    marks = {"likelihood_message_passing": "v", "gradient_flow": "o", "trivial_landscape": "s"}
    for i, order in enumerate(table.order.values):
        at, colour = table.sel(order=order), COLOURS[i]
        axes[2].plot(at.strength, 1e3 * at.spurious, color=colour, label=f"p = {order}")
        for name in names:
            where = float(at[name])
            height = np.interp(where, at.strength, 1e3 * at.spurious)
            axes[2].plot(where, height, marks[name], color=colour, markersize=7)
    for name, words in names.items():
        axes[2].plot([], [], marks[name], color="0.4", label=words.replace("\n", " "))
    axes[2].axhline(0.0, color="0.5", linewidth=0.8)
    axes[2].set(
        ylim=(-4, 10),
        xlabel=r"signal in the matrix, $1/\Delta_2$",
        ylabel=r"complexity without overlap, $10^3\,\Sigma(0)$",
    )
    axes[2].set_title(r"flow succeeds where minima are many ($\Delta_p = 1$)")
    axes[2].legend(fontsize=8, loc="lower left")
    figure.suptitle("Spurious minima of the likelihood, counted (annealed)", fontsize=11)
    return figure


# --- message passing ----------------------------------------------------------------------------------------------------

FOLLOWED = {
    "bayes": {"learner": "bayes", "initial_overlap": 0.2},
    "likelihood": {"learner": "likelihood", "initial_overlap": 0.4},
}
TITLES = {"bayes": "posterior mean", "likelihood": "maximum likelihood"}


def passing(quick: bool) -> dict[str, Any]:
    sizes, seeds = ([20, 40], 4) if quick else ([50, 200], 24)
    noises = {"bayes": [0.25, 0.5, 0.8], "likelihood": [0.25, 0.35, 0.45]}
    out = {}
    for name, values in FOLLOWED.items():
        model = SpikedMatrixTensor(**values, iterations=10, latitudes=[0.0])
        out[name] = Study(model, {"matrix_noise": noises[name]}, sizes=sizes, seeds=seeds).run(progress=False)
        model = SpikedMatrixTensor(learner=name, initial_overlap=0.3, iterations=25, latitudes=[0.0])
        line = Study(model, {"matrix_noise": np.linspace(0.05, 1.3, 251)})
        over = {"matrix_noise": np.linspace(0.1, 1.2, 4 if quick else 12)}
        points = Study(model, over, sizes=sizes[-1:] if quick else [120], seeds=seeds)
        out[f"{name}_line"] = line.run(progress=False).isel(iteration=[-1])
        out[f"{name}_points"] = points.run(progress=False).isel(iteration=[-1])
    return out


def draw_passing(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(13.2, 4.2))
    for axis, (name, title) in zip(axes, TITLES.items(), strict=False):
        runs = data[name]
        for i, noise in enumerate(runs.matrix_noise.values):
            at = runs.sel(matrix_noise=noise)
            axis.plot(at.iteration, at.overlap_theory, color=COLOURS[i], label=rf"$\Delta_2 = {noise:g}$")
            for size, marker, fill in zip(at["size"].values, "so", ("white", COLOURS[i]), strict=False):
                x = at.overlap_simulated.sel(size=size)
                error = x.std("seed", ddof=1) / np.sqrt(x.sizes["seed"])
                axis.errorbar(at.iteration, x.mean("seed"), error, fmt=marker, color=COLOURS[i], mfc=fill, markersize=4)
        for size, marker, fill in zip(runs["size"].values, "so", ("white", "0.4"), strict=False):
            axis.plot([], [], marker, color="0.4", mfc=fill, label=f"N = {size}")
        start = FOLLOWED[name]["initial_overlap"]
        axis.set(xlabel=label("iteration", "k"), ylabel=label("overlap", "m_k"), ylim=(0, 1))
        axis.set_title(rf"{title}, from $m_0 = {start:g}$")
        axis.legend(fontsize=8, loc="lower right", ncols=2)
    axis = axes[2]
    for i, (name, title) in enumerate(TITLES.items()):
        line, points = data[f"{name}_line"], data[f"{name}_points"]
        axis.plot(line.matrix_noise, line.informed_overlap_theory, LINES[2], color=COLOURS[i])
        axis.plot(line.matrix_noise, line.overlap_theory.isel(iteration=-1), color=COLOURS[i], label=title)
        x = points.overlap_simulated.isel(size=-1, iteration=-1)
        error = x.std("seed", ddof=1) / np.sqrt(x.sizes["seed"])
        axis.errorbar(points.matrix_noise, x.mean("seed"), error, fmt="o", color=COLOURS[i], markersize=4)
    axis.plot([], [], ":", color="0.4", label="highest fixed point")
    number = int(data["bayes_points"]["size"][-1])
    axis.set(xlabel=label("matrix_noise", r"\Delta_2"), ylabel="overlap after 25 iterations", ylim=(-0.05, 1))
    axis.set_title(rf"from $m_0 = 0.3$; points: $N = {number}$")
    axis.legend(fontsize=8)
    figure.suptitle(r"Message passing on dense tensors and state evolution ($p = 3$, $\Delta_3 = 1$)", fontsize=11)
    return figure


RECIPES = {
    "spiked-matrix-tensor-thresholds": Recipe(
        diagram,
        draw_diagram,
        sentence="Thresholds of seven ways to find a spike in a matrix and a tensor, and where it is easy, hard or impossible.",
    ),
    "spiked-matrix-tensor-minima": Recipe(
        minima,
        draw_minima,
        sentence="How many minima the likelihood has at each overlap and energy: many, even where gradient flow succeeds.",
    ),
    "spiked-matrix-tensor-message-passing": Recipe(
        passing,
        draw_passing,
        sentence="Message passing on dense tensors against its state evolution, iteration by iteration.",
    ),
}
