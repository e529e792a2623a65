"""The rows of the table: measurements, peers or floors, and requirements."""

from __future__ import annotations

import importlib
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import toeplitz

import solvable as sv
from solvable.methods.risk.erm import minimise_risk
from solvable.methods.risk.losses import loss_named

from . import peers


@dataclass(frozen=True)
class Row:
    """One comparison.

    `theirs` is a peer's time (the ratio is theirs/ours) or, if `floor`, a lower bound on ours (the ratio is ours/theirs);
    `difference` is the largest difference between the values that both computed.
    """

    group: str
    ours_is: str
    ours: float
    theirs_is: str = ""
    theirs: float | None = None
    floor: bool = False
    most: float | None = None  # required: ours is at most this
    ratio_least: float | None = None  # required: the ratio is at least this
    difference: float | None = None
    tolerance: float | None = None
    unit: str = "CPU s"
    wall: float | None = None  # shown in addition where a person waits; requirements are on the CPU seconds
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if self.theirs is None:
            return None
        return self.ours / self.theirs if self.floor else self.theirs / self.ours

    @property
    def met(self) -> bool | None:
        """Whether all requirements hold; None if there are none."""
        held = []
        if self.most is not None:
            held.append(self.ours <= self.most)
        if self.ratio_least is not None:
            held.append(self.ratio is not None and self.ratio >= self.ratio_least)
        if self.tolerance is not None:  # a NaN difference does not pass
            held.append(self.difference is not None and bool(self.difference <= self.tolerance))
        return all(held) if held else None


def cpu_seconds(call: Callable[[], Any], best_of: int = 5, warm: bool = True) -> tuple[float, Any]:
    """CPU seconds (all threads) of the fastest of a few calls after one that compiles, and the result."""
    if warm:
        jax.block_until_ready(call())
    spent, result = [], None
    for _ in range(best_of):
        begun = time.process_time()
        result = jax.block_until_ready(call())
        spent.append(time.process_time() - begun)
    return min(spent), result


def largest(ours: Any, theirs: Any) -> float:
    return float(np.max(np.abs(np.asarray(ours) - np.asarray(theirs))))


# --- theories ---------------------------------------------------------------------------------------------------------


def perceptron() -> Iterator[Row]:
    alphas = np.geomspace(0.1, 10, 1000)
    model = sv.Perceptron(loss="logistic", samples=alphas, penalty=0.1)  # type: ignore[attr-defined]
    ours, outcome = cpu_seconds(lambda: model.theory().values)
    middle = 500  # samples ≈ 1
    one, found = cpu_seconds(lambda: peers.logistic_perceptron(alphas[middle], 0.1), best_of=3, warm=False)
    yield Row(
        "perceptron",
        "logistic curve, 1,000 points, warm",
        ours,
        "SciPy quad + brentq, 1 point × 1000",
        1000 * one,
        most=0.5,
        ratio_least=1000,
        difference=max(largest(outcome[name][middle], value) for name, value in found.items()),
        tolerance=1e-6,
        note=f"the peer's point at samples = {alphas[middle]:.3f} took {one:.3f} s; values: "
        + ", ".join(name.replace("_", " ") for name in found),
    )


def soft_committee() -> Iterator[Row]:
    model = sv.SoftCommittee(students=2, teachers=2)  # type: ignore[attr-defined]
    ours, outcome = cpu_seconds(lambda: model.theory().values)
    Q, R, T = (np.asarray(v) for v in (model.initial_norm, model.initial_overlap, model.teacher_norm))
    theirs, curve = cpu_seconds(
        lambda: peers.soft_committee(Q, R, T, rate=float(model.rate), until=100.0, step=0.01, save_every=1.0),
        best_of=1,
        warm=False,
    )
    yield Row(
        "soft-committee",
        "K = M = 2 erf, test loss at 101 times to t = 100, warm",
        ours,
        "NumPy tables, Euler dt = 0.01",
        theirs,
        most=0.05,
        difference=largest(outcome["test_loss"], curve),
        tolerance=1e-3,
        note="the difference is Euler's first-order error; ours is converged to 1e-8",
    )


