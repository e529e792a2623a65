"""Formulas of docstrings as MathML: well formed, nothing lost, nothing believed."""

import importlib
import xml.etree.ElementTree as tree

import pytest

from solvable._formulas import formula
from solvable.models import LISTINGS


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
    ],
)
def test_what_is_written_is_set_as_mathematics(text, inside):
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
        letters = [c for c in line if c.isascii() and c.isalnum()]
        assert sorted(c for c in spoken(line) if c.isascii() and c.isalpha()) == sorted(
            c for c in letters if c.isalpha()
        )


@pytest.mark.parametrize("text", ["", "(", ")", "a_", "x^", "√", "<script>", "&amp;", "a_{b", "[⟨", "\u0302", "½^−"])
def test_broken_formulas_and_markup_are_still_well_formed(text):
    assert tree.fromstring(formula(text)).tag == "math"
    assert "<script>" not in formula(text)
