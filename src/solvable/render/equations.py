"""Mathematics as MathML for the documentation and the page, without downloads or scripts."""

from __future__ import annotations

import re
from typing import Any

from latex2mathml.converter import convert

# The converter's names of LaTeX environments.
_ENVIRONMENTS = {"aligned": "align*", "gathered": "gather*"}


def mathml(latex: str, display: str = "inline") -> str:
    """A formula as a MathML element.

    >>> "<mi>α</mi>" in mathml(r"\\alpha = n/d")
    True
    """
    for ours, theirs in _ENVIRONMENTS.items():
        latex = latex.replace(f"{{{ours}}}", f"{{{theirs}}}")
    text = convert(latex.strip(), display=display)
    for pattern, better in _BETTER:
        text = re.sub(pattern, better, text)
    return re.sub(r"&#x0*([0-9A-F]+);", lambda m: _readable(int(m[1], 16)), text)


def _word(match: re.Match[str]) -> str:
    return f"<mi>{''.join(re.findall('>([A-Za-z])<', match[0]))}</mi>"


# Corrections of the converter's output (letters to be set upright appear as entities).
_BETTER: tuple[tuple[str, Any], ...] = (
    (r'(?:<mi mathvariant="normal">[A-Za-z]</mi>){2,}', _word),  # one identifier, not a product of letters
    (r"<mi>(&#x000[4-7][0-9A-F];)</mi>", r'<mi mathvariant="normal">\1</mi>'),
    (r"<mi>(&#x003(?:9[1-9A-F]|A[0-9]);)</mi>", r'<mi mathvariant="normal">\1</mi>'),  # Greek capitals
    (r"<mi>(&#x0(?:2032|27E[89]);)</mi>", r"<mo>\1</mo>"),  # primes and angle brackets
    (
        r'<msub>(<mo movablelimits="true">\w+</mo>|<mo>(?:max|min)</mo>)(<mi>[^<]*</mi>)</msub>',
        r"<munder>\1\2</munder>",
    ),
    (r'<mtd columnalign="(\w+)">', r'<mtd class="\1">'),  # browsers align by style
)


def _readable(code: int) -> str:
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(chr(code), chr(code))
