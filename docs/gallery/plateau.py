# %% [markdown]
# # The plateau of a two-layer network
#
# *Family* online, *method* order-parameter flow, *model* `soft-committee`.
#
# A network with two hidden units learns a teacher with two hidden units from a stream of samples. The loss falls
# quickly, then stays constant for a long time, then falls again. What happens on this plateau, and what sets its
# length?
#
# For large input dimension $N$ the overlaps $R_{km}$ of student unit $k$ with teacher unit $m$ follow closed
# differential equations in the time $t = \text{samples}/N$. They are integrated here in milliseconds, and compared
# with networks of $N = 250$.

# %%
import matplotlib.pyplot as plt
import numpy as np

import solvable as sv
from solvable.render.plots import house_style

times = np.linspace(0, 200, 101)
model = sv.SoftCommittee(students=2, teachers=2, rate=1.0, times=times)
study = sv.Study(model, sizes=[250], seeds=4)
study.run(progress=False)
figure = study.plot(show=["test_loss", "overlap"], scales={"test_loss": "log"})

# %% [markdown]
# On the plateau all four overlaps are alike: both units have learnt the mean of the teacher's units and are waiting
# to specialise. Then each of them takes one teacher unit. The symmetric state is a saddle of the flow; how long one
# stays there depends on how far from it one starts.

# %%
lengths = []
asymmetries = np.geomspace(1e-6, 1e-1, 6)
for asymmetry in asymmetries:
    start = 0.05 + asymmetry * np.array([[1.0, -1.0], [-1.0, 1.0]]) / 2
    path = model.replace(initial_overlap=start, times=np.linspace(0, 600, 601)).theory()
    difference = np.abs(np.asarray(path.overlap)[:, 0, 0] - np.asarray(path.overlap)[:, 0, 1])
    lengths.append(float(np.argmax(difference > 0.3)))
for asymmetry, length in zip(asymmetries, lengths, strict=True):
    print(f"asymmetry {asymmetry:.0e}: specialises at t = {length:.0f}")

# %% [markdown]
# The time grows by the same amount for every factor of ten: the escape is exponential, and takes a time $\propto
# \log(1/\text{asymmetry})$. At random initial weights the asymmetry is of order $1/\sqrt{N}$, so that larger networks
# stay longer.

# %%
with house_style():
    figure, axis = plt.subplots(figsize=(4.4, 3))
    axis.semilogx(asymmetries, lengths, "o-")
    axis.set_xlabel("initial asymmetry")
    axis.set_ylabel("time of specialisation")

# %% [markdown]
# ## Exercise
#
# Does a larger learning rate shorten the plateau? Draw the loss at the rates 0.25, 0.5, 1 and 2.

# %% tags=["solution"]
rates = sv.Study(model.replace(times=np.linspace(0, 200, 101)), over={"rate": [0.25, 0.5, 1.0, 2.0]})
rates.run(progress=False)
figure = rates.plot(show="test_loss", lines="rate", log="y")
