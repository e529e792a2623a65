"""Formulas of docstrings as MathML: well formed, complete and escaped."""

import importlib
import re
import unicodedata
import xml.etree.ElementTree as tree
from pathlib import Path

import pytest

from solvable.explorer import prose
from solvable.models import LISTINGS
from solvable.registry import model_class
from solvable.render.formulas import formula, inline_formula, with_formulas


def spoken(text):
    """The characters of a formula, in order, without its structure."""
    return "".join(tree.fromstring(formula(text)).itertext())


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("x²", "<msup><mi>x</mi><mn>2</mn></msup>"),
        ("A⁻¹", "<msup><mi>A</mi><mrow><mo>−</mo><mn>1</mn></mrow></msup>"),
        ("λ_k²", "<msubsup><mi>λ</mi><mi>k</mi><mn>2</mn></msubsup>"),
        ("Σ_{i<j} J_ij", "<munder><mo>∑</mo><mrow><mi>i</mi><mo>&lt;</mo><mi>j</mi></mrow></munder>"),
        ("√(1 + x)", "<msqrt><mn>1</mn>"),
        ("q̂", '<mover accent="true"><mi>q</mi><mo>^</mo></mover>'),
        ("log x", "<mi>log</mi>"),
        ("ab", "<mi>a</mi><mi>b</mi>"),
        ("g'(x)", "<msup><mi>g</mi><mo>′</mo></msup>"),
        ("Tr ΣR", '<mi mathvariant="normal">Σ</mi><mi>R</mi>'),
        ("(Σ + κ)⁻¹", '<mi mathvariant="normal">Σ</mi><mspace'),
        ("Σ x_i", "<mo>∑</mo>"),
        ("Δ^½SΔ^½", "<mn>½</mn></msup><mi>S</mi>"),
        ("w*_k", "<msubsup><mi>w</mi><mi>k</mi><mo>*</mo></msubsup>"),
    ],
)
def test_written_formulas_are_set_as_mathematics(text, inside):
    assert inside in formula(text)


def test_every_displayed_formula_of_a_model_is_well_formed_and_keeps_its_letters():
    lines = [
        line
        for listing in LISTINGS
        for line in (importlib.import_module(listing.module).__doc__ or "").splitlines()
        if line.startswith("    ") and line.strip()
    ]
    assert lines
    for line in lines:
        # a letter with a hat is that letter
        letters = [c for c in unicodedata.normalize("NFD", line) if c.isascii() and c.isalpha()]
        seen = [c for c in spoken(line) if c.isascii() and c.isalpha()]
        # a transposition may be typeset as the letter T
        assert sorted(letters) == sorted(seen) or sorted(letters + ["T"] * line.count("ᵀ")) == sorted(seen)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Learn a sign or linear teacher, n = αd samples of one and/or two-layer networks.", ["n = αd"]),
        (
            "labels y = Σ_n a_n g(u_n·x/√N) + σζ, with Gram matrix T = UUᵀ/N",
            ["y = Σ_n a_n g(u_n·x/√N) + σζ", "T = UUᵀ/N"],
        ),
        ("(d → ∞, then K → ∞; corrections 1/K)", ["d → ∞", "K → ∞", "1/K"]),
        ("a teacher with |w*|² = D, J ∈ {0, 1} or *given*", ["|w*|² = D", "J ∈ {0, 1}"]),
        ("`x_i` and $x_i$ of the p-body law, its L-BFGS and Rényi's entropy", ["p"]),
        ("A's x_k-dependence: A = I − G", ["x_k", "A = I − G"]),
        ("a sum that goes over\nΣ_k (1 +\nx_k) terms", ["Σ_k (1 + x_k)"]),
        ("- x_1 is listed", ["x_1"]),
    ],
)
def test_formulas_are_found_among_words(text, found):
    seen = []
    assert with_formulas(text, lambda f: seen.append(f) or f).split() == text.split()
    assert seen == found


@pytest.mark.parametrize("text", ["(x_1", "x_1)", "[((α", "))) β", "_", "^", "√", "α.", "", " ", "*α*", "α_{", "{α"])
def test_unbalanced_brackets_lose_no_text(text):
    assert with_formulas(text, str) == text


@pytest.mark.parametrize("text", ["", "(", ")", "a_", "x^", "√", "<script>", "&amp;", "a_{b", "[⟨", "\u0302", "½^−"])
def test_broken_formulas_and_markup_are_still_well_formed(text):
    assert tree.fromstring(formula(text)).tag == "math"
    assert "<script>" not in formula(text)


BARE = re.compile(r"<(math|code|pre)\b.*?</\1>", re.DOTALL)
RAW = re.compile(r"\S*(?:\w_\{|\w\^|[₀-₉ᵀ²³⁻√Σ∂∇∫·α-ω]|\b\w_\w\b)\S*")


def test_no_mathematics_of_a_model_is_left_as_raw_text():
    """In set-ups, sentences and meanings, as the page shows them."""
    for listing in LISTINGS:
        kind = model_class(listing.id)
        meanings = [d.meaning for d in (*kind.fields().values(), *kind.observables_declared)]
        shown = [prose.prose(kind.__doc__ or ""), *map(prose.line, [listing.sentence]), *map(prose.sentence, meanings)]
        left = [found[0] for text in shown for found in RAW.finditer(BARE.sub(" ", text))]
        assert not left, (listing.id, left)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("x = 1", 1),
        ("y = Σ_n a_n g(u_n·x/√N) + σζ", 2),
        ("P(a + b + c + d + e + f = g + h + i)", 1),
        ("q_1 = ⟨x_1⟩, q_2 = ⟨x_2⟩, q_3 = ⟨x_3⟩", 3),
    ],
)
def test_a_long_formula_in_a_line_can_be_broken(text, pieces):
    found = inline_formula(text)
    assert found.count("<math>") == pieces
    letters = "".join(tree.fromstring(f"<p>{found}</p>").itertext()).replace(" ", "")
    assert letters == text.replace(" ", "").replace("_", "").replace("Σ", "∑").replace("√", "")


def test_no_style_stacks_the_parts_of_a_formula():
    """`display: block` on <math> would set its children as blocks, one below the other."""
    for sheet in Path(prose.__file__).with_name("static").glob("*.css"):
        for selectors, style in re.findall(r"([^{}]+)\{([^{}]*)\}", sheet.read_text()):
            if "math" in selectors.replace(".math", ""):
                assert not re.search(r"display:\s*+(?!block math|inline math|math|none)", style), (
                    sheet.name,
                    selectors,
                )


def test_a_power_between_an_index_and_more_letters_is_kept():
    found = formula("δ_1²VA", "inline")
    assert "<msubsup><mi>δ</mi><mn>1</mn><mn>2</mn></msubsup><mi>V</mi><mi>A</mi>" in found


def test_an_index_ends_before_the_next_factor():
    found = formula("ξ_μξ_νᵀ", "inline")
    assert "<msub><mi>ξ</mi><mi>μ</mi></msub><msubsup><mi>ξ</mi><mi>ν</mi><mi>T</mi></msubsup>" in found
    assert "<msub><mi>C</mi><mrow><mi>μ</mi><mi>ν</mi></mrow></msub>" in formula("C_μν", "inline")


def test_a_modulus_may_be_a_power():
    found = formula("ρ^|k−l|", "inline")
    assert found.startswith("<math><msup><mi>ρ</mi><mrow><mo>|</mo><mi>k</mi>")
    assert "^" not in found
