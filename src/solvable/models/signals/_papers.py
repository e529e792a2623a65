"""Papers that several models of the family cite."""

from solvable.model import Reference

TWO_FAILURES = Reference(
    "giorlandino2025two", "A. Giorlandino and S. Goldt", "Two failure modes of deep transformers and how to avoid them: "
    "a unified theory of signal propagation at initialisation", 2025, arxiv="2505.24333")  # fmt: skip
RANK_COLLAPSE = Reference(
    "noci2022signal", "L. Noci, S. Anagnostidis, L. Biggio, A. Orvieto, S. P. Singh and A. Lucchi", "Signal propagation "
    "in transformers: theoretical perspectives and the role of rank collapse", 2022, "NeurIPS 35",
    arxiv="2206.03126")  # fmt: skip
