"""The same computations as in typical research scripts: SciPy nested quadrature, Euler loops, one fit after another.

Each is written plainly but not wastefully, from the papers' formulas and not from `solvable`'s code, so that ratios are
meaningful and equal values mean agreement.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erf, expit, ndtr


def _logistic_fixed_point(
    proximal: Callable[[float, float, float], float],
    update: Callable[[float, float, float], tuple[float, float, float]],
    damping: float,
    tolerance: float,
    most: int,
) -> dict[str, float]:
    """Replica fixed point of a logistic loss on a sign teacher, by damped iteration until changes are below `tolerance`.

    Averages over the cavity field use adaptive quadrature with a proximal operator at every node. `update` is the input
    side, from the conjugates per sample to (m, q, V). New values have weight 1 − `damping`; the quadratures have two more
    digits than the fixed point.
    """
    wanted = {"epsabs": 0.01 * tolerance, "epsrel": 0.01 * tolerance, "limit": 200}
    cut = 9.0  # standard deviations, beyond which the Gaussian is negligible

    def conjugates(m: float, q: float, V: float) -> tuple[float, float, float]:
        root, rest = math.sqrt(q), math.sqrt(1 - m**2 / q)

        def integrand(xi: float, y: float, which: str) -> float:
            omega = root * xi
            z, field = proximal(y, omega, V), m * omega / q
            weight = math.exp(-0.5 * xi**2) / math.sqrt(2 * math.pi)
            if which == "overlap":
                density = math.exp(-0.5 * (field / rest) ** 2) / (math.sqrt(2 * math.pi) * rest)
                return weight * y * density * (z - omega) / V
            weight *= ndtr(y * field / rest)
            if which == "norm":
                return weight * ((z - omega) / V) ** 2
            curvature = expit(z) * expit(-z)
            return weight * curvature / (1 + V * curvature)

        overlap, norm, response = (
            sum(quad(integrand, -cut, cut, args=(y, which), **wanted)[0] for y in (1.0, -1.0))
            for which in ("overlap", "norm", "response")
        )
        return overlap, norm, response

    m, q, V, moved = 0.1, 0.5, 1.0, math.inf
    for _ in range(most):
        new = update(*conjugates(m, q, V))
        moved = max(abs(a - b) for a, b in zip(new, (m, q, V), strict=True))
        m, q, V = (damping * old + (1 - damping) * value for old, value in zip((m, q, V), new, strict=True))
        if moved < tolerance:
            break
    else:
        raise RuntimeError(f"no fixed point in {most} iterations: last change {moved:.1e}.")
    return {"overlap": m, "norm": q, "response": V, "test_error": math.acos(m / math.sqrt(q)) / math.pi}


def logistic_perceptron(
    samples: float, penalty: float, *, damping: float = 0.3, tolerance: float = 1e-8, most: int = 1000
) -> dict[str, float]:
    """Logistic regression on isotropic inputs, with a root search for the proximal operator."""

    def proximal(y: float, omega: float, V: float) -> float:
        """The root of z = ω + V y σ(−yz), between ω and ω + yV."""
        low, high = (omega, omega + V) if y > 0 else (omega - V, omega)
        return brentq(lambda z: z - omega - V * y * expit(-y * z), low, high, xtol=1e-13, rtol=1e-13)

    def update(overlap: float, norm: float, response: float) -> tuple[float, float, float]:
        V = 1 / (penalty + samples * response)
        return samples * overlap * V, ((samples * overlap) ** 2 + samples * norm) * V**2, V

    return _logistic_fixed_point(proximal, update, damping, tolerance, most)


def soft_committee(
    Q: np.ndarray, R: np.ndarray, T: np.ndarray, *, rate: float, until: float, step: float, save_every: float
) -> np.ndarray:
    """Test loss of the erf soft committee with unit readouts along the equations of Saad and Solla (1995), by Euler steps.

    The averages are tables over all index tuples at once, in NumPy.
    """
    K, M = R.shape
    students, units = np.arange(K), np.arange(K + M)
    sign = np.concatenate([np.ones(K), -np.ones(M)])  # the error is Σ_c sign_c g(field_c)
    i3 = np.ix_(students, units, units)
    i4 = np.ix_(students, students, units, units)

    def I3(C: np.ndarray, i: np.ndarray, n: np.ndarray, c: np.ndarray) -> np.ndarray:
        """⟨g'(x_i) x_n g(x_c)⟩."""
        root = np.sqrt((1 + C[i, i]) * (1 + C[c, c]) - C[i, c] ** 2)
        return 2 / np.pi * (C[n, c] * (1 + C[i, i]) - C[i, n] * C[i, c]) / ((1 + C[i, i]) * root)

    def I4(C: np.ndarray, i: np.ndarray, j: np.ndarray, c: np.ndarray, d: np.ndarray) -> np.ndarray:
        """⟨g'(x_i) g'(x_j) g(x_c) g(x_d)⟩."""
        a, b, ij = 1 + C[i, i], 1 + C[j, j], C[i, j]
        both = a * b - ij**2

        def rest(x: np.ndarray, y: np.ndarray, own: np.ndarray) -> np.ndarray:
            mixed = C[i, x] * C[j, y] + C[i, y] * C[j, x]
            return both * own - a * C[j, x] * C[j, y] - b * C[i, x] * C[i, y] + ij * mixed

        cosine = rest(c, d, C[c, d]) / np.sqrt(rest(c, c, 1 + C[c, c]) * rest(d, d, 1 + C[d, d]))
        return 4 / (np.pi**2 * np.sqrt(both)) * np.arcsin(cosine)

    def loss(C: np.ndarray) -> float:
        norm = np.sqrt(1 + np.diag(C))
        return 0.5 * sign @ (2 / np.pi * np.arcsin(C / np.outer(norm, norm))) @ sign

    C = np.block([[Q, R], [R.T, T]])
    saved, stride = [loss(C)], round(save_every / step)
    for number in range(1, round(until / step) + 1):
        pull = I3(C, *i3) @ sign
        kick = I4(C, *i4) @ sign @ sign
        dR = -rate * pull[:, K:]
        dQ = -rate * (pull[:, :K] + pull[:, :K].T) + rate**2 * kick
        C[:K, :K] += step * dQ
        C[:K, K:] += step * dR
        C[K:, :K] = C[:K, K:].T
        if number % stride == 0:
            saved.append(loss(C))
    return np.array(saved)


