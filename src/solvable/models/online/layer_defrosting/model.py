r"""Transfer by frozen layers: how many layers of a source network to keep when a related task has few samples.

**Data.** Two related tasks of two classes on the same inputs. `teachers`: x ~ N(0, 1_d), labels are the signs of tanh networks
d–d–d–1 with weights of variance g²/fan-in, g = 1.5; layer i = 0, 1, 2 of the target's teacher has the correlation ρ^i with
that of the source's: the first is shared, the head differs most. `digits`: scikit-learn's images by their d leading principal
components; the source is a grouping of the ten digits into five and five; for the target, pairs of digits are exchanged until
the correlation of the labels (1, 0.6 or 0.2) is closest to ρ. `given`: the same with rows and classes of your own, at least
four classes; a quarter of the rows are tested on, at most a third are the target's, the rest the source's.

**Learner.** A ReLU network of `depth` hidden layers, logistic loss, Adam with weight decay, trained on many source samples. Its
first L layers are then *frozen*, and the layers after them are trained on n target samples, from the source's weights or from
random ones. The head is always trained, and every L gets the same number of steps. L = 0 freezes nothing.

**Theory.** No closed theory. Baselines bound the experiment: the error of the source network on its own task, that of a network
trained on as many target samples as the source had, and that of training from scratch on n samples. At ρ = 1 the unchanged
source network has exactly its own error on the target.

**Simulation.** All L of a realisation share the teachers, both data sets, the source network and the test set: they are paired.
The best depth is chosen on one half of the test and its error measured on the other. Source network and data-rich target
network, from independent starts, are compared layer by layer on the test inputs (`similarity`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray

from solvable.errors import InvalidValue
from solvable.methods.data.digits import PIXELS, digit_components
from solvable.methods.training.loops import Optimiser, descend, draw_rows
from solvable.model import (
    Control,
    Count,
    Guard,
    Input,
    Model,
    Reference,
    choice,
    control,
    data,
    dimension,
    observable,
)

from .similarity import information_imbalance, linear_cka

GAIN = 1.5
"""Weight scale of the teachers: with variance one per fan-in, tanh networks are nearly linear."""

SOURCE_STEPS, BATCH, DECAY = 400, 256, 1e-2
SOURCE_SAMPLES = 300
"""Source samples per dimension, for teachers; with digits the source has all images not used for test and target."""

TESTED = {"teachers": 4000, "digits": 400}
TARGET_DIGITS = 768
LEAST_ROWS, MOST_CLASSES = 60, 100
COMPARED = 300
"""Test inputs on which representations are compared."""

Layer = tuple[Array, Array]


class Network(eqx.Module):
    """A ReLU network with one output: the logit of the label +1."""

    layers: tuple[Layer, ...]

    @classmethod
    def drawn(cls, key: PRNGKeyArray, inputs: int, units: int, depth: int, dtype: Any) -> Network:
        """Random weights of variance two per fan-in and zero biases, which preserve the signal variance."""
        sizes = [inputs, *[units] * depth, 1]
        shapes = list(zip(sizes[:-1], sizes[1:], strict=True))
        cuts = np.cumsum([a * b for a, b in shapes])
        # One draw for all layers, because each draw takes a second to compile.
        parts = jnp.split(jax.random.normal(key, (int(cuts[-1]),), dtype), cuts[:-1])
        return cls(tuple(
            (part.reshape(a, b) * math.sqrt(2.0 / a), jnp.zeros(b, dtype))
            for part, (a, b) in zip(parts, shapes, strict=True)
        ))  # fmt: skip

    def hidden(self, x: Float[Array, "n d"]) -> list[Float[Array, "n units"]]:
        """The representations of the inputs in all hidden layers."""
        out = []
        for weights, shift in self.layers[:-1]:
            x = jax.nn.relu(x @ weights + shift[None, :])
            out.append(x)
        return out

    def __call__(self, x: Float[Array, "n d"]) -> Float[Array, " n"]:
        weights, shift = self.layers[-1]
        return (self.hidden(x)[-1] @ weights + shift[None, :])[:, 0]

    def frozen(self, source: Network, number: Any) -> Network:
        """This network with its first `number` layers replaced by those of the source."""
        return Network(tuple(
            jax.tree.map(lambda kept, own, i=i: jnp.where(i < number, kept, own), kept, own)
            for i, (kept, own) in enumerate(zip(source.layers, self.layers, strict=True))
        ))  # fmt: skip


class Samples(NamedTuple):
    """Inputs with labels ±1, and the weight of each sample: zero for padding."""

    inputs: Array
    labels: Array
    weights: Array


class Pair(NamedTuple):
    """Data of both tasks: source samples, the same with target labels, a few target samples, and a test set with both labels."""

    source: Samples
    rich: Samples
    target: Samples
    inputs: Array
    source_labels: Array
    target_labels: Array


def logistic_loss(network: Network, data: Samples, key: PRNGKeyArray) -> Array:
    """Mean logistic loss of all samples."""
    losses = jax.nn.softplus(-data.labels * network(data.inputs))
    return jnp.sum(data.weights * losses) / jnp.sum(data.weights)


def batch_loss(network: Network, data: Samples, key: PRNGKeyArray) -> Array:
    """Mean logistic loss of a random batch."""
    rows = draw_rows(key, jnp.arange(data.labels.shape[0])[:, None], BATCH)[:, 0]
    return logistic_loss(network, Samples(*(part[rows] for part in data)), key)


def defrosted_loss(network: Network, data: tuple[Samples, Network, Array], key: PRNGKeyArray) -> Array:
    """The loss of a network whose first layers are the source's; neither gradients nor weight decay change them."""
    samples, source, number = data
    return logistic_loss(network.frozen(source, number), samples, key)


