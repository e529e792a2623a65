"""Compare mixings and protocols on the same draws, for the figure of `continual-digits`.

Each cell of a study draws its own digits, split and network. Here all mixings and protocols share them, seed by seed, so that
differences are paired, and all networks train in one program.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from solvable.errors import InvalidValue

from .learning import draw_digits, lane, learn, linear_similarity
from .model import ContinualDigits


def continual_digits(
    mixing: Any = (0.0, 0.25, 0.5, 0.75, 1.0),
    *,
    seeds: int = 8,
    protocols: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Any:
    """Train on task 1, then with each protocol; returns a dataset over protocol, mixing, seed, stage and task.

    **Arguments:**
    - `mixing`: γ, the weight of task 1's digits in the images of task 2, each in [0, 1].
    - `seeds`: each draws digits, split and network; all mixings and protocols share them, so that differences are paired.
    - `protocols`: fractions of images from task 2 in equal intervals of the second stage, by name; default: task 2 alone.
    - `fields`: those of `ContinualDigits`: `start`, `head`, `first_stage`, `second_stage`, `intervals`, `students`, rates.

    The dataset has the observables of `ContinualDigits`, the `digits` of every seed and the protocols' `fraction`.

    >>> found = continual_digits([1.0], seeds=1, first_stage=2, second_stage=1, intervals=2)
    >>> dict(found.test_loss.sizes)
    {'protocol': 1, 'mixing': 1, 'seed': 1, 'stage': 5, 'task': 2}
    """
    import xarray as xr

    amounts = np.atleast_1d(mixing)
    model = ContinualDigits.create(mixing=amounts, **fields)
    intervals = model.intervals
    if protocols is None:
        schedules = {"no-replay": np.ones(intervals)}
    else:
        schedules = {name: _fractions(model, name, schedule) for name, schedule in protocols.items()}
    for name, some in (("mixing", amounts), ("seeds", range(seeds)), ("protocols", schedules)):
        if not len(some):
            raise InvalidValue(f"{name} is empty: a comparison needs at least one entry.")
    drawn = [draw_digits(seed) for seed in range(seeds)]
    shape = (len(schedules), len(amounts), seeds)
    every = [
        lane(drawn[seed][1], jax.random.key(seed), model.start, model.students, amount, fractions)
        for fractions in schedules.values()
        for amount in amounts
        for seed in range(seeds)
    ]
    numbers = {n: float(getattr(model, n)) for n in ("first_stage", "second_stage", "rate", "readout_rate")}
    found = learn(jax.tree.map(lambda *x: jnp.stack(x), *every), **numbers, copied=model.head == "copied")
    losses, errors = (np.asarray(x, float).reshape(*shape, 2 * intervals + 1, 2) for x in found)
    dims, where = ("protocol", "mixing", "seed", "stage", "task"), ("protocol", "mixing", "seed")
    alike = [[linear_similarity(images, a) for _, images in drawn] for a in amounts]
    return xr.Dataset(
        {
            "test_loss": (dims, losses),
            "test_error": (dims, errors),
            "forgetting": (where, losses[..., -1, 0] - losses[..., intervals, 0]),
            "transfer": (where, losses[..., 0, 1] - losses[..., intervals, 1]),
            "final_loss": (where, losses[..., -1, :].mean(-1)),
            "final_error": (where, errors[..., -1, :].mean(-1)),
            "linear_similarity": (("mixing", "seed"), np.array(alike)),
            "digits": (("seed", "digit"), np.array([digits for digits, _ in drawn])),
            "fraction": (("protocol", "interval"), np.array(list(schedules.values()))),
        },
        {"protocol": list(schedules), "mixing": amounts, "seed": np.arange(seeds), **model.coordinates()},
        {"start": model.start, "head": model.head, "students": model.students, **numbers},
    )


def _fractions(model: ContinualDigits, name: str, schedule: Any) -> np.ndarray:
    try:
        return np.asarray(model.replace(given_fraction=schedule).given_fraction)
    except InvalidValue as problem:
        raise InvalidValue(f"protocol {name!r}: {problem}") from None
