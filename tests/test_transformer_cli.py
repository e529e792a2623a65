"""The command `solvable transformer`: advice, files, invalid input; and the table of parametrisations."""

import json
from typing import Any

import numpy as np
import pytest

from commands import answer
from solvable.errors import InvalidValue
from solvable.models.signals._parametrisations import RULES, depth_rule, multipliers
from solvable.tools.transformer import Shape, advise, read_config

TINY: dict[str, Any] = {"depth": 3, "width": 64, "heads": 4, "context": 16}
WORDS = ["--depth", 3, "--width", 64, "--heads", 4, "--context", 16]


def test_the_strength_is_the_spread_of_scores():
    shape = Shape(**TINY, std=0.2)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(64) * np.ones((4000, 1))
    x = x / np.sqrt(np.mean(x**2, axis=1, keepdims=True))
    queries, keys = (0.2 * rng.standard_normal((4000, 64, 16)) for _ in range(2))
    other = rng.standard_normal(64)
    other = other / np.sqrt(np.mean(other**2))
    scores = np.einsum("nd,ndk,e,nek->n", x, queries, other, keys, optimize=True) / np.sqrt(16)
    assert scores.std() / np.sqrt(np.log(16)) == pytest.approx(shape.strength(), rel=0.1)
    assert shape.query_std(2 * shape.strength()) == pytest.approx(0.2 * np.sqrt(2))


def test_advice_is_printed_with_a_table_and_what_it_rests_on(capsys):
    code, out, err = answer(capsys, "transformer", "advise", *WORDS, "--rate", 0.01)
    assert (code, err) == (0, "")
    assert "3 blocks of width 64, 4 heads, 16 tokens" in out
    assert "of the critical β_c = 1.41" in out
    assert "output projections" in out
    assert "Not predicted: training." in out


def test_json_and_a_config_file_give_the_same_numbers_as_the_function(capsys, tmp_path):
    file, picture = tmp_path / "config.json", tmp_path / "advice.png"
    file.write_text(json.dumps({"n_layer": 3, "n_embd": 64, "n_head": 2, "n_positions": 16, "vocab_size": 7}))
    code, out, _ = answer(capsys, "transformer", "advise", "--config", file, "--heads", 4, "--json", "--out", picture)
    found = json.loads(out)
    same = advise(**TINY)
    assert code == 0
    assert found["shape"]["heads"] == 4
    assert found["given"]["final_overlap"] == pytest.approx(float(same.given.overlap[-1]))
    assert found["notes"] == [f"ignored in {file}: vocab_size"]
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_the_networks_standard_deviation_and_that_of_the_base_model_are_two_things(capsys):
    """Where it stands as given depends on one, the table and the standing under the rule on the other."""
    one, other = advise(**TINY, std=0.02), advise(**TINY, std=0.02, base_std=0.1)
    np.testing.assert_array_equal(one.given.overlap, other.given.overlap)
    assert other.given.strength == one.given.strength
    assert other.under_rule.strength == pytest.approx(25 * one.under_rule.strength)
    assert one.base_std == 0.02
    started = [float(advice_row(advice, "hidden weights")[1][1]) for advice in (one, other)]
    assert started[1] == pytest.approx(5 * started[0])
    changed = advise(**TINY, std=0.1, base_std=0.1)
    assert changed.table() == other.table()
    np.testing.assert_array_equal(changed.under_rule.overlap, other.under_rule.overlap)
    assert changed.given.strength > other.given.strength
    code, out, _ = answer(capsys, "transformer", "advise", *WORDS, "--base-std", 0.1)
    assert code == 0
    assert "initial standard deviation 0.1." in " ".join(out.split())
    assert "that of this network, since base_std is not given" in one.sentences_under_rule()[0]


def advice_row(advice, group):
    columns, rows = advice.table()
    return columns, next(row for row in rows if row[0] == group)


def test_the_table_of_the_standard_rule_is_the_network_of_the_standard_rule():
    """GPT-2's output projections start at σ/√(2L), whatever the base model's depth."""
    for base_depth in (1, 2, 12):
        advice = advise(rule="standard", **TINY, std=0.02, base_depth=base_depth)
        assert float(advice_row(advice, "output projections")[1][1]) == pytest.approx(0.02 / np.sqrt(6), rel=1e-3)


def test_the_room_above_the_given_branches_is_where_the_signal_is_lost():
    shape = {**TINY, "depth": 40}
    settings: dict[str, Any] = {"projections": "plain", "embedding_std": 1.0, "overlap": 0.3, "layer_norm": "after"}
    kept = advise(**shape, **settings, std=0.1, residual=0.1)
    assert kept.given.verdict == "signal kept"
    assert kept.room is not None
    assert kept.room > 1
    for factor, verdict in ((0.95, "signal kept"), (1.05, "rank collapse")):
        again = advise(**shape, **settings, std=0.1, residual=0.1 * factor * kept.room)
        assert again.given.verdict == verdict


