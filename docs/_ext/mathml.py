"""Mathematics as MathML, written into the page at build time: nothing is fetched and no script runs."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

from solvable.render.equations import mathml
from solvable.render.formulas import formula, inline_formula


def _visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _visit_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math-block">{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def formula_role(name: str, raw: str, text: str, *_: Any, **__: Any) -> tuple[list[nodes.Node], list[Any]]:
    """{formula}`x_ij ← √N` in a line: a formula as it stands in a docstring."""
    return [nodes.raw(raw, inline_formula(text), format="html")], []


class Formula(Directive):
    """Formulas as they stand in a docstring, each on a line of its own."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        lines = "".join(formula(line) for line in self.content if line.strip())
        return [nodes.raw("", f'<div class="equation">{lines}</div>', format="html")]


def setup(app: Any) -> dict[str, bool]:
    app.add_role("formula", formula_role)
    app.add_directive("formula", Formula)
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
