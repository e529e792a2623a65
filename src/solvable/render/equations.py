"""Mathematics as MathML for the documentation and the page, without downloads or scripts."""

from __future__ import annotations

import re
import xml.etree.ElementTree as tree
from typing import Any

from latex2mathml.converter import convert

from .formulas import FUNCTIONS

# The converter's names of LaTeX environments.
_ENVIRONMENTS = {"aligned": "align*", "gathered": "gather*"}


def mathml(latex: str, display: str = "inline") -> str:
    """A formula as a MathML element.

    >>> "<mi>α</mi>" in mathml(r"\\alpha = n/d")
    True
    >>> mathml(r"p\\log q").count("<mspace")
    2
    """
    for ours, theirs in _ENVIRONMENTS.items():
        latex = latex.replace(f"{{{ours}}}", f"{{{theirs}}}")
    text = convert(latex.strip(), display=display)
    for pattern, better in _BETTER:
        text = re.sub(pattern, better, text)
    return _spaced(re.sub(r"&#x0*([0-9A-F]+);", lambda m: _readable(int(m[1], 16)), text))


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


def _spaced(text: str) -> str:
    """With a thin space between a name of a function and its neighbours, where TeX sets one."""
    if not any(f">{name}<" in text for name in FUNCTIONS):
        return text
    namespace = ' xmlns="http://www.w3.org/1998/Math/MathML"'
    root = tree.fromstring(text.replace(namespace, "", 1))
    for row in list(root.iter()):
        if row.tag not in _ROWS:
            continue
        parts = list(row)
        for at in range(len(parts) - 1, 0, -1):
            before, after = parts[at - 1 : at + 1]
            ends, begins = _is_quantity(before, last=True), _is_quantity(after)
            if (_is_function(before) and (begins or _is_function(after))) or (ends and _is_function(after)):
                row.insert(at, tree.Element("mspace", width="0.167em"))
    return tree.tostring(root, encoding="unicode").replace("<math", f"<math{namespace}", 1)


_ROWS = ("math", "mrow", "mtd", "msqrt", "mstyle")
_SCRIPTED = ("msub", "msup", "msubsup", "munder", "mover", "munderover")


def _core(part: tree.Element) -> tree.Element:
    """A part without its scripts and without braces around it alone."""
    while part.tag in _SCRIPTED or (part.tag == "mrow" and len(part) == 1):
        part = part[0]
    return part


def _is_function(part: tree.Element) -> bool:
    core = _core(part)
    return core.tag == "mi" and (core.text or "") in FUNCTIONS


def _is_quantity(part: tree.Element, last: bool = False) -> bool:
    """Whether a part next to a function needs a space: no sign, which brings its own, and no bracket that opens."""
    core = _core(part)
    if core.tag == "mrow" and len(core):
        core = _core(core[-1 if last else 0])
    if core.tag == "mo":
        return (core.text or "") in (*"|‖∂∇∞", *(")]}⟩" if last else ""))
    return core.tag != "mspace" and not _is_function(part)


def _readable(code: int) -> str:
    return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(chr(code), chr(code))