def gradient_descent(units: int, size: int, steps: int) -> np.ndarray:
    """Online gradient descent of the erf soft committee, step by step, in single precision: the weights at the end."""
    rng = np.random.default_rng(0)
    w, u = (rng.standard_normal((units, size), dtype=np.float32) for _ in range(2))
    v, root, half = np.ones(units, np.float32), np.float32(1 / math.sqrt(size)), np.float32(math.sqrt(0.5))
    slope = np.float32(math.sqrt(2 / math.pi))
    for _ in range(steps):
        x = rng.standard_normal(size, dtype=np.float32)
        field = w @ x * root
        error = v @ erf(field * half) - v @ erf(u @ x * (root * half))
        w -= np.outer(root * error * slope * v * np.exp(-field * field / 2), x)
    return w


def masked_rows(X: np.ndarray, covariance: np.ndarray, penalty: float, rows: int) -> np.ndarray:
    """Population error of the ridge regression of each of the first `rows` coordinates on all others, fit by fit."""
    n, d = X.shape
    errors = []
    for k in range(rows):
        others = np.delete(np.arange(d), k)
        A = X[:, others]
        a = np.linalg.solve(A.T @ A / n + penalty * np.eye(d - 1), A.T @ X[:, k] / n)
        residual = np.zeros(d)
        residual[k], residual[others] = 1, -a
        errors.append(residual @ covariance @ residual)
    return np.array(errors)


def logistic_regressions(inputs: np.ndarray, labels: np.ndarray, penalty: float, solver: str) -> np.ndarray:
    """scikit-learn's logistic regression, one problem after the other."""
    from sklearn.linear_model import LogisticRegression

    options = {"C": 1 / penalty, "fit_intercept": False, "tol": 1e-8, "max_iter": 10_000}
    fits = [LogisticRegression(solver=solver, **options).fit(a, y) for a, y in zip(inputs, labels, strict=True)]
    return np.array([fit.coef_[0] for fit in fits])


def support_vectors(inputs: np.ndarray, labels: np.ndarray, penalty: float, tolerance: float) -> np.ndarray:
    """scikit-learn's LinearSVC (liblinear's dual coordinate descent) with the hinge loss, one problem after the other."""
    from sklearn.svm import LinearSVC

    options = {"C": 1 / penalty, "loss": "hinge", "dual": True, "fit_intercept": False, "random_state": 0}
    fits = [
        LinearSVC(tol=tolerance, max_iter=1_000_000, **options).fit(a, y) for a, y in zip(inputs, labels, strict=True)
    ]
    return np.array([fit.coef_[0] for fit in fits])


