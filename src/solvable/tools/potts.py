"""A Potts model of your aligned sequences: coupled sites, energies of sequences, and new sequences.

    from solvable.tools import potts

    found = potts.fit("family.fasta")            # or a list of strings, or an integer array
    found.contacts()[:10]                        # the most strongly coupled pairs of sites, counted from 1
    found.sample(1000, seed=0).strings()
    found.save("family")                         # potts.load("family") reads it back

**Index order and gauge.** All models are in zero-sum gauge: `fields[i, a]` sums to zero over a, and `couplings(i, j)[a, b]`
to zero over a and over b. Sites of arrays are counted from 0, colours are in the order of the alphabet's letters. The law is
P(s) ∝ exp(Σ_i fields[i, s_i] + Σ_{i<j} couplings(i, j)[s_i, s_j]).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..errors import InvalidValue
from .alignments import Alphabet, Inserts, Unknown, alphabet_named, encoded, read_fasta, similarity_weights

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Sequences = str | os.PathLike[str] | Sequence[str] | np.ndarray
Report = Callable[[int, float, float], None]
DOCUMENT, ARRAYS = "potts-fit", {"what": "fields and couplings of a Potts model"}
FORMAT = 1


class Contact(NamedTuple):
    """Two sites, counted from 1, and the strength of their coupling."""

    i: int
    j: int
    score: float


@dataclass(frozen=True)
class Sample:
    """Sequences drawn from a fit, with the diagnostics of the chains.

    `mixed` means that the chains agreed (`r_hat` below 1.05); otherwise these are not fair samples.
    """

    sequences: np.ndarray
    alphabet: Alphabet
    r_hat: float
    effective_sweeps: float
    sweeps: int
    mixed: bool

    def strings(self) -> list[str]:
        """The sequences as letters."""
        letters = np.frombuffer(self.alphabet.letters.encode(), np.uint8)
        return [letters[row].tobytes().decode() for row in self.sequences]


@dataclass(frozen=True)
class PottsFit:
    """A fitted Potts model, in zero-sum gauge (see the module).

    `pairs` holds the couplings of the pairs i < j in the order of `np.triu_indices(sites, 1)`; `about` records how the
    model was fitted and whether the fit converged.
    """

    alphabet: Alphabet
    fields: np.ndarray  # (sites, colours)
    pairs: np.ndarray  # (sites·(sites − 1)/2, colours, colours)
    about: dict[str, Any] = field(default_factory=dict)
    network: dict[str, np.ndarray] = field(default_factory=dict)  # maps and values, if attention was fitted

    def __post_init__(self) -> None:
        sites, colours = self.fields.shape
        if colours != len(self.alphabet.letters) or self.pairs.shape != (sites * (sites - 1) // 2, colours, colours):
            raise InvalidValue(
                f"a model of {sites} sites and {len(self.alphabet.letters)} letters cannot have fields of shape "
                f"{self.fields.shape} and couplings of shape {self.pairs.shape}."
            )

    @property
    def sites(self) -> int:
        """The number of sites."""
        return len(self.fields)

    @property
    def converged(self) -> bool:
        """Whether the fit converged to a minimum."""
        return bool(self.about.get("converged", False))

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        facts = self.about
        kind = f"{facts.get('method', '')} fit of {facts.get('sequences', '?')} sequences"
        effective = f" (effectively {facts['effective']:.1f})" if "effective" in facts else ""
        return f"PottsFit({self.sites} sites, alphabet {self.alphabet.letters!r}, {kind}{effective}, {state})"

    def couplings(self, i: int, j: int) -> np.ndarray:
        """The block [a, b] of contributions to the log-weight of colour a at site i with colour b at site j.

        Sites are counted from 0 here, as in every array; `couplings(j, i)` is the transpose.
        """
        if not (0 <= i < self.sites and 0 <= j < self.sites) or i == j:
            raise InvalidValue(f"({i}, {j}) must be two different sites in 0..{self.sites - 1}.")
        if i > j:
            return self.couplings(j, i).T
        return self.pairs[i * self.sites - i * (i + 1) // 2 + j - i - 1]

    def dense_couplings(self) -> np.ndarray:
        """All couplings W[i, a, j, b], both orders of each pair, zero for i = j."""
        sites, colours = self.fields.shape
        table = np.zeros((sites, colours, sites, colours), self.pairs.dtype)
        start = 0
        for i in range(sites - 1):
            block = self.pairs[start : start + sites - 1 - i]  # (j, a, b)
            start += sites - 1 - i
            table[i, :, i + 1 :] = block.transpose(1, 0, 2)
            table[i + 1 :, :, i] = block.transpose(0, 2, 1)
        return table

    def scores(self) -> np.ndarray:
        """Frobenius norms of the couplings (gaps left out), average product removed; symmetric, zero on the diagonal."""
        block = self.pairs if self.alphabet.gap is None else np.delete(self.pairs, self.alphabet.gap, axis=1)
        block = block if self.alphabet.gap is None else np.delete(block, self.alphabet.gap, axis=2)
        norms = np.zeros((self.sites, self.sites))
        norms[np.triu_indices(self.sites, 1)] = np.sqrt(np.einsum("kab,kab->k", block, block, dtype=float))
        norms += norms.T
        mean = norms.sum(axis=1) / (self.sites - 1)
        corrected = norms - np.outer(mean, mean) / max(mean.mean(), np.finfo(float).tiny)
        np.fill_diagonal(corrected, 0)
        return corrected

    def contacts(self, separation: int = 1, top: int | None = None) -> list[Contact]:
        """Pairs of sites, the most strongly coupled first, at least `separation` apart along the sequence."""
        if separation < 1 or (top is not None and top < 0):
            raise InvalidValue(f"separation = {separation} and top = {top} must be integers ≥ 1 and ≥ 0.")
        i, j = np.triu_indices(self.sites, separation)
        score = self.scores()[i, j]
        order = np.argsort(-score, kind="stable")[:top]
        return [Contact(int(i[k]) + 1, int(j[k]) + 1, float(score[k])) for k in order]

    def energies(self, sequences: Sequences, *, unknown: Unknown = "refuse", inserts: Inserts = "keep") -> np.ndarray:
        """E(s) = −log of the weight of each sequence: lower is more typical. Only differences are meaningful."""
        facts = encoded(sequences, self.alphabet, unknown=unknown, inserts=inserts)
        if facts.shape[1] != self.sites:
            raise InvalidValue(f"the sequences have {facts.shape[1]} sites, but the model has {self.sites}.")
        total = self.fields[np.arange(self.sites)[None, :], facts].sum(axis=1)
        start = 0
        for i in range(self.sites - 1):  # one row of pairs at a time: no array of sequences × pairs
            row = np.arange(start, start + self.sites - 1 - i)
            total = total + self.pairs[row[None, :], facts[:, i, None], facts[:, i + 1 :]].sum(axis=1, dtype=float)
            start += self.sites - 1 - i
        return -total

    def sample(
        self, number: int, seed: int = 0, *, sweeps: int = 64, most_sweeps: int = 4096, chains: int | None = None
    ) -> Sample:
        """Draw new sequences by Gibbs sampling, many chains at once, until they agree or `most_sweeps` is reached.

        If the chains have not mixed, `mixed` is False and a `solvable.methods.sequences.monte_carlo.NotMixed` is issued.
        """
        import jax
        import jax.numpy as jnp

        from ..methods.sequences.monte_carlo import sample
        from ..methods.sequences.potts import Dense

        law = Dense(jnp.asarray(self.fields, jnp.float32), jnp.asarray(self.dense_couplings(), jnp.float32))
        drawn = sample(law, jax.random.key(seed), number, sweeps=sweeps, most_sweeps=most_sweeps, chains=chains)
        mixing = drawn.mixing
        return Sample(
            np.asarray(drawn.sequences), self.alphabet, float(mixing.r_hat), float(mixing.effective_sweeps), drawn.sweeps,
            drawn.mixed,
        )  # fmt: skip

    def plot_contacts(self, top: int | None = None, separation: int = 1, ax: Axes | None = None) -> Figure:
        """Plot the scores of all pairs as a map, with the `top` pairs (default: as many as sites) marked in the lower half."""
        from ..render.plots import COLOURS, HEAT, house_style

        with house_style():
            import matplotlib.pyplot as plt

            if ax is None:
                figure, ax = plt.subplots(figsize=(4.6, 4.0))
                plt.close(figure)
            scores, ends = self.scores(), (0.5, self.sites + 0.5)
            np.fill_diagonal(scores, np.nan)
            picture = ax.imshow(scores, cmap=HEAT, origin="lower", extent=(*ends, *ends), interpolation="nearest")
            best = self.contacts(separation, self.sites if top is None else top)
            ax.plot(
                [c.j for c in best], [c.i for c in best], "o", markersize=3, markerfacecolor="none", color=COLOURS[1],
                label=f"{len(best)} strongest pairs",
            )  # fmt: skip
            ax.grid(False)
            ax.locator_params(integer=True)
            ax.set(xlabel="site", ylabel="site", xlim=ends, ylim=ends)
            ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0))
            ax.figure.colorbar(picture, ax=ax, label="coupling score")
        return ax.figure  # type: ignore[return-value]

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Save the model in a new folder, in the format of studies: arrays with their SHA-256, no pickle.

        The folder is written completely or not at all; `solvable sweep verify FOLDER` checks it against its hashes.
        """
        from ..lab.store import Store, block_id

        final = os.path.abspath(folder)
        refuse_occupied(final)
        temporary = os.path.join(os.path.dirname(final), f".tmp-{os.urandom(16).hex()}")
        try:
            store = Store.create(temporary)
            arrays = {"fields": self.fields, "couplings": self.pairs, **self.network}
            store.commit(block_id(ARRAYS), arrays)
            facts = {
                "format": FORMAT,
                "alphabet": self.alphabet.letters,
                "name": self.alphabet.name,
                "about": self.about,
            }
            store.write_document(DOCUMENT, facts)
            if os.path.isdir(final):
                os.rmdir(final)  # empty, or it would have been refused
            os.rename(temporary, final)
        except OSError as problem:
            raise InvalidValue(f"{str(folder)!r} cannot be written: {problem.strerror}.") from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def refuse_occupied(folder: str | os.PathLike[str]) -> None:
    """Raise an error if the folder already exists."""
    if os.path.lexists(folder) and not (os.path.isdir(folder) and not os.listdir(folder)):
        raise InvalidValue(f"{str(folder)!r} already exists; choose a new folder.")