def error_of(network: Network, inputs: Array, labels: Array) -> Array:
    """Fraction of misclassified inputs."""
    return jnp.mean(jnp.logical_not(labels * network(inputs) > 0).astype(inputs.dtype))


class LayerDefrosting(Model):
    """A network learns a source task, keeps its first layers and retrains the others on a few samples of a related target.

    >>> import solvable as sv
    >>> sv.LayerDefrosting(depth=2).coordinates()["frozen"].tolist()
    [0, 1, 2]
    """

    id = "layer-defrosting"
    title = "Transfer by frozen and defrosted layers"
    family = "online"
    sentence = (
        "How many layers of a source network to freeze when a related target has few samples: teachers and digits."
    )
    method = "no closed theory; exact at equal tasks, compared with baselines"
    runs = "vmap"
    simulation_dtype = "float32"
    typical_sizes = (10, 15, 20)
    simulation_seconds = 0.7
    simulation_growth = 1.0
    guard = Guard(values={"steps": 2, "depth": 1, "units": 4, "samples": 1.0}, size=10, seeds=2)
    references = (
        Reference(
            "gerace2023optimal", "F. Gerace, D. Doimo, S. Sarao Mannelli, L. Saglietti and A. Laio", "Optimal transfer protocol "
            "by incremental layer defrosting", 2023, arxiv="2303.01429"),
        Reference(
            "glielmo2022ranking", "A. Glielmo, C. Zeni, B. Cheng, G. Csányi and A. Laio", "Ranking the information content of "
            "distance measures", 2022, "PNAS Nexus 1, pgac039", arxiv="2104.15079"),
        Reference(
            "kornblith2019similarity", "S. Kornblith, M. Norouzi, H. Lee and G. Hinton", "Similarity of neural network "
            "representations revisited", 2019, "ICML", arxiv="1905.00414"),
    )  # fmt: skip

    correlation: Control = control(
        0.95, low=0.0, high=1.0, symbol=r"\rho",
        meaning="correlation of source and target: of successive teacher layers, or of digit labels")  # fmt: skip
    samples: Control = control(
        7.5, low=0.0, low_open=True, high=1000.0, typical=(1.0, 30.0), scale="log", symbol=r"n/d", counts=True,
        meaning="target samples per input dimension")  # fmt: skip
    rate: Control = control(
        3e-3, low=0.0, high=1.0, typical=(1e-3, 1e-2), scale="log", symbol=r"\eta", meaning="learning rate of Adam")  # fmt: skip
    steps: Control = control(
        150.0, low=0.0, high=1e5, typical=(50.0, 300.0), scale="log",
        meaning="full-batch steps on the target, a whole number, the same for every number of frozen layers")  # fmt: skip
    tasks: str = choice(
        "teachers", options=("teachers", "digits", "given"),
        meaning="random networks, groupings of digits, or groupings of the classes of your own rows")  # fmt: skip
    start: str = choice(
        "source", options=("source", "fresh"),
        meaning="initial weights of the layers after the frozen ones: the source's, or random")  # fmt: skip
    depth: int = choice(3, low=1, high=8, meaning="number of hidden layers of the learner")
    units: int = choice(64, low=1, high=1024, meaning="units of every hidden layer")
    rows: Input | None = data(
        dims=("row", "column"), symbol="X", meaning="your own inputs, one in each row (given)",
        when={"tasks": "given"})  # fmt: skip
    classes: Input | None = data(
        dims=("row",), symbol="y", type="int", low=0, high=MOST_CLASSES - 1,
        meaning="the class of every row, a whole number (given)", when={"tasks": "given"})  # fmt: skip

    dimensions_declared = (
        dimension("frozen", "number of frozen layers", kind="site"),
        dimension("layer", "layer", kind="site"),
    )
    main_declared = ("test_error", "best_depth", "best_error", "scratch_error")
    observables_declared = (
        observable("test_error", "error on the target with the first L layers frozen and the others retrained", symbol="E(L)",
                   dims=("frozen",), low=0, high=1, predicted=False),
        observable("best_depth", "number of frozen layers with the lowest error on one half of the test, the smallest in ties",
                   symbol="L^*", low=0, predicted=False),
        observable("best_error", "error with that many frozen layers, on the other half", low=0, high=1, predicted=False),
        observable("scratch_error", "error on the target, trained on the target samples alone", low=0, high=1, predicted=False),
        observable("rich_error", "error on the target, trained on as many target samples as the source had", low=0, high=1,
                   predicted=False),
        observable("source_error", "error of the source network on its own task", low=0, high=1, predicted=False),
        observable("unchanged_error", "error of the unchanged source network on the target; at ρ = 1 the source error",
                   low=0, high=1, predicted=False),
        observable("label_correlation", "correlation of source and target labels (test)", low=-1, high=1, predicted=False),
        observable("cka", "linear centred kernel alignment of source network and data-rich target network", dims=("layer",),
                   low=0, high=1, predicted=False),
        observable("source_to_target", "information imbalance: how poorly neighbours in the source network predict those in "
                   "the data-rich target network", symbol=r"\Delta(s\to t)", dims=("layer",), low=0, high=2, predicted=False),
        observable("target_to_source", "information imbalance from target to source", symbol=r"\Delta(t\to s)",
                   dims=("layer",), low=0, high=2, predicted=False),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"frozen": np.arange(self.depth + 1), "layer": np.arange(1, self.depth + 1)}

    def validate(self) -> None:
        for name in ("rows", "classes"):
            if (self.tasks == "given") != (getattr(self, name) is not None):
                raise InvalidValue(f"tasks = 'given' needs {name}, and only tasks = 'given' takes them.")
        if self.rows is None or isinstance(self.rows, Tracer) or isinstance(self.classes, Tracer):
            return
        if self.rows.shape[0] < LEAST_ROWS:
            raise InvalidValue(f"rows has {self.rows.shape[0]} rows, but at least {LEAST_ROWS} are needed.")
        if np.asarray(self.rows).std(0).max() == 0:
            raise InvalidValue("rows has no column that varies: at least one must.")
        if (kinds := len(np.unique(np.asarray(self.classes)))) < 4:
            raise InvalidValue(f"classes has {kinds} different values, but at least 4 are needed to exchange a pair.")

    # --- data -------------------------------------------------------------------------------------------------------

    def _teachers(self, key: PRNGKeyArray, size: int, number: int, dtype: Any) -> tuple[Array, Array, Array]:
        """Gaussian inputs with the labels of the source's and of the target's teacher."""
        input_key, weight_key = jax.random.split(key)
        x = jax.random.normal(input_key, (number, size), dtype)
        drawn = GAIN / math.sqrt(size) * jax.random.normal(weight_key, (2, 2 * size + 1, size), dtype)
        source, target = x, x
        for i, rows in enumerate((slice(0, size), slice(size, 2 * size), slice(2 * size, None))):
            shared = self.correlation.astype(dtype) ** i
            first, other = drawn[0, rows].T, drawn[1, rows].T
            second = shared * first + jnp.sqrt(1 - shared**2) * other
            source, target = source @ first, target @ second
            if i < 2:
                source, target = jnp.tanh(source), jnp.tanh(target)
        return x, _signs(source[:, 0]), _signs(target[:, 0])

    def _digits(self, key: PRNGKeyArray, size: int, dtype: Any) -> tuple[Array, Array, Array]:
        """All images in random order, with the labels of both groupings."""
        components, shown = digit_components(size)
        order_key, group_key = jax.random.split(key)
        digits = jax.random.permutation(group_key, 10)  # the first five are one group
        place = jnp.zeros(10, jnp.int32).at[digits].set(jnp.arange(10, dtype=jnp.int32))
        return self._grouped(order_key, jnp.asarray(components, dtype), jnp.asarray(shown), place, 10)

    def _given(self, key: PRNGKeyArray, size: int, dtype: Any) -> tuple[Array, Array, Array]:
        """The same for the reader's rows: their leading principal components, with mean variance one."""
        assert self.rows is not None
        assert self.classes is not None
        order_key, group_key = jax.random.split(key)
        centred = self.rows - jnp.mean(self.rows, axis=0)[None, :]
        components = centred @ jnp.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :size]
        components = components / jnp.sqrt(jnp.mean(components**2))
        there = jnp.zeros(MOST_CLASSES, bool).at[self.classes].set(True)
        drawn = jnp.where(there, jax.random.uniform(group_key, (MOST_CLASSES,)), jnp.inf)
        place = jnp.argsort(jnp.argsort(drawn)).astype(jnp.int32)
        return self._grouped(order_key, components.astype(dtype), self.classes, place, jnp.sum(there, dtype=jnp.int32))

    def _grouped(
        self, key: PRNGKeyArray, components: Array, classes: Array, place: Array, kinds: Any
    ) -> tuple[Array, Array, Array]:
        """Inputs in random order with both labels; `place` orders the classes, of which the first half are one group.

        Every exchanged pair lowers the correlation of the labels by 4 over the number of classes.
        """
        half = kinds // 2
        order = jax.random.permutation(key, len(classes))
        exchanged = jnp.rint(jnp.asarray(kinds, self.correlation.dtype) * (1 - self.correlation) / 4).astype(jnp.int32)
        source = jnp.where(place < half, 1, -1)
        target = jnp.where((place % half < exchanged) & (place < 2 * half), -source, source)
        x, what = components[order], classes[order]
        return x, source[what].astype(x.dtype), target[what].astype(x.dtype)

    def _pair(self, key: PRNGKeyArray, size: int, count: Count, dtype: Any) -> Pair:
        if self.tasks == "teachers":
            tested, many = TESTED["teachers"], SOURCE_SAMPLES * size
            x, first, second = self._teachers(key, size, tested + many + count.padded, dtype)
            return self._parts(
                x, first, second, tested, slice(tested + many, None), slice(tested, tested + many), count
            )
        if self.rows is not None:
            number, columns = self.rows.shape
            tested, most, whole, kept = number // 4, number // 3, "columns of rows", "rows"
        else:
            columns, tested, most, whole, kept = PIXELS, TESTED["digits"], TARGET_DIGITS, "pixels of a digit", "digits"
        if size > columns:
            raise InvalidValue(f"size = {size} is more than the {columns} {whole}.")
        if count.padded > most:
            raise InvalidValue(
                f"samples gives about {count.padded} target {kept} at size = {size}: at most {most} are kept for the target, "
                f"samples = {most / size:g}."
            )
        x, first, second = self._digits(key, size, dtype) if self.rows is None else self._given(key, size, dtype)
        return self._parts(x, first, second, tested, slice(tested, tested + most), slice(tested + most, None), count)

    def _parts(
        self, x: Array, first: Array, second: Array, tested: int, target: slice, rest: slice, count: Count
    ) -> Pair:
        """Inputs with both labels, cut into test, target and source."""
        ones = jnp.ones(first[rest].shape, x.dtype)
        few = Samples(x[target][: count.padded], second[target][: count.padded], count.mask(x.dtype))
        return Pair(
            Samples(x[rest], first[rest], ones), Samples(x[rest], second[rest], ones), few,
            x[:tested], first[:tested], second[:tested])  # fmt: skip

    # --- experiment -------------------------------------------------------------------------------------------------

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        data_key, begin_key, learn_key = jax.random.split(key, 3)
        pair = self._pair(data_key, size, counts["samples"], dtype)
        rule = Optimiser("adam", rate=self.rate, decay=DECAY)

        def begin(key: PRNGKeyArray) -> Network:
            return Network.drawn(key, size, self.units, self.depth, dtype)

        # The source network and the data-rich target network see the same inputs in the same order.
        three = jax.vmap(begin)(jax.random.split(begin_key, 3))
        learnt = jax.vmap(lambda network, data: descend(network, batch_loss, data, rule, SOURCE_STEPS, learn_key))(
            jax.tree.map(lambda x: x[:2], three), jax.tree.map(lambda *x: jnp.stack(x), pair.source, pair.rich)
        )
        source, rich, fresh = (jax.tree.map(lambda x, i=i: x[i], n) for n, i in ((learnt, 0), (learnt, 1), (three, 2)))

        # Every number of frozen layers, and training from scratch.
        lanes = [(source if self.start == "source" else fresh, i) for i in range(self.depth + 1)] + [(fresh, 0)]
        starts = jax.tree.map(lambda *x: jnp.stack(x), *(network for network, _ in lanes))

        def defrost(network: Network, number: Array) -> Network:
            moved = descend(
                network, defrosted_loss, (pair.target, source, number), rule, jnp.rint(self.steps), learn_key
            )
            return moved.frozen(source, number)

        after = jax.vmap(defrost)(starts, jnp.asarray([number for _, number in lanes]))
        half = pair.target_labels.shape[0] // 2
        halves = [
            jax.vmap(error_of, in_axes=(0, None, None))(after, pair.inputs[part], pair.target_labels[part])
            for part in (slice(None, half), slice(half, None))
        ]
        errors = 0.5 * (halves[0] + halves[1])
        chosen = jnp.argmin(halves[0][:-1])
        seen = pair.inputs[:COMPARED]
        theirs, ours = (jnp.stack(network.hidden(seen)) for network in (source, rich))
        return {
            "test_error": errors[:-1],
            "best_depth": chosen,
            "best_error": halves[1][chosen],
            "scratch_error": errors[-1],
            "rich_error": error_of(rich, pair.inputs, pair.target_labels),
            "source_error": error_of(source, pair.inputs, pair.source_labels),
            "unchanged_error": error_of(source, pair.inputs, pair.target_labels),
            "label_correlation": jnp.mean(pair.source_labels * pair.target_labels),
            "cka": jax.vmap(linear_cka)(theirs, ours),
            "source_to_target": jax.vmap(information_imbalance)(theirs, ours),
            "target_to_source": jax.vmap(information_imbalance)(ours, theirs),
            "converged": jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves((learnt, after))])),
        }


def _signs(fields: Array) -> Array:
    return jnp.where(fields > 0, 1.0, -1.0).astype(fields.dtype)
