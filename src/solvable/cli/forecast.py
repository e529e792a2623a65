"""The command `solvable forecast`. It needs no JAX."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from ..errors import InvalidValue
from .common import Json, print_json, print_table


@dataclasses.dataclass
class Forecast:
    """Predict how much additional rows would improve ridge or logistic regression on your table."""

    data: Positional[Annotated[Path, arg(metavar="DATA", help="A table: .csv, .npz (arrays X and y), .parquet.")]]
    target: Annotated[str | None, arg(metavar="COLUMN", help="Column to predict (default: the last one, or y).")] = None
    loss: Annotated[
        Literal["square", "logistic"], arg(help="Ridge regression, or logistic regression with two classes.")
    ] = "square"
    at: Annotated[
        str, arg(metavar="N,N,…", help="Numbers of rows (default: 1.5, 2 and 3 times those in the table).")
    ] = ""
    penalty: Annotated[
        float | None, arg(metavar="L", help="scikit-learn's alpha, or 1/C (default: lowest leave-one-out error).")
    ] = None
    ignore: Annotated[str, arg(metavar="A,B,…", help="Columns to leave out.")] = ""
    constant: Annotated[Literal["refuse", "drop"], arg(help="Columns with the same value in every row.")] = "refuse"
    scale: Annotated[Literal["standard", "none"], arg(help="Scale columns to unit variance, or not.")] = "standard"
    seed: Annotated[int, arg(metavar="S", help="Random seed of the subsets.")] = 0
    out: Annotated[
        Path | None, arg(metavar="FOLDER", help="New folder for forecast.json and the picture forecast.png.")
    ] = None
    json: Json = False


def _sizes(text: str) -> list[int] | None:
    if not text.strip():
        return None
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise InvalidValue(f"at = {text!r} is not a list of numbers of rows such as 500,1000,5000.") from None


def keep_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write the files to a new folder atomically."""
    final = os.path.abspath(folder)
    temporary = os.path.join(os.path.dirname(final), f".tmp-{os.urandom(16).hex()}")
    try:
        os.makedirs(temporary)
        for name, data in files.items():
            Path(temporary, name).write_bytes(data)
        if os.path.isdir(final):
            os.rmdir(final)  # it is empty: occupied folders were rejected before
        os.rename(temporary, final)
    except OSError as problem:
        raise InvalidValue(f"{str(folder)!r} cannot be written: {problem.strerror}.") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def run(command: Forecast) -> int:
    from ..tools.tables import read_table

    sizes = _sizes(command.at)
    if command.seed < 0:
        raise InvalidValue(f"seed = {command.seed} is not a whole number in [0, ∞).")
    if command.out is not None:
        from ..tools.potts import refuse_occupied

        refuse_occupied(command.out)
    ignore = tuple(word.strip() for word in command.ignore.split(",") if word.strip())
    table = read_table(command.data, command.target, ignore)
    from ..tools.forecast import forecast

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # printed below, one line each
        result = forecast(
            table.features, table.targets, command.loss, at=sizes, penalty=command.penalty,
            standardise=command.scale == "standard", constant=command.constant, seed=command.seed, names=table.names,
        )  # fmt: skip
    chosen = "as given" if command.penalty is not None else "lowest leave-one-out error"
    heading = (
        f"{table.target} from {result.columns} columns and {result.rows} rows, {result.loss} loss, penalty {result.penalty:.4g} "
        f"({chosen}); {result.observable} now {result.now:.4g}\n"
    )
    return present(command, "forecast", table.target, result, heading)


def present(command: Any, name: str, target: str, result: Any, heading: str) -> int:
    """Keep the numbers and the picture of a forecast or a prediction, and print it as a table or as JSON."""
    answer: dict[str, Any] = {"data": str(command.data), "target": target, **result.as_dict()}
    if command.out is not None:
        from ..contract.parse_values import json_ready

        picture = io.BytesIO()
        result.plot().savefig(picture, format="png")
        written = json.dumps(json_ready(answer), ensure_ascii=False, indent=1).encode()
        keep_files(command.out, {f"{name}.json": written, f"{name}.png": picture.getvalue()})
    if command.json:
        print_json({**answer, "out": None if command.out is None else str(command.out)})
        return 0
    print(heading)
    print_table("", *result.table())
    print()
    for sentence in result.sentences():
        print(sentence)
    if command.out is not None:
        print(f"picture and numbers in {command.out}")
    for note in result.warnings:
        print(f"solvable: warning: {note}", file=sys.stderr)
    return 0
