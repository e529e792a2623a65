"""The command `solvable new`."""

from __future__ import annotations

import dataclasses
import re
from importlib import resources
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..errors import InvalidValue, SolvableError
from .common import Json, print_json, say

SKELETON = {"model": "model.py", "figures": "figures.py"}


@dataclasses.dataclass
class New:
    """Write a working skeleton of a model: model, figure, test, reference values.

    Inside a checkout of solvable the files go to the folders of models, tests and reference values. Anywhere else a new
    package is written, which registers the model once it is installed."""

    model: Positional[Annotated[str, arg(metavar="MODEL", help="The model's id: lower-case words joined by hyphens.")]]
    family: Annotated[str, arg(metavar="FAMILY", help="The model's family: an existing or new folder of models.")] = (
        "own"
    )
    json: Json = False


def run(command: New) -> int:
    from ..registry import listings

    name, family = command.model, command.family
    for field, value in (("MODEL", name), ("FAMILY", family)):
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", value):
            raise InvalidValue(
                f"{field} = {value!r} does not consist of lower-case words and digits joined by hyphens."
            )
    if name in listings():
        raise InvalidValue(f"MODEL = {name!r} is the id of an existing model: choose another.")
    files = written_for(name, family, Path.cwd())
    for file in files:
        if file.exists():
            raise SolvableError(f"{str(file)!r} already exists; nothing was written.")
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    shown = [str(file.relative_to(Path.cwd())) for file in files]
    if command.json:
        print_json({"model": name, "files": shown})
    else:
        print("\n".join(shown))
        say(_next(name, in_checkout(Path.cwd())))
    return 0


def in_checkout(folder: Path) -> bool:
    """Whether a folder is the root of solvable's sources."""
    return (folder / "src" / "solvable" / "models" / "listing.json").is_file()


def written_for(name: str, family: str, root: Path) -> dict[Path, str]:
    """Every file of a new model and its content."""
    module = name.replace("-", "_")
    words = {"ID": name, "CLASS": "".join(w.capitalize() for w in name.split("-")), "FAMILY": family,
             "TITLE": name.replace("-", " ").capitalize(), "PACKAGE": module}  # fmt: skip
    if in_checkout(root):
        home, package = root / "src" / "solvable" / "models" / family.replace("-", "_"), None
        folder = home / module
        words["MODULE"] = f"solvable.models.{home.name}.{module}.model"
        where = {"test": root / "tests" / "models" / f"test_{module}.py",
                 "reference": root / "tests" / "reference" / f"{name}.json"}  # fmt: skip
    else:
        home, package = root / name, root / name / "pyproject.toml"
        folder = home / "src" / module
        words["MODULE"] = f"{module}.model"
        where = {"test": home / "tests" / f"test_{module}.py", "reference": home / "reference.json"}
    where |= {part: folder / file for part, file in SKELETON.items()}
    files = {file: _filled(part, words) for part, file in where.items()}
    files[folder / "__init__.py"] = (
        f'"""{words["TITLE"]}."""\n\nfrom .model import {words["CLASS"]} as {words["CLASS"]}\n'
    )
    if package is None:
        if not (home / "__init__.py").exists():
            files[home / "__init__.py"] = (
                f'"""{family.replace("-", " ").capitalize()}: what its models have in common."""\n'
            )
    else:
        files[package] = _filled("pyproject", words)
    return dict(sorted(files.items()))


def _filled(part: str, words: dict[str, str]) -> str:
    text = (resources.files("solvable.cli") / "skeleton" / f"{part}.txt").read_text(encoding="utf-8")
    return re.sub("|".join(rf"\b{w}\b" for w in words), lambda found: words[found[0]], text)


def _next(name: str, checkout: bool) -> str:
    if checkout:
        return f"Next: write the model, then run `make listing` (for `solvable list`) and `solvable check {name}`."
    return (
        f"Next: `pip install -e {name}` to list the model, then `solvable check {name} --values {name}/reference.json`."
    )
