"""One small model of each kind that the contract supports, registered by entry points; see `test_kinds`."""

from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np

from solvable.model import (
    Control,
    Graph,
    Input,
    Model,
    Numerics,
    Reference,
    choice,
    control,
    data,
    dimension,
    graph,
    observable,
)

PAPER = (Reference("own", "N. N.", "Kinds", 2026),)


class Aging(Model):
    """Functions of two times on a logarithmic axis: Brownian coordinates, C(t, t′) = min(t, t′)."""

    id = "kind-two-times"
    title = "Two times"
    family = "kinds"
    references = PAPER
    typical_sizes = (50, 200)
    check_study = MappingProxyType({"seeds": 24})
    dimensions_declared = (
        dimension("time", "time", symbol="t", scale="log", kind="time"),
        dimension("waiting", "earlier time", symbol="t'", scale="log", kind="pair"),
    )
    observables_declared = (
        observable("correlation", "Σ x(t)x(t′)/d", dims=("time", "waiting"), symbol="C", low=0, status="exact"),
        observable("spread", "Σ x(t)²/d", dims=("time",), low=0, status="exact"),
    )
    speed: Control = control(1.0, low=0.0, high=10.0, meaning="variance that a unit of time adds")

    def coordinates(self):
        times = np.geomspace(0.1, 100.0, 9)
        return {"time": times, "waiting": times}

    def point(self, numerics: Numerics):
        t = jnp.asarray(self.coordinates()["time"])
        earlier = jnp.minimum(t[:, None], t[None, :])
        return {"correlation": self.speed * earlier, "spread": self.speed * t}

    def experiment(self, key, size, counts, dtype):
        t = np.concatenate([[0.0], self.coordinates()["time"]])
        steps = jax.random.normal(key, (len(t) - 1, size), jnp.float64) * jnp.sqrt(self.speed * np.diff(t))[:, None]
        x = jnp.cumsum(steps, axis=0)
        return {"correlation": jnp.maximum(x @ x.T / size, 0.0), "spread": jnp.mean(x**2, axis=1)}


class Product(Model):
    """A random limit: a product of d factors near one tends to exp(σW − σ²/2), W standard normal."""

    id = "kind-random-limit"
    title = "A random limit"
    family = "kinds"
    references = PAPER
    numerics = Numerics(draws=2000)
    typical_sizes = (50, 400)
    check_study = MappingProxyType({"seeds": 200})
    batch_accuracy = 1e-9
    observables_declared = (observable("product", "Π (1 + σz_i/√d)", low=0, random=True),)
    spread: Control = control(0.5, low=0.0, low_open=True, high=2.0, typical=(0.1, 1.0), symbol=r"\sigma",
                              meaning="size of the factors' fluctuations")  # fmt: skip

    def point(self, numerics: Numerics):
        normal = jax.random.normal(jax.random.key(0), (numerics.draws,), float)
        return {"product": jnp.exp(self.spread * normal - 0.5 * self.spread**2)}

    def experiment(self, key, size, counts, dtype):
        factors = 1 + self.spread * jax.random.normal(key, (size,), float) / np.sqrt(size)
        return {"product": jnp.maximum(jnp.prod(factors), 0.0)}


class Walk(Model):
    """An integer graph and a mask as data: a long random walk visits nodes in proportion to their degrees."""

    id = "kind-graph"
    title = "A walk on a graph"
    family = "kinds"
    references = PAPER
    runs = "map"
    typical_sizes = (400, 1600)
    check_study = MappingProxyType({"seeds": 24})
    dimensions_declared = (dimension("node", "node of the graph", kind="site"),)
    observables_declared = (observable("share", "part of the steps at a node", dims=("node",), low=0, high=1),)
    bonds: Graph = graph([[1, 2, 3], [0, 2], [0, 1], [0]], meaning="where a walk may go")
    start: Input = data([1, 0, 0, 0], dims=("node",), type="bool", meaning="where the walk may begin")
    steps: int = choice(1, low=1, high=5, meaning="steps that are counted as one")

    def _matrix(self):
        i, j = self.bonds.indices[:, 0], self.bonds.indices[:, 1]
        zero = jnp.zeros((self.bonds.nodes, self.bonds.nodes))
        return zero.at[i, j].set(self.bonds.values).at[j, i].set(self.bonds.values)

    def coordinates(self):
        return {"node": np.arange(self.bonds.nodes)}

    def point(self, numerics: Numerics):
        degrees = jnp.sum(self._matrix(), axis=1)
        return {"share": degrees / jnp.sum(degrees)}

    def experiment(self, key, size, counts, dtype):
        logits = jnp.log(self._matrix())

        def step(place, key):
            place = jax.random.categorical(key, logits[place])
            return place, place

        begin = jnp.argmax(self.start)
        keys = jax.random.split(key, size)
        _, places = jax.lax.scan(step, begin, keys)
        return {"share": jnp.mean(jax.nn.one_hot(places, self.bonds.nodes, dtype=float), axis=0)}


class Training(Model):
    """An experiment with named arms and no closed theory: least squares by plain and by accelerated descent."""

    id = "kind-experiment"
    title = "An experiment with arms"
    family = "kinds"
    references = PAPER
    typical_sizes = (10, 20)
    arms_declared = MappingProxyType(
        {"plain": {"method": "plain"}, "heavy ball": {"method": "momentum", "momentum": 0.8}}
    )
    dimensions_declared = (dimension("step", "step of the descent", kind="time"),)
    observables_declared = (observable("loss", "training loss", dims=("step",), low=0, predicted=False),)
    momentum: Control = control(0.0, low=0.0, high=0.95, meaning="weight of the last step")
    method: str = choice("plain", options=("plain", "momentum"), meaning="how the network descends")

    def coordinates(self):
        return {"step": np.arange(6)}

    def experiment(self, key, size, counts, dtype):
        x = jax.random.normal(key, (2 * size, size), dtype)
        y = x @ jnp.ones(size, dtype)
        keep = self.momentum.astype(dtype) if self.method == "momentum" else jnp.zeros((), dtype)

        def step(state, _):
            w, v = state
            miss = x @ w - y
            v = keep * v - 0.1 * (x.T @ miss) / len(x)
            return (w + v, v), jnp.mean(miss**2)

        zero = jnp.zeros(size, dtype)
        return {"loss": jax.lax.scan(step, (zero, zero), None, 6)[1]}


CALLS = []


class Slow(Model):
    """A theory of cost class `kept` that counts how often it is evaluated."""

    id = "kind-kept"
    title = "A kept theory"
    family = "kinds"
    references = PAPER
    theory_cost = "kept"
    theory_seconds = 60.0
    theory_lanes = 1
    typical_sizes = (50, 200)
    observables_declared = (observable("mean", "mean of d coins", low=0, high=1, status="exact"),)
    bias: Control = control(0.3, low=0.0, high=1.0, meaning="probability of heads")

    def point(self, numerics: Numerics):
        jax.debug.callback(lambda bias: CALLS.append(float(bias)), self.bias)
        return {"mean": self.bias}

    def experiment(self, key, size, counts, dtype):
        return {"mean": jnp.mean(jax.random.bernoulli(key, self.bias, (size,)).astype(float))}


KINDS = (Aging, Product, Walk, Training, Slow)
