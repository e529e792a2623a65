"""Papers behind several models of this family."""

from __future__ import annotations

from solvable.model import Reference

CRITICAL_MEANS = (
    Reference(
        "stamatescu2019critical", "G. Stamatescu, F. Gerace, C. Lucibello, I. Fuss and L. B. White", "Critical "
        "initialisation in continuous approximations of binary neural networks", 2019, "ICLR 2020", arxiv="1902.00177"),
    Reference(
        "schoenholz2017deep", "S. S. Schoenholz, J. Gilmer, S. Ganguli and J. Sohl-Dickstein", "Deep information "
        "propagation", 2017, "ICLR", arxiv="1611.01232"),
)  # fmt: skip
