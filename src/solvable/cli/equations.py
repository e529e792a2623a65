"""The command `solvable equations`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..errors import InvalidValue
from .common import Json, Model, print_json, write_text


@dataclasses.dataclass
class Equations:
    """Print a model as a section of a paper: set-up, equations, and every symbol with its name and normalisation."""

    model: Positional[Model]
    latex: Annotated[bool, arg(help="As LaTeX, to be included in an article.")] = False
    markdown: Annotated[bool, arg(help="As Markdown with formulas between dollars (the default).")] = False
    article: Annotated[bool, arg(help="With --latex: a complete article.")] = False
    out: Annotated[Path | None, arg(metavar="FILE", help="Write to a file instead.")] = None
    json: Json = False


def run(command: Equations) -> int:
    if command.latex and command.markdown:
        raise InvalidValue("--latex and --markdown cannot be combined.")
    if command.article and not command.latex:
        raise InvalidValue("--article is a form of --latex: give both.")
    from ..registry import model_class
    from ..render.paper import latex_article, latex_section, markdown_section

    model = model_class(command.model)
    text = (latex_article if command.article else latex_section if command.latex else markdown_section)(model)
    if command.out is not None:
        write_text(command.out, text)
    if command.json:
        kind = "latex" if command.latex else "markdown"
        print_json({"model": model.id, kind: text, "file": str(command.out) if command.out else None})
    else:
        print(command.out if command.out is not None else text.rstrip("\n"))
    return 0
