"""Convert the plain-text formulas of docstrings to MathML.

Supported are sub- and superscripts (₁ ² ⁻¹ ᵀ, x_i, x_{ij}, a^{½}), accents (V̂), roots (√N, √(1 + x)), sums with their
ranges, names of functions, and words. Fractions keep their slash.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable

ABOVE = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱᵀᵏᵐ", "0123456789+−=()niTkm", strict=True))
BELOW = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", "0123456789+−=()aehijklmnoprstuvx", strict=True))
ACCENTS = {"\u0302": "^", "\u0303": "~", "\u0304": "¯", "\u0305": "¯", "\u0307": "˙", "\u0308": "¨", "\u20d7": "→"}
_INDEX = rf"(?![{''.join(ABOVE)}½¼¾⅓⅔])[^\W_]"
_SCRIPT = (
    rf"(?:[α-ω](?:{_INDEX}(?!_))*|(?:{_INDEX})+)"  # up to a power or the next base: x_k² is a square, ξ_μξ_ν a product
)
_DOTTED = rf"·(?:·|{_INDEX})?|{_INDEX}·(?=[\s,;.)\]}}]|$)"  # the mean over an index
_NAMED = r"(?!ijk)[a-z]{3}(?![a-z])"
LARGE = "ΣΠ∫∑∏"
LONG = 24  # characters of a formula that may have to be broken
OPENING = {"(": ")", "[": "]", "{": "}", "⟨": "⟩", "⌊": "⌋"}
_FUNCTIONS = """argmin argmax arccos arcsin arctan atan2 cos cosh cov det diag div dim erf erfc exp inf ln log max mean min
rank relu round sgn sign sin sinh softmax sup tan tanh tr var"""
_WORDS = "and at by else for from given if in is of on or over per so the then to where with without"
FUNCTIONS, WORDS = frozenset(_FUNCTIONS.split()), frozenset(_WORDS.split())


def formula(text: str, display: str = "block") -> str:
    """One line of a docstring's mathematics as a MathML element.

    >>> formula("V̂/√N", "inline")
    '<math><mover accent="true"><mi>V</mi><mo>^</mo></mover><mo>/</mo><msqrt><mi>N</mi></msqrt></math>'
    >>> "<msub><mi>x</mi><mrow><mi>i</mi><mi>j</mi></mrow></msub>" in formula("x_ij ← −x_ij")
    True
    """
    parser = _Parser(unicodedata.normalize("NFD", _angled(text.strip()).replace("...", "…")))
    inside = "".join(parser.until(""))
    shown = ' display="block"' if display == "block" else ""
    return f"<math{shown}>{inside}</math>"


def displayed_formula(text: str) -> str:
    """A displayed line. Equations beside each other become parts of a line, which can stand below each other where it is narrow.

    >>> displayed_formula("x = 1,    y = 2").count("<math")
    2
    """
    parts = [formula(part) for part in re.split(r"(?<=[,;:])\s{2,}", text.strip())]
    return parts[0] if len(parts) == 1 else f'<div class="parts">{"".join(parts)}</div>'


def inline_formula(text: str) -> str:
    """A formula within a line. A long one becomes several elements, so that the line can break before a relation or sum.

    >>> inline_formula("x = 1")
    '<math><mi>x</mi><mspace width="0.2em"></mspace><mo>=</mo><mspace width="0.2em"></mspace><mn>1</mn></math>'
    >>> inline_formula("y = Σ_n a_n g(u_n·x/√N) + σζ").count("<math>")
    2
    """
    pieces = _pieces(_angled(text.strip())) if len(text) > LONG else [text]
    whole = (formula(piece, "inline") for piece in pieces)
    # A sign at the beginning of an element would otherwise be set as the sign of a number.
    return " ".join(re.sub(r"^<math><mo>", '<math><mo form="infix">', w) if k else w for k, w in enumerate(whole))


def _angled(text: str) -> str:
    """With the brackets of averages, which docstrings write as signs of inequality.

    >>> _angled("½<(f − y)²>, Σ_{i<j} <x_i x_j>, |x|<1 and y>0, 0 < x > 1")
    '½⟨(f − y)²⟩, Σ_{i<j} ⟨x_i x_j⟩, |x|<1 and y>0, 0 < x > 1'
    """
    return _AVERAGE.sub(lambda m: f"⟨{m[1]}⟩" if _balanced(m[1]) else m[0], text)


_AVERAGE = re.compile(r"(?<![A-Za-zα-ω|])<(?=[^\s/])([^<>]*[^\s<>])>(?![\w=])")


def _pieces(text: str) -> list[str]:
    """A formula cut before its relations and signs, and after its commas, outside of brackets."""
    cuts, depth = [0], 0
    for at, char in enumerate(text):
        depth += (char in OPENING) - (char in OPENING.values())
        if char == " " and depth == 0 and at - cuts[-1] > 4:
            after = text[at + 1 :].split(" ", 1)[0]
            if text[at - 1] in ",;" or (after and after in "=≈≃∝≤≥<>~∼→+−-±"):
                cuts.append(at)
    return [text[a:b].strip() for a, b in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def with_formulas(
    text: str,
    show: Callable[[str], str],
    plain: Callable[[str], str] = str,
    marked: Callable[[str], str] = str,
) -> str:
    """Replace every formula in prose by `show(formula)` and everything else by `plain(words)`.

    Code, LaTeX, bold and emphasis, with their marks, become `marked(part)`. A formula is a run of symbols: words with
    indices, powers, Greek letters or relations, and the letters, numbers and functions next to them.

    >>> with_formulas("Inputs x ~ N(0, 1_d), labels y = sign(w·x/√d) + *noise* of `size` T.", "<{}>".format)
    'Inputs <x ~ N(0, 1_d)>, labels <y = sign(w·x/√d)> + *noise* of `size` <T>.'
    """
    parts = _KEPT.split(text)
    return "".join(marked(part) if k % 2 else _in_words(part, show, plain) for k, part in enumerate(parts))


_KEPT = re.compile(
    r"(^\s*- |`[^`]+`|\$[^$]+\$|\*\*[^*]+\*\*|(?<![\w*])\*[^\W\d_][^*\n]*[^\W_]\*(?![\w*]))", re.MULTILINE
)
_SCRIPTS = "".join((*ABOVE, *BELOW))
_SIGNS = "=<>~≤≥≪≫≈≠≡∼∝∈→←↦±∓·×⊗⊙∘−∂∇∞√∫∑∏Σ∀∩∪⟨⟩|½¼¾⅓⅔…"
_STRONG = re.compile(f"[α-ωΑ-Ωϑϕϵϱℓ{_SCRIPTS}{_SIGNS}\u0302-\u0308\u20d7′_^]".replace("Σ", ""))
_OPERATOR = re.compile(r"[=<>~≤≥≪≫≈≠≡∼∝∈→←↦±∓·×⊗∘−+/-]+$")
_LETTER = re.compile(r"[^\W\d_](?:'{0,2}|\*)$")
_QUOTIENT = re.compile(
    r"(?:[^\W_]+/[^\W\d_]|[^\W_]{1,2}\)+/[^\W_]{1,2}|[^\W\d_]/[^\W_]+|\d+/\d+|[^\W\d_]-\d+|d[^\W\d_]/d[^\W\d_])$|[^\W\d_]{1,2}/\(\S"
)
_VALUE = re.compile(r"[^\W\d_]'{0,2}\(")
_DIFFERENTIAL = re.compile(r"\d*d[A-Zs-z]$")
_CALL = re.compile(r"(?:[A-Za-z]{1,2}|" + "|".join(sorted(FUNCTIONS)) + r")[([{]")
_NUMBER = re.compile(r"[-−]?\d[\d,.]*(?:e[-−]?\d+)?$")
_ARTICLES = {"a", "A", "I"}
_TWO_LETTERS = "am an as at be by do go he if in is it me my no of on or so to up us we"
_SHORT = frozenset(_TWO_LETTERS.split())


def _in_words(text: str, show: Callable[[str], str], plain: Callable[[str], str]) -> str:
    words = [(m.start(), m.end()) for m in re.finditer(r"\S+", text)]
    out, done, k = [], 0, 0
    while k < len(words):
        span = _formula_at(text, words, k)
        if span is None:
            k += 1
            continue
        first, last = span
        out += [plain(text[done:first]), show(" ".join(text[first:last].split()))]
        done = last
        while k < len(words) and words[k][1] <= last:
            k += 1
        if k < len(words) and words[k][0] < last:  # the rest of this word is prose
            k += 1
    return "".join([*out, plain(text[done:])])


def _formula_at(text: str, words: list[tuple[int, int]], k: int) -> tuple[int, int] | None:
    """Start and end of the formula that begins with a word, or None."""
    best, certain, last = None, False, k
    if text[slice(*words[k])] == "mean":  # "of mean -N" is no difference
        return None
    while last < len(words):
        kind = _kind(text, words, last)
        if not kind:
            break
        certain = certain or kind == "strong"
        first, end = _trimmed(text, words[k][0], words[last][1])
        dangling = kind == "weak" and _OPERATOR.match(text[slice(*words[last])])
        if certain and not dangling and _balanced(text[first:end]) and re.search(r"[\w⟨]", text[first:end]):
            best = first, end
        if _balanced(text[first:end]) and end < words[last][1]:  # punctuation or a bracket of the prose ends it
            break
        last += 1
    return best


def _trimmed(text: str, first: int, end: int) -> tuple[int, int]:
    """The range without surrounding punctuation and brackets of the prose."""
    while end > first:
        if text[end - 1] in ',.;:!?"”' and not text[first:end].endswith("…"):
            end -= 1
        elif (found := re.search(r"(?:['’]s|-[a-z]{3,})$", text[first:end])) and not _balanced_end(text[first:end]):
            end -= len(found[0])
        elif text[first] in "([{" and not _balanced(text[first:end]) and _balanced(text[first + 1 : end]):
            first += 1
        elif text[end - 1] in ")]}" and not _balanced(text[first:end]) and _balanced(text[first : end - 1]):
            end -= 1
        else:
            break
    return first, end


def _balanced_end(text: str) -> bool:
    return text.endswith((")", "]", "}"))


def _balanced(text: str) -> bool:
    open_: list[str] = []
    for char in text:
        if char in "([{":
            open_.append(OPENING[char])
        elif char in ")]}" and (not open_ or open_.pop() != char):
            return False
    return not open_


def _kind(text: str, words: list[tuple[int, int]], k: int) -> str:
    """`strong`: certainly mathematics; `weak`: mathematics if next to a strong word; empty: prose."""
    word = text[slice(*words[k])]
    core = word.strip(',.;:()[]{}!?"“”')
    core = re.sub(r"(?:['’]s|(?<=[^\W\d_])-[a-z]{3,})$", "", core)
    core = re.sub(r"^-(?=[^\W\d_])", "", core)
    if not core:
        return "weak" if word in ("(", ")", "[", "]", "…", "…,", "...") else ""
    if _OPERATOR.match(core):
        return "weak" if core in ("+", "/", "-") else "strong"
    if re.fullmatch(r"[a-z]{3,}(?:_[a-z]{2,})+", core):
        return ""
    if _LETTER.match(core):
        if core not in _ARTICLES:
            return "strong"
        beside = [text[slice(*words[i])] for i in (k - 1, k + 1) if 0 <= i < len(words)]
        return "weak" if any(_OPERATOR.match(w) for w in beside) else ""
    if _STRONG.search(core) or "Σ" in core or _QUOTIENT.match(core) or _VALUE.match(word.lstrip("([{-−")):
        return "strong"
    if re.match(r"[a-z][A-Z]$", core):  # a product
        return "weak"
    if re.match(r"[A-Za-z][a-z]$", core) and core.lower() not in _SHORT and k and text[slice(*words[k - 1])] in "=≈∝→":
        return "weak"
    if _DIFFERENTIAL.match(core):
        return "strong" if core[0].isdigit() else "weak"
    if _NUMBER.match(core) or _CALL.match(word.lstrip("([{")) or core.lower() in FUNCTIONS:
        return "weak"
    letters = [c for c in core if c.isalpha()]
    if len(letters) <= 3 and any(unicodedata.normalize("NFD", c)[1:] in ACCENTS for c in letters):
        return "strong"
    return ""


class _Parser:
    def __init__(self, text: str):
        self.text, self.at = text, 0

    def peek(self, pattern: str) -> re.Match[str] | None:
        return re.compile(pattern).match(self.text, self.at)

    def take(self, pattern: str) -> str | None:
        found = self.peek(pattern)
        if found is None or not found[0]:
            return None
        self.at = found.end()
        return found[0]

    def until(self, closing: str) -> list[str]:
        """Everything up to a closing bracket (which is consumed) or the end."""
        out: list[str] = []
        while self.at < len(self.text):
            if closing and self.text[self.at] == closing:
                self.at += 1
                return out
            if gap := self.take(r"\s+"):
                out.append(f'<mspace width="{"2em" if len(gap) > 1 else "0.2em"}"></mspace>')
                continue
            before = next((part for part in reversed(out) if not part.startswith("<mspace")), "")
            if before.startswith("<mo") and not before.endswith("|</mo>") and (sign := self.take(r"[-−+](?=\S)")):
                out.append(f'<mo form="prefix">{_minus(sign)}</mo>')  # of a number, not of a difference
                continue
            out.append(self.scripted())
        return out

    def scripted(self) -> str:
        """An atom with its scripts and primes."""
        large = self.text[self.at] in LARGE and not self.is_covariance()
        numbered = self.peek("[α-ωϑϕϵϱ]") is not None and self.text[self.at] != "π"
        base, below, above = self.atom(), "", ""
        if numbered:  # κ1 is one symbol, and so is κ⋆
            below = _letters(self.take(r"\d+(?![.\d])|⋆(?![A-Za-zα-ω(])") or "")
        while self.at < len(self.text):
            if small := self.take(f"[{''.join(BELOW)}]+"):
                below += _letters("".join(BELOW[c] for c in small))
            elif small := self.take(f"[{''.join(ABOVE)}]+"):
                above += _letters("".join(ABOVE[c] for c in small))
            elif primes := self.take("['′]+"):
                above += f"<mo>{'′' * len(primes)}</mo>"
            elif self.take(r"\*(?![^\W_]|\()"):  # w* and w*_k, the teacher's
                above += "<mo>*</mo>"
            elif self.peek(r"[_^][\w{(|±−-]|_[·⊥∥]"):
                under = self.text[self.at] == "_"
                self.at += 1
                script = self.script()
                below, above = (below + script, above) if under else (below, above + script)
            else:
                break
        if not below and not above:
            return base
        under, over = (f"<mrow>{s}</mrow>" if s.count("</m") > 1 else s for s in (below, above))
        kind = ("munderover", "munder", "mover") if large else ("msubsup", "msub", "msup")
        if below and above:
            return f"<{kind[0]}>{base}{under}{over}</{kind[0]}>"
        return f"<{kind[1]}>{base}{under}</{kind[1]}>" if below else f"<{kind[2]}>{base}{over}</{kind[2]}>"

    def is_covariance(self) -> bool:
        """Whether a Σ is the matrix: it has no range below it but at most a name, and nothing to be summed follows."""
        if re.search(r"\b(?:[Tt]r|det) ?$", self.text[: self.at]) and self.peek(r"Σ[(\[]"):  # the trace of a product
            return True
        return self.peek(rf"Σ(?:_{_NAMED}|(?!\s*[_(\[{{₀-ₜ√|⟨⌊]|\s+[^\W\d]))") is not None

    def script(self) -> str:
        """The script after _ or ^: a group in braces, or letters and digits."""
        if self.take(r"\{"):
            return "".join(self.until("}"))
        if self.take(r"\("):
            return "<mo>(</mo>" + "".join(self.until(")")) + "<mo>)</mo>"
        if direction := self.take("[⊥∥]"):
            return f"<mo>{direction}</mo>"
        if between := self.take(r"\|[^|]+\|"):
            return "<mo>|</mo>" + "".join(_Parser(between[1:-1]).until("")) + "<mo>|</mo>"
        sign = self.take("[±−-]")
        dotted = None if sign else self.take(_DOTTED)
        word = dotted or self.take(r"[½¼¾⅓⅔]") or self.take(_SCRIPT) or ""
        return (f"<mo>{_minus(sign)}</mo>" if sign else "") + (_name(word) or _letters(word))

    def atom(self) -> str:
        if root := self.take("√"):
            return f"<msqrt>{self.under_root()}</msqrt>" if root else ""
        here = self.text[self.at]
        if number := self.take(r"\d+(?:\.\d+)?(?:e[+−-]?\d+)?"):
            return f"<mn>{number}</mn>"
        if half := self.take("[½¼¾⅓⅔]"):
            return f"<mn>{half}</mn>"
        if word := self.take(r"[A-Za-z]{2,}(?![\u0300-\u036f])"):
            if symbol := _name(word):
                return symbol
            self.at -= len(word) - 1  # a product of letters: one at a time
            return f"<mi>{word[0]}</mi>"
        if here in OPENING:
            self.at += 1
            inside, closing = "".join(self.until(OPENING[here])), OPENING[here]
            closed = self.text[self.at - 1] == closing if self.at else False
            return f"<mrow><mo>{here}</mo>{inside}{f'<mo>{closing}</mo>' if closed else ''}</mrow>"
        covariance = self.is_covariance()
        self.at += 1
        marks = self.take("[\u0300-\u036f\u20d7]+") or ""
        base = '<mi mathvariant="normal">Σ</mi>' if covariance else _symbol(here)
        for mark in marks:
            if mark == "\u0338":  # a stroke through a relation
                base = f"<mo>{html.escape(unicodedata.normalize('NFC', here + mark))}</mo>"
            else:
                base = f'<mover accent="true">{base}<mo>{ACCENTS.get(mark, "^")}</mo></mover>'
        return base

    def under_root(self) -> str:
        if self.take(r"\("):
            return "".join(self.until(")"))
        if step := self.take(r"d[a-z](?![a-z])"):  # √dt
            return _letters(step)
        return self.scripted() if self.at < len(self.text) else ""


def _name(word: str) -> str:
    """A function, a word, or a name of several letters; empty for a product of letters."""
    if word.lower() in FUNCTIONS:
        return f"<mi>{word}</mi>"
    if word.lower() in WORDS:
        return f'<mspace width="0.3em"></mspace><mtext>{word}</mtext><mspace width="0.3em"></mspace>'
    return f"<mtext>{word}</mtext>" if len(word) > 3 and word.isascii() and word.isalpha() else ""


def _letters(text: str) -> str:
    return "".join(_symbol(c) for c in text if not c.isspace())


def _symbol(char: str) -> str:
    if char.isnumeric():
        return f"<mn>{char}</mn>"
    if char in LARGE:
        return f"<mo>{dict(zip('ΣΠ', '∑∏', strict=True)).get(char, char)}</mo>"
    if char == "|":  # usually a norm: no space around it, and no taller than its letters
        return '<mo stretchy="false" lspace="0" rspace="0.05em">|</mo>'
    if char.isalpha():
        upright = ' mathvariant="normal"' if unicodedata.name(char, "").startswith("GREEK CAPITAL") else ""
        return f"<mi{upright}>{char}</mi>"
    return f"<mo>{html.escape(_minus(char))}</mo>"


def _minus(char: str) -> str:
    return "−" if char == "-" else char
