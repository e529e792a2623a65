"""Papers behind several of these models."""

from __future__ import annotations

from solvable.model import Reference

MARVELS = Reference(
    "saraomannelli2020marvels", "S. Sarao Mannelli, G. Biroli, C. Cammarota, F. Krzakala, P. Urbani and L. Zdeborová",
    "Marvels and pitfalls of the Langevin algorithm in noisy high-dimensional inference", 2020, "Phys. Rev. X 10, 011057",
    arxiv="1812.09066")  # fmt: skip
PASSED = Reference(
    "saraomannelli2019passed", "S. Sarao Mannelli, F. Krzakala, P. Urbani and L. Zdeborová", "Passed & spurious: descent "
    "algorithms and local minima in spiked matrix-tensor models", 2019, "ICML 36", arxiv="1902.00139")  # fmt: skip
AFRAID = Reference(
    "saraomannelli2019afraid", "S. Sarao Mannelli, G. Biroli, C. Cammarota, F. Krzakala and L. Zdeborová", "Who is afraid of "
    "big bad minima? Analysis of gradient-flow in a spiked matrix-tensor model", 2019, "NeurIPS 32",
    arxiv="1907.08226")  # fmt: skip
THRESHOLDS = Reference(
    "saraomannelli2020thresholds", "S. Sarao Mannelli and L. Zdeborová", "Thresholds of descending algorithms in inference "
    "problems", 2020, "J. Stat. Mech. 034004", arxiv="2001.00479")  # fmt: skip
