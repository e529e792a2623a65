"""Notebooks without a notebook server: read and write them as scripts, run them in this process, write them with outputs.

A script has the *percent* format, which Jupytext, VS Code and Spyder read: `# %% [markdown]` begins a cell of text, `# %%` one
of code. `write_ipynb` writes the format of Jupyter (nbformat 4.5), which is JSON; neither Jupyter nor IPython is needed.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..errors import SolvableError


class Output(NamedTuple):
    """What a cell printed (`text`), the value of its last line (`value`), or a picture (`png`, in base64)."""

    kind: Literal["text", "value", "png"]
    content: str


class Cell(NamedTuple):
    """A cell of a notebook: its source without a newline at the end, its tags, and its outputs once it has run."""

    kind: Literal["markdown", "code"]
    source: str
    tags: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()


def text(source: str) -> Cell:
    """A cell of Markdown."""
    return Cell("markdown", source.strip("\n"))


def code(source: str, *tags: str) -> Cell:
    """A cell of Python."""
    return Cell("code", source.strip("\n"), tags)


# --- scripts ------------------------------------------------------------------------------------------------------------


_HEAD = re.compile(r"^# %%(?P<markdown> \[markdown\])?(?: tags=(?P<tags>\[.*\]))?\s*$")


def to_script(cells: Iterable[Cell]) -> str:
    """The percent format; `from_script` reads it back.

    >>> print(to_script([text("# Title"), code("1 + 1", "solution")]), end="")
    # %% [markdown]
    # # Title
    <BLANKLINE>
    # %% tags=["solution"]
    1 + 1
    """
    parts = []
    for cell in cells:
        head = "# %%" + (" [markdown]" if cell.kind == "markdown" else "")
        head += f" tags={json.dumps(list(cell.tags))}" if cell.tags else ""
        body = cell.source
        if cell.kind == "markdown":
            body = "\n".join(f"# {line}".rstrip() for line in cell.source.split("\n"))
        parts.append(f"{head}\n{body}\n")
    return "\n".join(parts)


def from_script(script: str) -> list[Cell]:
    """The cells of a script in the percent format; what stands before the first cell is left out."""
    cells: list[Cell] = []
    lines: list[str] = []
    for line in [*script.splitlines(), "# %%"]:
        found = _HEAD.match(line)
        if found is None:
            lines.append(line)
            continue
        if cells:
            cells[-1] = cells[-1]._replace(source=_body(cells[-1].kind, lines))
        tags = tuple(json.loads(found["tags"])) if found["tags"] else ()
        cells.append(Cell("markdown" if found["markdown"] else "code", "", tags))
        lines = []
    return cells[:-1]


def _body(kind: str, lines: list[str]) -> str:
    if kind == "markdown":
        lines = [re.sub(r"^# ?", "", line) for line in lines]
    return "\n".join(lines).strip("\n")


# --- running --------------------------------------------------------------------------------------------------------------


def run(cells: Sequence[Cell], *, done: Callable[[int, int], None] | None = None, dpi: int = 90) -> list[Cell]:
    """Run the cells from top to bottom in one new namespace, and return them with their outputs.

    `done(n, of)` is called after every cell of code. A cell that raises an error ends the run with a `SolvableError`.

    >>> [o.content for o in run([code("x = 2\\nprint(x)\\nx + 1")])[0].outputs]
    ['2\\n', '3']
    """
    import matplotlib

    matplotlib.use("agg")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    total, number, ran = sum(cell.kind == "code" for cell in cells), 0, []
    for cell in cells:
        if cell.kind == "code":
            number += 1
            try:
                cell = cell._replace(outputs=tuple(_run_cell(cell.source, namespace, dpi)))
            except Exception as problem:
                first = cell.source.splitlines()[0]
                raise SolvableError(
                    f"cell {number} ({first!r}) failed: {type(problem).__name__}: {problem}"
                ) from problem
            if done is not None:
                done(number, total)
        ran.append(cell)
    return ran


def _run_cell(source: str, namespace: dict[str, Any], dpi: int) -> list[Output]:
    import matplotlib.pyplot as plt

    tree, last = ast.parse(source), None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
    printed, value = io.StringIO(), None
    plt.close("all")
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), namespace)
        if last is not None:
            value = eval(compile(last, "<cell>", "eval"), namespace)
    outputs = [Output("text", printed.getvalue())] if printed.getvalue() else []
    if value is not None and not hasattr(value, "savefig"):
        outputs.append(Output("value", repr(value)))
    for figure in map(plt.figure, plt.get_fignums()):
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=dpi, metadata={"Software": None})
        outputs.append(Output("png", base64.b64encode(picture.getvalue()).decode()))
    plt.close("all")
    return outputs


# --- writing --------------------------------------------------------------------------------------------------------------


def to_ipynb(cells: Iterable[Cell]) -> str:
    """The notebook as JSON in the format of Jupyter, with the outputs that the cells have.

    >>> json.loads(to_ipynb([text("# Title")]))["cells"][0]["source"]
    ['# Title']
    """
    written, number = [], 0
    for k, cell in enumerate(cells, start=1):
        made: dict[str, Any] = {"cell_type": cell.kind, "id": f"cell-{k:02d}", "metadata": {}}
        made["source"] = cell.source.splitlines(keepends=True)
        if cell.tags:
            made["metadata"]["tags"] = list(cell.tags)
        if cell.kind == "code":
            number += 1
            made["outputs"] = [_ipynb_output(output, number) for output in cell.outputs]
            made["execution_count"] = number if cell.outputs else None
        written.append(made)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    whole = {"cells": written, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def _ipynb_output(output: Output, number: int) -> dict[str, Any]:
    lines = output.content.splitlines(keepends=True)
    if output.kind == "text":
        return {"output_type": "stream", "name": "stdout", "text": lines}
    if output.kind == "value":
        data = {"text/plain": lines}
        return {"output_type": "execute_result", "execution_count": number, "data": data, "metadata": {}}
    return {
        "output_type": "display_data",
        "data": {"image/png": output.content, "text/plain": ["<Figure>"]},
        "metadata": {},
    }


def to_markdown(cells: Iterable[Cell], pictures: Path, address: str) -> str:
    """The notebook as a page of Markdown; its pictures are written as `pictures-N.png` and found at `address-N.png`.

    Cells tagged `solution` are folded, with the cells of text that follow them up to the next heading.
    """
    parts, number, folded = [], 0, False
    for cell in cells:
        if folded and "solution" not in cell.tags:
            parts.append("</details>")
            folded = False
        if "solution" in cell.tags and not folded:
            parts.append("<details><summary>Solution</summary>")
            folded = True
        if cell.kind == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            if output.kind == "png":
                number += 1
                Path(f"{pictures}-{number}.png").write_bytes(base64.b64decode(output.content))
                parts.append(f"![The figure that this cell draws]({address}-{number}.png)")
            else:
                parts.append(f"```text\n{output.content.rstrip()}\n```")
    return "\n\n".join([*parts, *(["</details>"] if folded else [])]) + "\n"
