# %% [markdown]
# # Signals in a random transformer
#
# *Family* signals, *method* mean-field maps and a random energy model, *model* `transformer-signals`.
#
# Before training, what does a deep transformer do to its tokens? Attention averages them, so that they become
# parallel from block to block (*rank collapse*); queries and keys that are too strong make attention stick to single
# tokens (*entropy collapse*). Both can be computed.

# %%
import numpy as np

import solvable as sv

model = sv.TransformerSignals(context=128, depth=12, initial_overlap=0.2)
study = sv.Study(model, over={"strength": [0.5, 1.5, 3.0]}, sizes=[128], seeds=3)
study.run(progress=False)
figure = study.plot(show=["overlap", "attention_entropy"], lines="strength")

# %% [markdown]
# Strong queries and keys slow rank collapse down. At strength 3 attention is nearly frozen, and the simulated tokens
# stay further apart than the theory says: it replaces the overlap of each pair by its mean, although tokens that
# attend to the same one become parallel and others do not.
#
# The scores of one query are independent energies: attention is a random energy model, which freezes at a critical
# strength $\beta_c = \sqrt{2/(q(q-p))}$. In the limit of infinitely many tokens the participation $Y_2 = \sum_j
# A_{ij}^2$ switches on exactly there; with 128 tokens it is rounded.

# %%
over = {"strength": np.linspace(0.2, 4, 20), "tokens": ["infinite", "finite"]}
first = sv.Study(model.replace(depth=1, initial_overlap=0.0), over=over)
first.run(progress=False)
figure = first.plot(show=["participation", "query_gradient"], along="strength", lines="tokens")

# %% [markdown]
# Query gradients need attention that is neither uniform nor frozen. How deep do signals reach? Near collapse $1 -
# \rho$ shrinks by a factor $\lambda$ per block, which residual connections push towards one.

# %%
over = {"attention_residual": np.linspace(0.2, 2.0, 16), "weight_variance": np.geomspace(0.05, 4, 16)}
plane = sv.Study(model, over=over)
plane.run(progress=False)
figure = plane.plot(show=["final_overlap", "collapse_slope"], along="attention_residual,weight_variance")

# %% [markdown]
# ## Exercise
#
# Without residual connections beside the attention ($\alpha_A = 0$), after how many blocks are all tokens parallel to
# one per cent?

# %% tags=["solution"]
bare = model.replace(attention_residual=0.0, depth=12).theory()
overlap = np.asarray(bare.overlap)
print("overlaps after each layer:", np.round(overlap[:8], 4))
print("first layer with overlap above 0.99:", int(np.argmax(overlap > 0.99)))
