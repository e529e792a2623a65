"""Statistical agreement of theory and simulation.

For every observable and point the simulated mean at the largest size is compared with the theory at the realised
controls by Student's t. Holm's correction over the whole table keeps the probability of any false alarm below the level.
For significant deviations, an F test of the one-amplitude fit over all sizes then decides whether the deviation decays as
the *declared* power of 1/size.

- **agree**: no significant deviation, and the standard error is at most 2 % of the observable's scale;
- **finite-size**: a deviation that the declared power explains;
- **inconclusive**: no significant deviation, but too noisy to decide;
- **disagree**: a deviation that the declared power does not explain;
- **undefined**: theory or simulation did not converge there.

**Random limits.** If an observable stays random as the size grows, its realisations at the largest size are compared with
the theory's draws by the two-sample Kolmogorov–Smirnov test. The row shows the quantile (of five) that deviates most in
units of its error; its deviation must decay as the declared power. *Agree* requires enough realisations for the test to
detect two distribution functions that differ by a fifth.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..contract.axes import QUANTILES

VERDICTS = ("agree", "finite-size", "inconclusive", "disagree", "undefined")
LEVEL = 0.05
PRECISION = 0.02
RESOLUTION = 1e-5
SEPARATION = 0.2
"""The largest undetected difference of two distribution functions for which random limits count as agreeing."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One observable at one point."""

    observable: str
    point: Mapping[str, Any]
    verdict: str
    theory: float
    simulated: float
    error: float
    z: float
    size: int
    seeds: int
    amplitude: float
    power: float
    status: str

    def __str__(self) -> str:
        where = ", ".join(f"{k}={_short(v)}" for k, v in self.point.items())
        measured = f"{self.simulated:.5g} ± {self.error:.2g} ({self.seeds} seeds, d = {self.size})"
        return f"{self.observable}[{where}]  {measured}  theory {self.theory:.5g}  z = {self.z:+.1f}  {self.verdict}"


