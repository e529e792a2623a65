"""Claims about the order in which transformers learn interactions, and the numbers that decide them."""

from __future__ import annotations

from typing import Any

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE, TEXT, FIVE = "many-body-simplicity", "many-body-text", "many-body-five"
SHORT, LONG = "6 sites", "20 sites"
MOVED = 0.1
"""Mean square displacement at which a layer counts as having left its start."""


def _shares(stored: Stored) -> list[tuple[int, tuple[float, float], float]]:
    """Depth N, and the share of the step from the floor of N bodies to that of N + 1 that remains after training.

    The share comes with its error and its smallest value.
    """
    data, found = stored[f"{FIGURE}.depths"], []
    for depth in data.depth.values:
        above, own = (float(data.floor.sel(order=n)) for n in (depth, depth + 1))
        left = (data.loss.sel(depth=depth) - own) / (above - own)
        found.append((int(depth), mean_and_error(left), float(left.min())))
    return found


def _long_shares(stored: Stored, part: str = "long") -> list[tuple[int, tuple[float, float]]]:
    """The same for the stacks trained longest by gradient descent on long sequences; diverged runs are left out."""
    data, found = stored[f"{FIGURE}.{part}"].isel(law=0, setting=0), []
    for depth in data.depth.values:
        step = float(data.floor.sel(order=depth) - data.floor.sel(order=depth + 1))
        left, noise = (data[name].sel(depth=depth, order=depth + 1) / step for name in ("above", "above_error"))
        value, spread = mean_and_error(left)
        found.append((int(depth), (value, float(np.nanmax([spread, float(noise.mean())])))))
    return found


def _layers(number: int) -> str:
    return f"a stack of {number} layer{'s' * (number > 1)}"


def _bodies(stored: Stored) -> list[Measured]:
    words = "share of the step from {0} to {1} bodies that {2} leaves"
    return [
        *(
            Measured(f"{words.format(n, n + 1, _layers(n))}, {SHORT}", *left, above=0.0, below=1.0)
            for n, left, _ in _shares(stored)
        ),
        *(
            Measured(f"{words.format(n, n + 1, _layers(n))}, {LONG}", *left, above=0.0, below=1.0)
            for n, left in _long_shares(stored)
        ),
        *_five(stored),
    ]


def _five(stored: Stored) -> list[Measured]:
    """On a law of five bodies N layers should rest between the floors of N and of N + 1 bodies, no more than 2 % below.

    A floor that did not converge decides nothing.
    """
    data, found = stored[FIVE], []
    ends = data.loss.isel(step=-1)
    for depth in data.depth.values:
        above, own = (float(data.floor.sel(order=n)) for n in (depth, depth + 1))
        if not np.isfinite(above - own):
            continue
        left = mean_and_error((ends.sel(depth=depth) - own) / (above - own))
        words = f"share of the step from {depth} to {depth + 1} bodies that {_layers(int(depth))} leaves, five-body law"
        found.append(Measured(words, *left, above=-0.02, below=1.0))
    return found


def _caps(stored: Stored) -> list[Measured]:
    found = []
    for depth, left, least in _shares(stored):
        step = f"step from {depth} to {depth + 1} bodies that {_layers(depth)} leaves"
        found += [
            Measured(f"share of the {step}, {SHORT}", *left, below=0.1),
            Measured("its smallest value over seeds", least, above=0.0),
        ]
    return [
        *found,
        *(Measured(f"the same of {_layers(n)}, {LONG}", *left, above=0.0) for n, left in _long_shares(stored)),
        *(
            Measured(f"the same of {_layers(n)}, {LONG}, clipped", *left, above=0.0)
            for n, left in _long_shares(stored, "clipped")
        ),
    ]


def _best_steps(stored: Stored) -> dict[str, Any]:
    """The recorded step with the encoder's smallest loss on each clone and on the data, for every seed."""
    runs = stored[f"{FIGURE}.clones"].isel(law=0).sel(learner="encoder")
    there = runs.loss.dropna("step").isel(step=slice(1, None))
    return {str(name): there.step[there.sel(set=name).argmin("step")] for name in there.set.values}


def _ordered(stored: Stored) -> list[Measured]:
    best, short, found = _best_steps(stored), stored[f"{FIGURE}.exact"], []
    for low, high in (("1", "2"), ("2", "3")):
        apart = mean_and_error(np.log10(best[high] / best[low]))
        found.append(Measured(f"decades from the best step on clone {low} to clone {high}, {LONG}", *apart, above=0.0))
    for run in short.run.values:
        for low in (1, 2):
            steps = short.best_time.sel(run=run)
            apart = mean_and_error(np.log10(steps.sel(clone=low + 1) / steps.sel(clone=low)))
            found.append(Measured(f"the same from {low} to {low + 1} on short sequences, {run}", *apart, above=0.0))
    for run in short.run.values:
        half = short.half_time.sel(run=run)
        for low in (2, 3):
            apart = mean_and_error(np.log10(half.sel(order=low + 1) / half.sel(order=low)))
            words = f"decades from half of the {low}-body logits to half of the {low + 1}-body ones, short, {run}"
            found.append(Measured(words, *apart, above=0.0))
    return found


