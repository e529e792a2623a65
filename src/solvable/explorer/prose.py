"""Prose of models as safe HTML: paragraphs, lists, code, and all mathematics as MathML. Imports nothing heavy."""

from __future__ import annotations

import html
import re

from ..render.blocks import blocks, is_displayed, is_example, items
from ..render.equations import mathml
from ..render.formulas import displayed_formula, inline_formula, with_formulas


def prose(doc: str) -> str:
    """A docstring as HTML: paragraphs, lists, bold, emphasis, code, displayed equations. All text is escaped.

    >>> prose("**Data.** A & B, *sign* and `y`.")
    '<p><strong>Data.</strong> A &amp; <span class="whole"><math><mi>B</mi></math>,</span> <em>sign</em> and <code>y</code>.</p>'
    """
    return "\n".join(_block(lines) for lines in blocks(doc))


def _block(lines: list[str]) -> str:
    if is_example(lines):
        return f"<pre><code>{html.escape(chr(10).join(lines))}</code></pre>"
    if is_displayed(lines):
        return '<div class="equation">' + "".join(displayed_formula(line) for line in lines if line.strip()) + "</div>"
    if listed := items(lines):
        return "<ul>" + "".join(f"<li>{line(item)}</li>" for item in listed) + "</ul>"
    return f"<p>{line(' '.join(line.strip() for line in lines))}</p>"


def line(text: str) -> str:
    """One line of prose: bold, emphasis, code, names of fields, formulas. All text is escaped.

    >>> line("losses, *sign* of `y` and test_error")
    'losses, <em>sign</em> of <code>y</code> and <code>test_error</code>'
    >>> "<msup>" in line("of order K^{-1/2}")
    True
    """
    return _UNBROKEN.sub(_together, _line(text))


def _line(text: str) -> str:
    return with_formulas(text, inline_formula, _words, _marked)


# A formula with the brackets and marks beside it: a line does not begin with a full stop.
_UNBROKEN = re.compile(r"([(\[]*)(<math>(?:(?!</math>).)*</math>)([.,;:!?)\]]*)")


def _together(found: re.Match[str]) -> str:
    return f'<span class="whole">{found[0]}</span>' if found[1] or found[3] else found[0]


def sentence(text: str) -> str:
    """A meaning as a sentence: with a capital letter and a full stop.

    >>> sentence("samples per dimension")
    'Samples per dimension.'
    """
    text = text[:1].upper() + text[1:] if re.match(r"[a-z]{2,}(?![\w^])", text) else text
    return line(text if text.endswith((".", "?", "!")) else f"{text}.")


def _words(part: str) -> str:
    """Words without formulas; names of fields are set as code."""
    names = re.split(r"\b([a-z]+(?:_[a-z]+)+)\b", part)
    return "".join(f"<code>{html.escape(n)}</code>" if k % 2 else _emphasised(n) for k, n in enumerate(names))


def _emphasised(part: str) -> str:
    safe = html.escape(part, quote=False)
    safe = re.sub(r"\*\*(\S(?:[^*]*\S)?)\*\*", r"<strong>\1</strong>", safe)
    return re.sub(r"(?<![\w*])\*(\S(?:[^*]*\S)?)\*(?![\w*])", r"<em>\1</em>", safe)


def _marked(part: str) -> str:
    """Code, LaTeX, bold or emphasis, with its marks."""
    if len(part) > 2 and part[0] == part[-1] == "`":
        # A dotted name is broken before a dot rather than within a word.
        return f"<code>{re.sub(r'(?<=[a-z_])[.](?=[a-z_])', '<wbr>.', html.escape(part[1:-1]))}</code>"
    if len(part) > 2 and part[0] == part[-1] == "$":
        return mathml(part[1:-1])
    for mark, tag in (("**", "strong"), ("*", "em")):
        if len(part) > 2 * len(mark) and part.startswith(mark) and part.endswith(mark):
            return f"<{tag}>{_line(part[len(mark) : -len(mark)])}</{tag}>"
    return html.escape(part, quote=False)
