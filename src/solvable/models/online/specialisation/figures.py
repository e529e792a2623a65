"""Which units carry a feature: readouts pass on their spread, to an extent set by the imbalance of the layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label, log_axis, standard_error
from solvable.study import Study

from .model import Specialisation

ANGLES = {"θ = π/4 + 0.1": np.pi / 4 + 0.1, "θ = π/3": np.pi / 3, "θ = 1.428": 1.428}
SCALES = (0.03, 0.3, 1.0)


def inheritance(quick: bool) -> dict[str, Any]:
    size, seeds = (100, 4) if quick else (400, 12)
    model = Specialisation(times=np.linspace(0.0, 30.0, 4))
    heads = np.geomspace(0.02, 1.5, 13 if quick else 41)
    over = {"first_scale": list(SCALES), "angle": list(ANGLES.values())}
    lines = Study(model, {**over, "readout_scale": heads}).run()
    some = {"first_scale": [0.3], "angle": list(ANGLES.values()), "readout_scale": [0.1, 0.25, 0.6, 1.2]}
    points = Study(model, some, sizes=[size], seeds=seeds).run()
    linear = Specialisation(
        activation="linear", students=3, features=2, rate=0.3, readout_scale=0.5, first_scale=0.1,
        times=np.linspace(0.0, 40.0, 41))  # fmt: skip
    several = Study(linear, {"angle": [0.3, 0.9]}, sizes=[size], seeds=seeds).run()
    return {"": lines, "experiment": points, "several": several}


def draw_inheritance(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    lines, points, several = data[""], data["experiment"], data["several"]
    size = int(points["size"][-1])
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.9))
    for i, (name, angle) in enumerate(ANGLES.items()):
        at = lines.sel(first_scale=0.3, angle=angle)
        axes[0].plot(lines.readout_scale, at.final_specialisation_theory, color=COLOURS[i], label=name)
        axes[0].plot(lines.readout_scale, at.inherited_theory, ":", color=COLOURS[i], linewidth=1.2)
        runs = points.sel(first_scale=0.3, angle=angle, size=size).final_specialisation_simulated
        error = standard_error(runs)
        axes[0].errorbar(points.readout_scale, runs.mean("seed"), error, fmt=MARKERS[i], color=COLOURS[i], markersize=4)
    axes[0].plot([], [], ":", color="0.3", linewidth=1.2, label="closed form, linear")
    axes[0].set_title(f"erf, $r_w$ = 0.3: flow (lines), SGD at N = {size}")
    for i, scale in enumerate(SCALES):
        at = lines.sel(first_scale=scale, angle=ANGLES["θ = π/3"])
        axes[1].plot(
            lines.readout_scale, at.final_specialisation_theory, color=COLOURS[i + 3], label=f"$r_w$ = {scale:g}"
        )
    axes[1].set_title("the same readouts with larger first layers, θ = π/3")
    for axis in axes[:2]:
        log_axis(axis.xaxis)
        axis.set(xlabel=label("readout_scale", "r_v"), ylabel=label("specialisation", "s"), ylim=(-0.02, 1.02))
        axis.legend()
    for i, angle in enumerate(several.angle.values):
        for feature, dash in ((0, "-"), (1, "--")):
            at = several.sel(angle=angle).isel(feature=feature)
            words = f"θ = {angle:g}, feature {feature + 1}"
            axes[2].plot(several.time, at.specialisation_theory, dash, color=COLOURS[i], label=words)
            runs = at.specialisation_simulated.sel(size=size)
            error = standard_error(runs)
            every = slice(2, None, 5)
            axes[2].errorbar(several.time[every], runs.mean("seed")[every], error[every], fmt=MARKERS[feature],
                             color=COLOURS[i], markersize=3.6)  # fmt: skip
    axes[2].set(xlabel=label("time", "t"), ylabel=label("specialisation", "s"), ylim=(-0.02, 1.02))
    axes[2].set_title(f"linear network, two features, three units (N = {size})")
    axes[2].legend(loc="center right", bbox_to_anchor=(1.0, 0.63))
    axes[1].set_ylim(-0.02, 0.55)
    figure.suptitle(
        "Units inherit the specialisation of the initial readouts, unless the first layer dominates", fontsize=11
    )
    return figure


RECIPES = {
    "specialisation-inheritance": Recipe(
        inheritance,
        draw_inheritance,
        sentence="Specialisation of hidden units against the scale and direction of the initial readouts, one and two features.",
    )
}
