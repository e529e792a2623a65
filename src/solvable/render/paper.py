"""A model as a section of a paper, in LaTeX or Markdown: set-up and equations, symbols with their names and normalisation.

Everything comes from what the model declares: its docstrings, fields, observables and references.
"""

from __future__ import annotations

import inspect
import re
from fractions import Fraction
from typing import Any

from .blocks import blocks, is_displayed, is_example, items
from .latex import displayed_lines, formula_latex, plain_latex, prose_latex

PACKAGES = ("amsmath", "amssymb", "longtable")
"""The packages of LaTeX that a section needs; all of them are part of a basic installation."""


def latex_section(model: type[Any]) -> str:
    r"""A section to be included in an article that uses the `PACKAGES`.

    >>> import solvable as sv
    >>> latex_section(sv.Perceptron).splitlines()[1]
    '\\section{Teacher--student perceptron}'
    """
    about = _about(model)
    parts = [
        f"% {model.id}, revision {model.revision}; packages: {', '.join(PACKAGES)}\n"
        rf"\section{{{plain_latex(about['title'])}}}",
        prose_latex(model.sentence),
        r"\subsection{Set-up and theory}",
        *_latex_blocks(about["about"]),
        *(part for name, doc in documented(model).items() for part in _latex_function(name, doc)),
        r"\subsection{Symbols, names and normalisation}",
        _latex_table(["symbol", "name", "meaning and normalisation", "values"], _field_rows(about, "latex")),
        _latex_table(["symbol", "name", "what is measured", "size"], _observable_rows(about, "latex")),
        _latex_references(model),
    ]  # fmt: skip
    return "\n\n".join(p for p in parts if p) + "\n"


def latex_article(model: type[Any]) -> str:
    """A complete article with this one section."""
    packages = "\n".join(rf"\usepackage{{{p}}}" for p in PACKAGES)
    head = "\\documentclass{article}\n\\usepackage[utf8]{inputenc}\n"
    return f"{head}{packages}\n\\begin{{document}}\n\n{latex_section(model)}\n\\end{{document}}\n"


