"""Claims of papers, what would be observed if they hold, and verdicts computed from stored data.

A model's folder may contain `claims.py` with `CLAIMS`, a tuple of `Claim`. A claim names the figures whose stored data
decide it and a function that reads numbers from them, each with its standard error and the interval in which it lies if
the claim holds. The verdict is computed from the numbers and never written by hand:

- *shown*: every number lies in its interval, by the margin, and nothing is missing;
- *partly*: every number does, but part of the claim was not measured (`missing` names it), or some numbers do and others
  do not;
- *contradicted*: every decided number lies outside its interval;
- *open*: nothing was measured, or the measurements are too noisy to decide.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

SHOWN, PARTLY, CONTRADICTED, OPEN = VERDICTS = ("shown", "partly", "contradicted", "open")

Stored = Mapping[str, Any]
"""The datasets behind the figures of a claim, by `figure` or `figure.part`."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """A number with its standard error, and the open interval in which it lies if the claim holds.

    >>> Measured("loss of one layer over that of three", 1.18, 0.1, above=2).holds(margin=2)
    False
    >>> Measured("excess loss", 2e-4, 1e-4, below=1e-3).holds(margin=2)
    True
    >>> Measured("gain", 0.1, 0.2, above=0).holds(margin=2) is None      # too noisy to say
    True
    """

    what: str
    value: float
    error: float = 0.0
    above: float = -math.inf
    below: float = math.inf

    def holds(self, margin: float) -> bool | None:
        """Whether the value lies in its interval, at least `margin` errors from the ends; None if undecided."""
        low, high = self.value - margin * self.error, self.value + margin * self.error
        if not (math.isfinite(low) and math.isfinite(high)):
            return None
        if low > self.above and high < self.below:
            return True
        return False if high <= self.above or low >= self.below else None

    def describe(self) -> str:
        """The number and its required interval as text.

        >>> Measured("excess loss", 2e-4, 1e-4, below=1e-3).describe()
        'excess loss: 0.0002 ± 0.0001 (< 0.001)'
        >>> Measured("of one network", 0.02, math.nan, above=0).describe()
        'of one network: 0.02, without an error (> 0)'
        """
        error = f" ± {self.error:.1g}" if math.isfinite(self.error) else ", without an error"
        digits = f"{self.value:.4g}" + (error if self.error else "")
        bounds = [f"> {self.above:.4g}"] * math.isfinite(self.above) + [f"< {self.below:.4g}"] * math.isfinite(
            self.below
        )
        return f"{self.what}: {digits} ({', '.join(bounds)})"


@dataclasses.dataclass(frozen=True)
class Claim:
    """One statement of a paper and how it is decided.

    **Arguments:**
    - `sentence`: the claim, in our words.
    - `paper`: the key of one of the model's references.
    - `seen`: what is observed if the claim holds.
    - `null`: the control, or what is observed if the claim does not hold.
    - `figures`: the figures whose stored data are read; the first one shows the claim.
    - `measure`: maps those datasets (keyed by `figure` or `figure.part`) to numbers; None if it was not measured.
    - `settings`: the sizes and settings to which the verdict applies.
    - `missing`: the part of the claim that was not measured.
    - `would_change`: for claims that are not shown, what would decide them, or change our mind.
    - `margin`: the number of standard errors by which a number must clear the ends of its interval.
    - `command`: the command that shows the claim, if it is not `solvable figure FIRST`.
    - `seconds`: approximate time to recompute the data; 0 if it is the one stored with the data, or unknown.
    """

    sentence: str
    paper: str
    seen: str
    null: str = ""
    figures: tuple[str, ...] = ()
    measure: Callable[[Stored], Sequence[Measured]] | None = None
    settings: str = ""
    missing: str = ""
    would_change: str = ""
    margin: float = 2.0
    command: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim with its verdict, the numbers, and the hashes of the data behind them."""

    claim: Claim
    verdict: str
    numbers: tuple[Measured, ...] = ()
    data: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0

    @property
    def command(self) -> str:
        """The command that shows the claim."""
        return self.claim.command or (f"solvable figure {self.claim.figures[0]}" if self.claim.figures else "")

    @property
    def duration(self) -> str:
        """How long it takes to compute the data again, in words; empty if unknown.

        >>> [Judged(Claim("It grows.", "paper", "a slope"), SHOWN, seconds=s).duration for s in (0, 40, 600)]
        ['', '40 s', '10 min']
        """
        if self.seconds >= 100:
            return f"{self.seconds / 60:.0f} min"
        return f"{self.seconds:.0f} s" if self.seconds else ""

    @property
    def decided(self) -> dict[str, str]:
        """What would decide a claim that is not shown, or change a verdict against it, under a heading."""
        heading = {PARTLY: "would decide it", CONTRADICTED: "would change our mind"}.get(self.verdict)
        return {heading: self.claim.would_change} if heading and self.claim.would_change else {}

    def as_dict(self) -> dict[str, Any]:
        """The claim, its verdict, and every number with its required interval, for JSON."""
        claim, margin = self.claim, self.claim.margin
        numbers = [dataclasses.asdict(n) | {"holds": n.holds(margin), "text": n.describe()} for n in self.numbers]
        words = ("sentence", "paper", "seen", "null", "settings", "missing", "would_change")
        return {
            "verdict": self.verdict,
            **{word: getattr(claim, word) for word in words},
            "numbers": numbers,
            "command": self.command,
            "seconds": self.seconds or None,
            "data": [{"name": name, "sha256": digest} for name, digest in self.data],
        }


