"""Fields, measured errors and allowed losses shared by the models that learn a teacher's labels.

A field belongs to one class, so each declaration comes from a function.
"""

from __future__ import annotations

from typing import Any

from ...errors import InvalidValue
from ...model import choice, control, observable

RISKS = (
    observable("test_error", "probability of a wrong label on a fresh noisy sample", symbol=r"\varepsilon_g",
               low=0, high=1, when={"teacher": "sign"}),
    observable("test_loss", "mean training loss ℓ on a fresh noisy sample (square: half the squared error)",
               symbol=r"\mathcal{L}_g", low=0),
    observable("train_loss", "mean loss ℓ over the training samples, penalty not included", symbol=r"\mathcal{L}_t",
               low=0),
    observable("train_error", "fraction of training samples with a wrong sign", low=0, high=1, fraction_of="samples",
               when={"teacher": "sign"}),
)  # fmt: skip

RESPONSE = observable("response", "how strongly the prediction on a sample follows that sample", symbol="V", low=0,
                      simulated=False)  # fmt: skip


def ratio_field(default: float, symbol: str, meaning: str) -> Any:
    """Samples, or features, per dimension."""
    return control(
        default, low=0.0, low_open=True, high=1e4, typical=(0.1, 10.0), scale="log", counts=True, symbol=symbol,
        meaning=meaning)  # fmt: skip


def penalty_field() -> Any:
    return control(
        0.1, low=1e-10, high=1e6, typical=(1e-4, 1e2), scale="log", symbol=r"\lambda",
        meaning="ridge penalty λ|w|²/2 added to the sum of the losses")  # fmt: skip


def noise_field() -> Any:
    return control(
        0.0, low=0.0, high=100.0, typical=(0.0, 2.0), symbol=r"\Delta",
        meaning="variance of the label noise, added to the teacher's field (sign: before the sign is taken)")  # fmt: skip


def loss_field() -> Any:
    return choice("logistic", options=("square", "logistic", "hinge"), symbol=r"\ell", meaning="training loss")


def teacher_field() -> Any:
    return choice("sign", options=("sign", "linear"), meaning="how the teacher turns its field into a label")


def refuse_loss_without_labels(loss: str, teacher: str) -> None:
    """Raise unless the loss fits the labels: only the square loss accepts real-valued ones."""
    if teacher == "linear" and loss != "square":
        raise InvalidValue(f"loss = {loss!r} needs labels ±1: with teacher = 'linear' use loss = 'square'.")
