"""Does a transformer's initialisation keep its signal, and which hyperparameters does its size need?

    from solvable.tools.transformer import advise

    advice = advise(depth=48, width=1024, heads=16, context=2048)
    print(advice)                            # where it stands, what to change, the table of hyperparameters
    advice.plot().savefig("advice.png")      # the trainability diagram with this network in it

The position follows from the theory of signals through a random transformer (`solvable.models.signals.transformer_signals`);
the table from the scaling rules of `standard`, `mup`, `depth-mup` and `completep` parametrisations.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import InvalidValue, UnknownName, nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEEP, ENTROPY = 0.9, 0.5
"""A signal counts as kept if tokens end with an overlap below the first number; attention as open above the second."""
STRONGEST = 5.0  # the largest strength that the theory's tables cover

ALIASES = {
    "n_layer": "depth", "num_hidden_layers": "depth", "n_layers": "depth",
    "n_embd": "width", "hidden_size": "width", "d_model": "width",
    "n_head": "heads", "num_attention_heads": "heads", "n_heads": "heads",
    "n_positions": "context", "n_ctx": "context", "block_size": "context", "max_position_embeddings": "context",
    "initializer_range": "std", "activation_function": "activation", "hidden_act": "activation",
}  # fmt: skip
"""Names of other libraries that a configuration file may use."""
GELUS = ("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_python")


@dataclass(frozen=True)
class Shape:
    """A transformer at initialisation.

    `std` is the standard deviation of all its weight matrices, which that of the tuned base model (`Base`) need not be;
    `projections="scaled"` divides that of the last matrix of both
    branches by √(2·depth), as GPT-2 does. `residual` multiplies both branches. `logits` are divided by √head size or by the head
    size (`"linear"`). `embedding_std` is that of token and position embeddings (default: `std`), `overlap` that of the
    input tokens.
    """

    depth: int
    width: int
    heads: int
    context: int
    std: float = 0.02
    mlp_ratio: float = 4.0
    activation: str = "gelu"
    layer_norm: str = "before"
    projections: str = "scaled"
    logits: str = "sqrt"
    residual: float = 1.0
    embedding_std: float | None = None
    overlap: float = 0.0

    def __post_init__(self) -> None:
        whole = {"depth": (1, 10_000), "width": (8, 1_000_000), "heads": (1, 10_000), "context": (2, 100_000)}
        for name, (low, high) in whole.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
                raise InvalidValue(f"{name} = {value!r} is not a whole number in [{low}, {high}].")
        ranges = {"std": 10.0, "mlp_ratio": 100.0, "residual": 100.0, "embedding_std": 100.0}
        for name, high in ranges.items():
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and 0 < value <= high):
                raise InvalidValue(f"{name} = {value!r} is not a number in (0, {high:g}].")
        if not (_is_number(self.overlap) and 0 <= self.overlap < 1):
            raise InvalidValue(
                f"overlap = {self.overlap!r} is not a number in [0, 1): the overlap of the input tokens."
            )
        options = {
            "activation": ("relu", "gelu", "erf", "tanh"),
            "layer_norm": ("before", "after"),
            "projections": ("scaled", "plain"),
            "logits": ("sqrt", "linear"),
        }
        for name, allowed in options.items():
            if getattr(self, name) not in allowed:
                raise InvalidValue(f"{name} = {getattr(self, name)!r} is not one of {', '.join(map(repr, allowed))}.")
        if self.width % self.heads:
            raise InvalidValue(f"heads = {self.heads} does not divide width = {self.width}.")

    @property
    def head(self) -> int:
        """Size of a head."""
        return self.width // self.heads

    def strength(self) -> float:
        """β: the standard deviation of a score between normalised tokens, over √log T."""
        scores = self.std**2 * self.width / (math.sqrt(self.head) if self.logits == "linear" else 1.0)
        return scores / math.sqrt(math.log(self.context))

    def query_std(self, strength: float) -> float:
        """The standard deviation of query and key weights that gives this strength."""
        return self.std * math.sqrt(strength / self.strength())

    def controls(self) -> dict[str, float]:
        """Controls of the theory. With normalisation before the branches, variances are in units of the embedding's."""
        fan = self.std**2 * self.width
        last = fan / (2 * self.depth) if self.projections == "scaled" else fan
        embedding = self.std if self.embedding_std is None else self.embedding_std
        unit = 2 * embedding**2 if self.layer_norm == "before" else 1.0  # token and position embeddings add
        return {
            "strength": self.strength(),
            "value_variance": fan * last * self.residual**2 / unit,
            "weight_variance": fan,
            "output_ratio": self.mlp_ratio * last / fan * self.residual**2 / unit,
        }