def load(folder: str | os.PathLike[str]) -> PottsFit:
    """Load a model saved by `PottsFit.save`; raises an error if the data are damaged."""
    from ..lab.store import Store, block_id

    store = Store.open(folder)
    if DOCUMENT not in store.documents():
        raise InvalidValue(f"the run at {folder} does not contain a Potts model.")
    facts, arrays = store.read_document(DOCUMENT), store.read(block_id(ARRAYS))
    try:
        if facts["format"] != FORMAT:
            raise InvalidValue(f"the model at {folder} has format {facts['format']!r}, but only {FORMAT} is supported.")
        fields, pairs = arrays.pop("fields"), arrays.pop("couplings")
        letters = alphabet_named(facts["name"] or facts["alphabet"])
        if fields.ndim != 2 or pairs.ndim != 3 or fields.dtype.kind != "f" or pairs.dtype.kind != "f":
            raise InvalidValue(f"the arrays of the model at {folder} are not fields and couplings.")
        return PottsFit(letters, fields, pairs, dict(facts["about"]), arrays)
    except (KeyError, TypeError, AttributeError):
        raise InvalidValue(f"the model at {folder} cannot be read.") from None


def fit(
    sequences: Sequences,
    alphabet: str = "protein",
    *,
    method: Literal["dense", "factored"] = "dense",
    heads: int = 1,
    attention: Literal["free", "softmax"] = "free",
    penalty: float | None = None,
    reweight: float | None = 0.8,
    unknown: Unknown = "refuse",
    inserts: Inserts = "keep",
    seed: int = 0,
    tolerance: float = 1e-3,
    iterations: int = 1000,
    report: Report | None = None,
) -> PottsFit:
    """Fit a Potts model by pseudo-likelihood to aligned sequences: the path of a FASTA file, strings, or an integer array.

    `method="dense"`: a free coupling for every pair of sites and letters, with penalty λ/2·Σ(W² + h²) relative to the
    weighted sum over sequences (default λ = 0.2·(sites − 1)). `method="factored"`: one layer of attention with `heads` maps
    of sites and matrices of letters, far fewer parameters, with penalty λ/2·Σ(A² + V²) (default λ = 1); `seed` draws its
    start. `reweight`: sequences with at least this fraction of equal sites share one vote (None: each has one). For
    `unknown` and `inserts` see `solvable.tools.alignments.read_fasta`.

    >>> rng = np.random.default_rng(0)
    >>> first = rng.integers(0, 4, (500, 3))
    >>> hairpin = np.concatenate([first, 3 - first[:, ::-1]], axis=1)      # A with U, C with G
    >>> found = fit(["".join("ACGU"[c] for c in row) for row in hairpin], "rna", reweight=None)
    >>> sorted((c.i, c.j) for c in found.contacts(top=3))
    [(1, 6), (2, 5), (3, 4)]
    >>> found.couplings(0, 5).argmax(axis=1)[:4].tolist()                   # the partner of A, C, G, U
    [3, 2, 1, 0]
    """
    letters = alphabet_named(alphabet)
    _check_numbers(method, heads, attention, penalty, tolerance, iterations)
    if isinstance(sequences, (str, os.PathLike)):
        read = read_fasta(sequences, letters, unknown=unknown, inserts=inserts, least=2)
        facts, where = read.sequences, f"{sequences}: line {read.lines[-1]} is the start of the last of"
    else:
        facts, where = encoded(sequences, letters, unknown=unknown, inserts=inserts, least=2), "these are"
    if np.all(facts == facts[:1]):
        raise InvalidValue(f"{where} {len(facts)} sequences, all the same: there is no variation to learn from.")
    from ..lab.memory import check_room

    sites, colours = facts.shape[1], len(letters.letters)
    check_room(8.0 * sites * colours * (sites * colours + len(facts)), f"a fit of {sites} sites with {colours} letters")
    weights = np.ones(len(facts)) if reweight is None else similarity_weights(facts, reweight)
    from ..methods.sequences import pseudolikelihood

    shared: dict[str, Any] = {"weights": weights, "tolerance": tolerance, "iterations": iterations, "report": report}
    if method == "dense":
        found = pseudolikelihood.fit_dense(facts, colours, penalty=penalty, **shared)
        fields, pairs = _from_triangle(np.asarray(found.fields), *(np.asarray(part) for part in found.pairs))
        used, network = 0.2 * (facts.shape[1] - 1) if penalty is None else penalty, {}
    else:
        import jax

        used = 1.0 if penalty is None else penalty
        found = pseudolikelihood.fit_factored(
            facts, colours, key=jax.random.key(seed), heads=heads, attention=attention, penalty=used, **shared
        )
        network = {"maps": np.asarray(found.network.attention_maps()), "values": np.asarray(found.network.values)}
        fields, pairs = _from_network(np.asarray(found.fields), network["maps"], network["values"])
    about = {
        "method": method,
        "sequences": len(facts),
        "effective": float(weights.sum()),
        "threshold": reweight,
        "penalty": float(used),
        "loss": float(found.loss),
        "objective": float(found.objective),
        "residual": float(found.residual),
        "tolerance": tolerance,
        "iterations": int(found.iterations),
        "evaluations": int(found.evaluations),
        "converged": bool(found.converged),
    }
    if method == "factored":
        about |= {"heads": heads, "attention": attention, "seed": seed}
    return PottsFit(letters, fields, pairs, about, network)


