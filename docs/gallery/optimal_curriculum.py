# %% [markdown]
# # The optimal curriculum
#
# *Family* online, *method* optimal control (Pontryagin's principle), *model* `curriculum-online`.
#
# Some samples are easy (irrelevant inputs are nearly silent), others are hard. Should a student see the easy ones
# first? The order-parameter flow turns this question into optimal control: choose the fraction $u(t)$ of easy samples
# at every time so that the error on hard samples at the end is least.

# %%
import matplotlib.pyplot as plt
import numpy as np

import solvable as sv
from solvable.render.plots import house_style

model = sv.CurriculumOnline(relevant=0.2, easy=0.05, horizon=10.0, rate=3.0, penalty=0.0, share=0.2, intervals=10)

# %% [markdown]
# Two simple protocols with the same number of easy samples, at a constant learning rate: curriculum (easy first) and
# anti-curriculum (hard first). Points are networks with $N = 400$ inputs.

# %%
protocols = ["curriculum", "anti"]
study = sv.Study(model, over={"protocol": protocols}, sizes=[400], seeds=6)
found = study.run(progress=False)
figure = study.plot(show="test_error", lines="protocol")
for protocol in protocols:
    print(f"{protocol:10} final error {float(found.final_error_theory.sel(protocol=protocol)):.4f}")

# %% [markdown]
# The anti-curriculum wins, but perhaps for a trivial reason: late easy samples reduce the noise of a learning rate
# that does not decrease. So let the rate be optimised as well (`pace="optimal"`), together with the order of the
# samples.

# %%
best = model.replace(protocol="optimal", pace="optimal").theory()
print("optimal order and rate", float(best.final_error), "gap", float(best.gap))

# %% [markdown]
# To compare, hard samples alone with a rate that decreases by hand, at the best of six time scales:

# %%
middle = (np.arange(10) + 0.5) * 10.0 / 10
alone = model.replace(protocol="mixed", share=0.0, pace="given")
errors = {}
for scale in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
    errors[scale] = float(alone.replace(given_pace=2 / (1 + middle / scale)).theory().final_error)
print({scale: round(error, 4) for scale, error in errors.items()})

# %%
with house_style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 2.9))
    left.step(middle, np.asarray(best.fraction), where="mid")
    left.set_xlabel("time $t$")
    left.set_ylabel("fraction of easy samples $u$")
    right.step(middle, np.asarray(best.speed), where="mid")
    right.set_xlabel("time $t$")
    right.set_ylabel("factor of the learning rate")

# %% [markdown]
# With the rate free to decrease, the optimal order *is* a curriculum: easy samples at the beginning, then hard ones,
# and nothing in between (*bang-bang*, since the flow is linear in $u$). The gap is the Frank–Wolfe gap of the search;
# it vanishes where Pontryagin's principle holds.
#
# Most of the gain over the schedule by hand is the rate's: with the optimal rate, hard samples alone reach 0.083
# (`protocol="mixed"`, `share=0`, `pace="optimal"`, twenty intervals), so that the order itself is worth about 13 per
# cent.
#
# ## Exercise
#
# Back to the constant rate, with the easy samples last: how many samples should be easy?

# %% tags=["solution"]
scan = sv.Study(model.replace(protocol="anti"), over={"share": np.linspace(0, 1, 11)}).run(progress=False)
error = scan.final_error_theory
print(f"best share {float(error.idxmin('share')):.1f}, final error {float(error.min()):.4f}")

# %% [markdown]
# At this constant rate all samples should be easy: they add the least noise. Only a rate that decreases makes hard
# samples worth their noise at the end.
