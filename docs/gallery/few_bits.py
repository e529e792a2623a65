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
capacity = float(model.theory().capacity)
print("patterns per weight that one bit stores:", capacity)

# %% [markdown]
# This is Krauth and Mézard's $\alpha_c \approx 0.833$. The entropy along the way, with the Bethe entropy that belief
# propagation finds on patterns with 101 and 201 weights:

# %%
study = sv.Study(model, over={"samples": np.linspace(0.3, 0.7, 5)}, sizes=[101, 201], seeds=6)
study.run(progress=False)
figure = study.plot(show=["entropy", "overlap"])
print(study.agreement(["entropy", "overlap"]))

# %% [markdown]
# Typical solutions are isolated, and yet simple algorithms find solutions. The reason are rare, dense regions: the
# *local entropy* of solutions at mutual distance $d$ stays positive down to $d \to 0$ there. With more levels:

# %%
for levels in ([-1.0, 1.0], [-1.0, 0.0, 1.0], [0.0, 1.0, 2.0, 3.0]):
    bits = np.log2(len(levels))
    more = float(sv.FewBitSynapses(levels=levels).theory().capacity)
    print(f"{len(levels)} levels ({bits:.2f} bits): capacity {more:.3f} patterns per weight, {more / bits:.3f} per bit")

# %% [markdown]
# More levels store more patterns per weight, but fewer per bit.
#
# ## Exercise
#
# Up to which load are the dense regions there? They break up where the local entropy at small distance stops rising
# with distance. Find where `local_slope` at the distance 0.02 changes sign.

# %% tags=["solution"]
dense = model.replace(replicas="infinite", distance=0.02)
print("dense regions up to", sv.locate(dense, along="samples", what="local_slope = 0", between=(0.5, 0.82)))
