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
    jobs: Annotated[int, arg(metavar="N", help="Processes that share the work.")] = 1
    keep: Annotated[Path | None, arg(metavar="FOLDER", help="Keep parts that passed here; do not repeat them.")] = None
    json: Json = False


def run(command: Check) -> int:
    from ..lab.jax_environment import configure

    configure()
    from ..errors import InvalidValue
    from ..lab.check import check_values
    from ..lab.check_models import check_models

    if command.jobs < 1:
        raise InvalidValue(f"jobs = {command.jobs} is not a number of processes: at least 1.")
    if command.values is not None:
        report = check_values(command.values, only=command.models)
    else:
        settings = {"full": command.full, "corners": command.corners, "jobs": command.jobs, "keep": command.keep}
        report = check_models(command.models, **settings, say=say)
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