def masked_regression() -> Iterator[Row]:
    d, n, penalty, rho = 300, 400, 0.1, 0.8
    model = sv.MaskedRegression(samples=n / d, penalty=penalty, correlation=rho)  # type: ignore[attr-defined]
    simulated, outcome = cpu_seconds(lambda: model.simulate(0, d).values)
    # The simulation's samples, drawn again from its key.
    covariance = toeplitz(rho ** np.arange(d))
    draw = jax.random.split(model.key(d, 0), 3)[0]
    X = np.asarray(jax.random.normal(draw, (n, d), float)) @ np.linalg.cholesky(covariance).T
    theirs, errors = cpu_seconds(lambda: peers.masked_rows(X, covariance, penalty, d), best_of=1, warm=False)
    yield Row(
        "masked-regression",
        "whole simulation, d = 300, n = 400, by one eigendecomposition, warm",
        simulated,
        "NumPy ridge fits, all 300 rows one by one",
        theirs,
        difference=largest(outcome["test_loss"], errors.mean()),
        tolerance=1e-10,
        note="on the same samples; ours also draws them and measures the spectrum",
    )
    ours, theory = cpu_seconds(lambda: model.theory().values)
    yield Row(
        "masked-regression",
        "theory, errors and spectrum, warm",
        ours,
        "one simulation at d = 300",
        simulated,
        difference=largest(theory["test_loss"], outcome["test_loss"]),
        tolerance=0.01,
        note="the difference is one realisation's deviation at d = 300",
    )


# --- empirical-risk minimisers ----------------------------------------------------------------------------------------


def minimisers() -> Iterator[Row]:
    problems, n, d, penalty = 32, 400, 200, 0.1
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((problems, n, d)) / np.sqrt(d)
    fields = np.einsum("pnd,pd->pn", inputs, rng.standard_normal((problems, d)))
    labels = np.sign(fields + 0.3 * rng.standard_normal((problems, n)))
    arrays = jnp.asarray(inputs), jnp.asarray(labels)

    def batched(loss: str) -> tuple[float, np.ndarray]:
        fit = jax.jit(
            jax.vmap(lambda a, y: minimise_risk(loss_named(loss), a, y, jnp.asarray(penalty), jnp.ones(n)).weights)
        )
        seconds, weights = cpu_seconds(lambda: fit(*arrays), best_of=3)
        return seconds, np.asarray(weights)

    ours, weights = batched("logistic")
    scale = np.abs(weights).max()
    for solver, tolerance in (("newton-cholesky", 1e-6), ("lbfgs", 1e-3)):
        theirs, found = cpu_seconds(
            lambda solver=solver: peers.logistic_regressions(inputs, labels, penalty, solver), best_of=2, warm=False
        )
        yield Row(
            "minimisers",
            "32 logistic regressions, n = 400, d = 200, batched Newton",
            ours,
            f"scikit-learn {solver} in a loop",
            theirs,
            difference=largest(weights, found),
            tolerance=tolerance,
            note=f"weights up to {scale:.1f}, float64; ours converges to rounding, "
            + (
                "the peer at 1e-8" if solver != "lbfgs" else "the peer much earlier: fewer digits, far fewer operations"
            ),
        )
    ours, weights = batched("hinge")
    theirs, found = cpu_seconds(
        lambda: peers.support_vectors(inputs, labels, penalty, 1e-5), best_of=1, warm=False
    )  # fmt: skip
    yield Row(
        "minimisers",
        "32 hinge fits, n = 400, d = 200, batched interior point",
        ours,
        "scikit-learn LinearSVC in a loop",
        theirs,
        difference=largest(weights, found),
        tolerance=1e-2,
        note=f"weights up to {np.abs(weights).max():.1f}; ours to a relative duality gap of 1e-6, the peer to 1e-5",
    )


# --- compilation ------------------------------------------------------------------------------------------------------


