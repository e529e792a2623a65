"""What is claimed of transformers on Potts sequences, and the numbers that decide."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE = "what-transformers-learn"


def _excess(stored: Stored, learner: str, sequences: int) -> tuple[float, float]:
    return mean_and_error(stored[f"{FIGURE}.sequences"].excess_loss.sel(learner=learner, sequences=sequences))


def _finds_couplings(stored: Stored) -> list[Measured]:
    maps = stored[f"{FIGURE}.maps"]
    apart = ~np.eye(maps.sizes["site"], dtype=bool)
    correlation = np.corrcoef(maps.couplings.values[apart], maps.factored_map.values[apart])[0, 1]
    colours = np.corrcoef(maps.colour_matrix.values.ravel(), maps.factored_colours.values.ravel())[0, 1]
    factored, dense = _excess(stored, "factored", 64000), _excess(stored, "dense", 64000)
    return [
        Measured("loss above the optimum with 64,000 sequences, factored attention", *factored, below=1e-3),
        Measured("the same over that of dense couplings", factored[0] / dense[0], factored[1] / dense[0], below=0.1),
        Measured("correlation of the attention map with J", float(correlation), above=0.99),
        Measured("correlation of the values with U", float(colours), above=0.99),
    ]


def _depth(stored: Stored) -> list[Measured]:
    found = []
    for sequences in (1000, 64000):
        one, three = _excess(stored, "1 layer", sequences), _excess(stored, "3 layers", sequences)
        error = np.hypot(one[1] / three[0], one[0] * three[1] / three[0] ** 2)
        found.append(
            Measured(
                f"excess loss of one layer over that of three, {sequences} sequences",
                one[0] / three[0],
                error,
                above=2.0,
            )
        )
    return found


CLAIMS = (
    Claim(
        "Attention whose map sees positions and whose values see tokens has the form of the conditionals of a Potts model, "
        "and training finds its couplings.",
        "rende2024mapping",
        "the masked loss falls to the optimum with the number of sequences; map ∝ J, values ∝ U",
        "dense couplings: the same form with far more parameters",
        (FIGURE,), _finds_couplings, "20 sites, 10 colours, 250 to 64,000 sequences, three seeds", seconds=720,
    ),
    Claim(
        "An ordinary transformer needs several layers for the same pairwise data.",
        "rende2024mapping",
        "at equal width and data, trained to the end, one layer stays clearly above two and three",
        "no dependence on depth",
        (FIGURE,), _depth, "20 sites, 10 colours, widths 8 to 64, 8,000 to 216,000 steps of Adam, three seeds",
        would_change="one layer at twice the excess loss of three in some setting of width, schedule and embedding, among "
        "them positions that are added instead of concatenated",
        seconds=720,
    ),
)  # fmt: skip
