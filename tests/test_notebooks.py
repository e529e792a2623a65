"""Notebooks: the format, running them, and the one that `solvable notebook` writes for a model."""

import base64
import json
import re

import numpy as np
import pytest

import solvable as sv
from commands import answer
from solvable.render.notebooks import Cell, code, from_script, run, text, to_ipynb, to_markdown, to_script
from solvable.render.teach import teaching_cells

CELLS = [
    text("# Title\n\nText with $x_i$."),
    code("x = 20 + 1\nprint('printed')\n2 * x"),
    code("import matplotlib.pyplot as plt\n\nfigure = plt.figure(figsize=(1, 1))"),
    code("def double(y):\n    return 2 * y\n\n\ndouble(x)", "solution"),
]


def test_a_script_is_read_back_as_it_was_written():
    assert from_script(to_script(CELLS)) == CELLS
    assert to_script(from_script(to_script(CELLS))) == to_script(CELLS)


def test_running_records_what_is_printed_the_last_value_and_figures():
    ran = run(CELLS)
    assert [[o.kind for o in cell.outputs] for cell in ran] == [[], ["text", "value"], ["png"], ["value"]]
    assert [o.content for o in ran[1].outputs] == ["printed\n", "42"]
    assert base64.b64decode(ran[2].outputs[0].content).startswith(b"\x89PNG")


def test_a_cell_that_fails_is_named():
    with pytest.raises(sv.SolvableError, match=r"cell 2 \('1 / 0'\) failed: ZeroDivisionError"):
        run([code("x = 1"), code("1 / 0")])


def test_the_written_notebook_is_valid_and_clean():
    nbformat, jupytext = pytest.importorskip("nbformat"), pytest.importorskip("jupytext")
    ran = run(CELLS)
    notebook = nbformat.reads(to_ipynb(ran), as_version=4)
    nbformat.validate(notebook)
    assert [cell.get("execution_count") for cell in notebook.cells] == [None, 1, 2, 3]
    script = jupytext.writes(notebook, "py:percent")
    body = script.split("# ---\n")[-1].strip("\n")
    single = re.compile(r"\n+(?=# %%)")  # Jupytext leaves two lines before a function
    assert single.sub("\n", body) == single.sub("\n", to_script(ran).rstrip("\n"))
    again = jupytext.reads(to_script(ran), "py:percent")
    assert [(c.cell_type, c.source) for c in again.cells] == [(c.kind, c.source) for c in CELLS]


def test_a_page_shows_outputs_and_folds_solutions(tmp_path):
    page = to_markdown(run(CELLS), tmp_path / "one", "/pictures/one")
    assert "```text\nprinted\n```" in page
    assert "![The figure that this cell draws](/pictures/one-1.png)" in page
    assert (tmp_path / "one-1.png").exists()
    assert page.index("<details>") > page.index("one-1.png")
    assert page.rstrip().endswith("</details>")


@pytest.mark.parametrize("id", [i for i, line in sv.listings().items() if line.kind != "experiment"])
def test_every_theory_has_a_notebook_that_teaches_it(id, monkeypatch):
    from solvable.render import teach

    kind = sv.model_class(id)
    monkeypatch.setattr(kind, "transition_lines", sv.Model.transition_lines)  # which would be computed
    monkeypatch.setattr(kind, "transition", sv.Model.transition)
    monkeypatch.setattr(teach, "_moves", lambda model, x, numbers: True)
    cells = teaching_cells(kind())
    heads = [cell.source.splitlines()[0] for cell in cells if cell.kind == "markdown"]
    assert heads[:3] == [f"# {kind.title}", "## The question", "## The exact curve"]
    assert "## Simulation" in heads or kind.what_it_has() == "theory"
    prepared = not kind().unprepared
    assert ("## Exercise" in heads) == prepared
    assert any("solution" in cell.tags for cell in cells) == prepared
    for cell in cells:
        if cell.kind == "code":
            compile(cell.source, id, "exec")
    assert from_script(to_script(cells)) == cells


def test_a_curve_that_is_flat_gives_way_to_what_moves():
    curves = {}
    for kind in (sv.QuadraticNetwork, sv.BinaryInitialisation):
        cells = [cell.source for cell in teaching_cells(kind())]
        curves[kind.id] = next(source for source in cells if source.startswith("curve = "))
    assert 'show=["test_loss", "trace"]' in curves["quadratic-network"]  # the threshold does not depend on the scale
    assert 'show=["depth_scale"]' in curves["binary-initialisation"]


