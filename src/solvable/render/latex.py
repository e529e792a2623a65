"""Convert the plain-text formulas and the prose of docstrings to LaTeX.

The grammar of formulas is that of `formulas`: its MathML is translated element by element, so that page and paper show the
same mathematics. The result needs the packages amsmath and amssymb.
"""

from __future__ import annotations

import re
import unicodedata
from xml.etree import ElementTree

from ..errors import SolvableError
from .formulas import ABOVE, BELOW, _pieces, formula, with_formulas

_GREEK = """α alpha β beta γ gamma δ delta ε varepsilon ϵ epsilon ζ zeta η eta θ theta ϑ vartheta ι iota κ kappa λ lambda μ mu
ν nu ξ xi π pi ρ rho ϱ varrho σ sigma ς varsigma τ tau υ upsilon φ varphi ϕ phi χ chi ψ psi ω omega Γ Gamma Δ Delta Θ Theta
Λ Lambda Ξ Xi Π Pi Σ Sigma Υ Upsilon Φ Phi Ψ Psi Ω Omega ℓ ell ∂ partial ∇ nabla ∞ infty ∑ sum ∏ prod ∫ int √ surd
· cdot × times ⊗ otimes ⊙ odot ∘ circ ± pm ∓ mp ≤ le ≥ ge ≪ ll ≫ gg ≈ approx ≃ simeq ≠ ne ≡ equiv ∼ sim ~ sim ∝ propto
∈ in ∉ notin ⊂ subset ⊆ subseteq ∩ cap ∪ cup ∀ forall ∃ exists → to ← leftarrow ↦ mapsto ↔ leftrightarrow ⇒ Rightarrow
⇔ Leftrightarrow ⟨ langle ⟩ rangle ⌊ lfloor ⌋ rfloor ⌈ lceil ⌉ rceil … dots ⋯ cdots ′ prime ⊥ perp ∥ parallel ‖ Vert † dagger
⊤ top ∧ wedge ∨ vee ⋆ star ∗ ast ∅ emptyset ≳ gtrsim ≲ lesssim ↑ uparrow ↓ downarrow ⟶ longrightarrow ∖ setminus ≅ cong"""
COMMANDS = dict(zip(_GREEK.split()[::2], _GREEK.split()[1::2], strict=True))
_LATIN_LOOKALIKES = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))
_ESCAPED = {
    "{": r"\{",
    "}": r"\}",
    "#": r"\#",
    "%": r"\%",
    "&": r"\&",
    "$": r"\$",
    "_": r"\_",
    "−": "-",
    "–": "-",
    "\\": r"\backslash ",
}
SCRIPTS = {c: f"^{{{s}}}" for c, s in ABOVE.items()} | {c: f"_{{{s}}}" for c, s in BELOW.items()}
SCRIPTS = {c: s.replace("−", "-") for c, s in SCRIPTS.items()} | {"″": r"^{\prime\prime}"}
_ACCENTS = {"^": "hat", "~": "tilde", "¯": "bar", "˙": "dot", "¨": "ddot", "→": "vec"}
_KNOWN = "arccos arcsin arctan cos cosh det dim exp inf ln log max min sin sinh sup tan tanh"
_ALPHABETS = {"SCRIPT CAPITAL": "mathcal", "DOUBLE-STRUCK CAPITAL": "mathbb", "BOLD CAPITAL": "mathbf"}


def formula_latex(text: str) -> str:
    """One line of a docstring's mathematics as LaTeX, without dollars.

    >>> formula_latex("V̂/√N ≤ Σ_μ ℓ(y_μ) + λ|w|²/2")
    '\\\\hat{V} / \\\\sqrt{N} \\\\le \\\\sum_{\\\\mu} \\\\ell ( y_{\\\\mu} ) + \\\\lambda | w|^{2} / 2'
    """
    root = ElementTree.fromstring(formula(text, "inline"))
    return re.sub(r"\s+", " ", "".join(_element(child) for child in root)).strip()


def displayed_lines(text: str, wide: int = 72) -> list[str]:
    """A displayed line as lines of LaTeX that fit a column: cut at wide gaps, then before relations and signs."""
    out = []
    for part in re.split(r"\s{2,}", text.strip()) if len(text) > wide else [text.strip()]:
        lines, current = [], ""
        for piece in _pieces(part) if len(part) > wide else [part]:
            if current and len(current) + len(piece) > wide:
                lines.append(current)
                current = piece
            else:
                current = f"{current} {piece}".strip()
        lines.append(current)
        out += [("\\quad {}" if k else "") + formula_latex(line) for k, line in enumerate(lines) if line]
    return out


def prose_latex(text: str) -> str:
    """One paragraph of a docstring as LaTeX: formulas between dollars, code, bold, emphasis; everything else escaped.

    >>> prose_latex("**Data.** 50 % of x_i, the `test_error`")
    '\\\\textbf{Data.} 50 \\\\% of $x_{i}$, the \\\\texttt{test\\\\_error}'
    """
    return with_formulas(text, lambda f: f"${formula_latex(f)}$", _words, _marked)


