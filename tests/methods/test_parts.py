"""Parts of equal length hold every row once, in order, and padding that can be distinguished."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from solvable.methods.data.parts import equal_parts, parts_of


@pytest.mark.parametrize("number", [1, 5, 6, 7, 12])
@pytest.mark.parametrize("most", [1, 3, 6, 20])
def test_no_part_is_too_long_and_none_is_left_empty(number, most):
    rows = np.arange(2 * number).reshape(number, 2) + 1
    filled = equal_parts(rows, parts_of(number, most))
    assert filled.shape[1] <= most
    flat = filled.reshape(-1, 2)
    np.testing.assert_array_equal(flat[:number], rows)
    assert not flat[number:].any()
    assert filled.size - rows.size < 2 * len(filled)


def test_a_filling_of_first_rows_and_arrays_of_either_library():
    rows = jnp.arange(5, dtype=jnp.int8)
    filled = equal_parts(rows, 3, repeat=True)
    assert isinstance(filled, jax.Array)
    assert filled.dtype == jnp.int8
    assert filled.tolist() == [[0, 1], [2, 3], [4, 0]]
    assert isinstance(equal_parts(np.ones(5), 3), np.ndarray)
