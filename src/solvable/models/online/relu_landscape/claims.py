"""Claims about the minima of a sum of ReLUs, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

from .._numbers import deviation, difference

FIGURE, CENSUS = "relu-landscape-minima", "relu-landscape-census"


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
    online = stored[f"{CENSUS}.online"]
    for units in online.teachers.values:
        at = online.sel(teachers=units)
        end = mean_and_error(at.descent.isel(time=-1) / float(at.fixed))
        # five units: a saddle, which descent leaves
        bounds = {"below": 0.5} if units == 5 else {"above": 0.8, "below": 1.2}
        found += [
            Measured(f"final loss of single-sample descent over that of the fixed point, M = {units}", *end, **bounds),
            Measured(
                f"largest deviation of its loss from the flow, M = {units}", *deviation(at.descent, at.flow), below=0.1
            ),
        ]
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
    census = stored[CENSUS]
    narrow, wide, wider = (_zero_modes(6, more) for more in (0, 1, 2))
    return [
        Measured("zero modes of the spurious minimum at K = M, maximum over M = 5 to 20", spurious, below=0.5),
        Measured("zero modes of the global minimum at K = M = 6", narrow, below=0.5),
        Measured("zero modes of the global minimum at K = M + 1", wide, above=0.5),
        Measured("zero modes at K = M + 2 minus those at K = M + 1", wider - wide, above=0.5),
        Measured("lowest barrier found between the teacher and its copy with two units exchanged, K = M, smallest over M",
                 float(census.narrow.min()), above=1e-3),
        Measured("largest loss on the path between them at K = M + 1", float(census.wide.max()), below=1e-9),
        *_spurious_modes(census),
    ]  # fmt: skip


def _minima(census: Any, units: int, extra: int) -> Any:
    """The levels of a census at which no curvature is negative."""
    at = census.sel(teachers=units, extra=extra)
    return at.isel(level=np.flatnonzero((at.lowest > -1e-7).values))


def _spurious_modes(census: Any) -> list[Measured]:
    """Zero modes of the most frequent spurious minimum with and without an extra unit."""
    found = []
    for units in (8, 10, 12):
        for extra, bounds in ((0, {"below": 0.5}), (1, {"above": 0.5})):
            at = _minima(census, units, extra)
            at = at.isel(level=np.flatnonzero((at.loss > 1e-6).values))
            if at.sizes["level"]:
                zeros = float(at.zeros.isel(level=int(at.share.argmax("level"))))
                words = f"zero modes of the most frequent spurious minimum, M = {units}, K = {units + extra}"
                found.append(Measured(words, zeros, **bounds))
    return found


def _hierarchy(stored: Stored) -> list[Measured]:
    """Different minima from random starts, those outside the family `turned`, and loss against broken symmetry."""
    found = []
    for units in (8, 10, 12):
        at = _minima(stored[CENSUS], units, 0)
        found.append(Measured(f"different minima, K = M = {units}", float(at.sizes["level"]), above=2.5))
        spurious = at.isel(level=np.flatnonzero((at.loss > 1e-6).values))
        more = spurious.share.where(spurious.apart > 1.5, 0.0)
        share, number = float(more.sum() / spurious.share.sum()), 4096 * float(spurious.share.sum())
        words = f"share of spurious ends at which more than one unit leaves the symmetry, M = {units}"
        found.append(Measured(words, share, (max(share * (1 - share), 1 / number) / number) ** 0.5, above=0.05))
        lowest = [float(spurious.loss.where(spurious.apart == apart).min()) for apart in (1, 2)]
        found.append(
            Measured(
                f"least loss with two such units minus that with one, M = {units}", lowest[1] - lowest[0], above=0.0
            )
        )
    return [n for n in found if np.isfinite(n.value)]


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
        (FIGURE, CENSUS), _attractive,
        "d = 64, 8 seeds, momentum, fresh batches of d² samples; single samples: d = 24, 16 seeds, rate 0.03, start "
        "0.2 away from the "
        "fixed point along its lowest curvature",
        would_change="smaller rates than 0.03 and more seeds: single samples leave the saddle of M = 5 at "
        "scattered times",
    ),
    Claim(
        "Minima are isolated if student and teacher are equally wide, and connected by flat directions if the student is wider.",
        "huang2026sharp",
        "the curvature has zero modes for K > M, more of them the wider the student",
        "K = M: none",
        (FIGURE, CENSUS), _flat,
        "six units plus one or two, the last unit split into equal parts; census of 4,096 random starts; barriers are "
        "upper bounds, "
        "from polylines lowered by descent",
        would_change="wider students: with one unit more, the most frequent spurious minima of M = 10 and 12 are "
        "still isolated",
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
        "random starts end in more than two minima; not all spurious ones belong to the family in which one unit leaves the "
        "symmetry, which an assumption of that symmetry misses; losses grow with the number of units that do",
        "two families only",
        (CENSUS,), _hierarchy,
        "M = 8, 10, 12 with K = M, d = M, 4,096 starts each, descent on the exact loss; the 24 most frequent levels, "
        "without negative "
        "curvature; symmetry by groups of teacher units that the student treats alike",
        would_change="larger teachers: for M = 8 all but 0.6 % of spurious ends lose the symmetry in one unit "
        "only; for M = 10 and 12 more do",
    ),
)  # fmt: skip
