"""All learners of `masked-language` on the same sequences: what its figure compares.

Cells of a study are independent: each draws its own sequences. Here every learner gets the same ones, so that what differs is
the learner; the first seed chooses the penalty for all; and the seeds of a transformer train side by side in one program,
whatever the number of steps and of sequences. So these are functions, beside `MaskedLanguage.experiment`, which trains one of the
same arms on sequences of its own (`Study(model, arms=model.arms_declared)`). A comparison is described by its `settings`, a
dictionary: see `figures.FULL`.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from .learners import learn_couplings, learn_transformers
from .model import MaskedLanguage
from .sequences import (
    Planted,
    Sequences,
    contact_precision,
    coupling_error,
    draw_sequences,
    map_correlation,
    planted,
)

FITTED = ("factored", "dense")
CURVES = ("curve", "steps")
SCORES = ("excess_loss", "map_correlation", "contact_precision", "coupling_error")


def prepare(settings: dict[str, Any]) -> tuple[Planted, Sequences]:
    """The law, and sequences for all: a stretch of the pool for every seed, small training sets being its beginnings."""
    data = planted(settings["instance"], settings["sites"], settings["colours"], settings["inverse_temperature"])
    number = settings["seeds"] * max(settings["rows"])
    return data, draw_sequences(jax.random.key(settings["instance"]), data, number, settings["held_out"])


def networks(settings: dict[str, Any]) -> list[str]:
    """The arms that are transformers: some depths, and one attention layer with nothing around it."""
    arms = {name: arm for name, arm in MaskedLanguage.arms_declared.items() if arm["learner"] == "transformer"}
    return [
        n for n, arm in arms.items() if (settings["bare"] if "block" in arm else arm["depth"] in settings["depths"])
    ]


def fits(data: Planted, drawn: Sequences, kind: str, settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """One kind of coupling model at every number of sequences and seed; a fit that did not converge is NaN."""
    shape = (len(settings["rows"]), settings["seeds"])
    out = {name: np.full(shape, np.nan) for name in SCORES}
    true, most = np.asarray(data.couplings), max(settings["rows"])
    for r, rows in enumerate(settings["rows"]):
        penalties = settings["penalties"]
        for seed in range(settings["seeds"]):
            mine = drawn._replace(train=drawn.train[seed * most : seed * most + rows])
            fit = learn_couplings(kind, mine, settings["colours"], jax.random.key(seed), penalties=penalties)
            penalties = (fit.penalty,)  # the first seed chooses for all
            out["map"] = fit.map
            if fit.colours is not None:
                out["colours"] = fit.colours
            if fit.converged and fit.couplings is not None:
                out["excess_loss"][r, seed] = fit.test_loss - drawn.optimal
                out["map_correlation"][r, seed] = map_correlation(fit.map, true)
                out["contact_precision"][r, seed] = contact_precision(fit.map, true)
                out["coupling_error"][r, seed] = coupling_error(fit.couplings, data, settings["inverse_temperature"])
    return out


def unfitted(settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """What `fits` will give: all unknown."""
    sites, colours = (settings["sites"],) * 2, (settings["colours"],) * 2
    shapes = dict.fromkeys(SCORES, (len(settings["rows"]), settings["seeds"])) | {"map": sites, "colours": colours}
    return {name: np.full(shape, np.nan) for name, shape in shapes.items()}


def untrained(name: str, width: int, settings: dict[str, Any]) -> dict[str, np.ndarray]:
    """What `transformers` will give: all unknown."""
    tried = lengths(name, width, settings)
    kept = len({rows for some in tried.values() for rows in some})
    shapes = {"ends": (len(tried), 2, settings["seeds"]), "curve": (1, settings["seeds"]), "steps": (1,)}
    shapes |= dict.fromkeys(
        ("excess_loss", "map_correlation", "contact_precision", "trained"), (kept, settings["seeds"])
    )
    unknown = {n: np.full(shape, np.nan) for n, shape in (shapes | {"map": (settings["sites"],) * 2}).items()}
    return {"lengths": np.array(list(tried))} | unknown


def lengths(name: str, width: int, settings: dict[str, Any]) -> dict[int, tuple[int, ...]]:
    """How many steps a network trains, and on how many sequences each time."""
    most = max(settings["rows"])
    found = settings["steps"] if width == max(settings["widths"]) else dict.fromkeys(settings["narrow"], (most,))
    longer = settings["bare_longer"] if name == "bare layer" else ()
    return found | {factor * max(found): (most,) for factor in longer}


def transformers(
    data: Planted, drawn: Sequences, name: str, width: int, settings: dict[str, Any]
) -> dict[str, np.ndarray]:
    """Transformers of one kind: every seed with the most sequences and, at the largest width, with fewer too."""
    true, most = np.asarray(data.couplings), max(settings["rows"])
    runs: dict[int, dict[str, np.ndarray]] = {}
    ends = {}
    for steps, some in lengths(name, width, settings).items():
        for rows in some:
            run = training(drawn, name, width, steps, rows, settings)
            runs[rows] = run if rows not in runs else _better(runs[rows], run)
            if rows == most:
                ends[steps] = (run["test_loss"] - drawn.optimal, run["validation_loss"])
    kept = [runs[rows] for rows in settings["rows"] if rows in runs]
    return {
        "lengths": np.array(list(ends)),
        "ends": np.array(list(ends.values())),
        "excess_loss": np.stack([run["test_loss"] for run in kept]) - drawn.optimal,
        "map_correlation": np.array([[map_correlation(m, true) for m in run["maps"]] for run in kept]),
        "contact_precision": np.array([[contact_precision(m, true) for m in run["maps"]] for run in kept]),
        "trained": np.stack([run["length"] for run in kept]),
        "curve": kept[-1]["curve"].T - drawn.optimal,
        "steps": kept[-1]["steps"][0],
        "map": kept[-1]["maps"][-1],
    }


def training(
    drawn: Sequences, name: str, width: int, steps: int, rows: int, settings: dict[str, Any]
) -> dict[str, np.ndarray]:
    """One training of some length on so many sequences, for every seed: what became of each, at its best validation loss.

    Always as many replicas as there are seeds: whatever the number of steps and of sequences, one compiled program."""
    number, seeds, arm = networks(settings).index(name), settings["seeds"], MaskedLanguage.arms_declared[name]
    run = learn_transformers(
        drawn.train, [rows] * seeds, drawn.validation, drawn.test, settings["colours"],
        jax.random.key(1000 * number + width), first=[seed * max(settings["rows"]) for seed in range(seeds)],
        depth=arm["depth"], width=width, block=arm.get("block", "full"),
        steps=steps, batch=settings["batch"], recorded=settings["recorded"],
    )  # fmt: skip
    return {
        "test_loss": run.test_loss,
        "validation_loss": run.validation_loss,
        "maps": run.maps,
        "curve": run.curve.T,
        "steps": np.tile(run.steps, (seeds, 1)),
        "length": np.full(seeds, steps),
    }


def _better(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Seed by seed the training of lower validation loss; curves, which may differ in length, are the other's."""
    first = one["validation_loss"] <= other["validation_loss"]
    chosen = {
        n: np.where(first.reshape(-1, *[1] * (v.ndim - 1)), one[n], v) for n, v in other.items() if n not in CURVES
    }
    return chosen | {n: other[n] for n in CURVES}
