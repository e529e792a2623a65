"""Figures: every listed one draws from its kept results, with its data and provenance beside it."""

import json

import numpy as np
import pytest
import xarray as xr

import solvable as sv
from solvable.figures import FIGURES, figure_named
from solvable.figures.draw import draw
from solvable.plotting import plot_study


@pytest.mark.parametrize("name", [f.name for f in FIGURES])
def test_a_figure_comes_as_png_and_pdf_with_its_data(name, tmp_path):
    files = {f.suffix: f for f in draw(name, tmp_path)}
    assert set(files) == {".png", ".pdf", ".nc"}
    assert files[".png"].stat().st_size > 20_000
    with xr.open_dataset(files[".nc"], engine="scipy") as data:
        assert json.loads(data.attrs["study"])["models"]
        assert data.attrs["device"]


def test_every_model_has_a_figure():
    assert {f.model for f in FIGURES} == set(sv.listings())


def test_an_unknown_figure_is_answered_with_the_nearest_name():
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
    plane = sv.Study(spiked, {"samples": np.linspace(1.5, 4, 4), "spike": np.linspace(0, 3, 4)})
    plane.run(progress=False)
    figure = plot_study(plane, ["overlap_right"])
    assert "transition: PCA" in figure.axes[0].get_legend_handles_labels()[1]
    with pytest.raises(sv.UnknownName, match="no observable 'nrm' in this study"):
        study.plot("nrm")
