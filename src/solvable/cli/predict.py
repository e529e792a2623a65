"""The command `solvable predict`. It needs scikit-learn, and no JAX."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from ..errors import InvalidValue
from .common import Json
from .forecast import present


@dataclasses.dataclass
class Predict:
    """The learning curve of your scikit-learn pipeline on your table: theory, fitted points, and how far they differ."""

    data: Positional[Annotated[Path, arg(metavar="DATA", help="A table: .csv, .npy, .npz (arrays X and y), .parquet.")]]
    target: Annotated[str | None, arg(metavar="COLUMN", help="Column to predict (default: the last one, or y).")] = None
    pipeline: Annotated[
        str,
        arg(
            metavar="MODULE:OBJECT",
            help="A scikit-learn pipeline, or ridge, lasso, logistic, svm (default: by the target).",
        ),
    ] = ""
    over: Annotated[
        str, arg(metavar="NAME=RANGE", help="rows=a:b:n:log or penalty=a:b:n:log or a,b,c (default: rows up to all).")
    ] = ""
    penalty: Annotated[
        float | None,
        arg(metavar="L", help="scikit-learn's alpha, or 1/C (default: the pipeline's, or the theory's best)."),
    ] = None
    fits: Annotated[int, arg(metavar="K", help="Largest number of fitted points (0: theory alone).")] = 8
    repeats: Annotated[int, arg(metavar="R", help="Fits at each point.")] = 6
    ignore: Annotated[str, arg(metavar="A,B,…", help="Columns to leave out.")] = ""
    seed: Annotated[int, arg(metavar="S", help="Random seed of the subsets.")] = 0
    out: Annotated[
        Path | None, arg(metavar="FOLDER", help="New folder for predict.json and the picture predict.png.")
    ] = None
    json: Json = False


def _over(text: str) -> dict[str, list[Any]] | None:
    from ..contract.parse_values import values_of

    if not text.strip():
        return None
    name, equals, values = text.partition("=")
    if not equals or name not in ("rows", "penalty"):
        raise InvalidValue(f"--over {text!r} is neither rows=RANGE nor penalty=RANGE.")
    return {name: values_of(name, values)}


def run(command: Predict) -> int:
    from ..tools.frames import read_frame
    from ..tools.predict import predict

    over = _over(command.over)
    for name, value, least in (("seed", command.seed, 0), ("fits", command.fits, 0), ("repeats", command.repeats, 2)):
        if value < least:
            raise InvalidValue(f"{name} = {value} is not a whole number in [{least}, ∞).")
    if command.out is not None:
        from ..tools.potts import refuse_occupied

        refuse_occupied(command.out)
    ignore = tuple(word.strip() for word in command.ignore.split(",") if word.strip())
    frame = read_frame(command.data, command.target, ignore)
    result = predict(
        frame.features, frame.targets, command.pipeline or None, over=over, penalty=command.penalty, fits=command.fits,
        repeats=command.repeats, seed=command.seed,
    )  # fmt: skip
    heading = (
        f"{frame.target} from {result.columns} columns and {result.rows} rows: {result.learner} on {result.features} features, "
        f"{result.penalty_is} = {result.penalty:.4g}\n"
    )
    return present(command, "predict", frame.target, result, heading)