def _slope(steps: np.ndarray, losses: np.ndarray, at: float) -> tuple[float, float]:
    """Fall of a learning curve per e-fold of time around a step (from half to twice the time), and its steepest anywhere."""
    there = np.isfinite(losses) & (steps > 0)
    times, losses = np.log(steps[there]), losses[there]
    middle = np.append(times[(times > times[0] + np.log(2)) & (times < times[-1] - np.log(2))], np.log(at))
    falls = [np.interp(t - np.log(2), times, losses) - np.interp(t + np.log(2), times, losses) for t in middle]
    return falls[-1], max(falls)


def _saturates(stored: Stored) -> list[Measured]:
    clones = stored[f"{FIGURE}.clones"].isel(law=0).sel(learner="encoder")
    losses, best, found = clones.loss.sel(set="data").dropna("step"), _best_steps(stored), []
    whole = losses.isel(step=0) - losses.isel(step=-1)
    for name in ("1", "2"):
        rest = (losses.sel(step=best[name]) - losses.isel(step=-1)) / whole
        words = f"share of the fall on the data that comes after the best step on clone {name}, encoder, {LONG}"
        found.append(Measured(words, *mean_and_error(rest), above=0.05))
    both = [stored[f"{FIGURE}.{name}"].isel(law=0) for name in ("long", "clipped")]
    for trained, setting in [(part, setting) for part in both for setting in part.setting.values]:
        for depth in (2, 3):
            runs, ratios = trained.sel(setting=setting, depth=depth), []
            for seed in range(runs.sizes["seed"]):
                at = float(runs.passed.isel(seed=seed).sel(order=2))
                if np.isfinite(at):
                    here, steepest = _slope(runs.step.values, runs.loss.isel(seed=seed).values, at)
                    ratios.append(here / steepest)
            words = f"slope at the floor of pairs over the steepest one, {depth} layers, {setting}"
            found.append(Measured(words, *mean_and_error(ratios), below=0.1))
    return found


def _apart(moved: Any) -> tuple[float, float]:
    """Decades between the times at which the first and the last layer have moved; NaN if a layer never does."""
    decades = []
    steps = np.log(moved.step.values[1:])
    for seed in range(moved.sizes["seed"]):
        logs = np.log(moved.isel(seed=seed, step=slice(1, None)).transpose("layer", "step").values)
        if not (logs > np.log(MOVED)).any(1).all():
            continue  # a layer that never moves has no time
        first = [int(np.argmax(layer > np.log(MOVED))) for layer in logs]
        times = [
            np.interp(np.log(MOVED), layer[n - 1 : n + 1], steps[n - 1 : n + 1])
            for n, layer in zip(first, logs, strict=True)
        ]
        decades.append((max(times) - min(times)) / np.log(10))
    return mean_and_error(decades)


def _one_by_one(stored: Stored) -> list[Measured]:
    words = f"decades from the first to the last of three layers that moves by {MOVED:g}"
    long, short = stored[f"{FIGURE}.long"].isel(law=0).sel(depth=3), stored[f"{FIGURE}.exact"]
    moved, started = stored[f"{FIGURE}.layers"].msd, stored[f"{FIGURE}.starts"].msd
    return [
        *(
            Measured(f"{words}, {LONG}, {name}", *_apart(long.msd.sel(setting=name)), above=np.log10(2))
            for name in long.setting.values
        ),
        *(
            Measured(f"the same, {name}", *apart, above=np.log10(2))
            for name, apart in ((name, _apart(started.sel(run=name))) for name in started.run.values)
            if np.isfinite(apart[0])
        ),
        *(
            Measured(f"the same on short sequences, {name}", *_apart(short.msd.sel(run=name)), above=np.log10(2))
            for name in short.run.values
            if name.startswith("stack")
        ),
        *(
            Measured(
                f"the same on short sequences, eight networks, {name}", *_apart(moved.sel(run=name)), above=np.log10(2)
            )
            for name in moved.run.values
        ),
    ]


def _language(stored: Stored) -> list[Measured]:
    """Clones of a text are left behind in turn; nothing of this happens if its characters are shuffled.

    How far a clone is left behind: its loss at the end above its lowest, relative to the same for 5 bodies.
    """
    clones, found = stored[f"{TEXT}.clones"], []
    for network in clones.network.values:
        runs = clones.loss.sel(network=network)
        there = runs.sel(text="text").isel(step=slice(1, None))
        best = {p: there.step[there.sel(order=p).argmin("step")] for p in (2, 3, 5)}
        for low, high in ((2, 3), (3, 5)):
            apart = mean_and_error(np.log10(best[high] / best[low]))
            words = f"decades from the best step on the clone of {low} bodies to that on {high}, {network}"
            found.append(Measured(words, *apart, above=0.0))
        rises = runs.isel(step=-1) - runs.min("step")
        left = rises.sel(order=2) - rises.sel(order=5)
        text, control = left.sel(text="text"), left.sel(text="shuffled")
        words = f"nats by which the clone of 2 bodies is left behind more than that of 5, {network}"
        found.append(Measured(words, *mean_and_error(text), above=0.02))
        share = mean_and_error(np.abs(control) / float(text.mean()))
        found.append(Measured("the same with shuffled characters, as a share of it", *share, below=0.1))
    return found


