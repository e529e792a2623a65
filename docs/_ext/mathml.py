"""Mathematics as MathML, written into the page at build time: nothing is fetched and no script runs."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert

# The converter knows LaTeX's environments under these names.
_ENVIRONMENTS = {"aligned": "align*", "gathered": "gather*"}


def mathml(latex: str, display: str = "inline") -> str:
    """A formula as a MathML element.

    >>> "<mi>α</mi>" in mathml(r"\\alpha = n/d")
    True
    """
    for ours, theirs in _ENVIRONMENTS.items():
        latex = latex.replace(f"{{{ours}}}", f"{{{theirs}}}")
    text = convert(latex.strip(), display=display)
    # An upright word is one identifier, not a product of letters; browsers set a longer <mi> upright by themselves.
    text = re.sub(r'(?:<mi mathvariant="normal">([A-Za-z])</mi>){2,}', _joined, text)
    return re.sub(r"&#x0*([0-9A-F]+);", lambda m: _readable(int(m[1], 16)), text)


def _joined(match: re.Match[str]) -> str:
    return f"<mi>{''.join(re.findall('>([A-Za-z])<', match[0]))}</mi>"


def _readable(code: int) -> str:
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(chr(code), chr(code))


def _visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def _visit_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math-block">{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
