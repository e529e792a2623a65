"""Claims about transformers on Potts sequences, and the numbers that decide them."""

from __future__ import annotations

import numpy as np

from solvable.contract.claims import Claim, Measured, Stored, mean_and_error

FIGURE, DEPTH = "what-transformers-learn", "masked-language-depth"


def _excess(stored: Stored, learner: str, sequences: int) -> tuple[float, float]:
    return mean_and_error(stored[f"{FIGURE}.sequences"].excess_loss.sel(learner=learner, sequences=sequences))


def _finds_couplings(stored: Stored) -> list[Measured]:
    maps = stored[f"{FIGURE}.maps"]
    apart = ~np.eye(maps.sizes["site"], dtype=bool)
    correlation = np.corrcoef(maps.couplings.values[apart], maps.factored_map.values[apart])[0, 1]
    colours = np.corrcoef(maps.colour_matrix.values.ravel(), maps.factored_colours.values.ravel())[0, 1]
    factored, dense = _excess(stored, "factored", 64000), _excess(stored, "dense", 64000)
    return [
        Measured("loss above the optimum with 64,000 sequences, factored attention", *factored, below=1e-3),
        Measured("the same over that of dense couplings", factored[0] / dense[0], factored[1] / dense[0], below=0.1),
        Measured("correlation of the attention map with J", float(correlation), above=0.99),
        Measured("correlation of the values with U", float(colours), above=0.99),
    ]


def _same_loss(_: Stored) -> list[Measured]:
    """Masked training, site by site, against the pseudo-likelihood of the composed couplings, at random parameters."""
    import jax
    import jax.numpy as jnp

    from solvable.methods.sequences.couplings import one_hot
    from solvable.methods.sequences.pseudolikelihood import (
        FactoredAttention,
        masked_language_loss,
        negative_log_pseudolikelihood,
        surprise,
    )

    heads, sites, colours, number = 2, 6, 4, 20
    rng = np.random.default_rng(0)
    sequences = jnp.asarray(rng.integers(0, colours, (number, sites)))

    def potts(network: FactoredAttention) -> jax.Array:
        """The pseudo-likelihood of its couplings."""
        composed = network.directed_couplings()
        return negative_log_pseudolikelihood(network.fields, composed, sequences) / (number * sites)

    def unmasked(network: FactoredAttention) -> jax.Array:
        """The same network with every site also seeing its own token."""
        seen = jax.nn.softmax(network.maps, axis=2) if network.attention == "softmax" else network.maps
        tokens = one_hot(sequences, colours, network.values.dtype)
        logits = jnp.einsum("hij,hab,mjb->mia", seen, network.values, tokens) + network.fields[None]
        return jnp.mean(surprise(logits, sequences, None))

    @jax.jit
    def compare(network: FactoredAttention) -> tuple[jax.Array, jax.Array]:
        masked, wanted = jax.value_and_grad(masked_language_loss)(network, sequences)
        plain, found = jax.value_and_grad(potts)(network)
        off = [jnp.max(jnp.abs(a - b)) for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)]
        steepest = jnp.max(jnp.array([jnp.max(jnp.abs(g)) for g in jax.tree.leaves(wanted)]))
        return jnp.array([masked, plain, unmasked(network)]), jnp.max(jnp.array(off)) / steepest

    found = []
    for attention in ("free", "softmax"):
        maps, values, fields = (
            jnp.asarray(rng.normal(size=shape))
            for shape in ((heads, sites, sites), (heads, colours, colours), (sites, colours))
        )
        losses, slopes = compare(FactoredAttention(maps, values, fields, attention))
        masked, plain, seen = map(float, losses)
        found += [
            Measured(f"relative difference of the losses, {attention} map", abs(plain - masked) / masked, below=1e-12),
            Measured("the same for their gradients", float(slopes), below=1e-12),
            Measured(
                "relative difference of the losses if a site sees itself", abs(seen - masked) / masked, above=1e-3
            ),
        ]
    return [*found, *_same_minimiser()]


