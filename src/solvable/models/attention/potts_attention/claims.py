"""Claims about the generalisation of factored attention, and the numbers that decide them."""

from __future__ import annotations

from solvable.contract.claims import Claim, Measured, Stored, deviation, mean_and_error

FIGURE = "potts-attention-learning-curves"


def _replicas(stored: Stored) -> list[Measured]:
    losses = stored[f"{FIGURE}.loss_experiment"].isel(size=-1)
    graphs = stored[f"{FIGURE}.couplings_experiment"].isel(size=-1)
    star, dense = (graphs.sel(graph=name) for name in ("star", "dense"))
    ratio = mean_and_error((dense.coupling_error_simulated / star.coupling_error_expected).mean("samples"))
    return [
        Measured(
            "relative deviation of the excess loss",
            *deviation(losses.excess_loss_simulated, losses.excess_loss_expected),
            below=0.05,
        ),
        *(
            Measured(
                f"relative deviation of the coupling error, {name} graph",
                *deviation(runs.coupling_error_simulated, runs.coupling_error_expected),
                below=0.05,
            )
            for name, runs in (("star", star), ("dense", dense))
        ),
        Measured("coupling error on the dense graph over the line of the star graph (theory 1.35)", *ratio, above=1.1),
    ]


CLAIMS = (
    Claim(
        "In a solvable setting the generalisation error of factored attention follows from replica theory.",
        "rende2024mapping",
        "excess loss and coupling error against the number of sequences per site lie on the theory lines",
        "coupling errors of the dense graph must not lie on the line of the star graph",
        (FIGURE,), _replicas, "N = 100, three colours; M/N from 1 to 16 (loss, 12 seeds) and from 4 to 14 (couplings, "
        "48 seeds)",
    ),
)  # fmt: skip
