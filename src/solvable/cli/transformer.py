"""The commands `solvable transformer …`: advice on initialisation and hyperparameters, and the tables of scaling rules."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import arg, subcommand

from ..errors import InvalidValue
from .common import Json, print_json, print_table

RuleName = Annotated[
    Literal["standard", "mup", "depth-mup", "completep"], arg(help="How hyperparameters follow width and depth.")
]


@dataclasses.dataclass
class Advise:
    """Where a transformer stands between rank and entropy collapse, what keeps its signal, and its hyperparameters."""

    config: Annotated[
        Path | None, arg(metavar="FILE.json", help="Options from a JSON file, also with the names of GPT-2's config.")
    ] = None
    depth: Annotated[int | None, arg(metavar="L", help="Number of blocks.")] = None
    width: Annotated[int | None, arg(metavar="N", help="Length of a token's vector.")] = None
    heads: Annotated[int | None, arg(metavar="H", help="Attention heads.")] = None
    context: Annotated[int | None, arg(metavar="T", help="Number of tokens.")] = None
    std: Annotated[
        float | None, arg(metavar="S", help="Standard deviation of this network's initial weights (default 0.02).")
    ] = None
    mlp_ratio: Annotated[float | None, arg(metavar="R", help="Hidden units of the MLP over the width (default 4).")] = (
        None
    )
    activation: Annotated[str | None, arg(metavar="NAME", help="relu, gelu (default), erf or tanh.")] = None
    layer_norm: Annotated[str | None, arg(metavar="WHERE", help="before the branches (default) or after the sums.")] = (
        None
    )
    projections: Annotated[
        str | None, arg(metavar="HOW", help="Output projections: scaled by 1/√(2L) (default), or plain.")
    ] = None
    logits: Annotated[
        str | None, arg(metavar="HOW", help="Attention logits over sqrt (default) or linear head size.")
    ] = None
    residual: Annotated[float | None, arg(metavar="A", help="Factor of both residual branches (default 1).")] = None
    embedding_std: Annotated[
        float | None, arg(metavar="S", help="Of token and position embeddings (default: std).")
    ] = None
    overlap: Annotated[float | None, arg(metavar="P", help="Overlap of the input tokens (default 0).")] = None
    rule: Annotated[str | None, arg(metavar="NAME", help="standard, mup, depth-mup or completep (default).")] = None
    base_width: Annotated[int | None, arg(metavar="N", help="Width of the tuned base model (default 256).")] = None
    base_depth: Annotated[int | None, arg(metavar="L", help="Depth of the tuned base model (default 2).")] = None
    base_std: Annotated[
        float | None, arg(metavar="S", help="Standard deviation of the base model's initial weights (default: std).")
    ] = None
    rate: Annotated[float | None, arg(metavar="η", help="Learning rate of the base model.")] = None
    epsilon: Annotated[float | None, arg(metavar="ε", help="Adam's ε of the base model.")] = None
    decay: Annotated[float | None, arg(metavar="λ", help="Weight decay of the base model.")] = None
    out: Annotated[Path | None, arg(metavar="FILE.png", help="Picture of the trainability diagram.")] = None
    json: Json = False


@dataclasses.dataclass
class Rules:
    """Print how initialisation, learning rate, ε and weight decay follow width and depth under a rule."""

    rule: RuleName = "completep"
    json: Json = False


@dataclasses.dataclass
class Transformer:
    """Initialisation and hyperparameters of a transformer of your size."""

    action: Annotated[Advise, subcommand("advise")] | Annotated[Rules, subcommand("rules")]


def _advise(command: Advise) -> int:
    from ..tools.transformer import advise, read_config

    options, ignored = read_config(command.config) if command.config is not None else ({}, [])
    given = dataclasses.asdict(command)
    options |= {n: v for n, v in given.items() if v is not None and n not in ("config", "out", "json")}
    if command.out is not None and command.out.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise InvalidValue(f"out = {str(command.out)!r} does not end in .png, .pdf or .svg: the file of the picture.")
    from ..lab.jax_environment import configure

    configure()
    advice = advise(**options)
    notes = [f"ignored in {command.config}: {', '.join(ignored)}"] if ignored else []
    if command.out is not None:
        try:
            advice.plot().savefig(command.out)
        except OSError as problem:
            raise InvalidValue(f"{str(command.out)!r} cannot be written: {problem.strerror}.") from None
    if command.json:
        print_json({**advice.as_dict(), "notes": notes, "out": None if command.out is None else str(command.out)})
        return 0
    shape = advice.shape
    print(f"{shape.depth} blocks of width {shape.width}, {shape.heads} heads, {shape.context} tokens\n")
    _print_wrapped(advice.sentences())
    print()
    columns, rows = advice.table()
    print_table(f"{advice.rule}, AdamW", columns, rows)
    print()
    _print_wrapped(advice.sentences_under_rule())
    print()
    _print_wrapped([*advice.caveats(), *notes])
    if command.out is not None:
        print(f"picture in {command.out}")
    return 0


def _print_wrapped(sentences: list[str]) -> None:
    for sentence in sentences:
        print(textwrap.fill(sentence, 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def _power(power: Any, root: bool = False) -> str:
    if power is None:
        return "none"
    parts = [
        f"{name}^{value / (2 if root else 1):g}"
        for name, value in (("m_N", power.width), ("m_L", power.depth))
        if value
    ]
    return " · ".join(parts) or "1"


def _rules(command: Rules) -> int:
    from ..models.signals._parametrisations import rule_named

    rule = rule_named(command.rule)
    columns = ["parameters", "initial std", "learning rate", "Adam ε", "weight decay"]
    rows = [
        [group, _power(how.variance, root=True), _power(how.rate), _power(how.epsilon), _power(how.decay)]
        for group, how in rule.groups.items()
    ]
    if command.json:
        print_json(
            {
                "rule": rule.name,
                "table": [dict(zip(columns, row, strict=True)) for row in rows],
                "residual": _power(rule.residual),
                "output": _power(rule.output),
                "attention_exponent": rule.attention,
            }
        )
        return 0
    print_table(
        f"{rule.name}: factors of the base model's values; m_N = width, m_L = depth, over the base's", columns, rows
    )
    print(f"\nresidual branches × {_power(rule.residual)}, output logits × {_power(rule.output)}, "
          f"attention logits × head size^{rule.attention:g}")  # fmt: skip
    return 0


COMMANDS: dict[type, Callable[[Any], int]] = {Advise: _advise, Rules: _rules}
