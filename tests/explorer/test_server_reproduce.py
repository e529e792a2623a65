"""Exports reproduce the numbers on the screen: the program and the commands are run unchanged."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

import solvable as sv
from waiting import LONG

SOURCE = str(Path(sv.__file__).parents[1])
RIDGE = {"loss": "square", "teacher": "linear"}
VIEWS = {
    "curve": {
        "model": "perceptron",
        "values": RIDGE | {"penalty": 0.1 + 0.2},  # 0.30000000000000004: every bit counts
        "x": {"field": "samples", "from": 0.5, "to": 4, "points": 20, "scale": "log"},
        "observables": ["test_loss", "overlap"],
        "sizes": [20],
        "seeds": 3,
        "simulated": 2,
    },
    "plane": {
        "model": "toy",
        "values": {"kind": "odd"},
        "x": {"field": "samples", "from": 0.5, "to": 8, "points": 5},
        "y": {"field": "penalty", "from": 0, "to": 1, "points": 4},
        "observables": ["test_error"],
        "sizes": [20],
        "seeds": 2,
        "simulated": 2,
    },
    "branches": {
        "model": "toy",
        "x": {"field": "penalty", "from": 0, "to": 2, "points": 5},
        "observables": ["test_error"],
        "branches": True,
        "sizes": [],
    },
    "time": {"model": "toy", "values": {"terms": 4}, "observables": ["curve"], "sizes": [20, 40], "seeds": 3},
}


@pytest.fixture(
    scope="module",
    params=[
        "curve",
        "time",
        "branches",
        "plane",
    ],
)
def screen(request, running):
    """A view, the numbers that the page shows, and its exports."""
    view = VIEWS[request.param]
    curves = running.post("/api/theory", {"view": view}).json
    points = running.simulated(view).points if view["sizes"] else {}
    away = running.post("/api/reproduce", {"view": view}).json
    return view, curves["series"], points, away


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join([SOURCE, os.environ["PYTHONPATH"]]), "MPLBACKEND": "agg"}


def numbers(series):
    """Series of one observable stacked: branches, if there are any, in front."""
    return np.asarray(series["values"], float)


def check_curves(series, found):
    for one in series:
        mine = np.asarray(found(one), float)
        np.testing.assert_allclose(numbers(one), mine, rtol=1e-12, atol=0)


def check_points(points, view, data):
    assert points
    for (name, size, x, y), point in points.items():
        at = {view["x"]["field"]: x} if x is not None else {}
        at |= {view["y"]["field"]: y} if y is not None else {}
        seeds = data[f"{name}_simulated"].sel(size=size, **at).values
        np.testing.assert_array_equal(point["mean"], seeds.mean(0))


def test_the_program_reproduces_the_shown_view(screen, tmp_path):
    view, series, points, away = screen
    check = (
        "\nimport json\n"
        "def plain(a): return np.where(np.isfinite(a), a, None).tolist()\n"
        "import numpy as np\n"
        "out = {}\n"
        "if 'outcome' in globals(): out['outcome'] = {n: plain(np.asarray(outcome[n])) for n in outcome}\n"
        "if 'theory' in globals(): out['theory'] = {n: plain(theory[n].values) for n in theory}\n"
        "if 'simulated' in globals(): simulated.to_netcdf('simulated.nc', engine='scipy')\n"
        "json.dump(out, open('out.json', 'w'))\n"
    )
    program = away["python"] + check
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=LONG
    )
    assert done.returncode == 0, done.stderr
    out = json.loads((tmp_path / "out.json").read_text())

    def found(one):
        if "theory" in out:
            return out["theory"][f"{one['observable']}_theory"]
        whole = np.asarray(out["outcome"][one["observable"]], float)
        return whole[..., one["branch"]] if "branch" in one else whole

    check_curves(series, found)
    if view["sizes"]:
        import xarray as xr

        with xr.open_dataset(tmp_path / "simulated.nc", engine="scipy") as data:
            check_points(points, view, data)
        assert (tmp_path / f"{view['model']}.png").stat().st_size > 4000


def test_the_commands_reproduce_the_shown_view(screen, tmp_path):
    view, series, points, away = screen
    out = None
    for line in away["shell"].splitlines():
        words = shlex.split(line)
        assert words[0] == "solvable"
        done = subprocess.run(
            [sys.executable, "-m", *words],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LONG,
        )
        assert done.returncode == 0, done.stderr
        if "--json" in words:
            out = json.loads(done.stdout)
    assert out is not None

    def found(one):
        if "theory" in out:
            return out["theory"][f"{one['observable']}_theory"]
        whole = np.asarray(out["observables"][one["observable"]], float)
        return whole[..., one["branch"]] if "branch" in one else whole

    check_curves(series, found)
    if view["sizes"]:
        check_points(points, view, sv.open(tmp_path / "runs" / view["model"]).dataset())


def test_the_link_holds_the_whole_view(running, screen):
    view, _, _, away = screen
    params = {n: v[0] for n, v in parse_qs(urlsplit(away["link"]).query).items()}
    assert params["model"] == view["model"]
    for name, value in view.get("values", {}).items():
        default = sv.model_class(view["model"]).fields()[name].default
        assert params.get(name, str(default)) == str(value)
    for which in ("x", "y"):
        if axis := view.get(which):
            field, low, high, points, scale = params[which].split(":")
            assert (field, float(low), float(high), int(points)) == (
                axis["field"], axis["from"], axis["to"], axis["points"],
            )  # fmt: skip
            assert scale == axis.get("scale", sv.model_class(view["model"]).fields()[field].scale)
    assert params["show"].split(",") == view["observables"]
    assert [int(s) for s in params.get("sizes", "").split(",") if s] == view["sizes"]
    assert running.get(urlsplit(away["link"])._replace(scheme="", netloc="").geturl()).status == 200


def test_words_that_a_shell_would_read_are_quoted(running):
    away = running.post("/api/reproduce", {"view": {"model": "soft-committee", "values": {"times": [0.0, 1.0]}}}).json
    assert shlex.split(away["shell"].splitlines()[0])[3] == "times=[0.0, 1.0]"
    assert "times=[0.0, 1.0]" in away["python"]


def test_an_experiment_is_reproduced_by_its_simulation_alone(running):
    away = running.post("/api/reproduce", {"view": {"model": "sleepy", "sizes": [2], "seeds": 2}}).json
    assert "theory" not in away["python"]
    assert away["shell"] == "solvable study sleepy --size 2 --seeds 2 --out runs/sleepy\n"


PINNED = {
    "view": {
        "model": "toy",
        "values": {"penalty": 0.25},
        "x": {"field": "samples", "from": 0.5, "to": 8, "points": 5, "scale": "linear"},
        "observables": ["test_error"],
        "sizes": [20],
        "seeds": 2,
        "simulated": 3,
    },
    "pins": [{"penalty": 4.0}, {}],
    "logarithmic": True,
}


def test_program_commands_and_link_keep_pins_and_logarithmic_axes(running, tmp_path):
    away = running.post("/api/reproduce", PINNED).json
    assert "scales={'samples': 'linear', 'test_error': 'log'}" in away["python"]
    keep = (
        "\nimport json, matplotlib.pyplot as plt\naxis = plt.gcf().axes[0]\n"
        "out = {n: each.dataset().test_error_theory.values.tolist() for n, each in pinned.items()}\n"
        "json.dump([out, axis.get_xscale(), axis.get_yscale(), [l.get_text() for l in plt.gcf().legends[0].texts]],"
        " open('out.json', 'w'))\n"
    )
    words = [sys.executable, "-c", away["python"] + keep]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stderr
    pinned, across, up, legend = json.loads((tmp_path / "out.json").read_text())
    assert (across, up) == ("linear", "log")
    assert {"penalty 0.25", "penalty 4", "penalty 0.5"} <= set(legend)
    for text, values in zip(("penalty 4", "penalty 0.5"), PINNED["pins"], strict=True):
        shown = running.post("/api/theory", {"view": PINNED["view"] | {"values": values}}).json["series"][0]["values"]
        np.testing.assert_allclose(pinned[text], shown, rtol=1e-12)
    lines = away["shell"].splitlines()
    assert ["penalty=4.0" in line for line in lines] == [False, True, False, False]
    assert lines[-1].endswith("--scale samples=linear --scale test_error=log")
    params = parse_qs(urlsplit(away["link"]).query)
    assert params["pin"] == ["penalty:4.0", "defaults"]
    assert params["axis"] == ["log"]


def test_pictures_keep_pins_branches_and_logarithmic_axes(running):
    def text(**body):
        reply = running.post("/api/export", {"format": "svg", **body})
        assert reply.status == 200, reply
        return reply.body.decode()

    view = PINNED["view"] | {"x": {"field": "samples", "from": 0.001, "to": 8, "points": 9, "scale": "log"}}
    assert "penalty 4" not in text(view=view)
    assert "penalty 4" in text(view=view, pins=PINNED["pins"])
    plain, log = text(view=view), text(view=view, logarithmic=True)
    assert ">0.4<" in plain
    assert ">0.4<" not in log
    assert ">0.5<" in log  # between 0.2 and 1
    both = text(view=view | {"branches": True})
    assert "branch 1" in both
    assert "branch 2" in both
    job = running.simulated(view).job
    assert "penalty 4" in text(view=view, pins=PINNED["pins"], job=job)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"pins": [{}] * 7}, "at most 6"),
        ({"pins": "all"}, "must be a list"),
        ({"pins": [{"penalty": -1}]}, "penalty = -1 is outside its range"),
        ({"logarithmic": 1}, "logarithmic must be true or false"),
    ],
)
def test_a_bad_pin_is_refused_in_one_sentence(running, more, sentence):
    for address, kind in (("/api/reproduce", {}), ("/api/export", {"format": "svg"})):
        reply = running.post(address, {**PINNED, **kind, **more})
        assert reply.status == 422
        assert sentence in reply.error