def markdown_section(model: type[Any], level: int = 1) -> str:
    """The same as Markdown with formulas between dollars, as Jupyter, GitHub, Pandoc and MyST read them.

    >>> import solvable as sv
    >>> "$\\\\hat{w} = \\\\operatorname{argmin}_{w}" in markdown_section(sv.Perceptron)
    True
    """
    about, mark = _about(model), "#" * level
    parts = [
        f"{mark} {about['title']}",
        markdown_line(model.sentence),
        f"{mark}# Set-up and theory",
        _setup_markdown(model),
        f"{mark}# Symbols, names and normalisation",
        _markdown_table(["symbol", "name", "meaning and normalisation", "values"], _field_rows(about, "markdown")),
        _markdown_table(["symbol", "name", "what is measured", "size"], _observable_rows(about, "markdown")),
        *([f"{mark}# References", references_markdown(model)] if model.references else []),
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def about_markdown(model: type[Any]) -> str:
    """The docstring of a model as Markdown."""
    return "\n\n".join(_markdown_blocks(_about(model)["about"]))


def _setup_markdown(model: type[Any]) -> str:
    parts = [about_markdown(model)]
    for name, doc in documented(model).items():
        parts += [f"*`{name}`:*", *_markdown_blocks(doc)]
    return "\n\n".join(parts)


def references_markdown(model: type[Any]) -> str:
    """The papers of a model as a list."""
    return "\n".join(f"- {reference}" for reference in model.references)


def documented(model: type[Any]) -> dict[str, str]:
    """The docstrings with mathematics of the functions that a class defines itself, except the simulation's.

    Those of private functions need an equation: the others are notes on the code.
    """
    own = {
        name: f for name, f in vars(model).items() if callable(f) and not name.startswith("__") and name != "experiment"
    }
    docs = {name: inspect.cleandoc(getattr(f, "__doc__", None) or "") for name, f in own.items()}
    return {name: doc for name, doc in docs.items() if _has_mathematics(doc, equation=name.startswith("_"))}


def _has_mathematics(doc: str, equation: bool) -> bool:
    shown = "\n\n".join(_markdown_blocks("\n\n".join("\n".join(b) for b in blocks(doc) if not is_example(b))))
    formulas = re.findall(r"\$+([^$]+)\$+", shown)
    return any("=" in f for f in formulas) if equation else bool(formulas)


def markdown_line(text: str) -> str:
    """One paragraph of a docstring as Markdown with formulas between dollars; marks of the docstring are kept.

    >>> markdown_line("the *sum* of ℓ(y_μ) and `x`")
    'the *sum* of $\\\\ell ( y_{\\\\mu} )$ and `x`'
    """
    from .formulas import with_formulas

    return with_formulas(text, lambda f: f"${formula_latex(f)}$")


def _about(model: type[Any]) -> dict[str, Any]:
    from ..contract.describe import describe

    return describe(model)


# --- blocks of docstrings -----------------------------------------------------------------------------------------------


def _latex_blocks(doc: str) -> list[str]:
    out = []
    for lines in blocks(doc):
        if is_example(lines):
            continue
        if is_displayed(lines):
            shown = [each for line in lines if line.strip() for each in displayed_lines(line)]
            out.append("\\begin{gather*}\n" + " \\\\\n".join(shown) + "\n\\end{gather*}")
        elif listed := items(lines):
            out.append(
                "\\begin{itemize}\n" + "\n".join(rf"\item {prose_latex(i)}" for i in listed) + "\n\\end{itemize}"
            )
        else:
            out.append(prose_latex(" ".join(line.strip() for line in lines)))
    return out


def _latex_function(name: str, doc: str) -> list[str]:
    first, *rest = _latex_blocks(doc) or [""]
    return [rf"\paragraph{{\texttt{{{plain_latex(name)}}}}} {first}", *rest]


def _markdown_blocks(doc: str) -> list[str]:
    out = []
    for lines in blocks(doc):
        if is_example(lines):
            out.append("```pycon\n" + inspect.cleandoc("\n".join(lines)) + "\n```")
        elif is_displayed(lines):
            shown = [each for line in lines if line.strip() for each in displayed_lines(line)]
            out.append("$$\n\\begin{gathered}\n" + " \\\\\n".join(shown) + "\n\\end{gathered}\n$$")
        elif listed := items(lines):
            out.append("\n".join(f"- {markdown_line(i)}" for i in listed))
        else:
            out.append(markdown_line(" ".join(line.strip() for line in lines)))
    return out


# --- tables -------------------------------------------------------------------------------------------------------------


def _field_rows(about: dict[str, Any], to: str) -> list[list[str]]:
    code, line, math = _writers(to)
    rows = []
    for f in about["fields"]:
        meaning = line(f["meaning"]) + (line("; at size d a whole number, this many times d") if f["counts"] else "")
        values = ", ".join(code(o) for o in f["options"]) if f["options"] else _interval(f, to)
        rows.append([math(f["symbol"]), code(f["name"]), meaning, f"{values}; {f['kind']}, default {_default(f, to)}"])
    return rows


def _default(field: dict[str, Any], to: str) -> str:
    code, *_ = _writers(to)
    return (
        code(field["default"])
        if field["options"]
        else plain_latex(field["default"])
        if to == "latex"
        else field["default"]
    )


def _interval(field: dict[str, Any], to: str) -> str:
    text = field["range"]
    return plain_latex(text) if to == "latex" else text.replace("|", r"\|")


def _observable_rows(about: dict[str, Any], to: str) -> list[list[str]]:
    code, line, math = _writers(to)
    rows = []
    for o in about["observables"]:
        compared = o["predicted"] and o["simulated"]
        power = Fraction(o["power"]).limit_denominator(12)
        correction = {"exact": "exact at every size", "measured": "measured, not predicted"}.get(o["status"], "")
        if not correction:
            correction = f"limit; corrections {math(f'd^{{-{power}}}')}" if compared else "limit of large size"
        where = f" (for {code(o['when'])})" if o["when"] else ""
        dims = f"; along {', '.join(o['dims'])}".replace("_", " ") if o["dims"] else ""
        rows.append([math(o["symbol"]), code(o["name"]), line(o["meaning"]) + where, correction + dims])
    return rows


def _writers(to: str) -> tuple[Any, Any, Any]:
    """How code, prose and symbols are written."""
    if to == "latex":
        return (lambda t: rf"\texttt{{{plain_latex(str(t))}}}"), prose_latex, (lambda t: f"${t}$" if t else "")
    return (lambda t: f"`{t}`"), (lambda t: _cell(markdown_line(t))), (lambda t: _cell(f"${t}$") if t else "")


def _cell(written: str) -> str:
    """Text in a cell of a Markdown table, where a bar would end the cell, even in a formula."""
    inside = re.sub(r"\$[^$]*\$", lambda formula: formula[0].replace("|", r"\vert "), written)
    return inside.replace("|", r"\|").replace("\n", " ")


def _latex_table(heads: list[str], rows: list[list[str]]) -> str:
    body = " \\\\\n".join(" & ".join(row) for row in rows)
    head = " & ".join(rf"\textit{{{h}}}" for h in heads)
    top = f"\\begin{{longtable}}{{llp{{5.4cm}}p{{2.8cm}}}}\n\\hline\n{head} \\\\\n\\hline\n\\endhead"
    return f"{top}\n{body} \\\\\n\\hline\n\\end{{longtable}}"


def _markdown_table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _latex_references(model: type[Any]) -> str:
    if not model.references:
        return ""
    listed = "\n".join(rf"\item {plain_latex(str(reference))}" for reference in model.references)
    return f"\\subsection{{References}}\n\n\\begin{{itemize}}\n{listed}\n\\end{{itemize}}"
