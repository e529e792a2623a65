"""Online gradient descent of an erf committee in plain PyTorch: `torch_peer.py UNITS SIZE STEPS`.

Prints one JSON line: CPU and wall seconds of the steps. To make an interpreter with PyTorch:

    python3 -m venv /tmp/torch
    /tmp/torch/bin/pip install torch
    SOLVABLE_TORCH_PYTHON=/tmp/torch/bin/python python -m benchmarks online
"""

import json
import math
import sys
import time

import torch  # type: ignore[import-not-found]

units, size, steps = (int(word) for word in sys.argv[1:])
torch.set_num_threads(1)  # with one sample per step, more threads only wait for each other
torch.manual_seed(0)
teacher, target = torch.randn(units, size), torch.ones(units)
w, v = torch.randn(units, size, requires_grad=True), torch.ones(units, requires_grad=True)
rule = torch.optim.SGD([{"params": [w], "lr": 0.5}, {"params": [v], "lr": 0.5 / size}])


def run(number: int) -> None:
    for _ in range(number):
        x = torch.randn(size)
        with torch.no_grad():
            label = target @ torch.erf(teacher @ x / math.sqrt(2 * size))
        loss = 0.5 * (v @ torch.erf(w @ x / math.sqrt(2 * size)) - label) ** 2
        rule.zero_grad()
        loss.backward()
        rule.step()


run(200)
cpu, wall = time.process_time(), time.time()
run(steps)
print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.time() - wall}))
