r"""Two tasks in succession on handwritten digits: forgetting and transfer with mixed pixels, and replay protocols.

**Data.** Four digits (a, b, c, d), drawn with the seed. Task 1 separates a (+1) from b (−1). An image of task 2 mixes pixels:
γ times an image of a or b plus 1 − γ times one of c or d, with label +1 for (a, c) and −1 for (b, d). At γ = 1 the tasks
are the same, at γ = 0 they share nothing but the learner. Images are centred, with variance one per pixel on average; test
images are never used for training.

**Learner.** That of `continual-learning` and `continual-protocols`: K erf units shared by both tasks, a head for each,
gradient descent on ½(f − y)² with one image per step, time in steps per pixel. After a time t_1 on task 1, a *protocol* sets
the fraction of images from task 2 in each of several equal intervals of a time t_2:

- `no-replay`: all of them;
- `even`: half;
- `focus`: all of them for a fraction of the time, then half;
- `given`: `given_fraction`.

**Theory.** No closed theory. That of `continual-learning` assumes Gaussian inputs without structure, teachers of one unit and
fresh samples; here inputs are images, labels do not come from a teacher, and images are seen many times. What carries over is
measured, not assumed: `linear_similarity` is the counterpart of the overlap of two teachers.

**Simulation.** Every seed draws its own digits, split into training and test images, and initial network (`learning`). The figure
`continual-digits` compares mixings and protocols on the same draws (`paired`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from solvable.errors import InvalidValue
from solvable.model import Control, Count, Guard, Input, Model, choice, control, dimension, input, observable

from .._papers import CONTINUAL, MASLOW, OPTIMAL_PROTOCOLS
from .._two_tasks import rate_field, students_field
from .learning import HEADS, TRAINED, Images, draw_digits, lane, learn, linear_similarity

PROTOCOLS = ("no-replay", "even", "focus", "given")


class ContinualDigits(Model):
    """A two-layer network learns to separate two digits, then two mixed ones: forgetting, transfer and replay.

    The `size` of a simulation is the number of training images of each digit, at most 120.

    >>> import solvable as sv
    >>> seen = sv.ContinualDigits(mixing=0.0).simulate(seed=0, size=120)
    >>> bool(seen.test_error[20, 0] < 0.1), bool(seen.forgetting > 0)
    (True, True)
    """

    id = "continual-digits"
    title = "Continual learning on mixed digits"
    family = "online"
    sentence = "Two tasks of handwritten digits with mixed pixels in succession: forgetting, transfer and replay."
    method = "no closed theory; compared with the theory of two teachers"
    runs = "host"
    typical_sizes = (30, 60, 120)
    simulation_seconds = 0.1
    simulation_growth = 0.1
    guard = Guard(values={"first_stage": 2.0, "second_stage": 1.0, "intervals": 2}, size=30, seeds=2)
    arms_declared = MappingProxyType(
        {
            "specialised": {"start": "specialised"},
            "shared": {"start": "shared"},
            "head copied": {"start": "specialised", "head": "copied"},
            "even replay": {"protocol": "even"},
            "focus then replay": {"protocol": "focus"},
        }
    )
    references = (MASLOW, CONTINUAL, OPTIMAL_PROTOCOLS)

    mixing: Control = control(
        0.5, low=0.0, high=1.0, symbol=r"\gamma", meaning="weight of the digits of task 1 in the images of task 2")  # fmt: skip
    rate: Control = rate_field(r"\eta_w", "learning rate of the first layer")
    readout_rate: Control = rate_field(r"\eta_v", "learning rate of the heads")
    first_stage: Control = control(
        40.0, low=0.0, low_open=True, high=10_000.0, typical=(1.0, 40.0), scale="log", symbol="t_1",
        meaning="time spent on task 1 alone, in steps per pixel")  # fmt: skip
    second_stage: Control = control(
        40.0, low=0.0, low_open=True, high=10_000.0, typical=(1.0, 40.0), scale="log", symbol="t_2",
        meaning="duration of the protocol, in steps per pixel")  # fmt: skip
    focus: Control = control(
        0.5, low=0.0, high=1.0, meaning="fraction of the second stage on task 2 alone, in whole intervals (focus)",
        when={"protocol": "focus"})  # fmt: skip
    start: str = choice(
        "specialised",
        options=tuple(HEADS),
        meaning="initial first head: one of two units carries the task, or both do",
    )
    head: str = choice(
        "fresh",
        options=("fresh", "copied"),
        meaning="second head at the switch: its own initial value, or a copy of the first",
    )
    protocol: str = choice("no-replay", options=PROTOCOLS, meaning="schedule of the two tasks in the second stage")
    students: int = students_field()
    intervals: int = choice(
        20, high=1000, meaning="equal intervals of each stage, with a measurement at the end of each"
    )
    given_fraction: Input = input(
        lambda m: np.full(m.intervals, 0.5), dims=("intervals",), low=0.0, high=1.0, symbol="u",
        meaning="fraction of images from task 2 in each interval of the second stage (given)",
        when={"protocol": "given"})  # fmt: skip

    dimensions_declared = (
        dimension("stage", "training time in units of a stage: first task until 1, protocol until 2", kind="time"),
        dimension("task", "first and second task"),
    )
    main_declared = ("test_error", "forgetting", "transfer", "final_error")
    observables_declared = (
        observable("test_loss", "half the mean squared difference to the label of each task, on test images",
                   symbol=r"\varepsilon_t", dims=("stage", "task"), low=0, predicted=False),
        observable("test_error", "fraction of misclassified test images", dims=("stage", "task"), low=0,
                   high=1, predicted=False),
        observable("forgetting", "increase of the loss of task 1 from the switch to the end", predicted=False),
        observable("transfer", "decrease of the loss of task 2 from the start to the switch", predicted=False),
        observable("final_loss", "mean loss of both tasks at the end", low=0, predicted=False),
        observable("final_error", "mean error of both tasks at the end", low=0, high=1, predicted=False),
        observable("linear_similarity", "correlation, over images of all four digits, of the best linear readouts of both "
                   "tasks", low=-1, high=1, predicted=False),
    )  # fmt: skip

    def coordinates(self) -> dict[str, np.ndarray]:
        return {"stage": np.linspace(0.0, 2.0, 2 * self.intervals + 1), "task": np.array([1, 2])}

    def fractions(self) -> np.ndarray:
        """The protocol: the fraction of images from task 2 in each interval of the second stage.

        >>> ContinualDigits(protocol="focus", focus=0.25, intervals=4).fractions().tolist()
        [1.0, 0.5, 0.5, 0.5]
        """
        if self.protocol == "given":
            return np.asarray(self.given_fraction)
        alone = {"no-replay": 1.0, "even": 0.0, "focus": float(self.focus)}[self.protocol]
        return np.where(np.arange(self.intervals) < round(alone * self.intervals), 1.0, 0.5)

    def experiment(self, key: PRNGKeyArray, size: int, counts: Mapping[str, Count], dtype: Any) -> dict[str, Array]:
        if size > TRAINED:
            raise InvalidValue(f"size = {size} is more than the {TRAINED} images of each digit for training.")
        to_draw, to_learn = jax.random.split(key)
        _, drawn = draw_digits(np.asarray(jax.random.key_data(to_draw)))
        images = Images(drawn.trained[:, :size], drawn.tested)
        network = lane(images, to_learn, self.start, self.students, self.mixing, self.fractions(), dtype)
        losses, errors = learn(
            jax.tree.map(lambda x: x[None], network), rate=self.rate, readout_rate=self.readout_rate,
            first_stage=float(self.first_stage), second_stage=float(self.second_stage), copied=self.head == "copied",
        )  # fmt: skip
        loss, error, switch = losses[0], errors[0], self.intervals
        return {
            "test_loss": loss,
            "test_error": error,
            "forgetting": loss[-1, 0] - loss[switch, 0],
            "transfer": loss[0, 1] - loss[switch, 1],
            "final_loss": jnp.mean(loss[-1]),
            "final_error": jnp.mean(error[-1]),
            "linear_similarity": jnp.asarray(linear_similarity(images, float(self.mixing))),
            "converged": jnp.all(jnp.isfinite(loss)),
        }