def test_a_notebook_locates_a_transition_only_where_there_is_one():
    cells = "\n".join(cell.source for cell in teaching_cells(sv.RandomFeatures()))
    assert (
        'sv.locate(model, along="width", what="transition")' in cells
    )  # two features need more samples than are typical
    assert np.isfinite(sv.locate(sv.RandomFeatures(), along="width"))
    assert np.isnan(sv.locate(sv.RandomFeatures(), along="samples"))
    assert "what=" not in "\n".join(cell.source for cell in teaching_cells(sv.create("masked-regression")))


@pytest.mark.parametrize("id", [i for i, line in sv.listings().items() if line.kind == "experiment"])
def test_every_experiment_has_a_notebook_that_draws_its_kept_results(id):
    from solvable.models import FIGURES
    from solvable.render.figures import kept_in

    cells = teaching_cells(sv.create(id))
    code_cells = "\n".join(cell.source for cell in cells if cell.kind == "code")
    compile(code_cells, id, "exec")
    for figure in FIGURES:
        if figure.model == id and list(kept_in(figure.name).glob(f"{figure.name}.*nc")):
            assert f'kept("{figure.name}")' in code_cells
    assert ".simulate(seed=0" in code_cells
    assert "in theory" not in cells[1].source.splitlines()[2]  # it has none


def test_the_notebook_of_a_model_runs_from_top_to_bottom(capsys, tmp_path, monkeypatch):
    from solvable.render import teach

    monkeypatch.setattr(teach, "BUDGET", 0.05)  # the smallest simulation and the coarsest plane
    file = tmp_path / "n" / "ridge.ipynb"
    words = ("notebook", "perceptron", "loss=square", "teacher=linear", "noise=0.3", "--out", file, "--json")
    status, out, _ = answer(capsys, *words)
    answered = json.loads(out)
    assert (status, answered["executed"], answered["file"]) == (0, True, str(file))
    notebook = json.loads(file.read_text(encoding="utf-8"))
    cells = notebook["cells"]
    assert len(cells) == answered["cells"]
    run_cells = [c for c in cells if c["cell_type"] == "code"]
    kinds = [{o["output_type"] for o in c["outputs"]} for c in run_cells]
    assert sum("display_data" in k for k in kinds) == answered["pictures"] == 3  # curve, simulation, plane
    solution = next(c for c in run_cells if c["metadata"].get("tags") == ["solution"])
    assert "0.3 " in "".join(solution["outputs"][0]["text"]) or "penalty = 0.3" in "".join(
        solution["outputs"][0]["text"]
    )


@pytest.mark.parametrize(
    "id",
    ["soft-committee", "masked-regression", "linear-diffusion", "ica", "binary-initialisation"],
)
def test_notebooks_of_other_families_run_from_top_to_bottom(id, monkeypatch):
    from solvable.render import teach

    monkeypatch.setattr(teach, "BUDGET", 0.05)
    ran = run(teaching_cells(sv.create(id)), dpi=40)
    printed = "".join(o.content for cell in ran for o in cell.outputs if o.kind != "png")
    assert "nan" not in "".join(o.content for cell in ran if "solution" in cell.tags for o in cell.outputs)
    assert "converged" in printed or "finite-size" in printed or "agree" in printed
    assert sum(o.kind == "png" for cell in ran for o in cell.outputs) >= 2


def test_a_script_is_written_without_running_it(capsys, tmp_path):
    file = tmp_path / "ridge.py"
    status, out, _ = answer(capsys, "notebook", "perceptron", "--out", file)
    assert (status, out.strip()) == (0, str(file))
    assert from_script(file.read_text(encoding="utf-8")) == teaching_cells(sv.Perceptron())
    status, out, _ = answer(capsys, "notebook", "perceptron", "--out", tmp_path / "r.ipynb", "--no-execute", "--json")
    assert (status, json.loads(out)["executed"]) == (0, False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("perceptro",), "there is no model 'perceptro'"),
        (("perceptron", "--out", "p.html"), "does not end in .ipynb (a notebook) or .py (a script)"),
        (("perceptron", "sampels=2"), "no field 'sampels'; did you mean 'samples'?"),
        (("perceptron", "samples=1:2:3"), "its controls must be numbers, but have shape (3,)"),
        (("perceptron", "--out", "/dev/null/p.py"), "the file '/dev/null/p.py' cannot be written"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(capsys, words, sentence):
    status, out, err = answer(capsys, "notebook", *words, "--json")
    assert status == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert sentence in json.loads(out)["error"]


def test_a_cell_is_its_source_without_newlines_at_its_ends():
    assert code("\nx = 1\n") == Cell("code", "x = 1")
