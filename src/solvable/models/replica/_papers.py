"""Papers that several models of this family rest on."""

from __future__ import annotations

from solvable.model import Reference

LEARNING_CURVES = Reference(
    "loureiro2021learning", "B. Loureiro, C. Gerbelot, H. Cui, S. Goldt, F. Krzakala, M. Mézard and L. Zdeborová",
    "Learning curves of generic features maps for realistic datasets with a teacher-student model", 2021,
    "NeurIPS 34", arxiv="2102.08127")  # fmt: skip