def test_large_weights_freeze_attention_and_strong_branches_collapse():
    frozen = advise(**TINY, std=0.3, projections="plain", embedding_std=1.0)
    assert frozen.given.verdict in ("entropy collapse", "both")
    assert frozen.strongest is not None
    assert frozen.strongest < frozen.given.strength
    deep = advise(
        **{**TINY, "depth": 40}, std=0.1, projections="plain", embedding_std=1.0, overlap=0.3, layer_norm="after"
    )
    assert deep.given.verdict == "rank collapse"
    assert deep.given.blocks_kept in range(1, 40)
    assert deep.branch is not None
    kept = advise(
        **{**TINY, "depth": 40}, std=0.1, projections="plain", embedding_std=1.0, overlap=0.3, layer_norm="after",
        residual=0.95 * deep.branch,
    )  # fmt: skip
    assert kept.given.overlap[-1] < 0.9


def test_the_rules_have_the_exponents_of_the_papers():
    complete, half, wide, plain = (multipliers(r, 4.0, 16.0) for r in ("completep", "depth-mup", "mup", "standard"))
    assert complete["hidden weights"] == {"variance": 0.25, "rate": 0.25, "epsilon": 1 / 64, "decay": 4.0}
    assert half["hidden weights"] == {"variance": 0.25, "rate": 1 / 16, "epsilon": 1 / 16, "decay": 4.0}
    assert wide["hidden weights"] == {"variance": 0.25, "rate": 0.25, "epsilon": 0.25, "decay": 1.0}
    assert plain["hidden weights"] == {"variance": 1.0, "rate": 1.0, "epsilon": 1.0, "decay": 1.0}
    assert plain["output projections"]["variance"] == 1 / 16
    assert complete["embedding"] == {"variance": 1.0, "rate": 1.0, "epsilon": 0.25, "decay": 1.0}
    assert half["hidden norms"]["rate"] == 0.25
    assert half["final norm"]["rate"] == 1.0
    assert RULES["completep"].residual.at(4, 16) == 1 / 16
    with pytest.raises(InvalidValue, match=r"alpha = 2 is outside its range \[0.5, 1\]"):
        depth_rule(2.0)


def test_under_a_rule_the_size_of_a_gradient_over_epsilon_is_that_of_the_base():
    """ε follows gradients: hidden ones are of order 1/N through the output and m_L^−α through the branch."""
    for rule in RULES.values():
        for group, how in rule.groups.items():
            inside = group in ("hidden weights", "output projections", "hidden biases", "hidden norms")
            assert how.epsilon.width == rule.output.width
            assert how.epsilon.depth == (rule.residual.depth if inside else 0.0)


def test_the_exponents_are_printed(capsys):
    code, out, _ = answer(capsys, "transformer", "rules", "--rule", "depth-mup")
    assert code == 0
    assert "m_N^-1 · m_L^-0.5" in out
    _, out, _ = answer(capsys, "transformer", "rules", "--json")
    assert json.loads(out)["residual"] == "m_L^-1"


@pytest.mark.parametrize(("words", "sentence"), [
    (["--depth", 3], "width, heads, context must be given"),
    ([*WORDS, "--heads", 5], "heads = 5 does not divide width = 64."),
    ([*WORDS, "--std", -1], "std = -1.0 is not a number in (0, 10]."),
    ([*WORDS, "--std", 3], "std = 3 gives queries and keys the strength β"),
    ([*WORDS, "--base-std", 0], "base_std = 0.0 is not a number in (0, 10]"),
    ([*WORDS, "--base-std", 4], "base_std = 4 under completep gives queries and keys the strength β"),
    ([*WORDS, "--base-std", 9], "base_std = 9 under completep gives weights of standard deviation 18"),
    ([*WORDS, "--context", 1], "context = 1 is not a whole number in [2, 100000]."),
    ([*WORDS, "--activation", "silu"], "activation = 'silu' is not one of 'relu', 'gelu', 'erf', 'tanh'."),
    ([*WORDS, "--rule", "complete"], "no parametrisation 'complete'"),
    ([*WORDS, "--out", "advice.txt"], "does not end in .png"),
    (["--config", "missing.json"], "'missing.json' cannot be read"),
])  # fmt: skip
def test_wrong_values_are_one_sentence_and_exit_code_two(capsys, words, sentence):
    code, out, err = answer(capsys, "transformer", "advise", *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_a_config_that_is_no_object_is_refused(tmp_path):
    file = tmp_path / "config.json"
    for text, words in (("[1]", "holds a list instead of a JSON object"), ("{", "is not JSON")):
        file.write_text(text)
        with pytest.raises(InvalidValue, match=words):
            read_config(file)