# --- structured inputs --------------------------------------------------------------------------------------------------


def tanh_coefficients() -> tuple[float, float]:
    """κ1 and κ⋆ of tanh by adaptive quadrature."""

    def mean(f):
        return quad(lambda z: f(z) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi), -12, 12, epsabs=1e-14)[0]

    linear = mean(lambda z: z * math.tanh(z))
    return linear, math.sqrt(mean(lambda z: math.tanh(z) ** 2) - linear**2)


def marchenko_pastur(ratio: float, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and weights of FᵀF/d for p/d = `ratio`, by the midpoint rule in the angle; not for ratios very near one."""
    angle = (np.arange(nodes) + 0.5) * math.pi / nodes
    s = 1 + ratio + 2 * math.sqrt(ratio) * np.cos(angle)
    density = np.sqrt(np.maximum(4 * ratio - (s - 1 - ratio) ** 2, 0)) / (2 * math.pi * ratio * s)
    weights = density * 2 * math.sqrt(ratio) * np.sin(angle) * math.pi / nodes
    atom = max(1 - 1 / ratio, 0.0)
    return np.append(s, 0.0), np.append(weights * (1 - atom) / weights.sum(), atom)


def logistic_features(
    width: float,
    samples: float,
    penalty: float,
    linear: float,
    rest: float,
    eigenvalues: np.ndarray,
    weights: np.ndarray,
    *,
    damping: float = 0.3,
    tolerance: float = 1e-8,
    most: int = 1000,
) -> dict[str, float]:
    """Logistic regression on random features (Gerace et al. 2020), with a scalar minimisation for each proximal operator."""
    omega = linear**2 * eigenvalues + rest**2
    tau = linear**2 * eigenvalues * width
    ratio = samples / width

    def proximal(y: float, field: float, V: float) -> float:
        """argmin (z − ω)²/2V + log(1 + exp(−yz)), with its slope's root: a minimiser alone stops at half the digits."""
        objective = lambda z: (z - field) ** 2 / (2 * V) + np.logaddexp(0, -y * z)  # noqa: E731
        low, high = (field, field + V) if y > 0 else (field - V, field)
        z = minimize_scalar(objective, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x
        for _ in range(3):
            s = expit(-y * z)
            z -= (z - field - V * y * s) / (1 + V * s * (1 - s))
        return z

    def update(overlap: float, norm: float, response: float) -> tuple[float, float, float]:
        m_hat, q_hat, R = ratio * overlap, ratio * norm, 1 / (penalty + ratio * response * omega)
        spread = weights @ ((m_hat**2 * tau * omega + q_hat * omega**2) * R**2)
        return m_hat * weights @ (tau * R), spread, weights @ (omega * R)

    return _logistic_fixed_point(proximal, update, damping, tolerance, most)


def covariance_triple(p: int, seed: int) -> tuple[np.ndarray, int, np.ndarray]:
    """The joint covariance of k = p/2 inputs of a teacher and p of a student, k, and the teacher's weights."""
    rng, k = np.random.default_rng(seed), p // 2
    mixing = rng.normal(size=(k + p, 2 * p)) * np.linspace(0.3, 1.5, 2 * p)
    return mixing @ mixing.T / (2 * p), k, rng.normal(size=k)


def logistic_errors(
    joint: np.ndarray, k: int, theta: np.ndarray, samples: float, penalty: float, flips: float, seeds: int
) -> np.ndarray:
    """Test errors of scikit-learn's logistic regressions on samples of a triple, exact given the weights."""
    from sklearn.linear_model import LogisticRegression

    p, root, out = len(joint) - k, np.linalg.cholesky(joint), []
    for seed in range(seeds):
        rng = np.random.default_rng(1000 + seed)
        both = rng.normal(size=(round(samples * p), k + p)) @ root.T
        y = np.sign(both[:, :k] @ theta)
        y = np.where(rng.random(len(y)) < flips, -y, y)
        fit = LogisticRegression(C=1 / penalty, fit_intercept=False, tol=1e-8, max_iter=10_000)
        w = fit.fit(both[:, k:] / np.sqrt(p), y).coef_[0]
        cosine = theta @ joint[:k, k:] @ w / np.sqrt((w @ joint[k:, k:] @ w) * (theta @ joint[:k, :k] @ theta))
        out.append(flips + (1 - 2 * flips) * np.arccos(cosine) / np.pi)
    return np.array(out)
