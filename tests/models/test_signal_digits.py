"""Transformers on digits: the start agrees with the theory of signals, training lowers the loss."""

import jax
import jax.numpy as jnp
import numpy as np

import solvable as sv
from solvable.model import simulate_batch
from solvable.models.signals.signal_digits.model import TOKENS, patches


def test_patches_are_the_images():
    from solvable.methods.data.digits import digit_images

    tiles, labels = patches()
    assert tiles.shape == (len(labels), 16, 4)
    image = digit_images()[0][7].reshape(8, 8)
    np.testing.assert_array_equal(tiles[7, 5].reshape(2, 2), image[2:4, 2:4])


def test_training_lowers_the_loss_and_weak_signals_do_not_prevent_it_in_one_block():
    model = sv.SignalDigits(depth=1, steps=40, rate=3e-3)
    found = simulate_batch(model, {}, jnp.stack([model.key(24, s) for s in range(2)]), 24)
    assert np.all(found["train_loss"] < np.log(10) - 0.3)
    assert np.all(found["train_accuracy"] > 0.3)


def test_the_overlap_at_the_start_is_that_of_the_theory():
    """Tokens without images: positions alone, which are orthogonal."""
    model = sv.SignalDigits(depth=3, strength=1.0)
    theory = sv.TransformerSignals(
        context=TOKENS, depth=3, strength=1.0, value_variance=1.0, weight_variance=1.0, bias_variance=0.0,
        initial_overlap=0.0,
    ).theory()  # fmt: skip

    def overlap(key):
        network = model._network(key, 256, jnp.float32)
        x = model._tokens(network, jnp.zeros((TOKENS, 4), jnp.float32))
        return (jnp.sum(jnp.sum(x, axis=0) ** 2) / jnp.sum(x**2) - 1) / (TOKENS - 1)

    drawn = np.asarray(jax.jit(jax.vmap(overlap))(jax.random.split(jax.random.key(0), 12)))
    assert abs(drawn.mean() - float(theory.final_overlap)) < 4 * drawn.std() / np.sqrt(12) + 0.01
