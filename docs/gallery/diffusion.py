# %% [markdown]
# # When a diffusion model memorises
#
# *Family* generative, *method* deterministic equivalents of sample covariances, *model* `linear-diffusion`.
#
# A diffusion model with a linear denoiser is trained on $N = qd$ points in $d$ dimensions. With few points it learns
# the points, with many it learns the law behind them. The distance between the two is measured by the divergence of
# what it samples from the truth.

# %%
import numpy as np

import solvable as sv

model = sv.LinearDiffusion(covariance="power-law", signal=0.9)
study = sv.Study(model, over={"samples": np.geomspace(0.3, 8, 10)}, sizes=[50, 100], seeds=6)
study.run(progress=False)
figure = study.plot(show=["test_loss", "train_loss", "reverse_kl"])

# %% [markdown]
# Below one point per dimension the training loss is far below the test loss: the denoiser knows the noise of its own
# data. Without weight decay the model's covariance is singular there, and no divergence is finite: the curve begins
# at $q = 1$.

# %%
print(study.agreement(["test_loss", "train_loss"]))

# %% [markdown]
# Weight decay $c$ acts as if noise of variance $c$ had been added to the data. It makes the divergence finite, and
# there is a best one:

# %%
over = {"penalty": np.geomspace(1e-3, 10, 25), "samples": [0.5, 1.5, 4.0]}
decay = sv.Study(model, over=over)
decay.run(progress=False)
figure = decay.plot(show=["forward_kl", "test_loss"], lines="samples", log="x,y", finer=False)

# %%
for samples in (0.5, 1.5, 4.0):
    best = sv.optimise(model.replace(samples=samples), "penalty", minimise="forward_kl", between=(1e-3, 10.0))
    print(f"{samples:g} points per dimension: {best}")

# %% [markdown]
# ## Exercise
#
# Is the decay that is best for the samples also best for the denoising loss? Compare with the optimum above at
# $q = 1.5$.

# %% tags=["solution"]
print(sv.optimise(model.replace(samples=1.5), "penalty", minimise="test_loss", between=(1e-3, 10.0)))
