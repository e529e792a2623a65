"""`solvable equations`: the set-up of every model as LaTeX that compiles, and as Markdown."""

import json
import re
import shutil
import subprocess

import pytest

import solvable as sv
from commands import answer
from solvable.render.latex import displayed_lines, formula_latex, plain_latex, prose_latex
from solvable.render.paper import PACKAGES, latex_article, latex_section, markdown_section

IDS = list(sv.listings())
# Commands of LaTeX itself and of amsmath and amssymb that the sections may use.
KNOWN = """section subsection paragraph begin end item hline endhead textit textbf texttt emph quad qquad text operatorname sqrt
tfrac hat tilde bar dot ddot vec mathcal mathbb mathbf mathrm textbackslash textasciitilde textasciicircum dots frac left right
widehat mathsf"""


@pytest.mark.parametrize(
    ("plain", "latex"),
    [
        ("x ~ N(0, 1_d)", r"x \sim N( 0, 1_{d} )"),
        ("½(f − y)²", r"\tfrac{1}{2} ( f - y )^{2}"),
        ("w*_k", r"w_{k}^{*}"),
        ("V̂/√N", r"\hat{V} / \sqrt{N}"),
        ("argmin_w Σ_μ ℓ(y_μ)", r"\operatorname{argmin}_{w} \sum_{\mu} \ell ( y_{\mu} )"),
        ("{a | b}", r"\{ a | b \}"),
    ],
)
def test_a_formula_becomes_latex(plain, latex):
    assert formula_latex(plain).replace(" ", "") == latex.replace(" ", "")  # LaTeX ignores spaces in formulas


def test_a_character_without_a_latex_form_is_named():
    with pytest.raises(sv.SolvableError, match=r"the character '☃' \(U\+2603\)"):
        formula_latex("☃ = 1")


def test_prose_is_escaped_and_marks_are_kept():
    assert prose_latex("*half* of 5 % of `a_b` & **more**") == r"\emph{half} of 5 \% of \texttt{a\_b} \& \textbf{more}"
    assert plain_latex("É. Fermi – 1_2 {x} \\") == r"É. Fermi -- 1\_2 \{x\} \textbackslash{}"


def test_long_equations_are_broken_into_lines():
    lines = displayed_lines("a = 1/(b + c),   d = e + f,   g = h" + " + i" * 30)
    assert len(lines) >= 4
    assert lines[0].replace(" ", "") == "a=1/(b+c),"
    assert all(len(line) < 160 for line in lines)


def strictly_parsed(section):
    """Every brace, dollar and environment is closed where it should be, and every command is known."""
    plain = re.sub(r"(?<!\\)%.*", "", section).replace(r"\\", " ")
    commands = set(re.findall(r"\\([A-Za-z]+)", plain))
    text = re.sub(r"\\[^A-Za-z]", " ", plain)
    depth, dollars, stack = 0, 0, []
    for token in re.findall(r"\\begin\{[\w*]+\}|\\end\{[\w*]+\}|[{}$]", text):
        if token.startswith(r"\begin"):
            stack.append((token[7:-1], depth, dollars))
        elif token.startswith(r"\end"):
            assert stack.pop() == (token[5:-1], depth, dollars), token
        elif token == "$":
            dollars ^= 1
        else:
            depth += 1 if token == "{" else -1
            assert depth >= 0
    assert (depth, dollars, stack) == (0, 0, [])
    for formula in re.findall(r"\$([^$]*)\$", text):
        assert formula.strip(), section[:40]
        assert not re.search(r"[\^_]\s*[\^_}]|[\^_]\s*$", formula), formula
    return commands


def test_functions_without_mathematics_are_no_part_of_the_set_up():
    from solvable.render.paper import documented

    assert documented(sv.GLM) == {}  # tables, parts and branches of the code
    assert {"averages", "threshold", "_best_pace"} <= set(documented(sv.model_class("rl-perceptron")))
    assert "_lengths" not in documented(sv.model_class("rl-perceptron"))


@pytest.mark.parametrize("id", IDS)
def test_every_model_is_a_section_that_a_strict_parser_accepts(id):
    from solvable.render.latex import _KNOWN, COMMANDS

    kind = sv.model_class(id)
    section = latex_section(kind)
    symbols = {
        c for d in [*kind.fields().values(), *kind.observables_declared] for c in re.findall(r"\\([A-Za-z]+)", d.symbol)
    }
    assert strictly_parsed(section) - symbols <= set(KNOWN.split()) | set(COMMANDS.values()) | set(_KNOWN.split()) | {
        "prime"
    }
    written = markdown_section(kind)
    for name in [*kind.fields(), *(o.name for o in kind.observables_declared)]:
        assert rf"\texttt{{{name.replace('_', chr(92) + '_')}}}" in section
        assert f"| `{name}` |" in written
    assert written.count("$$") % 2 == 0


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex (Debian: texlive-latex-base)")
def test_every_model_compiles_in_an_article(tmp_path):
    article = latex_article(sv.Perceptron)
    assert all(rf"\usepackage{{{package}}}" in article for package in PACKAGES)
    head, end = article.split(r"\begin{document}")[0], r"\end{document}"
    body = "\n".join(latex_section(sv.model_class(id)) for id in IDS)
    (tmp_path / "all.tex").write_text(f"{head}\\begin{{document}}\n{body}\n{end}\n", encoding="utf-8")
    words = ["pdflatex", "-draftmode", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_command_prints_and_writes(capsys, tmp_path):
    code, out, _ = answer(capsys, "equations", "perceptron", "--latex", "--article", "--out", tmp_path / "a" / "p.tex")
    assert (code, out.strip()) == (0, str(tmp_path / "a" / "p.tex"))
    assert (tmp_path / "a" / "p.tex").read_text(encoding="utf-8") == latex_article(sv.Perceptron)
    code, out, _ = answer(capsys, "equations", "perceptron", "--json")
    assert json.loads(out)["markdown"] == markdown_section(sv.Perceptron)
    assert answer(capsys, "equations", "perceptron", "--markdown")[1].startswith("# Teacher–student perceptron\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("perceptro",), "there is no model 'perceptro'; did you mean 'perceptron'?"),
        (("perceptron", "--latex", "--markdown"), "--latex and --markdown cannot be combined."),
        (("perceptron", "--article"), "--article is a form of --latex: give both."),
        (("perceptron", "--out", "/dev/null/x.md"), "the file '/dev/null/x.md' cannot be written"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(capsys, words, sentence):
    code, out, err = answer(capsys, "equations", *words, "--json")
    assert code == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert sentence in json.loads(out)["error"]
