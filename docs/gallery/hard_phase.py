# %% [markdown]
# # Impossible, hard, easy
#
# *Family* glassy, *method* state evolution of message passing, *model* `spiked-matrix-tensor`.
#
# A direction is hidden in a noisy matrix and a noisy tensor. Whether it can be found *at all*, and whether it can be
# found *by a fast algorithm*, are two questions with two thresholds.

# %%
import numpy as np

import solvable as sv

model = sv.SpikedMatrixTensor(order=3, tensor_noise=1.0, learner="bayes")

# %% [markdown]
# Approximate message passing is followed iteration by iteration by *state evolution*, a recursion for the overlap
# $m_k$ with the signal. Points are message passing itself, with $N = 200$ and dense arrays.

# %%
study = sv.Study(model.replace(initial_overlap=0.2), over={"matrix_noise": [0.3, 0.5, 1.5]}, sizes=[200], seeds=6)
study.run(progress=False)
figure = study.plot(show=["overlap", "mse"], lines="matrix_noise")

# %% [markdown]
# The phases, from the free entropy: where the optimum is reached from nothing (2, easy), where it exists but is not
# reached (1, hard), and where nothing can be known (0, impossible).

# %%
over = {"matrix_noise": np.linspace(0.3, 1.8, 24), "tensor_noise": np.linspace(0.1, 1.5, 24)}
plane = sv.Study(model.replace(initial_overlap=0.0), over=over)
plane.run(progress=False)
figure = plane.plot(show=["phase", "optimal_overlap"], along="matrix_noise,tensor_noise")

# %% [markdown]
# Message passing from zero overlap gets stuck for $\Delta_2 > 1$, whatever the tensor says, although below a certain
# tensor noise the posterior knows the direction very well: this is the hard phase.

# %%
hard = model.replace(matrix_noise=1.2, tensor_noise=0.2, initial_overlap=0.0)
found = hard.theory()
print("reached from nothing", float(found.final_overlap), "; what the posterior knows", float(found.optimal_overlap))

# %% [markdown]
# ## Exercise
#
# In the hard phase, how good must the first estimate be for message passing to succeed? Find the initial overlap
# above which the final one is large.

# %% tags=["solution"]
needed = sv.locate(hard, along="initial_overlap", what="final_overlap = 0.5", between=(0.001, 0.99))
print("initial overlap needed:", needed)
