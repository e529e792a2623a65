"""Stories for the lecture hall: a title and steps, each a link of the page, a text, and sliders, from a small TOML file."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from ..errors import InvalidValue, SolvableError, nearest
from .prose import line

OURS = Path(__file__).parent / "stories.toml"
LARGEST = 1 << 20  # bytes of a file
MOST_STORIES, MOST_STEPS, MOST_SLIDERS, LONGEST = 40, 100, 6, 1500
STORY = ("title", "promise", "step")
STEP = ("view", "text", "sliders", "predict")


def read(path: Path) -> list[dict[str, Any]]:
    """The stories of a file, each view checked as the page would: one sentence says what is wrong, and where.

    >>> [story["id"] for story in read(OURS)]
    ['double-descent', 'what-attention-learns-from-masked-language', 'plateau-specialisation-control']
    """
    stories = parsed(path)
    for story in stories:
        for number, step in enumerate(story["steps"], start=1):
            try:
                _check(step)
            except SolvableError as problem:
                raise InvalidValue(f"step {number} of {story['title']!r} in {path.name}: {problem}") from None
    return stories


def parsed(path: Path) -> list[dict[str, Any]]:
    """The stories of a file, without looking at their models."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as problem:
        raise InvalidValue(f"the story {str(path)!r} cannot be read: {problem.strerror}.") from None
    if len(content) > LARGEST:
        raise InvalidValue(f"the story {path.name} has more than {LARGEST} bytes.")
    try:
        document = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise InvalidValue(f"{path.name} is not a TOML file: {str(problem).rstrip('.')[:200]}.") from None
    _keys(document, ("story",), path.name)
    stories = _tables(
        document.get("story"), MOST_STORIES, f"{path.name} must contain between 1 and {{}} tables [[story]]"
    )
    made: list[dict[str, Any]] = []
    for number, story in enumerate(stories, start=1):
        where = f"story {number} of {path.name}"
        _keys(story, STORY, where)
        title, promise = _text(story, "title", where, 120), _text(story, "promise", where, 300, "")
        steps = _tables(story.get("step"), MOST_STEPS, f"{where} must contain between 1 and {{}} tables [[story.step]]")
        id = _named(title, [s["id"] for s in made])
        checked = [_step(step, f"step {k} of {title!r} in {path.name}") for k, step in enumerate(steps, start=1)]
        made.append({"id": id, "title": title, "promise": promise, "steps": checked})
    return made


def _step(step: dict[str, Any], where: str) -> dict[str, Any]:
    _keys(step, STEP, where)
    view, text = _text(step, "view", where, 16 * 1024), _text(step, "text", where, LONGEST)
    sliders = step.get("sliders", [])
    if not isinstance(sliders, list) or not all(isinstance(n, str) for n in sliders) or len(sliders) > MOST_SLIDERS:
        raise InvalidValue(f"{where}: sliders must be a list of at most {MOST_SLIDERS} names.")
    made = {"query": view.rpartition("?")[2].strip(), "text_html": line(" ".join(text.split())), "sliders": sliders}
    return made | {"predict": _text(step, "predict", where, 200, "")}


def _check(step: dict[str, Any]) -> None:
    """Raise a sentence if the page could not show a step."""
    from .links import shown_of

    view = shown_of(f"?{step['query']}").view
    fields, known = type(view.model).fields_of("control", "choice"), view.model.observables()
    for name in step["sliders"]:
        if name not in fields:
            raise InvalidValue(f"{view.model.id} has no slider {name[:60]!r}; {nearest(name[:60], list(fields))}")
        if name in {axis.field for axis in view.axes}:
            raise InvalidValue(f"{name!r} is on an axis of this view and cannot be a slider as well.")
    if not (hidden := step["predict"]):
        return
    if hidden not in view.observables:
        raise InvalidValue(f"the view does not show {hidden[:60]!r}; {nearest(hidden[:60], list(view.observables))}")
    if view.y is not None or not view.model.answers_at_once or not known[hidden].predicted:
        raise InvalidValue(f"there is no curve of {hidden!r} to predict in this view.")
    if view.x is None and not known[hidden].dims:
        raise InvalidValue(f"{hidden!r} is a single number in this view: put a control on the horizontal axis.")


def _keys(table: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise InvalidValue(f"{where} has an unknown key {key[:60]!r}; {nearest(key[:60], list(known))}")


def _tables(value: Any, most: int, sentence: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not 1 <= len(value) <= most or not all(isinstance(t, dict) for t in value):
        raise InvalidValue(f"{sentence.format(most)}.")
    return value


def _text(table: dict[str, Any], key: str, where: str, longest: int, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or len(value) > longest or (not value.strip() and default is None):
        raise InvalidValue(f"{where} needs a {key}: text of at most {longest} characters.")
    return value.strip()


def _named(title: str, taken: list[str]) -> str:
    """A short name for links; the first words of the title.

    >>> _named("Double descent: why?", ["double-descent-why"])
    'double-descent-why-2'
    """
    stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:60].strip("-") or "story"
    return next(n for n in (stem, *(f"{stem}-{k}" for k in range(2, 200))) if n not in taken)
