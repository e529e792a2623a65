"""Formulas of docstrings as MathML: well formed, complete and escaped."""

import importlib
import re
import unicodedata
import xml.etree.ElementTree as tree
from pathlib import Path

import pytest

from solvable.contract.describe import describe
from solvable.explorer import prose
from solvable.models import LISTINGS
from solvable.registry import model_class
from solvable.render.equations import mathml
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
        ("½(Tr Σ(S + c)⁻¹)", '<mi mathvariant="normal">Σ</mi><msup><mrow><mo>(</mo><mi>S</mi>'),
        ("g = <G|λ|>/√Q", "<mrow><mo>⟨</mo><mi>G</mi>"),
        ("Σ_{s<t} <h_s>", '<mo>&lt;</mo><mi>t</mi></mrow></munder><mspace width="0.2em"></mspace><mrow><mo>⟨</mo>'),
        ("x_⊥", "<msub><mi>x</mi><mo>⊥</mo></msub>"),
        ("Tr Σ_k(x_k)", "<munder><mo>∑</mo><mi>k</mi></munder>"),
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
        ("**Data.** N = qd points and x̂ = Ax with zeros, u = at most v", ["N = qd", "x̂ = Ax", "u =", "v"]),
        ("the same problem (ξ = (1 + s)/2: the threshold", ["ξ = (1 + s)/2"]),
        ("with λ = 1e-9 and τ = -1, at C = 1", ["λ = 1e-9", "τ = -1", "C = 1"]),
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
TAG = re.compile(r"<[^>]+>")
RAW = re.compile(
    r"\S*(?:\w_\{|\w\^|[₀-₉ᵀ²³⁻√Σ∂∇∫·α-ω≤≥→←×∈]|\b\w_\w\b|\b[A-Za-z]'*\(\w|\bd[A-Za-z]/d|\b[A-Za-z]{1,2}/\(|\s-[A-Za-z]\b|\sd[BVt]\b)\S*"
)


def test_no_mathematics_of_a_model_is_left_as_raw_text():
    """In set-ups, sentences and meanings, as the page shows them."""
    for listing in LISTINGS:
        kind = model_class(listing.id)
        meanings = [d.meaning for d in (*kind.fields().values(), *kind.observables_declared)]
        shown = [
            prose.prose(describe(kind)["about"]),
            *map(prose.line, [listing.sentence]),
            *map(prose.sentence, meanings),
        ]
        left = [found[0] for text in shown for found in RAW.finditer(TAG.sub("", BARE.sub(" ", text)))]
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


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("κ1²", "<msubsup><mi>κ</mi><mn>1</mn><mn>2</mn></msubsup>"),
        ("κ⋆ z", "<msub><mi>κ</mi><mo>⋆</mo></msub>"),
        ("2π1", "<mi>π</mi><mn>1</mn>"),
    ],
)
def test_a_number_or_star_behind_a_greek_letter_is_its_index(text, inside):
    assert inside in formula(text)


def test_a_formula_is_not_parted_from_its_full_stop_and_brackets():
    assert '<span class="whole">(<math>' in prose.line("orthogonal (FᵀF = d·1 for p ≤ d)")
    assert "</math>.</span>" in prose.sentence("squared couplings, |J|²/N")
    assert prose.line("**a law, x = 1.**").count("<span") == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("With H(x) the mean, N Q(m) and noise N(0, 1).", ["H(x)", "N Q(m)", "N(0, 1)"]),
        ("of mean -N Q(m) only", ["-N Q(m)"]),
        ("if 1/Δ > T/(1-q), hence", ["1/Δ > T/(1-q)"]),
        ("dx/dt = -x, or dV = b dt + Σ^{1/2} dB. Steps of 2dt too", ["dx/dt = -x", "dV = b dt + Σ^{1/2} dB", "2dt"]),
        ("a factor e^{−0.5826 √(2κ dt)} (Broadie)", ["e^{−0.5826 √(2κ dt)}"]),
        ("clipped to [−1, 1], else −1", []),
    ],
)
def test_values_of_functions_and_differentials_are_formulas(text, found):
    seen = []
    with_formulas(text, lambda f: seen.append(f) or f)
    assert [f for f in seen if f not in ("[−1, 1]", "−1")] == found


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("Σ^{1/2}", '<msup><mi mathvariant="normal">Σ</mi>'),
        ("κΣ_lin", '<msub><mi mathvariant="normal">Σ</mi>'),
        ("Σ_ijk x", "<munder><mo>∑</mo>"),
        ("V_ν· − V_·κ + V_··", "<msub><mi>V</mi><mrow><mi>ν</mi><mo>·</mo></mrow></msub>"),
        ("W_−·v", "<msub><mi>W</mi><mo>−</mo></msub><mo>·</mo><mi>v</mi>"),
        ("x = -y", '<mo form="prefix">−</mo><mi>y</mi>'),
        ("a - b", "<mo>−</mo>"),
        ("c_±/√n", "<msub><mi>c</mi><mo>±</mo></msub>"),
        ("√dt u", "<msqrt><mi>d</mi><mi>t</mi></msqrt>"),
    ],
)
def test_signs_covariances_and_means_over_an_index(text, inside):
    assert inside in formula(text)


SPACE = '<mspace width="0.167em" />'


@pytest.mark.parametrize(
    ("latex", "inside"),
    [
        (r"\log q", f"<mi>log</mi>{SPACE}<mi>q</mi>"),
        (r"p\log q", f"<mi>p</mi>{SPACE}<mi>log</mi>{SPACE}<mi>q</mi>"),
        (r"2\cos\theta", f"<mn>2</mn>{SPACE}<mi>cos</mi>{SPACE}<mi>θ</mi>"),
        (r"\log_2 q", f"</msub>{SPACE}<mi>q</mi>"),
        (r"(a)\ln b", f")</mo>{SPACE}<mi>ln</mi>{SPACE}<mi>b</mi>"),
        (r"\log\log n", f"<mi>log</mi>{SPACE}<mi>log</mi>{SPACE}<mi>n</mi>"),
        (r"\log |x|", f'<mi>log</mi>{SPACE}<mo stretchy="false">|</mo>'),
        (r"-\log(q)", '<mo>−</mo><mi>log</mi><mo stretchy="false">(</mo>'),
        (r"\sin\left(x\right)", '<mi>sin</mi><mrow><mo stretchy="true" fence="true" form="prefix">(</mo>'),
        (r"a = \log\, q", '<mo>=</mo><mi>log</mi><mspace width="0.167em" /><mi>q</mi>'),
    ],
)
def test_a_function_is_set_apart_from_letters_and_numbers_as_tex_does(latex, inside):
    assert inside in mathml(latex)
