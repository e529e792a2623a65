# %% [markdown]
# # Finding what is not Gaussian
#
# *Family* cumulants, *method* one-step laws and flows at small overlaps, *model* `ica`.
#
# Whitened data have one direction along which they are not Gaussian. FastICA looks for it with a fixed-point
# iteration. From a random start the overlap is only of order $d^{-1/2}$, and the slope of the contrast is cubic
# there: how many samples does it need?

# %%
import matplotlib.pyplot as plt
import numpy as np

import solvable as sv
from solvable.render.plots import house_style, log_axis

model = sv.ICA(learner="fastica", steps=5, start=0.5, snr=15.0)
study = sv.Study(model, over={"samples": [30.0, 100.0, 300.0]}, sizes=[100, 200], seeds=8)
study.run(progress=False)
figure = study.plot(show="squared_overlap", lines="samples")
print(study.agreement())

# %% [markdown]
# From a good start three hundred samples per dimension and step are enough, a hundred are at the edge, and thirty are
# not. The law of one step,
#
# $$
# \alpha_1^2 = \frac{L'(\alpha_0)^2}{L'(\alpha_0)^2 + V/\gamma},
# $$
#
# says what happens from a bad one: with $L' \sim \alpha_0^3$ and $\alpha_0 \sim d^{-1/2}$ one needs $\gamma = n/d \gg
# d^3$ samples per dimension.

# %%
start = 1 / np.sqrt(np.array([25.0, 50.0, 100.0, 200.0]))
needed = []
for alpha in start:
    one = model.replace(steps=1, start=float(alpha))
    samples = np.geomspace(1e2, 1e9, 141)
    found = np.asarray(one.replace(samples=samples).theory().squared_overlap)[:, -1]
    needed.append(float(np.interp(0.5, found, samples)))
slope = np.polyfit(np.log(start**-2), np.log(needed), 1)[0]
print("samples per dimension grow as d to the power", round(slope, 2))

# %%
with house_style():
    figure, axis = plt.subplots(figsize=(4.4, 3))
    axis.loglog(start**-2, needed, "o-", label="one step of FastICA")
    axis.loglog(start**-2, needed[0] * (start[0] / start) ** 6, ":", label="$d^3$")
    axis.set_xlabel("dimension $d$ of a random start $\\alpha_0 = d^{-1/2}$")
    axis.set_ylabel("samples per dimension for $\\alpha_1^2 = 1/2$")
    log_axis(axis.xaxis)
    axis.legend()

# %% [markdown]
# ## Exercise
#
# Gradient descent on a *smoothed* contrast needs only $n \sim d^2$ samples. It works below a largest learning rate:
# which rate lets the overlap grow fastest?

# %% tags=["solution"]
smoothed = sv.ICA(learner="smoothed", contrast="hermite")
best = sv.optimise(smoothed, "rate", maximise="growth", between=(0.01, 0.4))
print(best)
print("half of the largest rate:", float(smoothed.theory().largest_rate) / 2)
