"""Clones of a text: windows, conditionals as a law, and one sentence for every bad file."""

import importlib.metadata
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.cli.app import main
from solvable.errors import InvalidValue
from solvable.tools.text import ConditionalNetwork, clone, cut_windows, follow, learn_text, read_text


def licence():
    """The licence of an installed package: a few thousand characters of English."""
    files = [f for f in importlib.metadata.files("scipy") or [] if f.name.startswith("LICENSE")]
    return max((f.read_text() for f in files), key=len)


def test_windows_hold_the_most_common_characters_and_keep_their_last_tenth_for_tests():
    text = "abracadabra " * 200
    windows = cut_windows(text, sites=8, colours=4, stride=1)
    assert windows.characters == ("a", "b", "r", "�")
    assert windows.train.dtype == np.int8
    held = int(len(" ".join(text.split())) * 0.9)
    assert len(windows.train) == held - 7
    np.testing.assert_array_equal(windows.train[0], [0, 1, 2, 0, 3, 0, 3, 0])


def test_sweeps_with_a_networks_conditionals_draw_what_it_predicts():
    bias = jnp.log(jnp.asarray([0.7, 0.2, 0.1], jnp.float32))
    flat = ConditionalNetwork(lambda tokens, hidden: jnp.broadcast_to(bias, (4, 3)), 4, 3)
    drawn = np.asarray(clone(flat, jax.random.key(0), jnp.zeros((2000, 4), jnp.int32), 2))
    share = np.bincount(drawn.ravel(), minlength=3) / drawn.size
    np.testing.assert_allclose(share, [0.7, 0.2, 0.1], atol=5 * np.sqrt(0.25 / drawn.size))


def test_an_encoder_is_followed_on_the_text_and_on_its_clones():
    windows = cut_windows(licence(), sites=6, colours=8)
    found = learn_text(windows, depths=(1, 2), steps=40, sweeps=3, seeds=1, heads=2, width=8, batch=32, held=64)
    assert [s.order for s in found.sets] == [0, 2, 3]
    assert list(found.stack_losses) == [2, 3]
    for one in found.sets:
        assert one.losses[-1] < one.losses[0]
        assert found.steps[0] <= one.settled_step <= 40
        np.testing.assert_allclose(one.runs.mean(1), one.losses)


def test_a_decoder_does_not_see_what_follows():
    """A text in which every character repeats the one two before it: the next one is certain, but for the first two."""
    windows = cut_windows("ab" * 20_000, sites=8, colours=3)
    sets = {0: jnp.asarray(windows.test[:32], jnp.int32)}
    _, (seen,) = follow(windows, sets, steps=60, seeds=1, batch=32, causal=True)
    assert seen.losses[-1] < 0.1 * seen.losses[0]
    noise = jnp.asarray(np.random.default_rng(0).integers(2, size=(256, 8)), jnp.int32)
    _, (lost,) = follow(windows, {0: noise}, steps=60, seeds=1, batch=32, causal=True)
    assert lost.losses[-1] > np.log(2)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b" \n\n ", "is empty"),
        (b"abc\0def" * 1000, "is not a text file: it contains zero bytes"),
        (b"\xff\xfe" * 1000, "is not UTF-8 text"),
        (b"too short", "the text is too short: it has 9 characters"),
    ],
)
def test_bad_files_are_refused_in_one_sentence(content, sentence, tmp_path, capsys):
    file = tmp_path / "text.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SystemExit) as stop:
        main(["text", str(file), "--json"])
    assert stop.value.code == 2
    printed = capsys.readouterr()
    assert sentence in json.loads(printed.out)["error"]
    assert printed.err.count("\n") == 1


def test_numbers_out_of_range_are_refused(tmp_path):
    with pytest.raises(InvalidValue, match="sites = 2 is not in"):
        cut_windows("a" * 1000, 2, 5)
    with pytest.raises(InvalidValue, match="cannot be read: Is a directory"):
        read_text(tmp_path)
