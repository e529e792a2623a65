"""What learners of a teacher's labels have in common: the errors that are measured, and which losses fit which labels."""

from __future__ import annotations

from ...errors import InvalidValue
from ...model import observable

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


def refuse_loss_without_labels(loss: str, teacher: str) -> None:
    """Only the square loss learns from labels that are real numbers."""
    if teacher == "linear" and loss != "square":
        raise InvalidValue(f"loss = {loss!r} needs labels ±1: with teacher = 'linear' use loss = 'square'.")
