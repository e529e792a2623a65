"""The models, one line each: what `solvable list` prints without importing JAX.

A new model is one file, its tests, its figure, and one line here.
"""

from __future__ import annotations

from typing import NamedTuple


class Listing(NamedTuple):
    """Where a model lives and what it is, in one sentence."""

    id: str
    module: str
    name: str
    family: str
    sentence: str
    kind: str = "theory and simulation"


LISTINGS = (
    Listing(
        "perceptron",
        "solvable.models.replica.perceptron.model",
        "Perceptron",
        "replica",
        "A generalised linear model learns from a sign or linear teacher by ridge-penalised empirical risk.",
    ),
    Listing(
        "random-features",
        "solvable.models.replica.random_features.model",
        "RandomFeatures",
        "replica",
        "A generalised linear model learns on random nonlinear features of its inputs: double descent.",
    ),
    Listing(
        "bias-geometry",
        "solvable.models.replica.bias_geometry.model",
        "BiasGeometry",
        "replica",
        "Two groups with different rules: accuracy and fairness of one classifier, reweighed, or one for every group, coupled.",
    ),
    Listing(
        "curriculum-batch",
        "solvable.models.replica.curriculum_batch.model",
        "CurriculumBatch",
        "replica",
        "Easy samples first, trained to the end, then hard ones, tied by a prior: curriculum, anti-curriculum, all at once.",
    ),
    Listing(
        "random-labels",
        "solvable.models.replica.random_labels.model",
        "RandomLabels",
        "replica",
        "Least training loss on labels drawn by coin: capacity, any covariance, clouds, and handwritten digits beside them.",
    ),
    Listing(
        "transfer",
        "solvable.models.replica.transfer.model",
        "Transfer",
        "replica",
        "A first layer learnt on a source task is frozen and its last layer retrained on a correlated target: gain or loss.",
    ),
    Listing(
        "narrow-network",
        "solvable.models.replica.narrow_network.model",
        "NarrowNetwork",
        "replica",
        "A two-layer network with many units, but far fewer than inputs, learns another: when its units specialise.",
    ),
    Listing(
        "soft-committee",
        "solvable.models.online.soft_committee.model",
        "SoftCommittee",
        "online",
        "A two-layer network learns a two-layer teacher by online gradient descent: plateau, then specialisation.",
    ),
    Listing(
        "continual-learning",
        "solvable.models.online.continual_learning.model",
        "ContinualLearning",
        "online",
        "Two tasks in succession: forgetting against their similarity, with replay and elastic weight consolidation.",
    ),
    Listing(
        "continual-protocols",
        "solvable.models.online.continual_protocols.model",
        "ContinualProtocols",
        "online",
        "Which task to show when: replay heuristics and the optimal protocol of a student that must not forget.",
    ),
    Listing(
        "rl-perceptron",
        "solvable.models.online.rl_perceptron.model",
        "RLPerceptron",
        "online",
        "A perceptron learns to act from rewards of whole episodes: four reward rules, traps, the best schedules.",
    ),
    Listing(
        "online-attack",
        "solvable.models.online.online_attack.model",
        "OnlineAttack",
        "online",
        "An attacker poisons the labels of an online learner and pays for it: constant, greedy and optimal attacks.",
    ),
    Listing(
        "specialisation",
        "solvable.models.online.specialisation.model",
        "Specialisation",
        "online",
        "Initial imbalance and spread of the readouts decide whether hidden units share a feature or one carries it.",
    ),
    Listing(
        "relu-landscape",
        "solvable.models.online.relu_landscape.model",
        "ReluLandscape",
        "online",
        "Minima of the population loss of a sum of ReLUs: spurious from six units on, removed by width.",
    ),
    Listing(
        "curriculum-online",
        "solvable.models.online.curriculum_online.model",
        "CurriculumOnline",
        "online",
        "Easy samples first or last, online: curriculum, anti-curriculum, mixed, and the optimal protocol.",
    ),
    Listing(
        "xor-curriculum",
        "solvable.models.online.xor_curriculum.model",
        "XorCurriculum",
        "online",
        "Easy or hard samples of an XOR of clusters first: what a curriculum gains, against width and training time.",
    ),
    Listing(
        "layer-defrosting",
        "solvable.models.online.layer_defrosting.model",
        "LayerDefrosting",
        "online",
        "How many layers of a source network to freeze when a related target has few samples: teachers and digits.",
        "experiment",
    ),
    Listing(
        "masked-regression",
        "solvable.models.attention.masked_regression.model",
        "MaskedRegression",
        "attention",
        "Every coordinate of a Gaussian vector is ridge-regressed on all others: masked learning against PCA.",
    ),
    Listing(
        "potts-attention",
        "solvable.models.attention.potts_attention.model",
        "PottsAttention",
        "attention",
        "One row of factored attention learns a site's couplings from Potts sequences by masked-token prediction.",
    ),
    Listing(
        "masked-language",
        "solvable.models.attention.masked_language.model",
        "MaskedLanguage",
        "attention",
        "What transformers, factored attention and dense couplings learn from masked Potts sequences.",
        "experiment",
    ),
    Listing(
        "rooted-trees",
        "solvable.models.attention.rooted_trees.model",
        "RootedTrees",
        "attention",
        "A transformer reads the whole numbers as rooted trees, beside Markov, residue and trial-division tables.",
        "experiment",
    ),
    Listing(
        "many-body",
        "solvable.models.attention.many_body.model",
        "ManyBodyBias",
        "attention",
        "Tokens interact in pairs, triplets, quadruplets: the lowest masked-token loss of every order, and who reaches it.",
    ),
)
