"""Rewards for surviving and for every right action beside their theory, and a reward baseline in place of a punishment."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from solvable.methods.flows.committee import pair_gram, weights_with_gram
from solvable.methods.flows.descent import descend, steps_at
from solvable.render.figures import Recipe
from solvable.render.plots import COLOURS, MARKERS, label
from solvable.study import Study

from .model import RLPerceptron

RULES = {"survival": "survival of 6 steps", "breadcrumb": "every right action"}
STEPS, START, MEMORY = 13, 0.4, 200.0  # the start lies below the separatrix of punishment 0.05; memory in episodes


@partial(jax.jit, static_argnames=("size",))
def with_baseline(keys: Array, times: Array, size: int) -> tuple[Array, Array]:
    """Alignments (seeds, times) of students that subtract the running mean of rewards from the reward of every episode.

    An episode of T right actions has reward 1, any other 0. The mean forgets over `MEMORY` episodes and starts at zero.
    """

    def one(key: Array) -> tuple[Array, Array]:
        weight_key, sample_key = jax.random.split(key)
        student, teacher = weights_with_gram(weight_key, pair_gram(1.0, START, 1.0), size).astype(jnp.float32)

        def episode(number: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            w, mean = state
            x = jax.random.normal(jax.random.fold_in(sample_key, number), (STEPS, size), jnp.float32)
            action = jnp.sign(x @ w)
            reward = jnp.all(action == jnp.sign(x @ teacher)).astype(w.dtype)
            w = w + (reward - mean) / (STEPS * math.sqrt(size)) * (action @ x)
            return w, mean + (reward - mean) / MEMORY

        def measured(state: tuple[Array, Array]) -> tuple[Array, Array]:
            return state[0] @ teacher / (jnp.linalg.norm(state[0]) * math.sqrt(size)), state[1]

        return descend(episode, (student, jnp.zeros((), jnp.float32)), steps_at(times, size), measured).path

    return jax.vmap(one)(keys)


def rules(quick: bool) -> dict[str, Any]:
    import xarray as xr

    size, seeds, latest = (50, 3, 20.0) if quick else (300, 32, 100.0)
    times = np.concatenate([[0.0], np.geomspace(0.5, latest, 16)])
    model = RLPerceptron(steps=STEPS, needed=6, times=times)
    studied = Study(model, {"rule": list(RULES)}, sizes=[size], seeds=seeds).run()
    found, mean = with_baseline(jax.random.split(jax.random.key(0), seeds), jnp.asarray(times), size)
    punished = Study(RLPerceptron(steps=STEPS, punishment=0.05, initial_alignment=START, times=times), sizes=[size],
                     seeds=seeds).run()  # fmt: skip
    baseline = xr.Dataset(
        {
            "alignment": (("seed", "time"), np.asarray(found, float)),
            "mean": (("seed", "time"), np.asarray(mean, float)),
            "punished": (
                ("seed", "time"),
                np.asarray(punished.alignment_simulated.isel(size=-1).transpose("seed", "time")),
            ),
        },
        {"time": times},
    )
    return {"": studied, "baseline": baseline}


def draw_rules(data: dict[str, Any]) -> Any:
    import matplotlib.pyplot as plt

    studied, baseline = data[""], data["baseline"]
    size, some = int(studied["size"][-1]), slice(1, None)
    figure, axes = plt.subplots(1, 3, figsize=(12.4, 3.8), layout="constrained")
    for axis, name, words in zip(
        axes, ("alignment", "norm"), (("alignment", r"\rho"), ("squared norm", "Q")), strict=False
    ):
        for i, (rule, kind) in enumerate(RULES.items()):
            at = studied.sel(rule=rule)
            axis.plot(at.time[some], at[f"{name}_theory"][some], color=COLOURS[i], label=f"rewards for {kind}")
            runs = at[f"{name}_simulated"].sel(size=size)
            error = runs.std("seed", ddof=1) / np.sqrt(runs.sizes["seed"])
            axis.errorbar(
                at.time[some], runs.mean("seed")[some], error[some], fmt=MARKERS[i], color=COLOURS[i], markersize=3.4
            )
        axis.set(xscale="log", xlabel=label("time", "t"), ylabel=label(*words))
        axis.set_title(f"theory (lines), D = {size} (points)")
    axes[1].set_yscale("log")
    axes[0].legend()
    for name, words, colour in (
        ("alignment", "running mean as a baseline", COLOURS[2]),
        ("punished", "punishment 0.05", COLOURS[1]),
    ):
        runs = baseline[name]
        axes[2].plot(baseline.time[some], runs.T[some], color=colour, linewidth=0.6, alpha=0.5)
        axes[2].plot(baseline.time[some], runs.mean("seed")[some], color=colour, linewidth=2, label=words)
    axes[2].axhline(START, color="0.5", linewidth=0.8, linestyle=":")
    axes[2].set(xscale="log", xlabel=label("time", "t"), ylabel=label("alignment", r"\rho"))
    axes[2].set_title(f"a reward baseline in place of a punishment (D = {size})")
    axes[2].legend()
    figure.suptitle(f"Rewards of two more rules, and a baseline (episodes of {STEPS} actions)", fontsize=11)
    return figure


RECIPES = {
    "rl-perceptron-rules": Recipe(
        rules,
        draw_rules,
        sentence="Learning from rewards for survival and for every right action beside theory, and a reward baseline: "
        "whether the "
        "equations hold for all rules, and whether a baseline traps as a punishment does.",
    )
}
