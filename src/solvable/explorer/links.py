"""Links: what stands behind the `?` of the page's address, on any machine and port. Imports no JAX unless a view is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from ..errors import InvalidValue, UnknownName, nearest
from ..registry import listings, model_class

if TYPE_CHECKING:
    from ..model import Model
    from .pictures import Shown

# Words of a link that are not fields of a model; a field with such a name is written `field.NAME`.
WORDS = ("model", "x", "y", "show", "branches", "sizes", "seeds", "simulated", "study", "at", "pin", "axis", "type", "tour",
         "token", "step", "lecture", "along", "lines", "by", "log")  # fmt: skip
LONGEST = 16 * 1024


def is_link(text: str) -> bool:
    """Whether an argument is a link rather than the path of a run.

    >>> is_link("?model=perceptron"), is_link("http://127.0.0.1:8000/?model=perceptron"), is_link("runs/one")
    (True, True, False)
    """
    return text.startswith(("?", "http://", "https://", "model="))


def query_of(link: str) -> str:
    """The query of a link without its token, checked as far as is possible without importing a model.

    >>> query_of("http://127.0.0.1:8000/?token=secret&model=perceptron&penalty=0.1")
    'model=perceptron&penalty=0.1'
    >>> query_of("?model=perceptro")
    Traceback (most recent call last):
    solvable.errors.UnknownName: there is no model 'perceptro'; did you mean 'perceptron'?
    """
    pairs = [(n, v) for n, v in _pairs(link) if n != "token"]
    for name, value in pairs:
        if name == "model" and value not in listings():
            raise UnknownName(f"there is no model {value[:60]!r}; {nearest(value[:60], list(listings()))}")
    return urlencode(pairs, safe=":,")


def shown_of(link: str) -> Shown:
    """The view of a link with its pinned curves; anything that it does not mention is as in the model's first view.

    >>> shown = shown_of("?model=perceptron&penalty=0.2&x=samples:0.5:4:8:log&seeds=3&pin=defaults&axis=log")
    >>> shown.view.values, shown.view.x.points, shown.view.seeds, len(shown.pins), shown.logarithmic
    ({'penalty': 0.2}, 8, 3, 1, True)
    """
    from .defaults import default_view
    from .pictures import Shown

    pairs = _pairs(link)
    given = dict(pairs)
    if "model" not in given:
        raise InvalidValue("this link names no model: it is like '?model=perceptron'.")
    query_of(link)
    kind = model_class(given["model"])
    request = default_view(kind).json()
    for name, text in given.items():
        if name not in WORDS:
            field = name.removeprefix("field.")
            request["values"][field] = _value(kind, field, text)
    if "x" in given:
        request |= {"x": _axis(given["x"]), "y": None}
        request.pop("simulated")
    if "y" in given:
        request["y"] = _axis(given["y"])
    if given.get("show"):
        request["observables"] = given["show"].split(",")
    if "branches" in given:
        request["branches"] = given["branches"] == "1"
    if given.get("sizes"):
        request["sizes"] = [_whole("sizes", word) for word in given["sizes"].split(",")]
    request |= {n: _whole(n, given[n]) for n in ("seeds", "simulated") if given.get(n)}
    pins = [_pin(kind, text) for name, text in pairs if name == "pin"]
    return Shown.checked({"view": request, "pins": pins, "logarithmic": given.get("axis") == "log"})


def _pin(kind: type[Model], text: str) -> dict[str, Any]:
    """The values of a pinned curve, from `penalty:0.1,loss:hinge` or `defaults`."""
    parts = [part.partition(":") for part in text.split(",") if text != "defaults"]
    return {name: _value(kind, name, value) for name, _, value in parts}


def _pairs(link: str) -> list[tuple[str, str]]:
    if len(link) > LONGEST:
        raise InvalidValue(f"this link is too long; it has at most {LONGEST} characters.")
    query = urlsplit(link).query if "?" in link else link
    try:
        return parse_qsl(query, keep_blank_values=True, max_num_fields=256)
    except ValueError:
        raise InvalidValue("this link cannot be parsed.") from None


def _axis(text: str) -> dict[str, Any] | None:
    """An axis from `samples:0.5:4:8:log`; None from `none`."""
    if text == "none":
        return None
    field, *rest = text.split(":")
    if len(rest) not in (3, 4):
        raise InvalidValue(f"the axis {text[:60]!r} is not of the form FIELD:FROM:TO:POINTS:SCALE.")
    low, high = (_number(field, word) for word in rest[:2])
    axis = {"field": field, "from": low, "to": high, "points": _whole("points", rest[2])}
    return axis | ({"scale": rest[3]} if len(rest) == 4 else {})


def _value(kind: type[Model], name: str, text: str) -> Any:
    settable = kind.fields_of("control", "choice")
    if name not in settable:
        raise UnknownName(f"{kind.id} has no {name[:60]!r}; {nearest(name[:60], list(settable))}")
    if settable[name].kind == "control":
        return _number(name, text)
    return text if settable[name].options else _whole(name, text)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidValue(f"{name[:60]} = {text[:40]!r} is not a number.") from None


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidValue(f"{name} = {text[:40]!r} is not a whole number.") from None
