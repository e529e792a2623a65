"""The figures of the papers, each a few declarative lines on top of a model. Listing them imports no JAX."""

from __future__ import annotations

import dataclasses

from ..errors import UnknownName, nearest


@dataclasses.dataclass(frozen=True)
class FigureListing:
    """A figure's name, the model it shows, and what is to be seen, in one sentence."""

    name: str
    model: str
    module: str
    sentence: str


FIGURES = (
    FigureListing(
        "what-transformers-learn",
        "masked-language",
        "solvable.models.attention.masked_language.figures",
        "Masked loss of factored attention, dense couplings and transformers against the number of sequences, and their maps.",
    ),
    FigureListing(
        "perceptron-learning-curves",
        "perceptron",
        "solvable.models.replica.perceptron.figures",
        "Test error and training loss of square, logistic and hinge losses against the number of samples, beside Bayes.",
    ),
    FigureListing(
        "perceptron-phase-diagram",
        "perceptron",
        "solvable.models.replica.perceptron.figures",
        "Test error of logistic regression over samples and penalty, with the best penalty as a line.",
    ),
    FigureListing(
        "random-features-double-descent",
        "random-features",
        "solvable.models.replica.random_features.figures",
        "Test error and training loss against the number of random features: the peak at interpolation, and without it.",
    ),
    FigureListing(
        "random-features-phase-diagram",
        "random-features",
        "solvable.models.replica.random_features.figures",
        "Test error over width and samples, with interpolation and separability; Gaussian against orthogonal projections.",
    ),
    FigureListing(
        "bias-geometry-maps",
        "bias-geometry",
        "solvable.models.replica.bias_geometry.figures",
        "Bias of a classifier of two groups against their imbalance and the similarity of their rules; what coupling does.",
    ),
    FigureListing(
        "bias-geometry-tradeoffs",
        "bias-geometry",
        "solvable.models.replica.bias_geometry.figures",
        "Accuracy against every gap of fairness, for reweighed and for coupled learners, each tuned on its own.",
    ),
    FigureListing(
        "curriculum-batch-gains",
        "curriculum-batch",
        "solvable.models.replica.curriculum_batch.figures",
        "What a curriculum of coupled batches gains, every arm tuned, and how a shared coupling flatters it.",
    ),
    FigureListing(
        "random-labels-collapse",
        "random-labels",
        "solvable.models.replica.random_labels.figures",
        "Training loss on random labels: covariances differ with a penalty and collapse without; digits beside Gaussians.",
    ),
    FigureListing(
        "transfer-gain",
        "transfer",
        "solvable.models.replica.transfer.figures",
        "What a first layer learnt on a source gains over random features, against target samples and correlation.",
    ),
    FigureListing(
        "narrow-network-specialisation",
        "narrow-network",
        "solvable.models.replica.narrow_network.figures",
        "When the units of a narrow network specialise, continuously or at once, and where replica symmetry misleads.",
    ),
    FigureListing(
        "soft-committee-plateau",
        "soft-committee",
        "solvable.models.online.soft_committee.figures",
        "Loss and overlaps of an online two-layer student: symmetric plateau, then specialisation.",
    ),
    FigureListing(
        "continual-learning-forgetting",
        "continual-learning",
        "solvable.models.online.continual_learning.figures",
        "Forgetting against task similarity, plain, consolidated and replayed; which unit learns the second task.",
    ),
    FigureListing(
        "continual-protocols",
        "continual-protocols",
        "solvable.models.online.continual_protocols.figures",
        "The optimal protocol of a student of two tasks, its switching function, and its final loss beside every heuristic.",
    ),
    FigureListing(
        "continual-digits",
        "continual-learning",
        "solvable.models.online.continual_learning.digits_figures",
        "Forgetting and transfer on digits with mixed pixels beside the theory; replay protocols, the theory's optimum too.",
    ),
    FigureListing(
        "rl-perceptron-phases",
        "rl-perceptron",
        "solvable.models.online.rl_perceptron.figures",
        "Where punishment traps a perceptron that learns from rewards; speed against accuracy; the best schedules.",
    ),
    FigureListing(
        "online-attack-costs",
        "online-attack",
        "solvable.models.online.online_attack.figures",
        "Accuracy of a poisoned online learner and what its attacker pays, against the price of an attack.",
    ),
    FigureListing(
        "specialisation-inheritance",
        "specialisation",
        "solvable.models.online.specialisation.figures",
        "Specialisation of hidden units against the scale and direction of the initial readouts, one and two features.",
    ),
    FigureListing(
        "relu-landscape-minima",
        "relu-landscape",
        "solvable.models.online.relu_landscape.figures",
        "The spurious minimum of a sum of ReLUs, its curvature, and what correlated teachers and width do to it.",
    ),
    FigureListing(
        "curriculum-online-order",
        "curriculum-online",
        "solvable.models.online.curriculum_online.figures",
        "Curriculum, anti-curriculum and mixed samples, each at its own best rate; the optimal protocol.",
    ),
    FigureListing(
        "xor-curriculum-width",
        "xor-curriculum",
        "solvable.models.online.xor_curriculum.figures",
        "What a curriculum gains on XOR against width and training time, from many random starts.",
    ),
    FigureListing(
        "layer-defrosting-depth",
        "layer-defrosting",
        "solvable.models.online.layer_defrosting.figures",
        "Test error and best number of frozen layers against target samples, teachers and digits, beside CKA and imbalance.",
    ),
    FigureListing(
        "masked-regression-peak",
        "masked-regression",
        "solvable.models.attention.masked_regression.figures",
        "Masked regression has an interpolation peak although there are no labels; the best penalty removes it.",
    ),
    FigureListing(
        "masked-regression-spike",
        "masked-regression",
        "solvable.models.attention.masked_regression.figures",
        "When masked regression sees a hidden direction and PCA does not; the predictor's spectrum.",
    ),
    FigureListing(
        "potts-attention-learning-curves",
        "potts-attention",
        "solvable.models.attention.potts_attention.figures",
        "Excess loss of masked-token learning against the number of sequences; the couplings on star and dense graphs.",
    ),
    FigureListing(
        "rooted-trees-learning",
        "rooted-trees",
        "solvable.models.attention.rooted_trees.figures",
        "A transformer reads the whole numbers as rooted trees and passes Markov chains on the way to trial division.",
    ),
    FigureListing(
        "many-body-simplicity",
        "many-body",
        "solvable.models.attention.many_body.figures",
        "Depth caps the order of interactions that a network learns; low orders and their clones come first.",
    ),
)


def figure_named(name: str) -> FigureListing:
    """The listing of a figure, or one sentence with the nearest name.

    >>> figure_named("perceptron-learning-curves").model
    'perceptron'
    """
    for line in FIGURES:
        if line.name == name:
            return line
    raise UnknownName(f"there is no figure {name!r}; {nearest(name, [f.name for f in FIGURES])}")
