"""Claims about wide networks with quadratic activations, and the numbers that decide them."""

from __future__ import annotations

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

PAPER, FIGURE = "saraomannelli2020optimization", "quadratic-network-recovery"


def _cases(stored: Stored, narrow: bool) -> list[tuple[str, object]]:
    table = stored[FIGURE]
    every = [table.isel(case=i) for i in range(table.sizes["case"])]
    names = [(f"d = {int(c.inputs)}, m* = {int(c.teachers)}, m = {int(c.units)}", c) for c in every]
    return [(name, case) for name, case in names if (case.units < case.inputs) == narrow]


def _depends(stored: Stored) -> list[Measured]:
    found = []
    for name, case in _cases(stored, False):
        below, above = (mean_and_error(case.reached.sel(ratio=r)) for r in (0.75, 1.5))  # type: ignore[attr-defined]
        found += [
            Measured(f"fraction recovered at n = 0.75 n_c, {name}", *below, below=0.25),
            Measured(f"the same at 1.5 n_c, {name}", *above, above=0.75),
        ]
    for name, case in _cases(stored, True):
        stuck = mean_and_error(case.spurious)  # type: ignore[attr-defined]
        found.append(Measured(f"fraction of spurious minima at all n, {name}", *stuck, above=0.0))
    return found


def _recovers(stored: Stored) -> list[Measured]:
    found = []
    for name, case in _cases(stored, False):
        low, high = (case.sel(ratio=r) for r in (0.75, 1.5))  # type: ignore[attr-defined]
        found += [
            Measured(f"median loss on samples at 0.75 n_c, {name}", float(low.final_train.median()), below=1e-6),
            Measured(
                f"median loss on fresh inputs there, relative to the start, {name}",
                float(low.final_loss.median()),
                above=1e-3,
            ),
            Measured(f"the same at 1.5 n_c, {name}", float(high.final_loss.median()), below=1e-5),
        ]
    plain = stored[f"{FIGURE}.plain"]
    for i in range(plain.sizes["case"]):
        low, high = (plain.isel(case=i).sel(ratio=r) for r in (0.75, 1.5))
        name = f"plain descent, m* = {int(low.teachers)}"
        found += [
            Measured(f"median loss on samples at 0.75 n_c over that at the start, {name}", float(low.final_train.median()),
                     below=1e-4),
            Measured(f"median loss on fresh inputs there, {name}", float(low.final_loss.median()), above=1e-3),
            Measured(f"the same at 1.5 n_c, {name}", float(high.final_loss.median()), below=1e-4),
        ]  # fmt: skip
    return found


def _rates(stored: Stored) -> list[Measured]:
    flow, found = stored[f"{FIGURE}.flow"], []
    for rank in (1, 4):
        at = flow.sel(teachers=rank)
        law = at.test_loss_theory.isel(time=-1) * flow.time[-1] ** 2 / at.decay_theory
        seen = at.test_loss_simulated.isel(size=-1, time=-1) / at.test_loss_theory.isel(time=-1)
        found += [
            Measured(f"t²E at t = 30 over its limit, m* = {rank}", float(law.values.reshape(-1)[0]), above=0.85, below=1.15),
            Measured(f"loss of networks at t = 30 over the theory's, m* = {rank}, n = 1000", *mean_and_error(seen), above=0.7,
                     below=1.3),
        ]  # fmt: skip
    full = flow.test_loss_theory.sel(teachers=6).isel(time=-1) * flow.time[-1] ** 2
    return [*found, Measured("t²E at t = 30, teacher of full rank", float(full.values.reshape(-1)[0]), below=1e-3)]


CLAIMS = (
    Claim(
        "Whether spurious minima exist depends on samples, dimension and the teacher's width.", PAPER,
        "success jumps at n_c = d(m*+1) − m*(m*+1)/2, or d(d+1)/2 for m* ≥ d", "a narrow student has true spurious minima",
        (FIGURE,), _depends, "d = 8 and 16, m* from 1 to 8, 16 seeds, L-BFGS",
        would_change="more seeds: a single spurious minimum was found for a student of three units",
    ),
    Claim(
        "Gradient descent recovers the teacher under the same conditions.", PAPER,
        "no loss on fresh inputs above n_c; a large one below, although the samples are fitted", "fewer samples than n_c",
        (FIGURE,), _recovers, "d = 8 and 16, 16 seeds, minima by L-BFGS; plain descent: d = 8, 150,000 steps, until t = 300",
        would_change="plain descent until later times than t = 300, as the loss falls no faster than t⁻² for m* < d",
    ),
    Claim(
        "Rates of convergence with many samples are known.", PAPER,
        "t²E tends to (d−m*)(m*+2)/(8(d+2)) for m* < d, and decays exponentially otherwise", "a teacher of full rank",
        (FIGURE,), _rates, "d = 6, t ≤ 30, networks with n = 1000 samples, 32 seeds, which descend a seventh more slowly than "
        "the population flow at t = 30",
    ),
)  # fmt: skip
