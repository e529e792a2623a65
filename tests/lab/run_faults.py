"""`python tests/lab/run_faults.py [--stub 480] [--real 20] [--damage 1000] [--seed 0] [--json]`: sweeps under faults.

Exit code 1 if a cell is lost, duplicated or wrong, if more blocks were recomputed than workers existed or died, if a block
was given up without reason, or if `verify` misses any damage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from campaign import Tally, damage_everything, full_file_system, stub_campaign
from campaign_real import real_campaign

COLUMNS = ("faults", "blocks", "cells", "lost", "duplicated", "wrong", "re-run blocks", "workers ended", "given up")


def summary(name: str, tally: Tally) -> str:
    values = [sum(tally.faults.values()), tally.blocks, tally.cells, tally.lost, tally.duplicated, tally.wrong]
    values += [tally.reruns, tally.ended, tally.given_up]
    return f"{name:14}" + "".join(f"{v:>{len(c) + 3}}" for v, c in zip(values, COLUMNS, strict=True))


def main() -> int:
    about = argparse.ArgumentParser(description=__doc__)
    about.add_argument("--stub", type=int, default=480, help="faults with a stub kernel")
    about.add_argument("--real", type=int, default=20, help="faults with a real model")
    about.add_argument("--damage", type=int, default=1000, help="damages that verify must find")
    about.add_argument("--seed", type=int, default=0)
    about.add_argument("--json", action="store_true")
    options = about.parse_args()
    begun, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="solvable-faults-") as name:
        folder = Path(name)
        tallies = {"stub kernel": stub_campaign(folder, options.stub, options.seed)}
        if options.real:
            tallies["perceptron"] = real_campaign(folder, options.real, options.seed)
        found, tried = damage_everything(folder, options.damage, options.seed)
        full = full_file_system(folder, options.seed)
    total = sum(tallies.values(), Tally())
    sound = all(t.sound for t in tallies.values()) and found == tried and not full.startswith("WRONG")
    seconds = time.monotonic() - begun
    if options.json:
        rows = {name: {**vars(t), "sound": t.sound} for name, t in tallies.items()}
        print(json.dumps({"sound": sound, "seconds": round(seconds, 1), "campaigns": rows, "damages": tried,
                          "damages_found": found, "full_file_system": full}, indent=1))  # fmt: skip
        return 0 if sound else 1
    print(f"{'':14}" + "".join(f"   {c}" for c in COLUMNS))
    for name, tally in {**tallies, "together": total}.items():
        print(summary(name, tally))
    print("\nfaults: " + ", ".join(f"{n} × {kind}" for kind, n in total.faults.most_common()))
    print(f"verify found {found} of {tried} flipped bits, truncations and deletions")
    print(f"a file system that is full: {full}")
    for problem in total.problems:
        print(f"WRONG: {problem}")
    print(f"{'sound' if sound else 'NOT SOUND'}; seed {options.seed}, {seconds:.0f} s, load {load:.1f} at the start")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
