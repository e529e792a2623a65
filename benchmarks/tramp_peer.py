"""State evolution of Bayes-optimal sparse regression by tramp (Baker, Aubin, Krzakala and Zdeborová 2020), run by an interpreter
that has it: `tramp_peer.py ITERATIONS FRACTION NOISE SAMPLES…`.

It has not run here: tramp is distributed as source only, and the package of that name in the Python Package Index is another
project. `benchmarks.glm` compares with the saddle points of `glm` instead, unless an environment is named that has it.

Prints one JSON line: the mean squared error of the weights for every number of samples, and CPU seconds.
"""

import json
import sys
import time

from tramp.algos import StateEvolution  # type: ignore[import-not-found]
from tramp.models import glm_state_evolution  # type: ignore[import-not-found]


def error(samples: float, fraction: float, noise: float, iterations: int) -> float:
    """After a fixed number of iterations from no information; weights of mean square one on independent Gaussian inputs."""
    model = glm_state_evolution(
        alpha=samples, prior_type="gauss_bernoulli", output_type="gaussian",
        prior_rho=fraction, prior_var=1 / fraction, output_var=noise,
    )  # fmt: skip
    algorithm = StateEvolution(model)
    algorithm.iterate(max_iter=iterations, callback=lambda *_: False)
    return float(algorithm.get_variable_data("x")["v"])


if __name__ == "__main__":
    iterations, fraction, noise = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    begun = time.process_time()
    errors = [error(float(samples), fraction, noise, iterations) for samples in sys.argv[4:]]
    print(json.dumps({"error": errors, "cpu": time.process_time() - begun}))