def _same_minimiser() -> list[Measured]:
    """Masked training and pseudo-likelihood, minimised by separate code from separate starts on the same sequences.

    With one head the couplings are those of the layer; both searches end in the same minimum, up to the gauge of A and V.
    """
    import jax
    import jax.numpy as jnp

    from solvable.methods.risk.lbfgs import minimise
    from solvable.methods.sequences.pseudolikelihood import (
        FactoredAttention,
        fit_factored,
        masked_language_loss,
        zero_sum,
    )

    from .sequences import draw_sequences, planted

    sites, colours, number, penalty = 6, 3, 400, 1.0
    sequences = draw_sequences(jax.random.key(0), planted(3, sites, colours, 0.7), number, 10).train

    def objective(network: FactoredAttention) -> jax.Array:
        """The masked loss of the network, run site by site as a network, with the penalty of the fit."""
        squares = jnp.sum(network.attention_maps() ** 2) + jnp.sum(network.values**2)
        return number * sites * masked_language_loss(network, sequences) + 0.5 * penalty * squares

    def slope(network: FactoredAttention) -> tuple[jax.Array, FactoredAttention]:
        value, gradient = jax.value_and_grad(objective)(network)
        return value, FactoredAttention(gradient.maps, gradient.values, jnp.zeros_like(gradient.fields), "free")

    keys = jax.random.split(jax.random.key(7), 4)
    ends = []
    for key in keys:
        one, two = jax.random.split(key)
        start = FactoredAttention(
            0.4 * jax.random.normal(one, (1, sites, sites)) * (1 - jnp.eye(sites))[None],
            0.4 * jax.random.normal(two, (1, colours, colours)), jnp.zeros((sites, colours)))  # fmt: skip
        end = minimise(slope, start, tolerance=1e-6, iterations=2000)
        ends.append((float(end.value), end.parameters))
    value, masked = min(ends, key=lambda end: end[0])
    fit = fit_factored(sequences, colours, key=jax.random.key(1), penalty=penalty, fields=False, tolerance=1e-6)
    mine, theirs = (
        np.asarray(zero_sum(network.fields, network.directed_couplings())[1]) for network in (masked, fit.network)
    )
    apart = np.linalg.norm(mine - theirs) / np.linalg.norm(theirs)
    return [
        Measured("relative difference of the smallest objectives", abs(value / float(fit.objective) - 1), below=1e-8),
        Measured("relative difference of the couplings at the minima", float(apart), below=1e-4),
    ]


def _depth(stored: Stored) -> list[Measured]:
    found = []
    for sequences in (1000, 64000):
        one, three = _excess(stored, "1 layer", sequences), _excess(stored, "3 layers", sequences)
        error = np.hypot(one[1] / three[0], one[0] * three[1] / three[0] ** 2)
        found.append(
            Measured(
                f"excess loss of one layer over that of three, {sequences} sequences",
                one[0] / three[0],
                error,
                above=2.0,
            )
        )
    if DEPTH in stored:
        from .depth_figures import at_best

        best = at_best(stored[DEPTH])
        best = best.sel(
            width=best.sel(depth=[1, 3]).notnull().all(("depth", "seed"))
        )  # the claim's `missing` names the others
        for width in best.width.values:
            one, three = (mean_and_error(best.sel(width=width, depth=n)) for n in (1, 3))
            error = np.hypot(one[1] / three[0], one[0] * three[1] / three[0] ** 2)
            words = f"the same, embedding {width}, each at its best rate and length of training, 64000 sequences"
            found.append(Measured(words, one[0] / three[0], error, above=2.0))
    return found


CLAIMS = (
    Claim(
        "Attention whose map sees positions and whose values see tokens has the form of the conditionals of a Potts model, "
        "and training finds its couplings.",
        "rende2024mapping",
        "the masked loss falls to the optimum with the number of sequences; map ∝ J, values ∝ U",
        "dense couplings: the same form with far more parameters",
        (FIGURE,), _finds_couplings, "20 sites, 10 colours, 250 to 64,000 sequences, three seeds", seconds=720,
    ),
    Claim(
        "Masked training of that layer is inference of the inverse Potts problem by pseudo-likelihood.",
        "rende2024mapping",
        "both losses and their gradients agree to rounding at any parameters, and both searches end in the same minimum",
        "they differ if a masked site sees itself",
        (), _same_loss, "6 sites, 4 colours, two heads, random parameters, free and softmax maps; "
        "minima: 6 sites, 3 colours, one head, 400 sequences",
        command="solvable claims masked-language",
    ),
    Claim(
        "An ordinary transformer needs several layers for the same pairwise data.",
        "rende2024mapping",
        "at equal width and data, trained to convergence, one layer stays clearly above two and three",
        "no dependence on depth",
        (FIGURE, DEPTH), _depth, "20 sites, 10 colours, widths 8 to 64, 8,000 to 216,000 steps of Adam, three seeds; at rates of "
        "5e-4 to 8e-3: 6,000 and 24,000 steps, four seeds (two layers: 24,000 steps at embedding 8 alone, three: at 8 and 16)",
        missing="three layers of embedding 32 for 24,000 steps",
        would_change="a width, schedule and embedding for which one layer has twice the excess loss of three: the largest ratio "
        "is 1.4 ± 0.2, at embedding 8, and at 32, after 6,000 steps, it is 1.2 ± 0.1; here "
        "positions are added to the tokens, and the arm `1 layer, concatenated` of `masked-language` puts them side by side",
        seconds=1700,
    ),
)  # fmt: skip
