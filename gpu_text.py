import os, sys, time
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE","false")
from pathlib import Path
import pydoc_data.topics as t
from solvable.tools.text import cut_windows, draw_learnt, learn_text, read_text
f=Path("/tmp/topics.txt"); f.write_text("\n".join(t.topics.values()))
w=cut_windows(read_text(f),12,28); print(len(w.train), flush=True)
for steps in (2000, 8000):
    b=time.time(); l=learn_text(w,steps=steps,sweeps=20,seeds=2); print(steps, f"{time.time()-b:.1f} s")
    for one in l.sets: print(one.order, float(one.losses[-1]), float(one.losses.min()), one.best_step, one.settled_step, l.stack_losses.get(one.order), flush=True)
    draw_learnt(l, Path(os.environ["OUT"])/f"text{steps}.png")
