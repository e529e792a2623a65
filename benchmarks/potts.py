"""Gibbs sampling against a numba chain, and dense pseudo-likelihood against pydca's plmDCA.

Both fit the same sequences with the same penalised objective in the same run.

pydca minimises −Σ log P(s_i | rest) + λ_h Σ h² + λ_J Σ_{i<j} W², so its λ is half of ours. It stops at |gradient| ≤
1e-3·max(1, |parameters|), as we do, or when its line search fails: in its C++ source (version 1.23) the logits of a sequence
start from the probabilities of the one before, so that its gradient is not quite that of its objective.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from solvable.methods.sequences import monte_carlo
from solvable.methods.sequences import potts as laws
from solvable.methods.sequences import pseudolikelihood as pl
from solvable.tools.alignments import write_fasta

from .rows import Row

SITES, COLOURS, CONTACTS, NUMBER, PENALTY = 50, 20, 96, 2000, 19.6
INTERPRETER = "SOLVABLE_PYDCA_PYTHON"


def planted(seed: int = 0, sweeps: int = 50) -> tuple[np.ndarray, set[tuple[int, int]]]:
    """Sequences of a random graph of contacts with one symmetric Gaussian matrix of colours, by Gibbs sweeps."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=(COLOURS, COLOURS))
    u = (u + u.T) / 2
    first, second = np.triu_indices(SITES, 1)
    chosen = rng.choice(len(first), CONTACTS, replace=False)
    contacts = {(int(first[k]), int(second[k])) for k in chosen}
    near = [[j for j in range(SITES) if (min(i, j), max(i, j)) in contacts] for i in range(SITES)]
    s = rng.integers(0, COLOURS, (NUMBER, SITES))
    for _ in range(sweeps):
        for i in range(SITES):
            z = sum((u[s[:, j]] for j in near[i]), np.zeros((NUMBER, COLOURS)))
            s[:, i] = np.argmax(z + rng.gumbel(size=z.shape), axis=1)
    return s, contacts


def precision(couplings: np.ndarray, contacts: set[tuple[int, int]]) -> float:
    """Fraction of true contacts among the same number of top-scoring pairs."""
    scores = np.asarray(pl.contact_scores(jnp.asarray(couplings)))
    pairs = np.stack(np.triu_indices(SITES, 1), axis=1)
    best = pairs[np.argsort(-scores[pairs[:, 0], pairs[:, 1]])[: len(contacts)]]
    return float(np.mean([(int(i), int(j)) in contacts for i, j in best]))


class Reached(Exception):
    """Raised when the objective reaches its target."""


def spent(sequences: np.ndarray, target: float = -np.inf) -> tuple[float, float, pl.DenseFit | None]:
    """CPU and wall seconds of our fit, to its end or until the objective (checked every 10 evaluations) is below `target`."""

    def watch(_: int, value: float, __: float) -> None:
        if value <= target:
            raise Reached

    cpu, wall, found = time.process_time(), time.time(), None
    try:
        found = pl.fit_dense(sequences, COLOURS + 1, penalty=PENALTY, report=watch)  # pydca also has a gap
        jax.block_until_ready(found.fields)
    except Reached:
        pass
    return time.process_time() - cpu, time.time() - wall, found


