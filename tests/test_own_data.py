"""Figures and models of real data with arrays of the reader's, from files, and what they say to wrong ones."""

import json

import numpy as np
import pytest
import xarray as xr

import solvable as sv
from commands import answer
from solvable.errors import InvalidValue, SolvableError
from solvable.methods.data.digits import digit_images
from solvable.methods.data.own import own_table
from solvable.models.online.online_attack import digits_figures as attacks
from solvable.models.replica.bias_geometry import table_figures as bias
from solvable.models.replica.transfer import digits_figures as transfer


@pytest.fixture
def files(tmp_path):
    """Three hundred digits, in pixels of another unit and origin, with their classes and a group."""
    pixels, shown = (part[:300] for part in digit_images())
    arrays = {"X": 5.0 + 2.0 * pixels, "y": shown, "parity": shown % 2, "group": (shown < 5).astype(int)}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


def drawn(capsys, name, out, *fields):
    code, printed, _ = answer(capsys, "figure", name, *fields, "--quick", "--out", out, "--json")
    assert code == 0
    assert [f.rpartition("/")[2] for f in json.loads(printed)["files"]] == [
        f"{name}-own.png",
        f"{name}-own.pdf",
        f"{name}-own.nc",
    ]
    with xr.open_dataset(out / f"{name}-own.nc", engine="scipy") as data:
        return data.load()


def test_transfer_between_groupings_of_own_classes(files, capsys, tmp_path):
    data = drawn(capsys, "transfer-digits", tmp_path, f"X=@{files / 'X.npy'}", f"y=@{files / 'y.npy'}")
    same, shuffled = (
        data.error.sel(source=source, learner="source").isel(samples=-1).mean()
        for source in ("same task", "labels shuffled")
    )
    assert same < 0.3  # digits are easy, and the source has learnt the same task
    assert shuffled > same
    assert data.samples.max() <= 60  # a fifth of the rows


def test_attacks_turn_a_learner_of_own_rows(files, capsys, tmp_path):
    data = drawn(capsys, "online-attack-digits", tmp_path, f"X=@{files / 'X.npy'}", f"y=@{files / 'parity.npy'}")
    constant = data.error.sel(learner="linear", attack="constant").mean("seed")
    assert constant.sel(cost=0.5) > 0.5 > constant.sel(cost=2.0)


def test_gaps_between_own_groups_grow_with_the_share(files, capsys, tmp_path):
    fields = [f"X=@{files / 'X.npy'}", f"y=@{files / 'parity.npy'}", f"group=@{files / 'group.npy'}"]
    data = drawn(capsys, "bias-geometry-table", tmp_path, *fields)
    gap = data.gap.mean("seed").isel(table=0)
    assert gap.sel(share=0.9) > gap.sel(share=0.1)
    assert np.isfinite(data.model).all()


def test_layers_are_defrosted_on_own_rows(files, capsys):
    fields = ["tasks=given", f"rows=@{files / 'X.npy'}", f"classes=@{files / 'y.npy'}"]
    settings = ["depth=1", "units=16", "samples=4", "correlation=1", "steps=20"]
    code, out, _ = answer(
        capsys, "simulate", "layer-defrosting", *fields, *settings, "--size", "10", "--seed", "0", "--json"
    )
    assert code == 0
    found = json.loads(out)["observables"]
    # At ρ = 1 both tasks are the same: the unchanged source network has its own error on the target.
    assert found["unchanged_error"] == pytest.approx(found["source_error"])
    assert found["source_error"] < 0.35
    assert found["label_correlation"] == pytest.approx(1.0)


def test_exchanged_pairs_of_own_classes_lower_the_correlation_of_the_tasks():
    """Six classes of equal number: one exchanged pair leaves a correlation of 1 − 4/6."""
    rng = np.random.default_rng(0)
    classes = np.repeat([1, 3, 4, 8, 9, 20], 40)
    model = sv.LayerDefrosting(
        tasks="given", rows=rng.normal(size=(240, 6)), classes=classes, correlation=0.4, samples=2.0, depth=1, units=4, steps=1
    )  # fmt: skip
    seen = [float(model.simulate(seed=seed, size=6).label_correlation) for seed in range(6)]
    assert np.mean(seen) == pytest.approx(1 - 4 / 6, abs=0.15)


