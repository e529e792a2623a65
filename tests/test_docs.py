"""The documentation is correct: its examples run, and every model, symbol and test it names exists."""

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import solvable as sv

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))

WRITTEN = sorted(page for page in DOCS.glob("**/*.md") if not {"generated", "_build"} & set(page.parts))
RUN = [DOCS / "start.md", DOCS / "laboratory.md"]
RUN += [pytest.param(page, id=page.stem) for page in sorted((DOCS / "methods").glob("*.md"))]
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_examples_of_a_page_run_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {"__name__": page.stem}
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert blocks
    for language, text in blocks:
        if language == "python":
            exec(compile(text, str(page), "exec"), names)
            continue
        example = doctest.DocTestParser().get_doctest(text, names, page.name, str(page), 0)
        report: list[str] = []
        runner = doctest.DocTestRunner()
        runner.run(example, out=report.append, clear_globs=False)
        names |= example.globs
        assert not report, "".join(report)


def test_every_model_has_a_page_with_all_its_fields_and_observables(tmp_path):
    pages = pytest.importorskip("pages")
    pages.write_pages(tmp_path / "generated", figures=False)
    for line in sv.models.LISTINGS:
        text = (tmp_path / "generated" / "models" / f"{line.id}.md").read_text(encoding="utf-8")
        model = sv.model_class(line.id)
        for name in [*model.fields(), *(o.name for o in model.observables_declared)]:
            assert f"| `{name}` |" in text, (line.id, name)
        assert all(paper.bibtex() in text for paper in model.references)
        assert f"({line.id}.md)" in (tmp_path / "generated" / "models" / "index.md").read_text(encoding="utf-8")


class Prose(HTMLParser):
    """The words of a page that are neither code nor mathematics."""

    def __init__(self, page):
        super().__init__()
        self.inside, self.words, self.formulas = [], [], 0
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.formulas += tag == "math"
        silent = tag in ("code", "pre", "math", "style", "title") or "literal" in (dict(attrs).get("class") or "")
        if (self.inside or silent) and tag not in ("br", "img", "meta", "link", "hr"):
            self.inside.append(tag)

    def handle_endtag(self, tag):
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data):
        if not self.inside:
            self.words.append(data)


def rendered(text):
    """A page as HTML, by the parser of the documentation."""
    core, roles = pytest.importorskip("docutils.core"), pytest.importorskip("docutils.parsers.rst.roles")
    directives = pytest.importorskip("docutils.parsers.rst.directives")
    parser, mathml = pytest.importorskip("myst_parser.parsers.docutils_"), pytest.importorskip("mathml")
    roles.register_local_role("formula", mathml.formula_role)
    directives.register_directive("formula", mathml.Formula)
    settings = {"myst_enable_extensions": ["attrs_inline", "colon_fence", "deflist", "dollarmath"], "report_level": 5,
                "math_output": "MathML", "syntax_highlight": "none", "embed_stylesheet": False}  # fmt: skip
    made = core.publish_string(text, parser=parser.Parser(), writer="html5", settings_overrides=settings)
    return made.decode()


def test_every_formula_of_a_model_s_page_is_set_as_mathematics(tmp_path):
    pages = pytest.importorskip("pages")
    pages.write_pages(tmp_path / "generated", figures=False)
    raw = {}
    for page in sorted((tmp_path / "generated" / "models").glob("*.md")):
        prose = Prose(rendered(page.read_text(encoding="utf-8")))
        raw[page.stem] = re.findall(r"\S*(?:[_^]|[α-ωΑ-Ω√∑∝≤≥²₁]|\{formula\})\S*", " ".join(prose.words))
        assert prose.formulas > 5 or page.stem == "index"
    assert {page: found for page, found in raw.items() if found} == {}


def test_every_public_function_of_the_methods_has_a_docstring_and_a_place():
    pages = pytest.importorskip("pages")
    for name in pages.method_modules():
        module, text = importlib.import_module(f"solvable.{name}"), pages.module_api(name)
        for n, thing in vars(module).items():
            if not n.startswith("_") and inspect.isfunction(thing) and thing.__module__ == module.__name__:
                assert f"{{py:function}} {n}(" in text, (name, n)


