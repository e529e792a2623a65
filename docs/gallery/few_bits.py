# %% [markdown]
# # Memory in one bit
#
# *Family* synapses, *method* replica entropies and message passing, *model* `few-bit-synapses`.
#
# How many random patterns can a perceptron store if each of its $N$ weights is $\pm 1$? The number of solutions is
# $e^{N S(\alpha)}$; the capacity is where the entropy $S$ vanishes.

# %%
import numpy as np

import solvable as sv

model = sv.FewBitSynapses(levels=[-1.0, 1.0])
print("patterns per weight that one bit stores:", float(model.theory(only=["capacity"]).capacity))

# %% [markdown]
# This is Krauth and Mézard's $\alpha_c \approx 0.833$. The entropy along the way, with the Bethe entropy that belief
# propagation finds on patterns with 201 weights:

# %%
study = sv.Study(model, over={"samples": np.linspace(0.3, 0.7, 5)}, sizes=[201], seeds=6)
study.run(progress=False)
figure = study.plot(show=["entropy", "overlap"], finer=False)
print(study.agreement(["entropy", "overlap"]))

# %% [markdown]
# At $\alpha = 0.7$ there are still $e^{0.13 N}$ solutions, but typical ones are isolated from each other. Simple
# algorithms find solutions nevertheless, in rare dense regions, whose *local entropy* this model computes too
# (`replicas="infinite"`). Other one-bit weights:

# %%
for levels in ([-1.0, 1.0], [0.0, 1.0]):
    capacity = float(sv.FewBitSynapses(levels=levels).theory(only=["capacity"]).capacity)
    print(f"levels {levels}: {capacity:.3f} patterns per weight")

# %% [markdown]
# Weights without a sign store less, since their mean is wasted. No weights of one bit can store more than one pattern
# each, since every label is a bit.
#
# ## Exercise
#
# Patterns should be stored with a margin $\kappa$, so that noise does not flip them. How much capacity does a margin
# of 0.05, 0.1 and 0.2 cost?

# %% tags=["solution"]
for margin in (0.0, 0.05, 0.1, 0.2):
    capacity = float(model.replace(margin=margin).theory(only=["capacity"]).capacity)
    print(f"margin {margin:g}: {capacity:.3f} patterns per weight")
