# %% [markdown]
# # Masked learning against PCA
#
# *Family* attention, *method* random-matrix equivalents, *model* `masked-regression`.
#
# Self-supervised learning in its simplest form: predict every coordinate of a vector from all the others, by ridge
# regression. The matrix of all regression coefficients has eigenvectors, like a covariance. If the data hide one
# direction of variance $1 + \theta$, does the masked learner find it earlier than principal component analysis?

# %%
import numpy as np

import solvable as sv

model = sv.MaskedRegression(covariance="spiked", variances="two-level", samples=2.0, penalty=0.3)
print("threshold", float(model.theory().threshold))

# %% [markdown]
# `threshold` is the strength above which an eigenvalue leaves the bulk (the transition of Baik, Ben Arous and Péché,
# here for the masked learner's matrix). With *equal* variances it coincides with that of PCA. Here a quarter of the
# coordinates is four times as noisy as the others, and PCA is distracted by them.

# %%
study = sv.Study(model, over={"spike": np.linspace(0.5, 6, 12)}, sizes=[100, 200], seeds=6)
study.run(progress=False)
figure = study.plot(show=["overlap_right", "pca_overlap"])
print(study.agreement(["overlap_right", "pca_overlap"]))

# %% [markdown]
# Overlaps are zero below the threshold and rise steeply above it, rounded at finite size. The plane of samples and
# strength, with both transition lines:

# %%
over = {"samples": np.linspace(0.5, 6, 16), "spike": np.linspace(0.1, 6, 16)}
plane = sv.Study(model, over=over)
plane.run(progress=False)
figure = plane.plot(show=["overlap_right", "pca_overlap"], along="samples,spike")

# %% [markdown]
# Between the two lines the masked learner sees the direction and PCA does not.
#
# ## Exercise
#
# At the strength 3, how many samples per dimension does each of them need? Use `locate` with a level crossing:
# overlap 0.3.

# %% tags=["solution"]
strong = model.replace(spike=3.0)
for name in ("overlap_right", "pca_overlap"):
    print(name, sv.locate(strong, along="samples", what=f"{name} = 0.3", between=(0.3, 20.0)))
