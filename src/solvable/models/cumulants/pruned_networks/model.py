r"""Networks pruned by magnitude under label noise: sparse double descent, and how well they estimate the true probabilities.

**Data.** n Gaussian inputs x in d dimensions and a teacher of M units with unit weights a_m and fields u_m = a_m·x: a
*committee* t = M^{−½} Σ_m tanh(g u_m), or a *parity* t = Π_m tanh(g u_m). Labels are *flipped*: sign(t), reversed with
probability ε; or *soft*: positive with probability 1/(1 + e^{−s t}). Either way P(y|x) is known. In place of both, the
images of handwritten digits (d = 64), drawn with the seed, and t = ±1 for odd and even ones.

**Learner.** `size` ReLU units with biases and a logistic readout, Adam on all samples at once. After every round a share of
the remaining weights of both layers together is removed, the smallest ones or random ones; the others are reset to their
initial values and trained again. Biases are never pruned.

**Theory.** No closed theory. The divergence of a coin is known exactly: E[ln 2 − H(y|x)], which is ln 2 − H(ε) for flipped
labels. A network without weights cannot do better.

**Simulation.** At the end of every round, on fresh inputs: the divergence KL(P‖Q) of the network's probabilities Q from the
true ones (logarithms cut at 10⁻⁹), the calibration error in ten bins of confidence, the accuracy against the teacher's likelier
label, and the divergence with logits divided by the best temperature in hindsight, the baseline for a pruned network.
*Peak* and *best* are the numbers of weights at which the divergence is largest and smallest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.errors import InvalidValue
from solvable.methods.data.digits import PIXELS, digit_images
from solvable.model import Control, Count, Guard, Model, Reference, choice, control, dimension, observable

from .._pruning import Network, forward, train_and_prune

SMALLEST = math.log(1e-9)
BINS = 10
IMAGES = 1797  # of digits
TEMPERATURES = 2 ** np.linspace(-1, 9, 41)
INTERPOLATING = 0.995
"""Training accuracy from which the labels count as fitted."""


def divergence(positive: Array, logits: Array) -> Array:
    """Mean KL(P‖Q) in nats, from P(y = 1|x) and the network's log-odds.

    >>> round(float(divergence(jnp.array([0.25, 0.75]), jnp.zeros(2))), 4)  # a coin, flips of 1/4
    0.1308
    """
    surprise = -positive * jnp.maximum(jax.nn.log_sigmoid(logits), SMALLEST) - (1 - positive) * jnp.maximum(
        jax.nn.log_sigmoid(-logits), SMALLEST
    )
    return jnp.mean(surprise - entropy(positive))


def entropy(positive: Array) -> Array:
    """Entropy of a label, in nats."""
    return -jax.scipy.special.xlogy(positive, positive) - jax.scipy.special.xlogy(1 - positive, 1 - positive)


def calibration_error(positive: Array, logits: Array) -> Array:
    """Expected calibration error: confidence against the true probability of being right, in ten bins from ½ to 1.

    >>> round(float(calibration_error(jnp.array([0.75, 0.25]), 50 * jnp.array([1.0, -1.0]))), 4)
    0.25
    """
    confidence = jax.nn.sigmoid(jnp.abs(logits))
    right = jnp.where(logits > 0, positive, 1 - positive)
    place = jnp.clip((2 * BINS * (confidence - 0.5)).astype(jnp.int32), 0, BINS - 1)
    gaps = jnp.zeros(BINS, logits.dtype).at[place].add(confidence - right)
    return jnp.sum(jnp.abs(gaps)) / len(logits)


class PrunedNetworks(Model):
    """Pruning by magnitude under label noise: divergence from the true probabilities, calibration and accuracy by round.

    The `size` of a simulation is the number of hidden units.

    >>> import solvable as sv
    >>> seen = sv.PrunedNetworks(flip=0.25, rounds=2, steps=20).simulate(seed=0, size=8)
    >>> round(float(seen.coin_divergence), 4), seen.weights.tolist()
    (0.1308, [88.0, 62.0])
    """

    id = "pruned-networks"
    title = "Pruned networks under label noise"
    family = "cumulants"
    sentence = (
        "Sparse double descent: networks pruned by magnitude under label noise, their probabilities and calibration."
    )
    method = "no closed theory; compared with a coin, a tuned temperature and random pruning"
    typical_sizes = (25, 50, 100)
    simulation_seconds = 0.25
    simulation_growth = 1.0
    guard = Guard(
        values={"rounds": 2, "steps": 10, "examples": 20, "tested": 50, "input_dimension": 4}, size=4, seeds=2
    )
    arms_declared = MappingProxyType(
        {
            "flipped": {"labels": "flipped"},
            "clean": {"labels": "flipped", "flip": 0.0},
            "soft": {"labels": "soft", "teachers": 3},
            "random pruning": {"labels": "flipped", "pruning": "random"},
        }
    )
    references = (
        Reference(
            "arora2023quantifying", "V. Arora, D. Irto, S. Goldt and G. Sanguinetti", "Quantifying lottery tickets under "
            "label noise: accuracy, calibration, and complexity", 2023, "UAI", arxiv="2306.12190"),
        Reference(
            "he2022sparse", "Z. He, Z. Xie, Q. Zhu and Z. Qin", "Sparse double descent: where network pruning aggravates "
            "overfitting", 2022, "ICML", arxiv="2206.08684"),
    )  # fmt: skip

    flip: Control = control(
        0.25, low=0.0, high=0.5, symbol=r"\varepsilon", meaning="probability that a label is reversed (flipped)",
        when={"labels": "flipped"})  # fmt: skip
    scale: Control = control(
        6.0, low=0.0, high=1000.0, typical=(0.5, 20.0), symbol="s",
        meaning="scale of the teacher's log-odds (soft)", when={"labels": "soft"})  # fmt: skip
    gain: Control = control(
        1.0, low=0.0, low_open=True, high=100.0, typical=(0.3, 10.0), scale="log", symbol="g",
        meaning="gain of the teacher's units: near 0 a committee is linear")  # fmt: skip
    share: Control = control(
        0.3, low=0.0, high=1.0, high_open=True, typical=(0.1, 0.5), symbol="p",
        meaning="fraction of the remaining weights removed in every round")  # fmt: skip
    rate: Control = control(
        0.01, low=0.0, low_open=True, high=1.0, typical=(1e-3, 3e-2), scale="log", symbol=r"\eta",
        meaning="learning rate of Adam")  # fmt: skip
    labels: str = choice("flipped", options=("flipped", "soft"), meaning="kind of label noise")
    teacher: str = choice("committee", options=("committee", "parity", "digits"),
        meaning="how the teacher combines its units, or odd against even handwritten digits")  # fmt: skip
    teachers: int = choice(1, high=1000, symbol="M", meaning="units of the teacher")
    pruning: str = choice("magnitude", options=("magnitude", "random"), meaning="which weights are removed")
    input_dimension: int = choice(10, high=10_000, symbol="d", meaning="dimension of the inputs")
    examples: int = choice(100, high=10_000_000, symbol="n", meaning="training samples")
    tested: int = choice(2000, high=10_000_000, meaning="fresh inputs to measure on")
    rounds: int = choice(14, high=100, meaning="rounds of training, each after the first preceded by pruning")
    steps: int = choice(400, high=1_000_000, meaning="steps of Adam in every round")

    dimensions_declared = (dimension("round", "rounds of pruning before the training", kind="time"),)
    main_declared = ("divergence", "accuracy", "calibration_error", "best_divergence")
    observables_declared = (
        observable("divergence", "mean KL divergence of the network's label probabilities from the true ones, in nats",
                   symbol=r"\mathrm{KL}(P\|Q)", dims=("round",), low=0, predicted=False),
        observable("tempered_divergence", "the same with logits divided by the temperature that is best in hindsight",
                   dims=("round",), low=0, predicted=False),
        observable("calibration_error", "expected calibration error, ten bins", dims=("round",), low=0, high=1,
                   predicted=False),
        observable("accuracy", "fraction of fresh inputs with the teacher's likelier label", dims=("round",), low=0, high=1,
                   predicted=False),
        observable("train_accuracy", "fraction of training labels, noise included, that are fitted", dims=("round",), low=0,
                   high=1, predicted=False),
        observable("weights", "weights left, not counting biases", dims=("round",), low=0, predicted=False),
        observable("coin_divergence", "divergence of a coin", low=0, predicted=False),
        observable("best_divergence", "smallest divergence of all rounds", low=0, predicted=False),
        observable("best_weights", "number of weights with the smallest divergence", low=0, predicted=False),
        observable("peak_weights", "number of weights with the largest divergence", low=0, predicted=False),
        observable("fitting_weights", "smallest number of weights that fits all training labels", low=0, predicted=False),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"round": np.arange(self.rounds)}

    def validate(self) -> None:
        if self.teacher != "digits":
            return
        if self.labels != "flipped":
            raise InvalidValue(
                "labels = 'soft' needs a teacher of units: digits are odd or even, their labels are flipped."
            )
        if self.examples + self.tested > IMAGES:
            raise InvalidValue(
                f"examples + tested = {self.examples + self.tested} exceeds {IMAGES}, the number of images of digits."
            )

    def probability(self, directions: Array, x: Array) -> Array:
        """The teacher's P(y = 1|x)."""
        units = jnp.tanh(self.gain.astype(x.dtype) * (x @ directions.T))
        parity = self.teacher == "parity"
        output = jnp.prod(units, axis=1) if parity else jnp.sum(units, axis=1) / math.sqrt(self.teachers)
        if self.labels == "soft":
            return jax.nn.sigmoid(self.scale.astype(x.dtype) * output)
        flip = self.flip.astype(x.dtype)
        return jnp.where(output > 0, 1 - flip, flip)

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        to_draw, to_learn = jax.random.split(key)
        digits = self.teacher == "digits"
        d, n = PIXELS if digits else self.input_dimension, self.examples
        # One call for all random numbers, whose compilation takes longer than anything else.
        parts = np.cumsum([self.teachers * d, n * d, n, self.tested * d, size * d, size])
        drawn = jax.random.normal(to_draw, (parts[-1],), dtype)
        directions, x, chance, fresh, first, second = jnp.split(drawn, parts[:-1])
        directions = directions.reshape(self.teachers, d)
        directions = directions / jnp.sqrt(jnp.sum(directions**2, axis=1, keepdims=True))
        x, fresh = x.reshape(n, d), fresh.reshape(self.tested, d)
        if digits:
            order = jax.random.permutation(jax.random.fold_in(to_draw, 1), IMAGES)
            images, shown = (jnp.asarray(part)[order] for part in digit_images())
            flip = self.flip.astype(dtype)
            odd = jnp.where(shown % 2 == 1, 1 - flip, flip)
            x, fresh = (images[part].astype(dtype) for part in (slice(n), slice(n, n + self.tested)))
            known, true = odd[:n], odd[n : n + self.tested]
        else:
            known, true = self.probability(directions, x), self.probability(directions, fresh)
        positive = jax.scipy.special.ndtr(chance) < known
        sign = jnp.where(positive, -1.0, 1.0).astype(dtype)
        start = {
            "first": np.sqrt(2 / d).astype(dtype) * first.reshape(size, d),
            "bias": jnp.zeros(size, dtype),
            "second": np.sqrt(2 / size).astype(dtype) * second,
            "offset": jnp.zeros((), dtype),
        }

        def loss(network: Network, _: Any) -> Array:
            return jnp.mean(jax.nn.softplus(sign * forward(network, x)))

        def measure(network, masks, following):
            logits = forward(network, fresh)
            colder = jax.vmap(lambda t: divergence(true, logits / t))(jnp.asarray(TEMPERATURES, dtype))
            return {
                "divergence": jnp.maximum(divergence(true, logits), 0),
                "tempered_divergence": jnp.maximum(jnp.min(colder), 0),
                "calibration_error": calibration_error(true, logits),
                "accuracy": jnp.mean((logits > 0) == (true > 0.5), dtype=dtype),
                "train_accuracy": jnp.mean((forward(network, x) > 0) == positive, dtype=dtype),
                "weights": masks["first"].sum() + masks["second"].sum(),
            }

        found = train_and_prune(
            lambda key: None, loss, start, ("first", "second"), measure, to_learn, rounds=self.rounds, steps=self.steps,
            rate=self.rate.astype(dtype), share=self.share.astype(dtype), random=self.pruning == "random",
        )  # fmt: skip
        weights, apart = found["weights"], found["divergence"]
        fitted = found["train_accuracy"] >= INTERPOLATING
        fewest = jnp.min(jnp.where(fitted, weights, jnp.inf))
        return found | {
            "coin_divergence": divergence(true, jnp.zeros_like(true)),
            "best_divergence": jnp.min(apart),
            "best_weights": weights[jnp.argmin(apart)],
            "peak_weights": weights[jnp.argmax(apart)],
            "fitting_weights": jnp.where(jnp.any(fitted), fewest, jnp.nan),
        }
