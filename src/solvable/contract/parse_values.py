"""Parse values written as text: `key=value` words, ranges and lists, as on the command line and the page."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidValue
from .functions import is_text_of_a_function
from .input_files import array_in, regular_bytes

LARGEST_FILE = 512 * 1024**2


def assignments(words: tuple[str, ...] | list[str]) -> dict[str, Any]:
    """`("samples=2", "loss=hinge")` as `{"samples": 2.0, "loss": "hinge"}`.

    >>> assignments(["samples=2", "loss=hinge", "penalty=0.1,1"])
    {'samples': 2, 'loss': 'hinge', 'penalty': [0.1, 1.0]}
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise InvalidValue(f"{word!r} is not of the form name=value.")
        if name in values:
            raise InvalidValue(f"{name!r} is given twice.")
        values[name] = parse_value(name, text)
    return values


def parse_value(name: str, text: str) -> Any:
    """A number, a list `a,b,c`, a range `a:b:n` or `a:b:n:log`, JSON `[[1,0],[0,1]]`, a file `@matrix.npy`, or a word."""
    if text.startswith("@"):
        return _from_file(name, text[1:])
    if text.startswith(("[", "{")):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise InvalidValue(f"{name} = {text[:200]!r} is not valid JSON.") from None
    if "," in text or (":" in text and not is_text_of_a_function(text)):
        return values_of(name, text)
    return _scalar(text)


def values_of(name: str, text: str) -> list[Any]:
    """The values of a sweep: `a:b:n`, `a:b:n:log`, or `a,b,c`.

    >>> values_of("samples", "0.5:2:3:log"), values_of("loss", "hinge,square")
    ([0.5, 1.0, 2.0], ['hinge', 'square'])
    >>> values_of("loss", "huber,losses:mine")
    ['huber', 'losses:mine']
    """
    if ":" in text and not any(is_text_of_a_function(item.strip()) for item in text.split(",")):
        parts = text.split(":")
        shape = f"{name}={text!r} is not a range a:b:n or a:b:n:log"
        if len(parts) not in (3, 4) or (len(parts) == 4 and parts[3] not in ("log", "linear")):
            raise InvalidValue(f"{shape}.")
        try:
            low, high, number = float(parts[0]), float(parts[1]), int(parts[2])
        except ValueError:
            raise InvalidValue(f"{shape}: a and b are numbers, n is a whole number.") from None
        if not 1 <= number <= 1_000_000 or not np.isfinite([low, high]).all():
            raise InvalidValue(f"{shape} of 1 to 1000000 finite values.")
        if parts[-1] == "log":
            if low <= 0 or high <= 0:
                raise InvalidValue(f"{shape}: a logarithmic range needs a, b > 0.")
            values = np.geomspace(low, high, number)
        else:
            values = np.linspace(low, high, number)
        return [float(v) for v in values]
    items = [_scalar(t.strip()) for t in text.split(",") if t.strip()]
    if not items:
        raise InvalidValue(f"{name}={text!r} has no values.")
    numbers = [isinstance(i, (int, float)) for i in items]
    return [float(i) for i in items] if all(numbers) and any(isinstance(i, float) for i in items) else items


def _scalar(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def _from_file(name: str, path: str) -> Any:
    kind = Path(path).suffix
    if kind not in (".npy", ".json", ".csv", ".txt"):
        raise InvalidValue(f"{name}: the file {path!r} does not end in .npy, .json, .csv or .txt.")
    try:
        data = regular_bytes(path, LARGEST_FILE)
        if kind == ".npy":
            return array_in(data)
        if kind == ".json":
            return json.loads(data)
        return np.loadtxt(io.StringIO(data.decode()), delimiter="," if kind == ".csv" else None)
    except OSError as problem:
        raise InvalidValue(f"{name}: the file {path!r} cannot be read: {problem.strerror}.") from None
    except InvalidValue as problem:
        raise InvalidValue(f"{name}: the file {problem}") from None
    except (ValueError, EOFError, RecursionError):
        raise InvalidValue(f"{name}: the file {path!r} does not contain a readable array of numbers.") from None


def json_ready(value: Any) -> Any:
    """Plain JSON values; NaN and infinity, which JSON lacks, become null."""
    if isinstance(value, dict):
        return {str(k): json_ready(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(v) for v in value]
    if isinstance(value, np.generic):
        return json_ready(value.item())
    if hasattr(value, "__array__"):
        return json_ready(np.asarray(value).tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
