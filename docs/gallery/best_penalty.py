# %% [markdown]
# # Which loss is best?
#
# *Family* replica, *method* replica saddle point and its gradients, *model* `perceptron`.
#
# A linear classifier is trained on the noisy labels of a teacher with the square or the logistic loss. Which one
# generalises best? The question is unfair unless each loss has its own best penalty, so the penalty is optimised
# first, by differentiating the replica saddle point.

# %%
import numpy as np

import solvable as sv

losses = ["square", "logistic"]
model = sv.Perceptron(teacher="sign", noise=0.1, samples=3.0)

# %% [markdown]
# The test error along the penalty: each loss has its own optimum, and the optima are a decade apart. Near $\lambda =
# 1$ the square loss is best, at $\lambda = 0.05$ the logistic one.

# %%
study = sv.Study(model, over={"penalty": np.geomspace(1e-3, 30, 25), "loss": losses})
found = study.run(progress=False)
figure = study.plot(show="test_error", along="penalty", lines="loss", finer=False)

# %%
for loss in losses:
    best = sv.optimise(model.replace(loss=loss), "penalty", minimise="test_error")
    print(f"{loss:9} best penalty {best.controls['penalty']:7.4f}, test error {best.value:.5f}")
print("the best that any method could do:", round(float(found.bayes_error_theory.max()), 5))

# %% [markdown]
# Tuned, the logistic loss reaches the Bayes-optimal error up to the fifth digit; the square loss stays four per cent
# above it (and the hinge loss six). No loss is best at every penalty: a comparison at one penalty says nothing about
# the losses. A simulation at dimension 100 confirms the theory of the logistic loss:

# %%
check = sv.Study(model.replace(loss="logistic"), over={"penalty": [0.03, 0.3, 3.0]}, sizes=[100], seeds=10)
check.run(progress=False)
print(check.agreement(["test_error", "test_loss", "overlap"]))
figure = check.plot(show=["test_error", "train_loss"], finer=False)

# %% [markdown]
# ## Exercise
#
# How many samples does the logistic loss at its best penalty save, compared with the penalty $10^{-3}$, to reach a
# test error of 0.2? Use `locate` with a level crossing.

# %% tags=["solution"]
logistic = model.replace(loss="logistic")
for penalty in (1e-3, 0.05):
    needed = sv.locate(logistic.replace(penalty=penalty), along="samples", what="test_error = 0.2", between=(0.5, 20.0))
    print(f"penalty {penalty:g}: {needed:.3f} samples per dimension")
