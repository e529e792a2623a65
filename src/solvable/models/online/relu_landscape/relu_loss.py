r"""The population loss of a sum of ReLUs against another, for Gaussian inputs: value, gradient, curvature.

Student $f(x) = \sum_i (w_i\cdot x)_+$, teacher $y(x) = \sum_n (u_n\cdot x)_+$, $x \sim N(0, 1)$. With the vectors z = (w, u),
signs h = (1, …, 1, -1, …, -1) and the averages of `methods.averages` at the Gram matrix c of z,

    L      = ½ Σ_ab h_a h_b I2(a,b)
    ∂L/∂w_i = Σ_b h_b [ P(i,b) z_b + (√D_ib / 2π c_ii) w_i ],      P = J2,  √D/2π = I2 - c P,

the curvature being the derivative of this gradient. Where two vectors are parallel the loss is twice differentiable, with
a third derivative that jumps; the derivatives of P and √D, infinite there, cancel, and count as zero.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from solvable.methods.averages.activations import activation

__all__ = ["relu_curvature", "relu_gradient", "relu_loss"]

Weights = Float[Array, "student dimension"]
Teacher = Float[Array, "teacher dimension"]


def _units(student: Array, teacher: Array) -> tuple[Array, Array]:
    signs = np.concatenate([np.ones(student.shape[0]), -np.ones(teacher.shape[0])])
    return jnp.concatenate([student, teacher]), jnp.asarray(signs, student.dtype)


def relu_loss(student: Weights, teacher: Teacher) -> Float[Array, ""]:
    """Half the mean squared difference of the two networks.

    >>> round(float(relu_loss(jnp.zeros((1, 2)), jnp.eye(2)[:1])), 6)  # ½ <(x_1)_+²>
    0.25
    """
    units, signs = _units(student, teacher)
    return 0.5 * signs @ activation("relu").table_I2(units @ units.T) @ signs


def relu_gradient(student: Weights, teacher: Teacher) -> Weights:
    """The gradient of the loss with respect to the weights; the student's vectors must not be zero.

    >>> relu_gradient(jnp.eye(2), jnp.eye(2)).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    g = activation("relu")
    units, signs = _units(student, teacher)
    gram = units @ units.T
    mine, all_units = np.ix_(np.arange(student.shape[0]), np.arange(units.shape[0]))
    both_on = g.table_J2(gram, mine, all_units)
    roots = g.table_I2(gram, mine, all_units) - gram[: student.shape[0]] * both_on
    stretch = (roots @ signs) / jnp.sum(student**2, axis=1)
    return (both_on * signs[None, :]) @ units + stretch[:, None] * student


def relu_curvature(
    student: Weights, teacher: Teacher, directions: Float[Array, "mode student dimension"]
) -> Float[Array, "mode mode"]:
    """The second derivatives of the loss along given directions: the Hessian if they are a basis.

    >>> across = jnp.asarray([[[0.0, 1.0]]])  # one unit at its teacher: ½ |δw|², however it is turned
    >>> relu_curvature(jnp.eye(2)[:1], jnp.eye(2)[:1], across).tolist()
    [[0.5]]
    """

    def along(direction: Array) -> Array:
        return jax.jvp(lambda w: relu_gradient(w, teacher), (student,), (direction,))[1]

    turned = jax.vmap(along)(directions)
    block = jnp.einsum("asd,bsd->ab", directions, turned)
    return 0.5 * (block + block.T)
