"""`python -m solvable.models` writes `listing.json` and the README's table from what models and figures declare."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

from . import FIGURES, FILE, LISTINGS

FOLDER = Path(__file__).parent
README = FOLDER.parents[2] / "README.md"
BEGIN, END = "<!-- models: made by `make listing` -->", "<!-- end of models -->"


def collect() -> dict[str, Any]:
    """What every folder `FAMILY/MODEL` declares: its model, and the figures of its `*figures.py`.

    Lines keep the order that they have; a new one comes last in its family, a new figure behind its model's others.
    """
    from ..model import Model

    models, figures = [], []
    for file in sorted(FOLDER.glob("*/*/model.py")):
        package = f"solvable.models.{file.parent.parent.name}.{file.parent.name}"
        module = importlib.import_module(f"{package}.model")
        own = [c for c in vars(module).values() if _is_model(c, Model) and c.__module__ == module.__name__]
        if len(own) != 1:
            raise SystemExit(f"{file}: one model is meant to be in a folder, and here are {len(own)}.")
        (kind,) = own
        models.append({"id": kind.id, "module": f"{package}.model", "name": kind.__name__, "family": kind.family,
                       "sentence": kind.sentence, "kind": kind.what_it_has(), "method": kind.method,
                       "title": kind.title})  # fmt: skip
        for drawn in sorted(file.parent.glob("*figures.py"), key=lambda f: (len(f.name), f.name)):
            name = f"{package}.{drawn.stem}"
            for figure, recipe in importlib.import_module(name).RECIPES.items():
                also = {"also": list(recipe.also)} if recipe.also else {}
                figures.append({"name": figure, "model": kind.id, "module": name, "sentence": recipe.sentence, **also})
    models = _ordered(models, "id", "family", [(line.id, line.family) for line in LISTINGS])
    figures = _ordered(figures, "name", "model", [(f.name, f.model) for f in FIGURES])
    families = [{"id": id, "title": family_title(id)} for id in dict.fromkeys(line["family"] for line in models)]
    return {"families": families, "models": models, "figures": figures}


def family_title(family: str) -> str:
    """What the docstring of a family's package says before its colon.

    >>> family_title("replica")
    'Replica theory'
    """
    about = importlib.import_module(f"solvable.models.{family.replace('-', '_')}").__doc__ or family
    return about.partition(":")[0]


def _is_model(found: Any, base: type) -> bool:
    return isinstance(found, type) and issubclass(found, base) and found is not base and bool(getattr(found, "id", ""))


def _ordered(lines: list[dict[str, Any]], name: str, group: str, known: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """In the known order; what is new comes behind the last of its group (or last of all)."""
    order = {key: float(i) for i, (key, _) in enumerate(known)}
    last = {key: float(i) for i, (_, key) in enumerate(known)}
    return sorted(lines, key=lambda x: (order.get(x[name], last.get(x[group], len(known)) + 0.5), x[name]))


def table(models: list[dict[str, Any]]) -> str:
    """The README's table."""
    rows = [f"| `{m['id']}` | {m['sentence']} | {m['method']} | {m['kind']} |" for m in models]
    return "\n".join(["| model | what | solved by | what it has |", "|---|---|---|---|", *rows])


def with_table(readme: str, models: list[dict[str, Any]]) -> str:
    """The README with its table renewed."""
    pattern = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n{table(models)}\n{END}", readme)


def as_text(listing: dict[str, Any]) -> str:
    """The listing as it stands in the file: one line for each model and figure."""
    parts = [f'"{part}": [\n' + ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n]"
             for part, lines in listing.items()]  # fmt: skip
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    listing = collect()
    FILE.write_text(as_text(listing), encoding="utf-8")
    if README.exists():
        README.write_text(with_table(README.read_text(encoding="utf-8"), listing["models"]), encoding="utf-8")
    print(f"{FILE.name}: {len(listing['models'])} models, {len(listing['figures'])} figures")


if __name__ == "__main__":
    main()
