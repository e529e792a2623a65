"""Papers that several models of this family rest on."""

from __future__ import annotations

from solvable.model import Reference

SAAD_SOLLA = Reference(
    "saad1995online", "D. Saad and S. A. Solla", "On-line learning in soft committee machines", 1995,
    "Phys. Rev. E 52, 4225", doi="10.1103/PhysRevE.52.4225")  # fmt: skip

MASLOW = Reference(
    "lee2022maslow", "S. Lee, S. Sarao Mannelli, C. Clopath, S. Goldt and A. Saxe", "Maslow's hammer for catastrophic "
    "forgetting: node re-use vs node activation", 2022, "ICML", arxiv="2205.09029")  # fmt: skip

CONTINUAL = Reference(
    "lee2021continual", "S. Lee, S. Goldt and A. Saxe", "Continual learning in the teacher-student setup: impact of "
    "task similarity", 2021, "ICML", arxiv="2107.04384")  # fmt: skip

SPECIALISATION = Reference(
    "jarvis2025specialisation", "D. Jarvis, S. Lee, C. C. J. Dominé, A. M. Saxe and S. Sarao Mannelli",
    "A theory of initialisation's impact on specialisation", 2025, "ICLR", arxiv="2503.02526")  # fmt: skip

OPTIMAL_PROTOCOLS = Reference(
    "mori2025optimal", "F. Mori, S. Sarao Mannelli and F. Mignacco", "Optimal protocols for continual learning via "
    "statistical physics and control theory", 2025, "ICLR", arxiv="2409.18061")  # fmt: skip
