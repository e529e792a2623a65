"""Claims about the minima of a sum of ReLUs, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._numbers import deviation, difference

FIGURE = "relu-landscape-minima"


def _description(stored: Stored) -> list[Measured]:
    lines, runs, found = stored[FIGURE], stored[f"{FIGURE}.descent"].isel(size=-1), []
    for name, words in (("test_loss", "loss"), ("curvature", "curvatures")):
        gap = deviation(runs[f"{name}_simulated"], runs[f"{name}_expected"])
        found.append(Measured(f"largest deviation of the {words} of descents, M = 6 to 20", *gap, below=0.05))
    for units in (6, 12, 20):
        at = runs.sel(teachers=units)
        lowest = mean_and_error(at.curvature_simulated.min("mode"))
        found.append(Measured(f"lowest curvature of descents, M = {units}", *lowest, above=0.0))
    lowest = lines.lowest_theory
    return [
        *found,
        Measured("lowest curvature at the fixed point, least of M = 6 to 20", float(lowest.sel(teachers=slice(6, None)).min()),
                 above=0.0),
        Measured("lowest curvature at M = 5, where it is a saddle", float(lowest.sel(teachers=5)), below=0.0),
    ]  # fmt: skip


def _attractive(stored: Stored) -> list[Measured]:
    runs, found = stored[f"{FIGURE}.descent"].isel(size=-1), []
    for units in (6, 12, 20):
        at = runs.sel(teachers=units)
        gap = deviation(at.overlap_simulated, at.overlap_expected)
        found.append(Measured(f"largest deviation of the overlaps where descents end, M = {units}", *gap, below=0.05))
    return found


def _zero_modes(units: int, more: int) -> int:
    """Vanishing curvatures of the teacher itself, one of its units cut into 1 + `more` parts."""
    import jax
    import jax.numpy as jnp

    from .relu_loss import relu_curvature

    teacher = np.eye(units)
    student = np.concatenate([teacher[:-1], np.repeat(teacher[-1:], 1 + more, axis=0) / (1 + more)])
    directions = np.eye(student.size).reshape(-1, *student.shape)
    hessian = jax.jit(relu_curvature)(jnp.asarray(student), jnp.asarray(teacher), jnp.asarray(directions))
    return int(np.sum(np.abs(np.linalg.eigvalsh(np.asarray(hessian))) < 1e-9))


def _flat(stored: Stored) -> list[Measured]:
    spurious = int(stored[FIGURE].flat_theory.max())
    narrow, wide, wider = (_zero_modes(6, more) for more in (0, 1, 2))
    return [
        Measured("zero modes of the spurious minimum at K = M, most of M = 5 to 20", spurious, below=0.5),
        Measured("zero modes of the global minimum at K = M = 6", narrow, below=0.5),
        Measured("zero modes of the global minimum at K = M + 1", wide, above=0.5),
        Measured("those at K = M + 2 above those at K = M + 1", wider - wide, above=0.5),
    ]


def _reached(stored: Stored) -> list[Measured]:
    """Shares of random starts that find the teacher."""
    runs, found = stored[f"{FIGURE}.reached"].isel(size=-1).reached_simulated, []
    for units in (8, 10):
        at = [mean_and_error(runs.sel(teachers=units, splits=more)) for more in (0, 1, 2)]
        found.append(
            Measured(f"share with one unit more less that at K = M, M = {units}", *difference(at[1], at[0]), above=0.0)
        )
        found.append(Measured(f"share with two units more, M = {units}", *at[2], above=0.95))
    return found


CLAIMS = (
    Claim(
        "Local minima of a sum of ReLUs have an exact description in a few statistics.",
        "huang2026sharp",
        "loss and curvature of descents on the fixed point of five unknowns, which is a minimum from six units on",
        "five units: a saddle",
        (FIGURE,), _description, "d = 64, 8 seeds, M = 6 to 20; deviations over the largest value of the line",
    ),
    Claim(
        "Those minima are the attractive fixed points of one-pass gradient descent.",
        "huang2026sharp",
        "descents at a small rate stay near the minima and leave the saddles",
        "five units: descents leave",
        (FIGURE,), _attractive, "d = 64, 8 seeds, momentum, fresh batches of d² samples",
        missing="descent on single samples, the flow of its statistics, and a saddle that is left",
    ),
    Claim(
        "Minima are isolated where student and teacher are equally wide, and joined by flat directions beyond.",
        "huang2026sharp",
        "the curvature has zero modes for K > M, and the more the wider",
        "K = M: none",
        (FIGURE,), _flat, "six units and one or two more, the last one cut into equal parts",
        missing="paths between minima, and spurious minima of wider networks that are not split ones",
    ),
    Claim(
        "Width makes global minima reachable.",
        "huang2026sharp",
        "the share of random starts that find the teacher grows with the number of units that the student has more",
        "no dependence on width",
        (FIGURE,), _reached, "d = 16, 8 seeds of 32 starts; at M = 6 all starts find the teacher already at K = M",
    ),
    Claim(
        "Minima form a hierarchy, and simplifying assumptions miss parts of it.",
        "huang2026sharp",
        "a census of minima by loss and symmetry, with and without the assumptions",
        "two families only",
        missing="a census of the minima that random starts end in, by loss and symmetry; two families are known here",
    ),
)  # fmt: skip