def verdict_of(numbers: Sequence[Measured], margin: float, missing: str = "") -> str:
    """The verdict that follows from the numbers.

    >>> good, bad = Measured("a", 1.0, above=0), Measured("b", -1.0, above=0)
    >>> [verdict_of(n, 2) for n in ([good], [good, bad], [bad], [])]
    ['shown', 'partly', 'contradicted', 'open']
    >>> verdict_of([good], 2, missing="real data")
    'partly'
    """
    outcomes = [number.holds(margin) for number in numbers]
    if True not in outcomes:
        return CONTRADICTED if False in outcomes else OPEN
    return SHOWN if all(outcomes) and not missing else PARTLY


def judge(claim: Claim, stored: Stored, data: Sequence[tuple[str, str]] = ()) -> Judged:
    """The verdict on a claim, from stored data."""
    if claim.measure is None:
        return Judged(claim, OPEN)
    numbers = tuple(claim.measure(stored))
    verdict = verdict_of(numbers, claim.margin, claim.missing)
    return Judged(claim, verdict, numbers, tuple(data), claim.seconds or _recorded_seconds(stored))


def _recorded_seconds(stored: Stored) -> float:
    """Processor seconds that figures recorded when their data were computed; 0 if one of them did not."""
    figures: dict[str, float] = {}
    for name, data in stored.items():
        figure = name.partition(".")[0]
        figures[figure] = max(figures.get(figure, 0.0), float(getattr(data, "attrs", {}).get("core_seconds", 0.0)))
    return sum(figures.values()) if all(figures.values()) else 0.0


def mean_and_error(values: Any) -> tuple[float, float]:
    """Mean of the finite values (seeds) and its standard error.

    >>> mean_and_error([1.0, 2.0, 3.0])
    (2.0, 0.5773502691896258)
    """
    import numpy as np

    there = np.asarray(values, float).reshape(-1)
    there = there[np.isfinite(there)]
    if len(there) == 0:
        return math.nan, math.nan
    return float(there.mean()), float(there.std(ddof=1) / math.sqrt(len(there))) if len(there) > 1 else math.nan


def deviation(simulated: Any, expected: Any) -> tuple[float, float]:
    """Relative deviation of the means over seeds from the theory, and its standard error.

    The deviation is the root mean square over points, divided by that of the expected values. The noise of the means adds
    to their squared distances and is subtracted, so that agreement within noise gives zero. Points with a missing seed are
    left out, because the remaining seeds are a biased sample.

    >>> import xarray as xr
    >>> runs = xr.DataArray([[1.1, 1.3, 1.2], [2.2, 2.3, 2.1]], dims=("samples", "seed"))
    >>> [round(number, 2) for number in deviation(runs, xr.DataArray([1.0, 2.0], dims="samples"))]
    [0.12, 0.04]
    >>> [round(number, 2) for number in deviation(runs, xr.DataArray([1.2, 2.2], dims="samples"))]
    [0.0, 0.02]
    """
    import numpy as np

    gaps = simulated - expected
    there = np.isfinite(gaps).all("seed")
    scale = float((((simulated - gaps).mean("seed").where(there)) ** 2).sum())
    noise = gaps.var("seed", ddof=1).where(there) / gaps.sizes["seed"]
    excess = gaps.mean("seed").where(there) ** 2 - noise
    square = max(float(excess.sum()), 0.0)
    spread = math.sqrt(float((2 * noise**2 + 4 * noise * excess.clip(0)).sum()))
    # Twice the error is the larger change of the root when the square changes by plus or minus two of its own errors.
    root, low, high = (math.sqrt(max(square + side * spread, 0.0)) for side in (0, -2, 2))
    return root / math.sqrt(scale), max(root - low, high - root) / 2 / math.sqrt(scale)