CLAIMS = (
    Claim(
        "N layers learn interactions of N + 1 bodies.",
        "gerace2024transformers",
        "N layers end between the best model of N + 1 bodies and that of N",
        "data with pairs alone, where one layer suffices",
        (FIGURE, FIVE), _bodies,
        "a five-body law on 5 sites with 3 colours: 3,000 steps of Adam, four seeds; four-body laws; 6 sites, 3 colours: Adam "
        "on the exact law, four seeds; 20 sites, 10 colours: gradient descent at rate 1.5, a million steps, two seeds, of which "
        "one of three layers diverged (Adam, stopped after 40,000 steps, leaves three layers above the floor of three bodies)",
        would_change="a training by which stacks of three layers stay above the best model of four bodies on a law of five, "
        "although they can represent five, 2^(N−1) + 1",
    ),
    Claim(
        "Depth caps the order of interaction that a stack of squared factored attention can hold.",
        "rende2024distributional",
        "one, two, three layers end just above the exact floors of two, three, four bodies, and never below their own",
        "data with pairs alone: all depths end at the floor of pairs",
        (FIGURE,), _caps,
        "four-body laws; 6 sites, 3 colours: Adam on the exact law, four seeds; 20 sites, 10 colours: gradient descent, a "
        "million steps, two seeds; clipped: 100,000 steps, five seeds",
    ),
    Claim(
        "Interactions are learnt in the order of their degree.",
        "rende2024distributional",
        "the step after which a network is best on the clone of order p grows with p, and so do the times at which the parts "
        "of p bodies appear in its logits",
        "one common step for all orders",
        (FIGURE,), _ordered,
        "20 sites, 10 colours: an encoder of two layers, 40,000 steps of Adam, two seeds; short sequences: 5 sites, 3 colours, "
        "interactions of equal strength, 3,000 steps, ten seeds",
        would_change="the reason why short sequences reverse the last two orders: there, of interactions of equal "
        "strength, half of the four-body part is learnt before half of the three-body part, by stacks "
        "and by an encoder; on long sequences the order is the claim's",
    ),
    Claim(
        "Low orders saturate while higher ones go on improving.",
        "rende2024distributional",
        "the loss on the data keeps falling after that on low-order clones has stopped; learning curves pause at the floors",
        "a smooth fall through the floors",
        (FIGURE,), _saturates,
        "20 sites, 10 colours; two seeds: gradient descent for a million steps, Adam for 40,000; five seeds: gradient descent at "
        "rate 1 with clipped gradients, 100,000 steps, none of which diverges",
        would_change="a curve that rests at a floor: low-order clones are left behind, but the loss passes the "
        "floor of pairs at a tenth to a half of its steepest slope, not below a tenth; sparser or weaker higher "
        "orders would separate the times",
    ),
    Claim(
        "Layers start to learn one after the other.",
        "rende2024distributional",
        "mean square displacements of the layers leave zero at different times, here at least a factor of two apart",
        "all layers move together",
        (FIGURE,), _one_by_one,
        "20 sites, 10 colours, two seeds, where layers differ only later: under gradient descent layer 1 halts after some 8,000 "
        "steps while the others continue; other initial scales: five seeds, 3,000 steps at rate 1 with clipped gradients, or of "
        "Adam; short sequences: 5 sites, 3 colours, ten seeds, and eight from other initial scales",
        would_change="a setting of depth, rate or data in which layers also start a factor of two apart on long sequences, or "
        "under Adam: there gradient descent from scales 0.5 and 1 moves no layer by 0.1 within 3,000 steps, from 2 and 3 all "
        "together; on short sequences, under gradient descent, they start in their order, a decade apart",
    ),
    Claim(
        "The same holds for natural language, in encoders and in decoders.",
        "rende2024distributional",
        "clones of a corpus by models of two, three and five bodies are left behind in that order",
        "tokens shuffled within their windows",
        (TEXT,), _language,
        "the topics of Python's built-in help, windows of 8 characters, 28 tokens; clones by stacks of one to three layers; "
        "encoders and decoders of two layers of width 32, 6,000 steps, ten seeds",
        missing="a corpus and networks of the paper's size",
        would_change="clones of shuffled windows that are shuffled windows: there encoders leave the clone of two bodies behind "
        "by 8 % of what they do on text, two errors below the tenth allowed, and the clone of three bodies is easier than the "
        "windows themselves",
    ),
)  # fmt: skip
