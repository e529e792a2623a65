"""Claims about training deep binary networks from small means, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._points import difference

FIGURE = "binary-digits-depth"


def _bounded(stored: Stored) -> list[Measured]:
    table = stored[FIGURE]
    layers = table.depth * -np.log(table.variance)  # L/ξ_c
    inside, beyond = (mean_and_error(table.accuracy.where(where)) for where in (layers <= 6, layers > 12))
    worst = table.accuracy.mean("seed").where(layers <= 6).min()
    best = table.accuracy.mean("seed").where(layers > 6).max()
    shallow = table.accuracy.sel(depth=2)
    small, large = (mean_and_error(shallow.sel(variance=v)) for v in (table.variance[0], table.variance[-1]))
    return [
        Measured("lowest accuracy of networks up to six depth scales deep", float(worst), above=0.5),
        Measured("highest accuracy of networks deeper than that", float(best), below=0.5),
        Measured("accuracy up to six depth scales less that beyond twelve", *difference(inside, beyond), above=0.2),
        Measured("accuracy of two layers from the smallest means less that from the largest", *difference(small, large),
                 above=-0.1, below=0.1),
    ]  # fmt: skip


CLAIMS = (
    Claim(
        "Networks that start from small means, as is usual, train badly if they are deep.",
        "stamatescu2019critical",
        "networks train up to about six depth scales ξ_c and not beyond",
        "shallow networks, whose accuracy hardly depends on the means",
        (FIGURE,), _bounded, "handwritten digits, width 32, 400 steps of Adam, 2 to 32 layers, 2 networks per point",
        seconds=600,
        would_change="longer networks or fewer steps: beyond six depth scales accuracies fall by half on average, "
        "but the best of these networks still learn within 400 steps of Adam",
    ),
)  # fmt: skip
