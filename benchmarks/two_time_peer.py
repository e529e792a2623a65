"""Two-time equations by a compiled first-order loop, as published; run by an interpreter that has numba.

`two_time_peer.py UNTIL STEPS SAVES A B TEMPERATURE OVERLAP`: Euler steps and trapezoids with R(t,t) = 0 and R(t+h,t) = 1, for
Q' = A q + B q²; prints one JSON line: m, mu, energy and C(t,0) at equally spaced times, and CPU seconds without compilation.
"""

import json
import sys
import time

import numpy as np
from numba import njit  # type: ignore[import-not-found]


@njit(fastmath=True)
def follow(until, n, a, b, temperature, overlap):
    h = until / n
    C, R = np.zeros((n + 1, n + 1)), np.zeros((n + 1, n + 1))
    m, mu, energy = np.zeros(n + 1), np.zeros(n + 1), np.zeros(n + 1)
    noise, memory = np.zeros(n + 1), np.zeros(n + 1)
    C[0, 0], m[0] = 1.0, overlap
    for i in range(n + 1):
        pull = a * m[i] + b * m[i] ** 2
        mu[i] = temperature + m[i] * pull
        energy[i] = -a * m[i] ** 2 / 2 - b * m[i] ** 3 / 3
        moved = pull
        for s in range(i + 1):
            w = 0.5 * h if s == 0 or s == i else h
            q = C[i, s]
            noise[s] = w * (a * q + b * q * q)
            memory[s] = w * (a + 2 * b * q) * R[i, s]
            mu[i] += noise[s] * R[i, s] + memory[s] * q
            energy[i] -= noise[s] * R[i, s]
            moved += memory[s] * m[s]
        if i == n:
            break
        m[i + 1] = m[i] + h * (moved - mu[i] * m[i])
        for j in range(i + 1):
            force, kick = pull * m[j], 0.0
            for s in range(j + 1):
                force += memory[s] * C[j, s] + noise[s] * R[j, s]
            for s in range(j + 1, i + 1):
                force += memory[s] * C[s, j]
            for s in range(j, i + 1):
                kick += memory[s] * R[s, j]
            C[i + 1, j] = C[i, j] + h * (force - mu[i] * C[i, j])
            R[i + 1, j] = R[i, j] + h * (kick - mu[i] * R[i, j])
        C[i + 1, i + 1] = 1.0
        R[i + 1, i] = 1.0
    return m, mu, energy, C[:, 0]


until, n, saves = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
a, b, temperature, overlap = (float(word) for word in sys.argv[4:8])
follow(until, 10, a, b, temperature, overlap)
begun = time.process_time()
found = follow(until, n, a, b, temperature, overlap)
spent = time.process_time() - begun
names = ("overlap", "multiplier", "energy", "start")
print(json.dumps({"cpu": spent, **{name: list(v[:: n // saves]) for name, v in zip(names, found, strict=True)}}))