WRONG_TABLES = {
    "X is not an array of numbers": {"X": [1.0, 2.0]},
    "X has an entry that is not finite": {"X": [[1.0], [np.nan]] * 40},
    "X has 10 rows, but at least 60": {"X": np.ones((10, 2))},
    "X has no column that varies": {"X": np.ones((80, 2))},
    "y has 79 entries instead of 80": {"y": np.arange(79) % 2},
    "y has 5 different values instead of exactly 2": {"y": np.arange(80) % 5},
    "y is not an array of numbers": {"y": ["a"] * 80},
    "group has 1 different values": {"group": np.zeros(80)},
    "there is no field 'Y'": {"Y": np.zeros(80)},
    "group has only 5 rows of one group": {"group": (np.arange(80) < 5).astype(int)},
}


@pytest.mark.parametrize("sentence", WRONG_TABLES)
def test_wrong_arrays_get_one_sentence(sentence):
    good = {"X": np.random.default_rng(0).normal(size=(80, 2)), "y": np.arange(80) % 2, "group": np.arange(80) % 2}
    with pytest.raises(SolvableError, match="^" + sentence) as found:
        bias.own_groups(True, good | WRONG_TABLES[sentence])
    assert str(found.value).count("\n") == 0


@pytest.mark.parametrize(("own", "least"), [(attacks.on_own, 2), (transfer.on_own, 4)])
def test_every_figure_names_the_array_that_is_missing_and_the_classes_it_needs(own, least):
    rows = np.random.default_rng(0).normal(size=(240, 3))
    with pytest.raises(InvalidValue, match="^y is missing"):
        own(True, {"X": rows})
    with pytest.raises(InvalidValue, match=f"^y has 1 different values instead of .*{least}"):
        own(True, {"X": rows, "y": np.zeros(240)})


def test_own_tables_do_not_depend_on_unit_and_origin():
    rng = np.random.default_rng(1)
    rows, classes = rng.normal(size=(70, 3)), rng.integers(0, 3, 70)
    one, other = (own_table({"X": x, "y": classes}, least_rows=10) for x in (rows, 3.0 - 2.0 * rows))
    np.testing.assert_allclose(other.rows, -one.rows, atol=1e-12)
    assert np.mean(one.rows**2) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("figure", "perceptron-phase-diagram", "X=@a.npy"), "cannot be read"),
        (("figure", "perceptron-phase-diagram", "X=1"), "takes no fields; those that take arrays are"),
        (("figure", "transfer-digits", "X=1", "--recompute"), "--recompute is for the data stored"),
        (("figure", "transfer-digits", "X=[[1,2],[3,4]]"), "y is missing"),
        (("simulate", "layer-defrosting", "tasks=given"), "tasks = 'given' needs rows"),
    ],
)
def test_wrong_commands_end_with_code_two_and_one_sentence(capsys, arguments, sentence):
    code, _, complaint = answer(capsys, *arguments)
    assert code == 2
    assert sentence in complaint
    assert len(complaint.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"classes": np.arange(80) % 3}, "classes has 3 different values, but at least 4"),
        ({"rows": np.ones((80, 2))}, "rows has no column that varies"),
        ({"rows": np.ones((20, 2)), "classes": np.arange(20) % 5}, "rows has 20 rows, but at least 60"),
        ({"classes": None}, "tasks = 'given' needs classes"),
    ],
)
def test_wrong_rows_of_layer_defrosting_get_one_sentence(changed, sentence):
    good = {"tasks": "given", "rows": np.random.default_rng(0).normal(size=(80, 2)), "classes": np.arange(80) % 5}
    with pytest.raises(InvalidValue, match="^" + sentence):
        sv.LayerDefrosting(**(good | changed))
