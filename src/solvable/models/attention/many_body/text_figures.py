"""Which orders of interaction networks learn first in natural language: encoders and decoders on a text and on its clones.

The text is part of Python: the topics of its built-in help. Clones are made by stacks that couple at most 2, 3 and 5
characters (`solvable.tools.text`). Control: the characters of every window are shuffled.
"""

from __future__ import annotations

import hashlib
import platform
from typing import Any

import numpy as np

from solvable.render.figures import Recipe
from solvable.render.pieces import Pieces
from solvable.render.plots import COLOURS, log_axis
from solvable.tools.text import Windows, cut_windows, follow, make_clones

FULL = {
    "windows": {"sites": 8, "colours": 28, "stride": 1},
    "clones": {"depths": (1, 2, 3), "steps": 1500, "sweeps": 20, "heads": 4, "width": 12, "batch": 64, "held": 200},
    "networks": {"steps": 6000, "seeds": 10, "batch": 64, "width": 32, "depth": 2, "heads": 4, "recorded": 30},
}  # fmt: skip
QUICK = {
    "windows": {"sites": 8, "colours": 10, "stride": 8},
    "clones": {"depths": (1, 2), "steps": 100, "sweeps": 4, "heads": 2, "width": 6, "batch": 64, "held": 128},
    "networks": {"steps": 200, "seeds": 2, "batch": 32, "width": 16, "depth": 1, "heads": 2, "recorded": 10},
}  # fmt: skip
TEXTS, NETWORKS = ("text", "shuffled"), ("encoder", "decoder")


def topics() -> str:
    """The topics of Python's built-in help, in alphabetical order."""
    from pydoc_data.topics import topics as texts

    return "\n".join(texts[name] for name in sorted(texts))


def shuffled(windows: Windows) -> Windows:
    """The same windows with their characters in random order: frequencies remain, interactions do not."""
    rng = np.random.default_rng(0)
    return windows._replace(train=rng.permuted(windows.train, axis=1), test=rng.permuted(windows.test, axis=1))


def clones_of_text(quick: bool, pieces: Pieces | None = None) -> dict[str, Any]:
    """Losses of encoders and decoders on held-out windows (order 0) and their clones, while they learn the text."""
    import xarray as xr

    settings, pieces = QUICK if quick else FULL, pieces or Pieces()
    text = topics()
    facts = {"python": platform.python_version(), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    found = {name: trained(name, text, settings, pieces, facts) for name in TEXTS}
    orders = found["text"]["order"]
    curves = np.stack([[found[name][network] for network in NETWORKS] for name in TEXTS])
    clones = xr.Dataset(
        {
            "loss": (("text", "network", "step", "seed", "order"), curves),
            "stack_loss": (("text", "bodies"), np.stack([found[name]["stack_loss"] for name in TEXTS])),
        },
        {"text": list(TEXTS), "network": list(NETWORKS), "step": found["text"]["step"], "order": orders,
         "bodies": orders[1:]},
        {"characters": len(text), "python": facts["python"], "text_sha256": facts["sha256"]},
    )  # fmt: skip
    return {"clones": clones}


def trained(name: str, text: str, settings: dict[str, Any], pieces: Pieces, facts: Any) -> dict[str, np.ndarray]:
    """Clones of the text or of its shuffled windows, and the learning curves of both kinds of networks on them."""
    windows = cut_windows(text, **settings["windows"])
    if name == "shuffled":
        windows = shuffled(windows)
    cloning = {k: settings[k] for k in ("windows", "clones")}

    def make() -> dict[str, np.ndarray]:
        sets, losses = make_clones(windows, **settings["clones"])
        whole = {"orders": np.array(list(sets)), "sets": np.stack([np.asarray(s, np.int8) for s in sets.values()])}
        return whole | {"stack_loss": np.array(list(losses.values()))}

    clones = pieces.get(f"clones of {name}", [cloning, facts], make)
    found = {"order": clones["orders"], "stack_loss": clones["stack_loss"]}
    for network in NETWORKS:

        def learn(network: str = network) -> dict[str, np.ndarray]:
            import jax.numpy as jnp

            sets = {int(n): jnp.asarray(s, jnp.int32) for n, s in zip(clones["orders"], clones["sets"], strict=True)}
            steps, curves = follow(windows, sets, causal=network == "decoder", **settings["networks"])
            return {"step": steps, "loss": np.stack([one.runs for one in curves], axis=-1)}

        runs = pieces.get(f"{network} of {name}", [settings, facts], learn)
        found |= {"step": runs["step"], network: runs["loss"]}
    return found


def draw_clones_of_text(data: dict[str, Any]) -> Any:
    """Losses on the text and its clones: encoder, decoder, and the encoder's control."""
    import matplotlib.pyplot as plt

    clones = data["clones"]
    figure, axes = plt.subplots(1, 3, figsize=(12.6, 4.0), layout="constrained")
    panels = (
        ("text", "encoder", "encoder: hidden characters"),
        ("text", "decoder", "decoder: next characters"),
        ("shuffled", "encoder", "control: encoder, characters shuffled"),
    )
    for axis, (text, network, title) in zip(axes, panels, strict=True):
        for order, colour in zip(clones.order.values, COLOURS, strict=False):
            curve = clones.loss.sel(text=text, network=network, order=order).mean("seed")
            axis.plot(clones.step[1:], curve[1:], color=colour, label=f"clone of {order} bodies" if order else "text")
            if order and text != "shuffled":
                least = 1 + int(np.argmin(curve.values[1:]))
                axis.plot(clones.step[least], curve[least], "v", color=colour)
        axis.set(xlabel="steps of training", title=title)
        log_axis(axis.xaxis)
    axes[0].set_ylabel("loss (nats per character)")
    axes[0].legend()
    figure.suptitle("Natural language: clones of low order are left behind in turn (▼ best)", fontsize=11)
    return figure


RECIPES = {
    "many-body-text": Recipe(
        clones_of_text,
        draw_clones_of_text,
        resumes=True,
        sentence="Encoders and decoders on Python's help topics: clones of few-body interactions are left behind in turn.",
    )
}
