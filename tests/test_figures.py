"""Figures: every listed figure is drawn from its stored results, with its data and provenance beside it."""

import ast
import json
import re
from importlib.util import find_spec
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import solvable as sv
from solvable.models import FIGURES, figure_named
from solvable.render.figures import MODELS, Recipe, draw, fingerprint, kept_in
from solvable.render.pieces import Pieces
from solvable.render.plots import plot_study

DATA = sorted(MODELS.glob("*/*/data/*.nc"), key=lambda file: file.name)
SLACK = 2e-6  # tolerance for simulations in single precision
# Quantities that must be monotone: file, variable, and the dimension along which it falls (−1) or rises (1).
ONE_WAY = [
    ("perceptron-learning-curves.theory", "bayes_error_theory", "samples", -1),
    ("potts-attention-learning-curves.couplings", "coupling_error_theory", "samples", -1),
    ("potts-attention-learning-curves.loss", "excess_loss_theory", "samples", -1),
    ("random-labels-collapse", "train_loss_theory", "samples", 1),
    ("masked-regression-peak.theory", "train_loss_theory", "penalty", 1),
    ("many-body-simplicity.exact", "floor", "order", -1),
    ("many-body-simplicity.long", "floor_fitted", "order", -1),
]


def kept(file):
    with xr.open_dataset(file, engine="scipy") as data:
        return data.load()


def models_of(study):
    """The ids of the models behind a dataset: of one study, of named arms, or of a figure's own list."""
    models = study["models"]
    several = models.values() if isinstance(models, dict) else models
    return {one if isinstance(one, str) else one.get("id") or one["model"] for one in several}


@pytest.mark.parametrize("file", DATA, ids=lambda file: file.stem)
def test_figures_show_the_computed_values_within_their_bounds(file):
    """The data record their origin, their hash matches, and every observable stays within its declared bounds."""
    data = kept(file)
    study = json.loads(data.attrs["study"])
    assert study["models"]
    assert {"version", "jax", "device", "sha256"} <= set(data.attrs)
    assert data.attrs["sha256"] == fingerprint(data)
    assert file.name.split(".")[0] in {f.name for f in FIGURES}
    bounds = {o.name: o for id in models_of(study) for o in sv.model_class(id).observables_declared}
    numbers = {n: v for n, v in data.data_vars.items() if v.dtype.kind == "f"}
    assert any(np.isfinite(v).any() for v in numbers.values()) or not numbers
    for name, values in numbers.items():
        what, _, source = name.rpartition("_")
        if source in ("theory", "simulated", "expected") and what in bounds:
            shown = values.values[np.isfinite(values.values)]
            slack = SLACK * (1 + np.abs(shown))
            assert np.all(shown >= bounds[what].low - slack), name
            assert np.all(shown <= bounds[what].high + slack), name


@pytest.mark.parametrize(("name", "variable", "along", "way"), ONE_WAY)
def test_monotone_observables_are_monotone(name, variable, along, way):
    data = kept(kept_in(name.split(".")[0]) / f"{name}.nc")
    steps = (
        data.sortby(along)[variable].diff(along).values if along in data.coords else data[variable].diff(along).values
    )
    steps = steps[np.isfinite(steps)]
    assert steps.size
    assert np.all(way * steps >= -1e-9)


def test_changed_data_fail_their_checksum(tmp_path):
    data = kept(DATA[0])
    name = next(n for n, v in data.data_vars.items() if v.dtype.kind == "f")
    data[name].values[...] += 1e-6
    assert data.attrs["sha256"] != fingerprint(data)


def test_every_figure_has_stored_data():
    assert {f.name for f in FIGURES} - {file.name.split(".")[0] for file in DATA} == set()


