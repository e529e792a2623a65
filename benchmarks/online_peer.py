"""A fixed-step Runge–Kutta integrator of the erf soft committee compiled by numba, run by an interpreter that has it.

`online_peer.py CASE.npz`: takes the start and an accurate reference curve, halves its step until the largest error is at
most the requested one, and prints one JSON line: steps, error, and CPU and wall seconds without compilation.
"""

import json
import math
import sys
import time

import numpy as np
from numba import njit  # type: ignore[import-not-found]

case = np.load(sys.argv[1])


@njit
def drift(C, h, K, rate, out):
    """dC/dt of the joint overlaps of K students followed by the teachers, with fixed readouts h = (v, -a)."""
    n = C.shape[0]
    out[:] = 0.0
    for i in range(K):
        a = 1 + C[i, i]
        for m in range(n):
            pull = 0.0
            for c in range(n):
                pull += h[c] * (C[m, c] * a - C[i, m] * C[i, c]) / (a * math.sqrt(a * (1 + C[c, c]) - C[i, c] ** 2))
            pull *= -rate * h[i] * 2 / math.pi
            out[i, m] += pull
            out[m, i] += pull
    for i in range(K):
        for j in range(i, K):
            a, b, e = 1 + C[i, i], 1 + C[j, j], C[i, j]
            area = a * b - e * e
            total = 0.0
            for c in range(n):
                own = area * (1 + C[c, c]) - a * C[j, c] ** 2 - b * C[i, c] ** 2 + 2 * e * C[i, c] * C[j, c]
                for d in range(c, n):
                    other = area * (1 + C[d, d]) - a * C[j, d] ** 2 - b * C[i, d] ** 2 + 2 * e * C[i, d] * C[j, d]
                    both = area * C[c, d] - a * C[j, c] * C[j, d] - b * C[i, c] * C[i, d]
                    both += e * (C[i, c] * C[j, d] + C[i, d] * C[j, c])
                    term = h[c] * h[d] * math.asin(both / math.sqrt(own * other))
                    total += term if c == d else 2 * term
            kick = rate * rate * h[i] * h[j] * 4 / (math.pi**2 * math.sqrt(area)) * total
            out[i, j] += kick
            if i != j:
                out[j, i] += kick


@njit
def follow(C, h, K, rate, until, saves, steps):
    n = C.shape[0]
    path = np.empty((saves + 1, n, n))
    path[0] = C
    k1, k2, k3, k4 = np.empty((n, n)), np.empty((n, n)), np.empty((n, n)), np.empty((n, n))
    dt = until / (saves * steps)
    C = C.copy()
    for s in range(saves):
        for _ in range(steps):
            drift(C, h, K, rate, k1)
            drift(C + dt / 2 * k1, h, K, rate, k2)
            drift(C + dt / 2 * k2, h, K, rate, k3)
            drift(C + dt * k3, h, K, rate, k4)
            C = C + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        path[s + 1] = C
    return path


C, h, K, rate, until = case["joint"], case["weights"], int(case["students"]), float(case["rate"]), float(case["until"])
exact, wanted = case["norm"], float(case["error"])
saves = exact.shape[0] - 1
follow(C, h, K, rate, until, saves, 1)
steps = 1
while True:
    error = float(np.max(np.abs(follow(C, h, K, rate, until, saves, steps)[:, :K, :K] - exact)))
    if error <= wanted or steps > 1000:
        break
    steps *= 2
cpu, wall = [], []
for _ in range(3):
    begun = time.process_time(), time.time()
    follow(C, h, K, rate, until, saves, steps)
    cpu.append(time.process_time() - begun[0])
    wall.append(time.time() - begun[1])
print(json.dumps({"steps": steps * saves, "error": error, "cpu": min(cpu), "wall": min(wall)}))
