"""Language models trained on their own text: frequencies of four characters, generation after generation.

A model gives the next character the frequency with which it followed the last three in a text, mixed with that after the last
two, and so on: p(d|abc) = (n_abcd + s p(d|bc))/(n_abc + s). The first generation reads Python's documentation; the next ones a
text of the same length, made of stretches of what the one before wrote (`own`), the same with a quarter of real text (`fresh`),
or everything there was so far, real text first, of which as many stretches are drawn (`accumulated`). All are tested on the end
of the documentation, which none has read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.methods.data.documentation import documentation_letters

ARMS = ("own", "fresh", "accumulated", "real")
LETTERS, ORDER, SMOOTHING = 48, 4, 5.0
FRESH = 0.25
"""Part of real text in the arm `fresh`."""
HELD_OUT, STRETCH, RARE = 0.1, 512, 2e-5


def texts() -> tuple[np.ndarray, np.ndarray]:
    """The text to train on and the one to test on, as numbers of letters."""
    text = documentation_letters(LETTERS)
    held = int(len(text) * (1 - HELD_OUT))
    return text[:held], text[held:]


def frequencies(text: np.ndarray, order: int = ORDER) -> np.ndarray:
    """Numbers of all sequences of `order` letters in a text, as a table with one axis for each letter.

    >>> frequencies(np.array([0, 1, 0, 1]), order=2)[:2, :2].tolist()
    [[0, 2], [1, 0]]
    """
    places = np.zeros(len(text) - order + 1, int)
    for k in range(order):
        places = places * LETTERS + text[k : len(text) - order + 1 + k]
    return np.bincount(places, minlength=LETTERS**order).reshape((LETTERS,) * order)


def model_of(text: np.ndarray) -> np.ndarray:
    """Probabilities of the next letter after every three, (letter, letter, letter, next letter)."""
    found = np.full(LETTERS, 1 / LETTERS)
    for order in range(1, ORDER + 1):
        counts = frequencies(text, order)
        found = (counts + SMOOTHING * found) / (counts.sum(-1, keepdims=True) + SMOOTHING)
    return found


def written(model: np.ndarray, real: np.ndarray, rng: np.random.Generator, rows: int = 768) -> np.ndarray:
    """A text of a model as long as the real one, in rows that continue three letters of it."""
    steps = -(-len(real) // rows)
    cumulative = np.cumsum(model, axis=-1)
    last = real[rng.integers(0, len(real) - ORDER, rows)[:, None] + np.arange(ORDER - 1)[None]]
    found = np.empty((rows, steps), np.int32)
    for step in range(steps):
        line = cumulative[tuple(last.T)]
        letter = (rng.random((rows, 1)) * line[:, -1:] > line).sum(1)
        found[:, step] = letter
        last = np.concatenate([last[:, 1:], letter[:, None]], axis=1)
    return found.reshape(-1)[: len(real)]


def mixed(parts: list[np.ndarray], shares: list[float], rng: np.random.Generator) -> np.ndarray:
    """A text of the same length, each of its stretches taken from one of the parts, at the same place."""
    number = len(parts[0])
    which = np.repeat(rng.choice(len(parts), -(-number // STRETCH), p=shares), STRETCH)[:number]
    return np.choose(which, parts)


def chain(arm: str, generations: int, seed: int) -> dict[str, np.ndarray]:
    """Losses per letter on real text, and the shares of rare and of common sequences that a generation does not write."""
    real, held = texts()
    rng = np.random.default_rng(seed)
    true = frequencies(real)
    rare, common = (true > 0) & (true < RARE * len(real)), true >= RARE * len(real)
    text, seen = real, {"loss": [], "lost_rare": [], "lost_common": []}
    so_far = real
    for generation in range(generations):
        model = model_of(text)
        places = tuple(held[k : len(held) - ORDER + 1 + k] for k in range(ORDER))
        seen["loss"].append(-np.mean(np.log(model[places])))
        wrote = written(model, real, rng)
        missing = frequencies(wrote) == 0
        seen["lost_rare"].append(np.mean(missing[rare]))
        seen["lost_common"].append(np.mean(missing[common]))
        if arm == "accumulated":  # of generation + 2 texts one is new
            text = so_far = mixed([so_far, wrote], [1 - 1 / (generation + 2), 1 / (generation + 2)], rng)
        else:
            share = {"own": 0.0, "fresh": FRESH, "real": 1.0}[arm]
            text = mixed([real, wrote], [share, 1 - share], rng)
    return {name: np.array(values) for name, values in seen.items()}


def chains(generations: int, seeds: int) -> Any:
    """All arms as a dataset over arm, seed and generation."""
    import xarray as xr

    found = [[chain(arm, generations, seed) for seed in range(seeds)] for arm in ARMS]
    columns = {
        name: (("arm", "seed", "generation"), np.array([[run[name] for run in runs] for runs in found]))
        for name in found[0][0]
    }
    return xr.Dataset(columns, {"arm": list(ARMS), "generation": np.arange(1, generations + 1)})