def pydca(sequences: np.ndarray, python: str) -> tuple[float, float, np.ndarray, np.ndarray]:
    """CPU and wall seconds of pydca's fit, its fields and its couplings."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "family.fasta", Path(folder) / "found.npy"
        write_fasta(file, sequences, "protein", [f"s{k}" for k in range(len(sequences))])
        words = [python, str(Path(__file__).with_name("pydca_peer.py")), str(file), str(PENALTY / 2), "500", str(out)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{INTERPRETER}={python} could not run pydca: {done.stderr.strip().splitlines()[-1]}")
        timing, flat = json.loads(done.stdout.strip().splitlines()[-1]), np.load(out).astype(float)
    colours = COLOURS + 1
    fields, blocks = (
        flat[: SITES * colours].reshape(SITES, colours),
        flat[SITES * colours :].reshape(-1, colours, colours),
    )
    couplings = np.zeros((SITES, colours, SITES, colours))
    for block, i, j in zip(blocks, *np.triu_indices(SITES, 1), strict=True):
        couplings[i, :, j], couplings[j, :, i] = block, block.T
    return timing["cpu"], timing["wall"], fields, couplings


def objective(fields: np.ndarray, couplings: np.ndarray, sequences: np.ndarray) -> float:
    """The penalised objective in float64, from its definition."""
    value = pl.negative_log_pseudolikelihood(
        *(jnp.asarray(a, float) for a in (fields, couplings)), jnp.asarray(sequences)
    )
    return float(value) + 0.5 * PENALTY * float(np.sum(fields**2) + 0.5 * np.sum(couplings**2))


def gibbs() -> Iterator[Row]:
    """Spin updates of the batched sampler against one chain compiled by numba, on the same law; wall seconds."""
    rng = np.random.default_rng(0)
    groups = laws.random_groups(rng, SITES, 2, CONTACTS)
    table = np.asarray(laws.random_symmetric(jax.random.key(1), COLOURS), np.float32)
    law = laws.ManyBody.of_groups(SITES, groups, table)
    chains, chunks = 4096, 8
    runner = monte_carlo._Runner(
        law, jax.random.key(0), monte_carlo.random_states(jax.random.key(1), chains, SITES, COLOURS), None
    )
    runner.run()
    begun = time.time()
    for _ in range(chunks):
        runner.run()
    ours = (time.time() - begun) / (chains * SITES * chunks * monte_carlo.CHUNK) * 1e6
    what = f"Gibbs, {SITES} sites, {COLOURS} colours, {chains} chains, diagnostics included: a million updates"
    python = os.environ.get(INTERPRETER)
    if not python:
        yield Row(
            "potts", what, ours, unit="wall s", note=f"the numba chain was skipped: {INTERPRETER} names no interpreter"
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "law.npz"
        np.savez(file, neighbours=law.partners[:, :, 0], degrees=law.degrees, table=table.astype(float))
        words = [python, str(Path(__file__).with_name("gibbs_peer.py")), str(file), "400"]
        timing = json.loads(subprocess.run(words, capture_output=True, text=True, timeout=600, check=True).stdout)
    theirs = timing["wall"] / timing["updates"] * 1e6
    yield Row("potts", what, ours, "one chain compiled by numba", theirs, ratio_least=5.0, unit="wall s")


def potts() -> Iterator[Row]:
    yield from gibbs()
    sequences, contacts = planted()
    what = f"dense fit, {SITES} sites, {COLOURS} colours, {NUMBER} sequences"
    spent(sequences)  # compiles
    cpu, wall, found = spent(sequences)
    assert found is not None
    ours = objective(np.asarray(found.fields, float), np.asarray(found.couplings, float), sequences)
    end = (
        f"{int(found.evaluations)} evaluations, residual {float(found.residual):.1e}, objective {ours:.1f}, top-{CONTACTS} "
        f"precision {precision(np.asarray(found.couplings), contacts):.2f}"
    )
    python = os.environ.get(INTERPRETER)
    if not python:
        yield Row(
            "potts",
            what,
            cpu,
            wall=wall,
            note=f"{end}; pydca was skipped: {INTERPRETER} names no interpreter that has it",
        )
        return
    their_cpu, their_wall, fields, couplings = pydca(sequences, python)
    theirs = objective(fields, couplings, sequences)
    until_cpu, until_wall, _ = spent(sequences, theirs)
    yield Row(
        "potts",
        f"{what}, until pydca's objective",
        until_cpu,
        "pydca plmDCA, until it stops",
        their_cpu,
        ratio_least=3.0,
        wall=until_wall,
        note=f"pydca took {their_wall:.1f} s wall in one thread and stopped at objective {theirs:.1f}, top-{CONTACTS} "
        f"precision {precision(couplings, contacts):.2f}; ours ends lower (next row)",
    )
    yield Row(
        "potts", f"{what}, to the criterion", cpu, "pydca plmDCA, which stops earlier", their_cpu, wall=wall, note=end
    )
