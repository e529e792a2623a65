"""A single-chain Gibbs sampler compiled by numba, run by an interpreter that has it: `gibbs_peer.py LAW.npz SWEEPS`.

Prints one JSON line: spin updates, and CPU and wall seconds without compilation.
"""

import json
import sys
import time

import numpy as np
from numba import njit  # type: ignore[import-not-found]

law, sweeps = np.load(sys.argv[1]), int(sys.argv[2])


@njit(fastmath=True)
def run(states, neighbours, degrees, table, sweeps, seed):
    np.random.seed(seed)  # noqa: NPY002 (what numba compiles)
    chains, sites = states.shape
    colours = table.shape[0]
    weights = np.empty(colours)
    for n in range(chains):
        for _ in range(sweeps):
            for i in range(sites):
                for a in range(colours):
                    weights[a] = 0.0
                for k in range(degrees[i]):
                    row = table[states[n, neighbours[i, k]]]
                    for a in range(colours):
                        weights[a] += row[a]
                total = 0.0
                for a in range(colours):
                    total += np.exp(weights[a])
                    weights[a] = total
                draw = np.random.random() * total  # noqa: NPY002
                new = 0
                while weights[new] < draw:
                    new += 1
                states[n, i] = new


def call(chains, sweeps):
    states = np.zeros((chains, law["neighbours"].shape[0]), np.int64)
    run(states, law["neighbours"], law["degrees"], law["table"], sweeps, 1)


call(1, 1)
wall, cpu = time.time(), time.process_time()
call(20, sweeps)
updates = 20 * sweeps * law["neighbours"].shape[0]
print(json.dumps({"updates": updates, "cpu": time.process_time() - cpu, "wall": time.time() - wall}))
