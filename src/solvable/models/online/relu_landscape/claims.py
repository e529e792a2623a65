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
        found.append(Measured(f"largest deviation of the {words} of descent runs, M = 6 to 20", *gap, below=0.05))
    for units in (6, 12, 20):
        at = runs.sel(teachers=units)
        lowest = mean_and_error(at.curvature_simulated.min("mode"))
        found.append(Measured(f"lowest curvature of descent runs, M = {units}", *lowest, above=0.0))
    lowest = lines.lowest_theory
    return [
        *found,
        Measured("lowest curvature at the fixed point, M = 6 to 20", float(lowest.sel(teachers=slice(6, None)).min()),
                 above=0.0),
        Measured("lowest curvature at M = 5, where the fixed point is a saddle", float(lowest.sel(teachers=5)), below=0.0),
    ]  # fmt: skip


def _attractive(stored: Stored) -> list[Measured]:
    runs, found = stored[f"{FIGURE}.descent"].isel(size=-1), []
    for units in (6, 12, 20):
        at = runs.sel(teachers=units)
        gap = deviation(at.overlap_simulated, at.overlap_expected)
        found.append(
            Measured(f"largest deviation of the final overlaps of descent runs, M = {units}", *gap, below=0.05)
        )
    return found


def _zero_modes(units: int, more: int) -> int:
    """Number of vanishing curvatures of the teacher with one of its units split into 1 + `more` parts."""
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
        Measured("zero modes of the spurious minimum at K = M, maximum over M = 5 to 20", spurious, below=0.5),
        Measured("zero modes of the global minimum at K = M = 6", narrow, below=0.5),
        Measured("zero modes of the global minimum at K = M + 1", wide, above=0.5),
        Measured("zero modes at K = M + 2 minus those at K = M + 1", wider - wide, above=0.5),
    ]


def _reached(stored: Stored) -> list[Measured]:
    """Fractions of random starts that find the teacher."""
    runs, found = stored[f"{FIGURE}.reached"].isel(size=-1).reached_simulated, []
    for units in (8, 10):
        at = [mean_and_error(runs.sel(teachers=units, splits=more)) for more in (0, 1, 2)]
        found.append(
            Measured(
                f"fraction with one extra unit minus that at K = M, M = {units}", *difference(at[1], at[0]), above=0.0
            )
        )
        found.append(Measured(f"fraction with two extra units, M = {units}", *at[2], above=0.95))
    return found


CLAIMS = (
    Claim(
        "Local minima of a sum of ReLUs have an exact description in terms of a few statistics.",
        "huang2026sharp",
        "loss and curvature of descent runs match the fixed point of five unknowns, which is a minimum from six units on",
        "five units: a saddle",
        (FIGURE,), _description, "d = 64, 8 seeds, M = 6 to 20; deviations over the largest value of the line",
    ),
    Claim(
        "Those minima are the attractive fixed points of one-pass gradient descent.",
        "huang2026sharp",
        "descent runs at a small rate stay near the minima and leave the saddles",
        "five units: descent runs leave",
        (FIGURE,), _attractive, "d = 64, 8 seeds, momentum, fresh batches of d² samples",
        missing="descent on single samples, the flow of its statistics, and the escape from a saddle",
    ),
    Claim(
        "Minima are isolated if student and teacher are equally wide, and connected by flat directions if the student is wider.",
        "huang2026sharp",
        "the curvature has zero modes for K > M, more of them the wider the student",
        "K = M: none",
        (FIGURE,), _flat, "six units plus one or two, the last unit split into equal parts",
        missing="paths between minima, and spurious minima of wider networks other than split ones",
    ),
    Claim(
        "Width makes global minima reachable.",
        "huang2026sharp",
        "the fraction of random starts that find the teacher grows with the number of extra units of the student",
        "no dependence on width",
        (FIGURE,), _reached, "d = 16, 8 seeds of 32 starts; at M = 6 all starts already find the teacher at K = M",
    ),
    Claim(
        "Minima form a hierarchy, and simplifying assumptions miss parts of it.",
        "huang2026sharp",
        "a census of minima by loss and symmetry, with and without the assumptions",
        "two families only",
        missing="a census of the minima reached from random starts, by loss and symmetry; two families are known here",
    ),
)  # fmt: skip