def _check_numbers(method, heads, attention, penalty, tolerance, iterations) -> None:
    if method not in ("dense", "factored"):
        raise InvalidValue(f"method = {method!r} is neither 'dense' nor 'factored'.")
    if attention not in ("free", "softmax"):
        raise InvalidValue(f"attention = {attention!r} is neither 'free' nor 'softmax'.")
    if not isinstance(heads, int) or not 1 <= heads <= 1024:
        raise InvalidValue(f"heads = {heads} is not an integer in [1, 1024].")
    if penalty is not None and not 0 <= penalty < np.inf:
        raise InvalidValue(f"penalty = {penalty} is not a number in [0, ∞).")
    if not 0 < tolerance < 1:
        raise InvalidValue(f"tolerance = {tolerance} is not in (0, 1).")
    if not isinstance(iterations, int) or iterations < 1:
        raise InvalidValue(f"iterations = {iterations} is not an integer in [1, ∞).")


def _from_triangle(fields: np.ndarray, within: np.ndarray, across: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fields and pairs in zero-sum gauge, one row of sites at a time, without the full table of couplings."""
    sites, colours = fields.shape
    half = (sites + 1) // 2
    within, across = (part.reshape(half, colours, half, colours) for part in (within, across))
    rest = sites - half

    def row(i: int) -> np.ndarray:
        if i < half:
            return np.concatenate([within[i, :, i + 1 :], across[i, :, :rest]], axis=1)
        return within[i - half + 1 : rest, :, i - half].transpose(2, 0, 1)

    return _zero_sum_rows(fields, row)


def _from_network(fields: np.ndarray, maps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fields and pairs in zero-sum gauge of Σ_h A^h ⊗ V^h, both directions averaged.

    Each direction adds its mean to the field of the site that it predicts, so that the gauge changes no conditional.
    """
    own = values.mean(axis=2, keepdims=True)
    centred = values - own - values.mean(axis=1, keepdims=True) + values.mean(axis=(1, 2), keepdims=True)
    shifted = fields + np.einsum("hij,ha->ia", maps, own[..., 0])
    shifted = shifted - shifted.mean(axis=1, keepdims=True)

    def row(i: int) -> np.ndarray:
        there = np.einsum("hj,hab->ajb", maps[:, i, i + 1 :], centred)
        back = np.einsum("hj,hba->ajb", maps[:, i + 1 :, i], centred)
        return 0.5 * (there + back)

    return _zero_sum_rows(shifted, row)


def _zero_sum_rows(fields: np.ndarray, row: Callable[[int], np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Gather the rows (a, j, b) of pairs i < j, moving their means to the fields."""
    sites, colours = fields.shape
    fields = fields.astype(float)
    pairs = np.empty((sites * (sites - 1) // 2, colours, colours), np.float32)
    start = 0
    for i in range(sites - 1):
        block = row(i).astype(float)
        own, other = block.mean(axis=2), block.mean(axis=0)
        fields[i] += own.sum(axis=1)
        fields[i + 1 :] += other
        block = block - own[:, :, None] - other[None] + own.mean(axis=0)[None, :, None]
        pairs[start : start + sites - 1 - i] = block.transpose(1, 0, 2)
        start += sites - 1 - i
    return fields - fields.mean(axis=1, keepdims=True), pairs