@dataclasses.dataclass(frozen=True)
class Agreement:
    """The table of all comparisons."""

    rows: tuple[Row, ...]
    sizes: tuple[int, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def counts(self, observable: str | None = None) -> dict[str, int]:
        """The number of rows with each verdict."""
        found = Counter(r.verdict for r in self.rows if observable in (None, r.observable))
        return {v: found[v] for v in VERDICTS if found[v]}

    @property
    def verdict(self) -> str:
        """The worst verdict of the table: disagree, then undefined, inconclusive, finite-size, agree."""
        found = self.counts()
        return next((v for v in ("disagree", "undefined", "inconclusive", "finite-size") if v in found), "agree")

    @property
    def observables(self) -> list[str]:
        return list(dict.fromkeys(r.observable for r in self.rows))

    def __repr__(self) -> str:
        if not self.rows:
            return "nothing to compare: the study has no observable with both theory and simulation"
        width = max(len(o) for o in self.observables)
        lines = [f"{'observable':<{width}}  {'points':>6}  {'largest |z|':>11}  {'deviation':>10}  verdicts"]
        for name in self.observables:
            rows = [r for r in self.rows if r.observable == name]
            finite = [r for r in rows if np.isfinite(r.z)]
            worst = max(finite, key=lambda r: abs(r.z), default=None)
            gap = max((abs(r.simulated - r.theory) for r in finite), default=np.nan)
            verdicts = ", ".join(f"{n} {v}" for v, n in self.counts(name).items())
            z = f"{abs(worst.z):.1f}" if worst else "-"
            lines.append(f"{name:<{width}}  {len(rows):>6}  {z:>11}  {gap:>10.2g}  {verdicts}")
        seeds = sorted({r.seeds for r in self.rows})
        lines.append(
            f"sizes {', '.join(map(str, self.sizes))}; seeds {', '.join(map(str, seeds))}; overall: {self.verdict}"
        )
        return "\n".join(lines)


def compare(
    observable: str,
    points: list[Mapping[str, Any]],
    simulated: np.ndarray,
    expected: np.ndarray,
    sizes: np.ndarray,
    *,
    power: float,
    status: str = "asymptotic",
    counted: np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """Raw statistics of one observable from arrays (point, size, seed); `judge` gives the verdicts for the whole table.

    `counted` (point, size) is the denominator of an observable that is a fraction.
    """
    from scipy.special import fdtrc, stdtr

    rows = []
    finite = expected[np.isfinite(expected)]  # an infinite value at one point says nothing about the others
    scale = float(np.max(np.abs(finite))) if finite.size else np.nan
    for i, point in enumerate(points):
        with np.errstate(invalid="ignore"):  # both may be infinite
            deviation = simulated[i] - expected[i]
        number = np.isfinite(deviation).sum(axis=1)
        largest = len(sizes) - 1
        row = dict(observable=observable, point=point, power=power, status=status, size=int(sizes[largest]),
                   seeds=int(number[largest]), scale=scale, theory=_mean(expected[i, largest]),
                   simulated=_mean(simulated[i, largest]), error=np.nan, z=np.nan, amplitude=np.nan, p=np.nan,
                   p_fit=np.nan, sizes_used=0)  # fmt: skip
        missing = number[largest] < deviation.shape[1]
        if missing or number[largest] < 2:
            rows.append(row)
            continue
        usable = number >= 2
        mean = np.array([_mean(d) for d in deviation[usable]])
        spread = np.array([np.nanstd(d, ddof=1) for d in deviation[usable]]) / np.sqrt(number[usable])
        # The error is at least the resolution of a float32 simulation, even if nothing fluctuates.
        spread = np.maximum(spread, RESOLUTION * max(scale, 1e-300))
        if counted is not None:
            spread = np.maximum(spread, _counting_error(expected[i, usable], counted[i, usable], number[usable]))
        freedom = number[usable] - 1
        z = mean[-1] / spread[-1]
        row |= dict(error=float(spread[-1]), z=float(z), p=float(2 * stdtr(freedom[-1], -abs(z))))
        shape = sizes[usable].astype(float) ** -power
        weight = 1 / spread**2
        amplitude = float((weight * shape * mean).sum() / (weight * shape**2).sum())
        row |= dict(amplitude=amplitude, sizes_used=int(usable.sum()))
        if usable.sum() >= 2:
            misfit = (weight * (mean - amplitude * shape) ** 2).sum() / (usable.sum() - 1)
            row["p_fit"] = float(fdtrc(usable.sum() - 1, freedom.sum(), misfit))
        rows.append(row)
    return rows


def compare_random(
    observable: str,
    points: list[Mapping[str, Any]],
    simulated: np.ndarray,
    draws: np.ndarray,
    sizes: np.ndarray,
    *,
    power: float,
    status: str = "asymptotic",
) -> list[dict[str, Any]]:
    """Like `compare` for a random limit; `simulated` is (point, size, seed), `draws` of the theory (point, size, draw)."""
    from scipy.special import fdtrc
    from scipy.stats import ks_2samp

    rows = []
    levels = np.array(QUANTILES)
    for i, point in enumerate(points):
        finite = [np.isfinite(s) for s in simulated[i]]
        number = np.array([f.sum() for f in finite])
        row = dict(observable=observable, point=point, power=power, status=status, size=int(sizes[-1]),
                   seeds=int(number[-1]), scale=np.nan, theory=np.nan, simulated=np.nan, error=np.nan, z=np.nan,
                   amplitude=np.nan, p=np.nan, p_fit=np.nan, sizes_used=0, precise=False)  # fmt: skip
        rows.append(row)
        drawn = draws[i, -1][np.isfinite(draws[i, -1])]
        if number[-1] < simulated.shape[2] or number[-1] < 2 or drawn.size < 2:
            continue
        usable = number >= 2
        exact = [np.quantile(d[np.isfinite(d)], levels) for d in draws[i, usable]]
        errors = [quantile_errors(d[np.isfinite(d)], n) for d, n in zip(draws[i, usable], number[usable], strict=True)]
        seen = [np.quantile(s[f], levels) for s, f in zip(simulated[i, usable], np.array(finite)[usable], strict=True)]
        deviation, error = np.array(seen) - np.array(exact), np.array(errors)
        worst = int(np.argmax(np.abs(deviation[-1] / error[-1])))
        mean, spread = deviation[:, worst], error[:, worst]
        found: Any = ks_2samp(simulated[i, -1], drawn)
        smallest = 1.36 * np.sqrt(1 / number[-1] + 1 / drawn.size)
        shape = sizes[usable].astype(float) ** -power
        weight = 1 / spread**2
        amplitude = float((weight * shape * mean).sum() / (weight * shape**2).sum())
        row |= dict(point={**point, "quantile": QUANTILES[worst]}, theory=float(exact[-1][worst]),
                    simulated=float(seen[-1][worst]), error=float(spread[-1]), z=float(mean[-1] / spread[-1]),
                    p=float(found.pvalue), scale=float(np.ptp(exact[-1])), amplitude=amplitude,
                    sizes_used=int(usable.sum()), precise=bool(smallest <= SEPARATION))  # fmt: skip
        if usable.sum() >= 2:
            misfit = (weight * (mean - amplitude * shape) ** 2).sum() / (usable.sum() - 1)
            row["p_fit"] = float(fdtrc(usable.sum() - 1, (number[usable] - 1).sum(), misfit))
    return rows


def quantile_errors(draws: np.ndarray, number: int) -> np.ndarray:
    """Standard errors √(q(1−q)/n) Q′(q) of the quantiles of `number` realisations of the distribution of `draws`.

    >>> quantile_errors(np.linspace(0, 1, 100_001), 100).round(3).tolist()  # a uniform distribution, Q′ = 1
    [0.03, 0.043, 0.05, 0.043, 0.03]
    """
    levels, step = np.array(QUANTILES), 0.03
    slope = (np.quantile(draws, levels + step) - np.quantile(draws, levels - step)) / (2 * step)
    least = RESOLUTION * max(float(np.max(np.abs(draws))), 1e-100)  # even if nothing fluctuates; its square is not 0
    return np.maximum(np.sqrt(levels * (1 - levels) * (1 / number + 1 / draws.size)) * slope, least)


def judge(table: list[dict[str, Any]], level: float = LEVEL) -> list[Row]:
    """Turn raw statistics into verdicts, with Holm's correction over the whole table."""
    significant = holm([r["p"] for r in table], level)
    misfitting = holm([r["p_fit"] if s else np.nan for r, s in zip(table, significant, strict=True)], level)
    rows = []
    for r, far, misfit in zip(table, significant, misfitting, strict=True):
        if not np.isfinite(r["p"]):
            verdict = "undefined"
        elif far:
            verdict = "finite-size" if r["sizes_used"] >= 2 and not misfit else "disagree"
        else:
            precise = r.get("precise", r["error"] <= PRECISION * r["scale"])
            verdict = "agree" if precise else "inconclusive"
        kept = {f.name: r[f.name] for f in dataclasses.fields(Row) if f.name != "verdict"}
        rows.append(Row(verdict=verdict, **kept))
    return rows


def holm(p_values: list[float], level: float) -> list[bool]:
    """The hypotheses rejected by Holm's step-down procedure; NaN is never rejected and not counted.

    >>> holm([0.001, 0.04, 0.03, float("nan")], 0.05)
    [True, False, False, False]
    """
    p = np.asarray(p_values, float)
    rejected = np.zeros(p.shape, bool)
    order = [i for i in np.argsort(p) if np.isfinite(p[i])]
    for rank, i in enumerate(order):
        if p[i] > level / (len(order) - rank):
            break
        rejected[i] = True
    return [bool(r) for r in rejected]


def _counting_error(expected: np.ndarray, counted: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """The binomial error of a fraction of `counted` items over `seeds` draws; at least one count is uncertain."""
    draws = counted * seeds
    p = np.clip(np.array([_mean(e) for e in expected]), 0.0, 1.0)
    return np.sqrt(np.maximum(p * (1 - p), 1 / draws) / draws)


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, (float, np.floating)) else str(value)
