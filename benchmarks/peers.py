"""The same computations as the field's scripts do them: SciPy nested quadrature, Euler loops, one fit after another.

Each is written plainly but not wastefully, from the papers' formulas and not from `solvable`'s code, so that a ratio
means something and equal values mean agreement.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import erf, expit, ndtr


def logistic_perceptron(
    samples: float, penalty: float, *, damping: float = 0.3, tolerance: float = 1e-8, most: int = 1000
) -> dict[str, float]:
    """Replica fixed point of logistic regression on a sign teacher: adaptive quadrature over the cavity field, and a root
    search for the proximal operator at every node, iterated with damping until nothing moves by more than `tolerance`.

    The new values get the weight 1 − `damping`; the quadratures are asked for two digits more than the fixed point.
    """
    wanted = {"epsabs": 0.01 * tolerance, "epsrel": 0.01 * tolerance, "limit": 200}
    cut = 9.0  # standard deviations: nothing of the Gaussian is left beyond

    def proximal(y: float, omega: float, V: float) -> float:
        """The root of z = ω + V y σ(−yz), between ω and ω + yV."""
        low, high = (omega, omega + V) if y > 0 else (omega - V, omega)
        return brentq(lambda z: z - omega - V * y * expit(-y * z), low, high, xtol=1e-13, rtol=1e-13)

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

    m, q, V = 0.1, 0.5, 1.0
    for _ in range(most):
        m_hat, q_hat, V_hat = (samples * value for value in conjugates(m, q, V))
        new_V = 1 / (penalty + V_hat)
        new = m_hat * new_V, (m_hat**2 + q_hat) * new_V**2, new_V
        moved = max(abs(a - b) for a, b in zip(new, (m, q, V), strict=True))
        m, q, V = (damping * old + (1 - damping) * value for old, value in zip((m, q, V), new, strict=True))
        if moved < tolerance:
            break
    else:
        raise RuntimeError(f"no fixed point in {most} iterations: last change {moved:.1e}.")
    return {"overlap": m, "norm": q, "response": V, "test_error": math.acos(m / math.sqrt(q)) / math.pi}


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
