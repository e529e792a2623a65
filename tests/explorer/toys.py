"""Two models of another package, registered by entry points: quick to compile, with everything that a model can have."""

import time

import jax
import jax.numpy as jnp
import numpy as np

from solvable.model import Control, Model, Numerics, choice, control, observable


class Toy(Model):
    """A mean that shrinks: everything in closed form."""

    id = "toy"
    title = "A toy <b>with</b> a title"
    family = "elsewhere"
    numerics = Numerics()
    typical_sizes = (20, 40)

    samples: Control = control(
        2.0, low=0.0, low_open=True, high=100.0, typical=(0.5, 8.0), scale="log", counts=True, symbol=r"\alpha",
        meaning="samples per dimension")  # fmt: skip
    penalty: Control = control(0.5, low=0.0, high=10.0, symbol=r"\lambda", meaning="shrinkage; no solution above 5")
    shift: Control = control(0.0, low=0.0, high=1.0, meaning="added to the odd extra", when={"kind": "odd"})
    terms: int = choice(3, low=1, high=5, meaning="times at which the curve is measured")
    kind: str = choice("plain", options=("plain", "odd"), meaning="what is shown")

    observables_declared = (
        observable("test_error", "the error <i>so</i> called", symbol=r"\varepsilon", low=0),
        observable("curve", "decay in time", dims=("time",), low=0),
        observable("extra", "only measured", predicted=False, when={"kind": "odd"}),
    )

    def coordinates(self):
        return {"time": np.arange(self.terms) / 2}

    def point(self, numerics):
        error = 1.0 / (1.0 + self.samples) + 0.1 * self.penalty
        return {
            "test_error": error,
            "curve": error * jnp.exp(-jnp.arange(self.terms) / 2),
            "converged": self.penalty <= 5.0,
        }

    def point_branches(self, numerics):
        values = self.point(numerics)
        second = {"test_error": values["test_error"] + 1, "curve": values["curve"] + 1, "converged": self.penalty < 1.0}
        return {n: jnp.stack([values[n], second[n]]) for n in values}

    def transition_lines(self, x, y, values):
        return {"<i>line</i>": 1.0 + np.asarray(values)} if (x, y) == ("samples", "penalty") else {}

    def experiment(self, key, size, counts, dtype):
        number = counts["samples"].actual.astype(float)
        noise = jax.random.normal(key, (), jnp.float64) / jnp.sqrt(number * size)
        error = 1.0 / (1.0 + self.samples) + 0.1 * self.penalty + noise
        out = {"test_error": error, "curve": error * jnp.exp(-jnp.arange(self.terms) / 2)}
        return out | ({"extra": noise + self.shift} if self.kind == "odd" else {})


class Sleepy(Model):
    """A slow experiment that prints and may fail."""

    id = "sleepy"
    title = "Sleepy"
    family = "elsewhere"
    runs = "host"
    typical_sizes = (2, 4)

    delay: Control = control(0.2, low=0.0, high=1000.0, typical=(0.0, 1.0), meaning="seconds of one realisation")
    mood: str = choice("calm", options=("calm", "angry", "gone"), meaning="what happens in a simulation")
    observables_declared = (observable("slept", "seconds", predicted=False),)

    def experiment(self, key, size, counts, dtype):
        print("talking to standard output, where the messages are")
        if self.mood == "angry":
            raise RuntimeError("a secret <b>detail</b>")
        if self.mood == "gone":
            import os

            os._exit(3)
        begun = time.monotonic()
        time.sleep(float(self.delay))
        return {"slept": jnp.asarray(time.monotonic() - begun)}