def plain_latex(text: str) -> str:
    """Words without formulas: special characters escaped, symbols between dollars.

    >>> plain_latex("R&D of α_s")
    'R\\\\&D of $\\\\alpha$\\\\_s'
    """
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "{": r"\{", "}": r"\}"}
    special |= {c: f"\\{c}" for c in "#%&$_"} | {"<": "$<$", ">": "$>$", "|": "$|$", "−": "$-$", "\u2009": r"\,"}
    typographic = {
        "–": "--",
        "—": "---",
        "’": "'",
        "‘": "`",
        "“": "``",
        "”": "''",
        "…": r"\dots{}",
        "\u00a0": "~",
        "·": "$\\cdot $",
    }
    out = []
    for char in unicodedata.normalize("NFC", text):
        if char in special:
            out.append(special[char])
        elif char in typographic:
            out.append(typographic[char])
        elif char.isascii() or (char.isalpha() and char <= "ſ"):  # Latin letters with accents, which LaTeX knows
            out.append(char)
        else:
            out.append(f"${formula_latex(char)}$")
    return "".join(out)


def _words(part: str) -> str:
    names = re.split(r"\b([a-z]+(?:_[a-z]+)+)\b", part)
    return "".join(_code(n) if k % 2 else plain_latex(n) for k, n in enumerate(names))


def _code(text: str) -> str:
    return rf"\texttt{{{plain_latex(text)}}}"


def _marked(part: str) -> str:
    if len(part) > 2 and part[0] == part[-1] == "`":
        return _code(part[1:-1])
    if len(part) > 2 and part[0] == part[-1] == "$":
        return part
    for mark, command in (("**", "textbf"), ("*", "emph")):
        if len(part) > 2 * len(mark) and part.startswith(mark) and part.endswith(mark):
            return rf"\{command}{{{prose_latex(part[len(mark) : -len(mark)])}}}"
    return plain_latex(part)


def _element(node: ElementTree.Element) -> str:
    """One element of MathML, followed by a space where a command would otherwise run into a letter."""
    kind, inside = node.tag, list(node)
    if kind in ("mi", "mn", "mo"):
        return _token(node.text or "", kind)
    if kind == "mtext":
        return rf"\text{{{plain_latex(node.text or '')}}} "
    if kind == "mspace":
        return {"2em": r"\qquad ", "0.3em": r"\, "}.get(node.get("width", ""), " ")
    if kind == "msqrt":
        return rf"\sqrt{{{_all(inside)}}} "
    if kind == "mover" and node.get("accent"):
        mark = _ACCENTS[inside[1].text or "^"]
        return rf"\{mark}{{{_all(inside[:1])}}} "
    if kind in ("msub", "munder"):
        return f"{_base(inside[0])}_{{{_all(inside[1:])}}} "
    if kind in ("msup", "mover"):
        return f"{_base(inside[0])}^{{{_all(inside[1:])}}} "
    if kind in ("msubsup", "munderover"):
        return f"{_base(inside[0])}_{{{_all(inside[1:2])}}}^{{{_all(inside[2:])}}} "
    if kind == "mrow":
        return _all(inside, " ")
    raise SolvableError(f"the element {kind!r} of a formula has no LaTeX form.")


def _all(nodes: list[ElementTree.Element], end: str = "") -> str:
    return re.sub(r"\s+", " ", "".join(_element(n) for n in nodes)).strip() + end if nodes else ""


def _base(node: ElementTree.Element) -> str:
    """What carries a script; a row in brackets is a group, and nothing at all is an empty one."""
    text = _all([node])
    return f"{{{text}}}" if "^" in text or "_" in text or not text else text


def _token(text: str, kind: str) -> str:
    if len(text) > 1 and kind == "mi":
        return rf"\{text} " if text in _KNOWN.split() else rf"\operatorname{{{text}}} "
    return "".join(_character(c) for c in text) + (" " if kind == "mo" else "")


def _character(char: str) -> str:
    if char in _ESCAPED:
        return _ESCAPED[char]
    if char in COMMANDS:  # among them ~, which to LaTeX is a space
        return rf"\{COMMANDS[char]} "
    if char.isascii():
        return char
    if unicodedata.name(char, "").startswith("VULGAR FRACTION"):
        above, below = unicodedata.normalize("NFKC", char).split("\u2044")
        return rf"\tfrac{{{above}}}{{{below}}}"
    if char in SCRIPTS:  # of nothing
        return "{}" + SCRIPTS[char]
    if char in _LATIN_LOOKALIKES:
        return _LATIN_LOOKALIKES[char]
    for words, command in _ALPHABETS.items():
        if re.search(rf"\b{words} [A-Z]$", name := unicodedata.name(char, "")):
            return rf"\{command}{{{name[-1]}}}"
    if char.isalpha() and char <= "ſ":
        return rf"\text{{{char}}}"
    raise SolvableError(f"the character {char!r} (U+{ord(char):04X}) of a formula has no LaTeX form.")
