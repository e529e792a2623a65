"""pydca's plmDCA (C++ L-BFGS), run by an interpreter that has it: `pydca_peer.py FASTA LAMBDA ITERATIONS OUT.npy`.

Prints one JSON line: CPU and wall seconds of the fit alone. pydca pins versions of 2019; it builds and runs with newer ones:

    python3 -m venv /tmp/pydca
    /tmp/pydca/bin/pip install numpy numba scipy biopython matplotlib requests setuptools wheel
    /tmp/pydca/bin/pip install --no-deps --no-build-isolation pydca
    SOLVABLE_PYDCA_PYTHON=/tmp/pydca/bin/python python -m benchmarks potts
"""

import json
import sys
import time

import numpy as np
from pydca.plmdca import plmdca  # type: ignore[import-not-found]

file, penalty, iterations, out = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
# seqid just below 1: every sequence has weight one (at 1 itself its weights are 1/0).
instance = plmdca.PlmDCA(file, "protein", seqid=0.9999, lambda_h=penalty, lambda_J=penalty, max_iterations=iterations)
wall, cpu = time.time(), time.process_time()
found = instance.get_fields_and_couplings_from_backend()
print(json.dumps({"cpu": time.process_time() - cpu, "wall": time.time() - wall}))
np.save(out, found)