def read_config(file: str | os.PathLike[str]) -> tuple[dict[str, Any], list[str]]:
    """Options from a JSON file, under their own names or those of other libraries, and the keys that were ignored."""
    try:
        with open(file, encoding="utf-8") as stream:
            found = json.load(stream)
    except OSError as problem:
        raise InvalidValue(f"{str(file)!r} cannot be read: {problem.strerror}.") from None
    except ValueError as problem:
        raise InvalidValue(f"{str(file)!r} is not JSON: {problem}.") from None
    if not isinstance(found, dict):
        raise InvalidValue(f"{str(file)!r} holds a {type(found).__name__} instead of a JSON object of options.")
    known = {f.name for f in dataclasses.fields(Shape)} | {f.name for f in dataclasses.fields(Base)} | {"rule"}
    options: dict[str, Any] = {}
    ignored = []
    for key, value in found.items():
        name = ALIASES.get(key, key)
        if key in ("intermediate_size", "n_inner"):
            continue
        if name not in known:
            ignored.append(key)
        elif value is not None:
            options[name] = "gelu" if name == "activation" and value in GELUS else value
    inner = found.get("intermediate_size") or found.get("n_inner")
    if inner and "mlp_ratio" not in options and _is_number(inner) and _is_number(options.get("width")):
        options["mlp_ratio"] = inner / options["width"]
    return options, ignored


@dataclass(frozen=True)
class Base:
    """The tuned base model: its size, and its rate, ε and decay if they are known (then the table has numbers).

    `base_std` is the standard deviation of its weight matrices, from which the rule derives those of the network; without
    it, that of the network (`std`) is taken.
    """

    base_width: int = 256
    base_depth: int = 2
    base_std: float | None = None
    rate: float | None = None
    epsilon: float | None = None
    decay: float | None = None

    def __post_init__(self) -> None:
        for name in ("base_width", "base_depth"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value <= 1_000_000:
                raise InvalidValue(f"{name} = {value!r} is not a whole number in [1, 1000000].")
        if self.base_std is not None and not (_is_number(self.base_std) and 0 < self.base_std <= 10):
            raise InvalidValue(
                f"base_std = {self.base_std!r} is not a number in (0, 10]: the initial standard deviation of the base model."
            )
        for name in ("rate", "epsilon", "decay"):
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and value > 0):
                raise InvalidValue(f"{name} = {value!r} is not a positive number.")


@dataclass(frozen=True)
class Standing:
    """The state of a network at initialisation: overlap by layer, entropy by block (over log T), β and β_c."""

    strength: float
    critical: float
    overlap: np.ndarray
    entropy: np.ndarray

    @property
    def verdict(self) -> Literal["rank collapse", "entropy collapse", "both", "signal kept"]:
        """Whether tokens end parallel, the first attention is nearly one-hot, both or neither."""
        parallel, frozen = self.overlap[-1] > KEEP, self.entropy[0] < ENTROPY
        if parallel and frozen:
            return "both"
        return "rank collapse" if parallel else "entropy collapse" if frozen else "signal kept"

    @property
    def blocks_kept(self) -> int | None:
        """Blocks after which the overlap first exceeds the threshold; None if it never does."""
        over = np.flatnonzero(self.overlap > KEEP)
        return int(over[0]) if len(over) else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "strength": self.strength,
            "critical_strength": self.critical,
            "relative_strength": self.strength / self.critical,
            "verdict": self.verdict,
            "final_overlap": float(self.overlap[-1]),
            "blocks_kept": self.blocks_kept,
            "first_entropy": float(self.entropy[0]),
            "last_entropy": float(self.entropy[-1]),
            "overlap": self.overlap.tolist(),
        }