def compilations() -> Iterator[Row]:
    counted: list[str] = []

    def listen(event: str, duration: float, **about: Any) -> None:
        if event.endswith("backend_compile_duration"):
            counted.append(str(about.get("fun_name", "")))

    over = {"samples": np.geomspace(0.2, 8, 60)}
    study = sv.Study(sv.Perceptron(loss="square"), over, sizes=[20, 40, 80], seeds=2)  # type: ignore[attr-defined]
    jax.monitoring.register_event_duration_secs_listener(listen)
    begun = time.process_time()
    study.run(progress=False)
    spent = time.process_time() - begun
    jax.monitoring.unregister_event_duration_listener(listen)
    programs = [name for name in counted if "_simulate" in name or "_theory" in name]
    shapes = len({(size, round(s * size)) for size in study.sizes for s in over["samples"]})
    yield Row(
        "compilations",
        "study of 60 points × 3 sizes, perceptron, square loss",
        len(programs),
        "distinct shapes of the samples, without padding",
        shapes,
        most=10,
        unit="programs",
        note=f"{spent:.1f} CPU s with compilation; and {len(counted) - len(programs)} one-line programs outside both",
    )


# --- fresh processes --------------------------------------------------------------------------------------------------

RUN = ("-c", "from solvable.cli.app import main; main()")


def fresh(*words: str, best_of: int = 2, **environment: str) -> tuple[float, float]:
    """CPU and wall seconds of a new Python process, the best of each."""
    home = str(Path(sv.__file__).parents[1])
    base = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "SOLVABLE_", "EQX_"))}
    path = os.pathsep.join([home, *filter(None, [base.get("PYTHONPATH")])])
    cpu, wall = [], []
    for _ in range(best_of):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [sys.executable, *words],
            env=base | {"PYTHONPATH": path} | environment,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=300,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        wall.append(time.perf_counter() - begun)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(cpu), min(wall)


def cold_start() -> Iterator[Row]:
    floor, _ = fresh("-c", "import jax", best_of=3)
    models = ("perceptron", "soft-committee", "masked-regression")
    for cached in (False, True):
        most = 3.0 if cached else 6.0
        for model in models:
            words = (*RUN, "theory", model, "--json")
            with tempfile.TemporaryDirectory() as folder:
                if cached:
                    fresh(*words, best_of=1, SOLVABLE_CACHE=folder)
                cpu, wall = fresh(*words, SOLVABLE_CACHE=folder if cached else "0")
            yield Row(
                "cold-start",
                f"solvable theory {model} --json, " + ("second process" if cached else "no cache"),
                cpu,
                'python -c "import jax"',
                floor,
                floor=True,
                most=most,
                wall=wall,
                note=f"wall {wall:.1f} s, over the bound under this load" if wall > most else "",
            )


def command_line() -> Iterator[Row]:
    floor, _ = fresh("-c", "pass", best_of=5)
    for word in ("--help", "list"):
        cpu, _ = fresh(*RUN, word, best_of=5)
        yield Row("command-line", f"solvable {word}", cpu, "python -c pass", floor, floor=True, most=0.2)


def _discovered(module: str) -> Callable[[], Iterator[Row]]:
    """The group of a module, which is imported when its rows are asked for."""
    return lambda: getattr(importlib.import_module(f".{module}", __package__), module)()


GROUPS: dict[str, Callable[[], Iterator[Row]]] = {
    "perceptron": perceptron,
    "soft-committee": soft_committee,
    "masked-regression": masked_regression,
    "minimisers": minimisers,
    "compilations": compilations,
    "cold-start": cold_start,
    "command-line": command_line,
}
"""The groups of this file, and one for every module beside it with a function of the module's own name."""
for _file in sorted(Path(__file__).parent.glob("*.py")):
    if re.search(rf"^def {_file.stem}\(\) -> Iterator\[Row\]:", _file.read_text(encoding="utf-8"), re.MULTILINE):
        GROUPS[_file.stem.replace("_", "-")] = _discovered(_file.stem)
