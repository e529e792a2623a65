"""The command `solvable check`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from .common import Json, print_json, print_table, say


@dataclasses.dataclass
class Check:
    """Check the contract, the reference values and a small agreement study of models; all models if none is named."""

    models: Positional[Annotated[tuple[str, ...], arg(metavar="MODEL")]] = ()
    values: Annotated[Path | None, arg(metavar="FILE", help="Check only this file of reference cases.")] = None
    full: Annotated[bool, arg(help="Larger studies: more seeds and the largest sizes (minutes).")] = False
    corners: Annotated[bool, arg(help="Finer numerics at the corners of the allowed ranges (minutes).")] = False
    json: Json = False


def run(command: Check) -> int:
    from ..lab.jax_environment import configure

    configure()
    from ..lab.check import check_models, check_values

    if command.values is not None:
        report = check_values(command.values, only=command.models)
    else:
        report = check_models(command.models, full=command.full, corners=command.corners, say=say)
    if command.json:
        print_json({"passed": all(r.passed for r in report), "rows": [dataclasses.asdict(r) for r in report]})
    else:
        rows = [[r.model, r.part, "ok" if r.passed else "FAIL", r.seen] for r in report]
        print_table("", ["model", "part", "", "seen"], rows)
        failed = sum(not r.passed for r in report)
        noisy = sum(r.inconclusive for r in report)
        more = f"; {noisy} comparisons are inconclusive" if noisy else ""
        print(f"{len(report) - failed} of {len(report)} checks passed{more}")
    return 0 if all(r.passed for r in report) else 1
