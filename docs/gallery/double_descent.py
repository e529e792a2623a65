# %% [markdown]
# # Double descent
#
# *Family* replica, *method* Gaussian covariate saddle point, *model* `random-features`.
#
# A student fits labels with $p$ random features of its inputs. Classical statistics expects the error to rise once
# the student has more parameters than samples. It does rise, but only *up to* the point where the student can fit
# everything; beyond it the error falls again. Where exactly is the peak, how high is it, and does it survive a good
# penalty?

# %%
import numpy as np

import solvable as sv

model = sv.RandomFeatures(loss="square", teacher="sign", samples=3.0, penalty=1e-4, noise=0.0)
model.theory()

# %% [markdown]
# These are the values for infinitely many inputs $d$, with $n = 3d$ samples and $p = d$ features. Now the width is
# swept, at a tiny, a small and a good penalty. Theory as lines; points are averages over eight students of dimension
# $d = 60$, each with a draw of features, teacher and samples of its own.

# %%
over = {"width": np.geomspace(0.3, 8, 8), "penalty": [1e-4, 1e-2, 0.3]}
study = sv.Study(model, over=over, sizes=[60], seeds=8)
study.run(progress=False)
figure = study.plot(show=["test_error", "train_loss"], along="width", lines="penalty")

# %% [markdown]
# The peak stands at $p = n$, that is at `width` 3, where the training loss reaches zero: the student fits every
# label, but only just, and pays with weights of huge norm. With the penalty 0.3 nothing happens there. Does the
# simulation agree with the theory, also at the peak?

# %%
print(study.agreement(["test_error", "norm"]))

# %% [markdown]
# No deviation is significant, given that 48 are looked at; *inconclusive* means that eight students are too few to
# confirm the error within two per cent. `locate` finds the peak without a grid, and `optimise` the best penalty at
# the peak by the gradient of the theory.

# %%
peak = sv.locate(model.replace(penalty=1e-6), along="width", what="peak of test_error", between=(1.0, 9.0))
best = sv.optimise(model.replace(width=3.0), "penalty", minimise="test_error")
print("peak at width", round(peak, 3))
print(best)

# %% [markdown]
# The whole plane of samples and width: the peak is a ridge along the line where the training loss reaches zero.

# %%
plane = sv.Study(model, over={"samples": np.geomspace(0.5, 8, 14), "width": np.geomspace(0.3, 12, 14)})
plane.run(progress=False)
figure = plane.plot(show="test_error", along="samples,width")

# %% [markdown]
# ## Exercise
#
# More features than samples: is a wide student with the best penalty better than a narrow one with *its* best
# penalty? Compute the best test error at the widths 1, 3 and 12.

# %% tags=["solution"]
for width in (1.0, 3.0, 12.0):
    tuned = sv.optimise(model.replace(width=width), "penalty", minimise="test_error")
    print(f"width {width:4.0f}: best penalty {tuned.controls['penalty']:.3f}, test error {tuned.value:.4f}")

# %% [markdown]
# With a tuned penalty the error falls monotonically with the width: the second descent is the only one.
