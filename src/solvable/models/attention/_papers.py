"""Papers that several models of this family rest on."""

from __future__ import annotations

from solvable.model import Reference

MAPPING = Reference(
    "rende2024mapping", "R. Rende, F. Gerace, A. Laio and S. Goldt",
    "Mapping of attention mechanisms to a generalized Potts model", 2024, "Phys. Rev. Research 6, 023057",
    arxiv="2304.07235")  # fmt: skip

MASKED_REGRESSION = Reference(
    "gerace2024transformers", "F. Gerace", "What do transformers learn when trained via masked language modelling?",
    2024, "talk, 16 April 2024")  # fmt: skip