def axis_labels(source):
    """The literal labels of axes and colour bars in a module, as (line, text); parts that are computed count as one word."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        named = [k.value for k in call.keywords if k.arg in ("xlabel", "ylabel")]
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        texts = [*named, *(call.args[:1] if method in ("set_xlabel", "set_ylabel") else ())]
        for text in texts:
            if isinstance(text, ast.JoinedStr):
                yield text.lineno, "".join(str(v.value) if isinstance(v, ast.Constant) else "word" for v in text.values)
            elif isinstance(text, ast.Constant):
                yield text.lineno, str(text.value or "")


@pytest.mark.parametrize("module", sorted({figure.module for figure in FIGURES}))
def test_every_symbol_on_an_axis_has_a_word_beside_it(module):
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for line, text in axis_labels(Path(spec.origin).read_text(encoding="utf-8")):
        assert not text or re.search(r"[A-Za-z]{3,}", re.sub(r"\$[^$]*\$", "", text)), (
            f"{module}, line {line}: {text!r}"
        )


@pytest.mark.parametrize("name", ["what-transformers-learn", "perceptron-phase-diagram", "soft-committee-plateau"])
def test_a_figure_is_saved_as_png_and_pdf_with_its_data(name, tmp_path):
    files = {f.suffix: f for f in draw(name, tmp_path)}
    assert set(files) == {".png", ".pdf", ".nc"}
    picture = plt.imread(files[".png"])[..., :3]
    # something is drawn: many colours on a white background
    assert len(np.unique((255 * picture).astype(np.uint8).reshape(-1, 3)[::7], axis=0)) > 50
    assert 0.2 < np.mean(picture.min(axis=2) > 0.99) < 0.99
    with xr.open_dataset(files[".nc"], engine="scipy") as data:
        assert json.loads(data.attrs["study"])["models"]
        assert data.attrs["device"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [figure.name for figure in FIGURES])
def test_every_figure_is_drawn_from_its_stored_data(name, tmp_path):
    picture = plt.imread(next(f for f in draw(name, tmp_path) if f.suffix == ".png"))[..., :3]
    assert 0.2 < np.mean(picture.min(axis=2) > 0.99) < 0.99


def test_an_interrupted_figure_resumes_and_leaves_no_files(tmp_path, monkeypatch, capsys):
    from solvable.models.replica.perceptron import figures as perceptron

    made, impatient = [], [True]

    def compute(quick, pieces):
        def part(number):
            if number == 2 and impatient.pop():
                raise KeyboardInterrupt
            made.append(number)
            return {"value": np.array([number, quick])}

        return {
            "": xr.Dataset(
                {"x": ("n", [pieces.get(f"part {n}", [n], lambda n=n: part(n))["value"][0] for n in range(3)])}
            )
        }

    def picture(data):
        import matplotlib.pyplot as plt

        figure, axis = plt.subplots()
        axis.plot(data[""].x)
        return figure

    monkeypatch.setitem(perceptron.RECIPES, "perceptron-learning-curves", Recipe(compute, picture, resumes=True))
    with pytest.raises(KeyboardInterrupt):
        draw("perceptron-learning-curves", tmp_path, recompute=True)
    assert capsys.readouterr().err == "done: part 0\ndone: part 1\n"
    assert len(list(tmp_path.glob(".*/*.npz"))) == 2
    impatient.append(False)
    draw("perceptron-learning-curves", tmp_path, recompute=True)
    assert made == [0, 1, 2]
    drawn = xr.load_dataset(tmp_path / "perceptron-learning-curves.nc", engine="scipy")
    assert drawn.x.values.tolist() == [0, 1, 2]
    assert "core_seconds" not in drawn.attrs  # which would be the time of a part
    assert not list(tmp_path.glob(".*"))
    impatient.append(False)
    draw("perceptron-learning-curves", tmp_path, recompute=True)
    drawn = xr.load_dataset(tmp_path / "perceptron-learning-curves.nc", engine="scipy")
    assert 0 <= float(drawn.attrs["core_seconds"]) < 60


def test_exact_curves_are_shown_first_and_networks_are_added(tmp_path, monkeypatch, capsys):
    from solvable.models.attention.masked_language import figures as masked_language
    from solvable.render import figures as module

    quick = masked_language.QUICK
    small = {"law": quick["law"] | {"sites": 6, "colours": 3, "held_out": 20}, "sequences": (30, 60), "widths": (4,)}
    small |= {"networks": ("1 layer",), "steps": {3: (30, 60)}, "training": {"batch": 8, "recorded": 2}}
    small |= {"penalties": (1.0,), "exact": quick["exact"] | {"size": 10, "seeds": 2}}
    monkeypatch.setattr(masked_language, "QUICK", quick | small)
    shown = []

    def paint(picture, datasets, files, paint=module._save_picture):
        paint(picture, datasets, files)
        shown.append((datasets, [file.stat().st_size for file in files]))

    monkeypatch.setattr(module, "_save_picture", paint)
    draw("what-transformers-learn", tmp_path, quick=True)
    assert [len(sizes) for _, sizes in shown] == [1, 1, 2]  # early pictures, then the PNG and the PDF
    assert min(sizes[0] for _, sizes in shown) > 20_000
    first, then, last = (data for data, _ in shown)
    for name in masked_language.EXACT:
        np.testing.assert_array_equal(first["exact"][name], last["exact"][name])
        assert np.isfinite(first["exact"][name]).all()
    assert "test_loss_trained" not in first["exact"]
    assert np.isnan(first["sequences"].excess_loss).all()
    assert np.isfinite(then["exact"].test_loss_trained).all()
    known = np.isfinite(then["sequences"].excess_loss).all(("sequences", "seed"))
    assert known.to_series().to_dict() == {"factored": True, "dense": True, "1 layer": False}
    assert np.isfinite(last["sequences"].excess_loss).all()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Computing the exact results")
    assert sum(line.startswith(str(tmp_path / "what-transformers-learn.png")) for line in lines) == 2


def test_pieces_of_other_settings_are_recomputed(tmp_path):
    pieces = Pieces(tmp_path)
    make = [lambda v=v: {"value": np.array(v)} for v in (1, 2)]
    assert pieces.get("one", {"steps": 10}, make[0])["value"] == 1
    assert pieces.get("one", {"steps": 10}, make[1])["value"] == 1
    assert pieces.get("one", {"steps": 20}, make[1])["value"] == 2
    assert pieces.has("one", {"steps": 20})
    assert not pieces.has("other", {"steps": 20})


def test_every_model_has_a_figure():
    shown = {f.model for f in FIGURES} | {model for f in FIGURES for model in f.also}
    assert shown == set(sv.listings())


def test_an_unknown_figure_suggests_the_nearest_name():
    with pytest.raises(sv.UnknownName, match="did you mean 'soft-committee-plateau'"):
        figure_named("soft-comittee-plateau")


def test_curves_show_every_line_and_every_size_and_planes_their_transitions():
    ridge = sv.Perceptron(loss="square")
    study = sv.Study(ridge, {"penalty": [0.1, 1.0], "samples": [0.5, 1.0, 2.0]}, sizes=[20, 40], seeds=3)
    study.run(progress=False)
    axis = study.plot("norm").axes[0]
    labels = axis.get_legend_handles_labels()[1]
    assert {"penalty 0.1", "penalty 1", "d = 20", "d = 40"} <= set(labels)
    assert axis.get_xscale() == "log"
    spiked = sv.MaskedRegression(covariance="spiked", penalty=0.3)
    plane = sv.Study(spiked, {"samples": np.linspace(1.5, 4, 7), "spike": np.linspace(0, 3, 7)})
    plane.run(progress=False)
    figure = plot_study(plane, ["overlap_right"])
    assert "transition: PCA" in figure.axes[0].get_legend_handles_labels()[1]
    with pytest.raises(sv.UnknownName, match="this study has no observable 'nrm'"):
        study.plot("nrm")
