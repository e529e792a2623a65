"""How initialisation, learning rate, Adam's ε and weight decay follow the width and the depth of a transformer.

A tuned base model has width N₀, depth L₀ and one value each of the initial variance σ², rate η, ε and decay λ. A model of
width N and depth L multiplies these, group by group, by powers of m_N = N/N₀ and m_L = L/L₀:

- `standard`: nothing follows the size, except that GPT-2's output projections start with variance σ²/(2L);
- `mup`: widths (Yang et al. 2022): hidden variances and rates fall like 1/m_N;
- `depth-mup`: widths and depths, residual branches multiplied by m_L^(−1/2) (Bordelon et al. 2023, Yang et al. 2023);
- `completep`: the same with m_L^(−1) (Dey et al. 2025): rates then need no factor of the depth.

The last two are one family, `depth_rule(α)` with 1/2 ≤ α ≤ 1. AdamW is assumed, with decoupled decay that is multiplied by
the rate; a bias or normalisation is not decayed. ε follows the size of the gradient: 1/m_N, since the output is
multiplied by 1/m_N, and for parameters of a block also m_L^(−α). The exponents are those of the paper's table and of the
authors' implementation, whose first version applied the factor m_L^(−α) of ε to embeddings as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from solvable.errors import InvalidValue, UnknownName, nearest

Group = Literal[
    "embedding", "hidden weights", "output projections", "hidden biases", "hidden norms", "final norm", "unembedding"
]
GROUPS: tuple[Group, ...] = (
    "embedding",
    "hidden weights",
    "output projections",
    "hidden biases",
    "hidden norms",
    "final norm",
    "unembedding",
)
"""Groups of parameters. Output projections (the last matrix of the attention and of the MLP) are hidden weights too."""


class Power(NamedTuple):
    """A multiplier m_N^width · m_L^depth.

    >>> Power(width=-1, depth=-0.5).at(4, 16)
    0.0625
    """

    width: float = 0.0
    depth: float = 0.0

    def at(self, width: float, depth: float) -> float:
        """The multiplier at width multiplier `width` and depth multiplier `depth`."""
        return float(width) ** self.width * float(depth) ** self.depth


FIXED = Power()


@dataclass(frozen=True)
class GroupRule:
    """Multipliers of the initial variance, AdamW's rate, ε and decay of one group; `decay` is None without decay."""

    variance: Power | None = FIXED
    rate: Power = FIXED
    epsilon: Power = FIXED
    decay: Power | None = FIXED


@dataclass(frozen=True)
class Rule:
    """A parametrisation: the rule of every group, and the multipliers of the forward pass.

    `residual` multiplies both residual branches, `output` the output logits. Attention logits are multiplied by
    head_size ** `attention`. `depth_exponent` is α, the exponent of the residual branches.
    """

    name: str
    groups: Mapping[Group, GroupRule]
    residual: Power = FIXED
    output: Power = FIXED
    attention: float = -0.5
    depth_exponent: float = 0.0


def _rule(name: str, alpha: float | None, *, width_rules: bool) -> Rule:
    """The rule of branches m_L^(−α), or without any factor of the depth if `alpha` is None."""
    n = -1.0 if width_rules else 0.0
    slower, branch = (0.0, 0.0) if alpha is None else (alpha - 1.0, -alpha)
    # The paper scales the decay with the width only together with the depth; plain μP leaves it alone.
    decay = Power(width=0.0 if alpha is None else 1.0)
    inside, outside = Power(n, branch), Power(n)
    # GPT-2 divides the variance of output projections by 2L.
    projected = Power(depth=-1.0) if not width_rules else Power(n)
    weights = GroupRule(Power(n), Power(n, slower), inside, decay)
    vector = GroupRule(None, Power(depth=slower), inside, None)
    groups: dict[Group, GroupRule] = {
        "embedding": GroupRule(FIXED, FIXED, outside, FIXED),
        "hidden weights": weights,
        "output projections": GroupRule(projected, weights.rate, inside, decay),
        "hidden biases": vector,
        "hidden norms": vector,
        "final norm": GroupRule(None, FIXED, outside, None),
        "unembedding": GroupRule(FIXED, FIXED, outside, FIXED),
    }
    return Rule(name, groups, Power(depth=branch), Power(n), -1.0 if width_rules else -0.5, -branch)


def depth_rule(alpha: float, name: str = "") -> Rule:
    """The rule with residual branches m_L^(−α): α = 1/2 is depth-μP, α = 1 CompleteP.

    >>> depth_rule(0.5).groups["hidden weights"].rate
    Power(width=-1.0, depth=-0.5)
    >>> depth_rule(1.0).groups["hidden biases"].rate.at(4, 24)
    1.0
    """
    if not 0.5 <= alpha <= 1.0:
        raise InvalidValue(f"alpha = {alpha:g} is outside its range [0.5, 1]: the exponent of the residual branches.")
    return _rule(name or f"depth exponent {alpha:g}", float(alpha), width_rules=True)


RULES: dict[str, Rule] = {
    "standard": _rule("standard", None, width_rules=False),
    "mup": _rule("mup", None, width_rules=True),
    "depth-mup": depth_rule(0.5, "depth-mup"),
    "completep": depth_rule(1.0, "completep"),
}


def rule_named(name: str) -> Rule:
    """The rule with this name; raises `UnknownName`, which names the nearest."""
    if name not in RULES:
        raise UnknownName(f"no parametrisation {name!r}; {nearest(name, list(RULES))}")
    return RULES[name]


def multipliers(rule: Rule | str, width: float, depth: float) -> dict[str, dict[str, float | None]]:
    """Multipliers of variance, rate, ε and decay of every group, at width multiplier m_N and depth multiplier m_L.

    None stands for a quantity that the group does not have (biases and normalisations are not decayed and start at fixed
    values).

    >>> multipliers("completep", 4, 24)["hidden weights"]["rate"]
    0.25
    >>> round(multipliers("depth-mup", 4, 16)["hidden biases"]["epsilon"], 6)
    0.0625
    """
    if not (width > 0 and depth > 0):
        raise InvalidValue(f"width = {width:g} and depth = {depth:g} must be positive: multipliers of the base model.")
    found = rule_named(rule) if isinstance(rule, str) else rule
    table: dict[str, dict[str, float | None]] = {}
    for group, how in found.groups.items():
        powers = {"variance": how.variance, "rate": how.rate, "epsilon": how.epsilon, "decay": how.decay}
        table[group] = {name: None if power is None else power.at(width, depth) for name, power in powers.items()}
    return table