@dataclass(frozen=True)
class Advice:
    """Where a transformer stands at initialisation, what keeps its signal, and its hyperparameters under a rule.

    `branch` is the largest factor (at most 1) of both residual branches at which the signal is kept with the given queries and
    keys, None if no factor above 0.01 suffices; `room` the largest factor above 1, None if it exceeds 10. `strongest` is
    the β beyond which the first attention is nearly one-hot; `weakest` the smallest β that keeps the signal without changing
    the branches, None if none below `strongest` does.
    """

    shape: Shape
    base: Base
    rule: str
    given: Standing
    under_rule: Standing
    branch: float | None
    room: float | None
    strongest: float | None
    weakest: float | None
    multipliers: Mapping[str, Mapping[str, float | None]]
    forward: Mapping[str, float]
    diagram: Mapping[str, np.ndarray]
    notes: tuple[str, ...] = ()

    @property
    def base_std(self) -> float:
        """The initial standard deviation of the base model: that of the network unless it was given."""
        return self.shape.std if self.base.base_std is None else self.base.base_std

    def _base_std_of(self, group: str) -> float:
        if group == "embedding" and self.shape.embedding_std is not None:
            return self.shape.embedding_std
        # GPT-2's output projections are scaled in the base model too.
        scaled = self.rule == "standard" and group == "output projections"
        return self.base_std / (math.sqrt(2 * self.base.base_depth) if scaled else 1.0)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Columns and rows of the table of hyperparameters; × marks factors of base values that were not given."""
        columns = ["parameters", "initial std", "learning rate", "Adam ε", "weight decay"]
        base = {
            "variance": self.base_std,
            "rate": self.base.rate,
            "epsilon": self.base.epsilon,
            "decay": self.base.decay,
        }
        rows = []
        for group, row in self.multipliers.items():
            words = [group]
            for name, value in base.items():
                factor = row[name]
                if factor is None:
                    words.append("0" if name == "decay" or "biases" in group else "gains of 1")
                    continue
                if name == "variance":
                    factor, value = math.sqrt(factor), self._base_std_of(group)
                words.append(f"× {factor:.4g}" if value is None else f"{factor * value:.4g}")
            rows.append(words)
        return columns, rows

    def sentences(self) -> list[str]:
        """The advice in words."""
        shape, given = self.shape, self.given
        share = given.strength / given.critical
        state = "nearly uniform" if given.entropy[0] > 0.9 else "frozen" if given.entropy[0] < ENTROPY else "open"
        shown = {
            "nearly uniform": "nearly uniform: it averages tokens, and only the skip connections keep them apart",
            "frozen": "nearly one-hot: it is frozen",
            "open": "open: neither uniform nor one-hot",
        }[state]
        lines = [
            f"Queries and keys (weights of standard deviation {shape.std:.3g}) have strength β = {given.strength:.3g}, "
            f"{share:.2g} of the critical β_c = {given.critical:.3g}. With {given.entropy[0]:.0%} of the largest entropy, the "
            f"first attention is {shown}.",
            f"After {shape.depth} blocks two tokens have overlap {given.overlap[-1]:.3f} (0: unrelated, 1: parallel): "
            + given.verdict
            + (f", above {KEEP:g} after {given.blocks_kept} blocks." if given.blocks_kept is not None else "."),
        ]
        if given.overlap[-1] > KEEP:
            if self.branch is None:
                lines.append(f"No factor of the residual branches above 0.01 keeps the overlap below {KEEP:g}.")
            else:
                lines.append(
                    f"To keep the overlap below {KEEP:g}, multiply both residual branches by {self.branch:.2g} "
                    f"(1/√depth is {1 / math.sqrt(shape.depth):.2g}, 1/depth {1 / shape.depth:.2g})."
                )
            if self.weakest is None:
                lines.append("Stronger queries and keys alone do not keep the signal before attention freezes.")
            else:
                lines.append(
                    f"Alternatively, raise β to {self.weakest:.2g} (query and key weights of standard deviation "
                    f"{shape.query_std(self.weakest):.2g})."
                )
        else:
            room = self.room
            lines.append(
                f"Residual branches up to {room:.2g} times as strong would keep the overlap below {KEEP:g} too."
                if room is not None
                else f"Residual branches ten times as strong would keep the overlap below {KEEP:g} too."
            )
        if self.strongest is not None:
            lines.append(
                f"The first attention stays open (entropy above {ENTROPY:.0%} of log T) up to β = {self.strongest:.2g} "
                f"(query and key weights of standard deviation {shape.query_std(self.strongest):.2g})."
            )
        return lines

    def sentences_under_rule(self) -> list[str]:
        """What the rule sets besides the table, and where the network then stands."""
        shape, base, there = self.shape, self.base, self.under_rule
        given = [n for n in ("rate", "epsilon", "decay") if getattr(base, n) is not None]
        missing = [f"--{n}" for n in ("rate", "epsilon", "decay") if n not in given]
        size = "the root of the head size" if self.rule == "standard" else "the head size"
        lines = [
            f"{self.rule} carries over the hyperparameters of a base model of width {base.base_width}, depth "
            f"{base.base_depth} and initial standard deviation {self.base_std:.3g}"
            + (" (that of this network, since base_std is not given)." if base.base_std is None else ".")
            + f" Besides the table: x + {self.forward['residual']:.3g} · branch(x) for attention and MLP, attention scores / "
            f"{self.forward['attention']:.3g} ({size}), output logits × {self.forward['output']:.3g}.",
            f"So initialised, two tokens have overlap {there.overlap[-1]:.3f} after {shape.depth} blocks, and the first "
            f"attention has {there.entropy[0]:.0%} of the largest entropy: {there.verdict}.",
        ]
        if missing:
            lines.append(f"× is a factor of the base model's value; numbers follow with {', '.join(missing)}.")
        return lines

    def caveats(self) -> list[str]:
        """What is exact, what is approximate, and what is not in the theory."""
        return [
            "Exact for wide heads: scores, entropy and overlap after the first attention, at this context, without causal mask.",
            "Approximate: later blocks, in which norms and overlaps are replaced by their means (measured: below 2 % with full "
            "residuals; a few per cent in overlaps and a quarter in participation where frozen attention meets weak residuals).",
            f"Extrapolated: heads of size {self.shape.head} (corrections of order 1/{self.shape.head}), causal masks, and inputs "
            "whose overlaps vary between pairs of tokens.",
            "Not predicted: training. The exponents of the table hold for large width and depth, and transfer values that were "
            "tuned at the base size under the same rule.",
        ]

    def as_dict(self) -> dict[str, Any]:
        """The advice as plain numbers, lists and strings."""
        columns, rows = self.table()
        return {
            "shape": dataclasses.asdict(self.shape),
            "base": dataclasses.asdict(self.base),
            "rule": self.rule,
            "given": self.given.as_dict(),
            "under_rule": self.under_rule.as_dict(),
            "branch_factor": self.branch,
            "branch_room": self.room,
            "strongest": self.strongest,
            "weakest": self.weakest,
            "multipliers": {group: dict(row) for group, row in self.multipliers.items()},
            "forward": dict(self.forward),
            "table": [dict(zip(columns, row, strict=True)) for row in rows],
            "sentences": [*self.sentences(), *self.sentences_under_rule()],
            "caveats": self.caveats(),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        columns, rows = self.table()
        widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
        table = [
            "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)) for row in [columns, *rows]
        ]
        return "\n".join([*self.sentences(), "", *table, *self.sentences_under_rule(), "", *self.caveats()])

    def plot(self) -> Figure:
        """The trainability diagram at this depth and context, and the overlap by layer."""
        import matplotlib.pyplot as plt

        from ..render.plots import COLOURS, house_style

        d, shape = self.diagram, self.shape
        with house_style():
            figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 4.4), layout="constrained")
            shown = left.pcolormesh(
                d["strength"], d["branch"], d["overlap"].T, vmin=0, vmax=1, cmap="viridis", rasterized=True
            )
            if d["overlap"].min() < KEEP < d["overlap"].max():
                lines = left.contour(
                    d["strength"], d["branch"], d["overlap"].T, levels=[KEEP], colors="w", linewidths=1.4
                )
                left.clabel(lines, fmt=f"lost above {KEEP:g}", fontsize=8)
            else:
                side = "lost" if d["overlap"].min() >= KEEP else "kept"
                left.text(
                    0.03, 0.95, f"signal {side} everywhere", color="w", fontsize=8, va="top", transform=left.transAxes
                )
            if self.strongest is not None:
                left.axvline(self.strongest, color="w", linestyle="--", linewidth=1.2)
                left.text(self.strongest * 1.08, 0.012, "attention\nfreezes", color="w", fontsize=8)
            left.plot(self.given.strength, 1.0, "o", color=COLOURS[1], markeredgecolor="w", markersize=9, clip_on=False)
            left.annotate(
                "as given", (self.given.strength, 1.0), (7, 5), textcoords="offset points", color="w", fontsize=8
            )
            left.set(xscale="log", yscale="log", xlabel=r"strength of queries and keys, $\beta$",
                     ylabel="factor of the residual branches")  # fmt: skip
            left.set_title(f"two tokens after {shape.depth} blocks, among {shape.context}", fontsize=10)
            left.grid(False)
            figure.colorbar(shown, ax=left, label=r"overlap of two tokens, $\rho$ (1: parallel)")
            layers = np.arange(shape.depth + 1)
            right.plot(layers, self.given.overlap, color=COLOURS[1], label=f"as given, std {shape.std:.3g}")
            right.plot(layers, self.under_rule.overlap, color=COLOURS[0],
                       label=f"under {self.rule}, base std {self.base_std:.3g}")  # fmt: skip
            right.axhline(KEEP, color="0.5", linestyle=":", linewidth=1)
            right.text(0, KEEP + 0.01, "lost above", color="0.4", fontsize=8)
            right.set(xlabel="blocks passed", ylabel=r"overlap of two tokens, $\rho$", ylim=(-0.02, 1.02))
            right.set_title("overlap by layer at initialisation", fontsize=10)
            right.legend()
        return figure


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, (int, float, np.integer, np.floating))
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def _crossing(x: np.ndarray, y: np.ndarray, level: float) -> float | None:
    """Where y first falls through the level along increasing log x; None if it does not, x[0] if it starts below."""
    below = np.flatnonzero(y <= level)
    if not len(below):
        return None
    i = int(below[0])
    if i == 0:
        return float(x[0])
    share = (y[i - 1] - level) / (y[i - 1] - y[i])
    return float(math.exp((1 - share) * math.log(x[i - 1]) + share * math.log(x[i])))


def advise(rule: str = "completep", **options: Any) -> Advice:
    """Advise on the initialisation and the hyperparameters of a transformer.

    Options are the fields of `Shape` (depth, width, heads and context are required) and of `Base`. Raises `InvalidValue` with one
    sentence for values out of range.
    """
    from ..models.signals._parametrisations import multipliers, rule_named

    chosen = rule_named(rule)
    own, of_base = ({f.name for f in dataclasses.fields(kind)} for kind in (Shape, Base))
    for name in options:
        if name not in own | of_base:
            raise UnknownName(f"there is no option {name!r}; {nearest(name, sorted(own | of_base))}")
    missing = [name for name in ("depth", "width", "heads", "context") if options.get(name) is None]
    if missing:
        raise InvalidValue(f"{', '.join(missing)} must be given: the shape of the transformer.")
    shape = Shape(**{n: v for n, v in options.items() if n in own})
    base = Base(**{n: v for n, v in options.items() if n in of_base})
    wide, deep = shape.width / base.base_width, shape.depth / base.base_depth
    forward = {
        "residual": chosen.residual.at(wide, deep),
        "output": chosen.output.at(wide, deep),
        "attention": shape.head**-chosen.attention,
    }
    base_std = shape.std if base.base_std is None else base.base_std
    hidden = chosen.groups["hidden weights"].variance
    assert hidden is not None
    words_of_base = f"{'std' if base.base_std is None else 'base_std'} = {base_std:g} under {rule}"
    derived = base_std * math.sqrt(hidden.at(wide, deep))
    if derived > 10:
        raise InvalidValue(
            f"{words_of_base} gives weights of standard deviation {derived:.3g}, which is outside (0, 10]."
        )
    scaled = dataclasses.replace(
        shape,
        std=derived,
        projections="scaled" if chosen.name == "standard" else "plain",
        logits="linear" if chosen.attention == -1.0 else "sqrt",
        residual=forward["residual"],
        embedding_std=base_std if shape.embedding_std is None else shape.embedding_std,
    )
    for words, one, own_std in ((f"std = {shape.std:g}", shape, shape.std), (words_of_base, scaled, base_std)):
        if one.strength() > STRONGEST:
            raise InvalidValue(
                f"{words} gives queries and keys the strength β = {one.strength():.3g}, which is outside [0, {STRONGEST:g}]: "
                f"attention is frozen far beyond β_c; use a value below {one.query_std(STRONGEST) * own_std / one.std:.2g}."
            )
    given, under, diagram = _evaluate(shape, scaled)
    weaker = diagram["branch"] < 1 + 1e-9
    # Overlaps fall as the branches are weakened, from their given strength on.
    branch = _crossing(1 / diagram["branch"][weaker][::-1], diagram["row"][weaker][::-1], KEEP)
    inside = np.concatenate([[given.strength], diagram["strength"][diagram["strength"] > given.strength]])
    curve = np.interp(inside, diagram["strength"], diagram["overlap"][:, int(weaker.sum()) - 1])
    strongest = _crossing(diagram["strength"], diagram["entropy"], ENTROPY)
    weakest = _crossing(inside, curve, KEEP)
    stronger = diagram["branch"] > 1 - 1e-9
    room = _crossing(diagram["branch"][stronger], -diagram["row"][stronger], -KEEP)
    return Advice(
        shape, base, rule, given, under, None if branch is None else min(1.0, 1 / branch), room, strongest,
        None if weakest is None or (strongest is not None and weakest > strongest) else weakest,
        multipliers(chosen, wide, deep), forward, diagram,
    )  # fmt: skip


def _evaluate(shape: Shape, scaled: Shape) -> tuple[Standing, Standing, dict[str, np.ndarray]]:
    """Both networks and the diagram, in one call of the theory, so that it compiles once."""
    from ..models.signals.transformer_signals import TransformerSignals

    own = shape.controls()
    strengths = np.unique(np.append(np.geomspace(0.02, STRONGEST, 31), min(own["strength"], STRONGEST)))
    branches = np.geomspace(0.01, 10.0, 31)  # 1 is among them
    grid = np.stack(np.meshgrid(strengths, branches, indexing="ij")).reshape(2, -1)
    other = scaled.controls()
    rows: dict[str, Any] = {
        "strength": [*grid[0], own["strength"], other["strength"]],
        "value_variance": [*(own["value_variance"] * grid[1] ** 2), own["value_variance"], other["value_variance"]],
        "weight_variance": [
            *np.full(grid.shape[1], own["weight_variance"]),
            own["weight_variance"],
            other["weight_variance"],
        ],
        "output_ratio": [*(own["output_ratio"] * grid[1] ** 2), own["output_ratio"], other["output_ratio"]],
    }
    arrays: dict[str, Any] = {n: np.array(v) for n, v in rows.items()}
    model = TransformerSignals(
        context=shape.context, depth=shape.depth, layer_norm=shape.layer_norm, activation=shape.activation,
        bias_variance=0.0, initial_overlap=shape.overlap, **arrays,
    )  # fmt: skip
    found = model.theory(only=["overlap", "attention_entropy"])
    overlap, entropy = np.asarray(found.overlap), np.asarray(found.attention_entropy)
    critical = math.sqrt(2 / (1 - shape.overlap))
    given, under = (
        Standing(float(rows["strength"][i]), critical, overlap[i], entropy[i])
        for i in (grid.shape[1], grid.shape[1] + 1)
    )
    final = overlap[: grid.shape[1], -1].reshape(len(strengths), len(branches))
    at = int(np.argmin(np.abs(strengths - own["strength"])))
    first = entropy[: grid.shape[1], 0].reshape(len(strengths), len(branches))[:, -1]
    return (
        given,
        under,
        {"strength": strengths, "branch": branches, "overlap": final, "entropy": first, "row": final[at]},
    )