def test_every_package_of_methods_has_one_page_that_lists_all_its_modules(tmp_path):
    pages = pytest.importorskip("pages")
    packages = [name.rpartition(".")[2] for name in pages.method_packages()]
    assert {"averages", "fixed_points", "flows", "random_matrices", "risk", "sequences", "training"} <= set(packages)
    assert sorted(page.stem for page in (DOCS / "methods").glob("*.md")) == sorted(packages)
    for name in pages.method_modules():
        text = (DOCS / "methods" / f"{name.split('.')[1]}.md").read_text(encoding="utf-8")
        assert text.count(f"../generated/{pages.api_file(name)}\n") == 1, name
        assert f"`solvable.{name}`" in pages.methods_index(), name
    pages.write_pages(tmp_path / "generated", figures=False)
    for page in WRITTEN:
        for file in re.findall(r"^```\{include\} \S*?generated/(\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert (tmp_path / "generated" / file).exists(), (page.name, file)


def test_every_symbol_becomes_a_formula_without_loose_ends():
    mathml = pytest.importorskip("mathml")
    for line in sv.models.LISTINGS:
        model = sv.model_class(line.id)
        prose = [*model.fields().values(), *model.observables_declared]
        for symbol in {s.symbol for s in prose if s.symbol}:
            assert "\\" not in mathml.mathml(symbol), symbol


def test_every_formula_of_the_written_pages_is_understood():
    mathml = pytest.importorskip("mathml")
    for page in WRITTEN:
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for formula in [*re.findall(r"\$\$(.+?)\$\$", text, re.DOTALL), *re.findall(r"(?<!\$)\$([^$]+)\$(?!\$)", text)]:
            made = mathml.mathml(formula)
            assert "\\" not in made, (page.name, formula)
            assert "<mi>&</mi>" not in made, (page.name, formula)


def test_every_test_and_source_file_that_the_documents_name_exists():
    root = DOCS.parent
    for page in WRITTEN:
        for name in re.findall(r"`((?:tests|docs)/[\w/.-]+\.\w+)`", page.read_text(encoding="utf-8")):
            assert "ID" in name or (root / name).exists(), (page.name, name)


def test_the_build_has_no_warning_and_loads_no_external_files(tmp_path):
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"http_proxy": "http://127.0.0.1:9"}
    )
    assert done.returncode == 0, done.stderr
    for page in tmp_path.glob("**/*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"<(?:script|img|link|iframe|source)\b[^>]*\b(?:src|href)=\"(?:https?:)?//", text), page
        assert not re.search(r"url\(['\"]?(?:https?:)?//", text), page
    for sheet in tmp_path.glob("_static/**/*.css"):
        assert not re.search(r"(?:url\(|@import )['\"]?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_every_word_of_the_vocabulary_is_used():
    """Words of models come from declarations; the tables that explain the common ones must not go stale."""
    used = {"size", "seed", "residual", "converged", "converged_along", "status"}  # of every dataset
    for id in sv.listings():
        kind = sv.model_class(id)
        used |= {
            *kind.fields(),
            *(o.name for o in kind.observables_declared),
            *(d.name for d in kind.dimensions_declared),
        }
    text = (DOCS / "vocabulary.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    explained = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert {"samples", "penalty", "test_error"} <= explained
    stale = {word for word in explained if not any(name.startswith(word) for name in used)}  # `odds_` for every odds_…
    assert stale == set()


def test_the_generated_vocabulary_has_every_word_with_its_meanings():
    pages = pytest.importorskip("pages")
    from solvable.models import LISTINGS

    rows = {row.split("`")[1]: row for row in pages.words_table(LISTINGS).splitlines() if row.startswith("| `")}
    assert "[perceptron](#perceptron)" in rows["samples"]
    assert all(len(re.split(r"(?<!\\)\|", row)[4].strip()) > 10 for row in rows.values())
