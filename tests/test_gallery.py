"""The gallery: ten notebooks over all families and methods, each with text, pictures and an exercise.

They are run when the documents are built, which `test_docs` does.
"""

import re
import sys
from pathlib import Path

import pytest

import solvable as sv
from solvable.models import FAMILIES
from solvable.render.notebooks import from_script, to_script

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS / "_ext"))
SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))
HEAD = re.compile(r"\*Family\* (\w+), \*method\* ([^,]+.*?), \*model\* `([\w-]+)`\.")


def head(script):
    return HEAD.search(" ".join(from_script(script.read_text(encoding="utf-8"))[0].source.split()))


def test_there_are_ten_notebooks_over_every_family_each_with_its_own_method():
    gallery = pytest.importorskip("gallery")
    assert sorted(gallery.ORDER) == [script.stem for script in SCRIPTS]
    assert len(SCRIPTS) == 10
    assert {head(script)[1] for script in SCRIPTS} == {line.family for line in sv.listings().values()} & set(FAMILIES)
    assert len({head(script)[2] for script in SCRIPTS}) == 10


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_notebook_is_clean_and_teaches(script):
    source = script.read_text(encoding="utf-8")
    cells = from_script(source)
    assert to_script(cells) == source
    line = sv.listings()[head(script)[3]]
    assert line.family == head(script)[1]
    assert any(f"sv.{line.name}(" in cell.source for cell in cells)
    assert any("## Exercise" in cell.source for cell in cells)
    assert any("solution" in cell.tags for cell in cells)
    assert sum("figure" in cell.source for cell in cells if cell.kind == "code") >= 1
    assert sum(len(cell.source.split()) for cell in cells if cell.kind == "markdown") > 120
    for cell in cells:
        if cell.kind == "code":
            compile(cell.source, script.stem, "exec")


def test_pages_and_notebooks_are_written(tmp_path):
    gallery = pytest.importorskip("gallery")
    pages = gallery.write_gallery(tmp_path, execute=False)
    assert len(pages) == 11
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    for name in gallery.ORDER:
        assert f"]({name}.md)" in index
        assert (tmp_path / f"{name}.ipynb").exists()
        assert "<details><summary>Solution</summary>" in (tmp_path / f"{name}.md").read_text(encoding="utf-8")
