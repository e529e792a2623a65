"""Functions as values: by name on the command line; a text alone, which may come from a file or a link, imports nothing."""

import json
import os
import sys

import pytest

import solvable as sv
from commands import answer
from solvable.contract.functions import TRUSTED, trust_words

LOSS = "import jax.numpy as jnp\ndef smoothed(y, z):\n    return jnp.sqrt(1 + (y - z) ** 2)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a place of its own on the path; what is trusted there is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in (TRUSTED, "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    return tmp_path


def test_a_text_imports_a_module_only_if_the_user_named_it(folder, monkeypatch):
    (folder / "losses_one.py").write_text(LOSS)
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(sv.InvalidValue, match=TRUSTED):
        sv.GLM(loss="losses_one:smoothed", regulariser="ridge")
    assert "losses_one" not in sys.modules
    monkeypatch.setenv(TRUSTED, "losses_one")
    assert sv.GLM(loss="losses_one:smoothed", regulariser="ridge").loss == "losses_one:smoothed"


def test_words_of_the_command_line_name_modules_and_links_do_not(folder):
    trust_words(
        ["glm", "loss=losses_two:smoothed", "samples=1:8:3", "?model=glm&loss=losses_three:smoothed", "over=a:b"]
    )
    assert os.environ[TRUSTED].split(",")[-2:] == ["losses_two", "a"]
    assert "losses_three" not in os.environ[TRUSTED]


def test_a_command_computes_with_a_loss_of_ones_own(folder, capsys):
    (folder / "losses_four.py").write_text(LOSS)
    code, out, err = answer(capsys, "theory", "glm", "loss=losses_four:smoothed", "regulariser=ridge", "--json")
    assert (code, err) == (0, "")
    text = json.dumps(json.loads(out))
    assert "losses_four:smoothed" in text
    from losses_four import smoothed  # type: ignore[import-not-found]

    expected = float(sv.GLM(loss=smoothed, regulariser="ridge").theory().error)
    assert f"{expected:.10g}"[:8] in text
