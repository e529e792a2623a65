"""Claims about initial means of binary networks, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, deviation

FIGURE = "binary-initialisation-signals"


def _maps(stored: Stored) -> list[Measured]:
    table, found = stored[f"{FIGURE}.layers"], []
    for case in table.case.values:
        here = table.sel(case=case)
        for name in ("length", "correlation"):
            gap = deviation(here[f"{name}_simulated"], here[name])
            found.append(Measured(f"relative deviation of the {name} from its map, {case}", *gap, below=0.05))
    largest = float(stored[f"{FIGURE}.scales"]["sampled_tanh"].max())
    found.append(Measured("largest depth scale of the sampled surrogate", largest, below=3.0))
    return found


def _critical(stored: Stored) -> list[Measured]:
    scales = stored[f"{FIGURE}.scales"]
    free = scales.sel(bias_variance=0.0)
    gap = np.abs(free["deterministic_tanh"].values * -np.log(free.variance.values) - 1).max()
    last = scales.isel(variance=-1)
    return [
        Measured("largest relative deviation of ξ_c from −1/ln σ_m², tanh without biases", float(gap), below=1e-6),
        Measured("ξ_c at σ_m² = 0.999, tanh without biases", float(last["deterministic_tanh"][0]), above=900.0),
        Measured("the same with σ_b² = 0.001", float(last["deterministic_tanh"][1]), below=50.0),
        Measured("largest ξ_c of erf without biases", float(free["deterministic_erf"].max()), below=2.22),
    ]


CLAIMS = (
    Claim(
        "Surrogates of stochastic binary networks have scalar signal maps, which decide whether a critical start exists.",
        "stamatescu2019critical",
        "lengths and correlations of finite networks agree with the maps, layer by layer",
        "the sampled surrogate, which has no critical point",
        (FIGURE,), _maps, "σ_m² = 0.9, σ_b² = 0.05, twelve layers of N = 400, tanh and erf",
        seconds=30,
    ),
    Claim(
        "Means should start near ±1.",
        "stamatescu2019critical",
        "a depth scale −1/ln σ_m² that diverges at σ_m² = 1 for tanh without biases, and is cut off by biases",
        "erf neurons, whose depth scale stays below 2.22",
        (FIGURE,), _critical, "theory, σ_m² from 0.05 to 0.999",
        seconds=30,
    ),
)  # fmt: skip
