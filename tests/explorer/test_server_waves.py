"""Points land seed by seed, with the bits of the study; programs are compiled ahead."""

import sys
import threading
import time
from collections import defaultdict

import numpy as np
import pytest

import solvable as sv
from solvable.explorer import ahead, waves, worker
from solvable.explorer.jobs import Job
from solvable.explorer.theory import compute
from solvable.explorer.turns import RUNNING, taking_turns
from solvable.explorer.views import View
from solvable.explorer.waves import cost_of, in_waves
from solvable.lab.planning import cells_of, parts_of
from solvable.lab.store import block_id
from waiting import until

VIEW = {
    "model": "toy",
    "x": {"field": "samples", "from": 0.5, "to": 8, "points": 9, "scale": "log"},
    "sizes": [20, 40],
    "seeds": 12,
    "simulated": 3,
}


@pytest.fixture
def study(surroundings):
    return View.checked(VIEW).study()


def test_the_waves_have_the_cells_and_programs_of_the_study(study):
    plan = study.plan()
    planned = in_waves(plan, "vmap", cost_of(study))
    for kind in ("theory", "simulation"):
        ours, theirs = ([c for b in blocks if b["kind"] == kind for c in cells_of(b, "")] for blocks in (planned, plan))
        assert sorted(ours, key=repr) == sorted(theirs, key=repr)
    programs = [{str(parts_of(b)[0]) for b in blocks if b["kind"] == "simulation"} for blocks in (planned, plan)]
    assert programs[0] == programs[1]  # with as many lanes: no bit differs


def test_the_first_seed_of_every_point_comes_first_and_small_sizes_before_large_ones(study):
    cost = cost_of(study)._replace(simulation=1e-4)
    planned = [b for b in in_waves(study.plan(), "vmap", cost) if b["kind"] == "simulation"]
    cells = [c for b in planned for c in cells_of(b, "")]
    assert {(c.size, c.seed) for c in cells[:3]} == {(20, 0)}
    assert len({c.controls for c in cells[:3]}) == 3
    assert [c.size for c in cells] == sorted(c.size for c in cells)
    assert [c.seed for c in cells if c.size == 20][:12] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_costly_programs_have_no_empty_lanes(study):
    cost = cost_of(study)._replace(simulation=1e3)
    planned = [b for b in in_waves(study.plan(), "vmap", cost) if b["kind"] == "simulation"]
    assert len(planned) == len([b for b in study.plan() if b["kind"] == "simulation"])


def test_points_land_seed_by_seed_and_end_with_the_bits_of_the_study(surroundings, monkeypatch):
    monkeypatch.setattr(worker, "PAUSE", 0.0)
    monkeypatch.setattr(waves, "SHORT", 1e9)
    sent = defaultdict(list)

    def send(message, data=b""):
        if message.get("event") == "points":
            point = message["data"]
            sent[point["observable"], point["size"], point["x"]].append(point)

    worker.Simulation("job", VIEW, send, threading.Event()).run()
    from toys import Toy

    data = sv.Study(Toy(), {"samples": np.geomspace(0.5, 8, 3)}, sizes=[20, 40], seeds=12).run(progress=False)
    assert len(sent) == 2 * 2 * 3
    for (name, size, x), points in sent.items():
        seeds = [p["seeds"] for p in points]
        assert seeds == sorted(seeds)
        assert (seeds[0], seeds[-1]) == (1, 12)
        assert len(seeds) >= 4
        values = data[f"{name}_simulated"].sel(samples=x, size=size).values
        np.testing.assert_array_equal(points[-1]["mean"], values.mean(0))
        assert np.asarray(points[0]["mean"]).tolist() == values[0].tolist()
        assert np.all(np.equal(points[0]["error"], None))  # one realisation has no error bar


def test_points_are_shown_without_the_imports_of_a_dataset(study, monkeypatch):
    """They take longer than a small simulation."""
    study.run(progress=False)
    expected = study.dataset()["test_error_simulated"].mean("seed").values
    monkeypatch.setitem(sys.modules, "xarray", None)  # importing it fails
    points = worker.points_of(study, View.checked(VIEW).axes, {}, True)
    seen = [p["mean"] for p in points if p["observable"] == "test_error"]
    np.testing.assert_allclose(seen, expected.reshape(-1), rtol=1e-15)


def test_the_verdict_says_how_far_each_size_is_from_the_theory(surroundings):
    found = {}
    worker.Simulation(
        "job", VIEW, lambda m, data=b"": found.update({m.get("event"): m.get("data")}), threading.Event()
    ).run()
    row = next(r for r in found["agreement"]["rows"] if r["observable"] == "test_error")
    assert [d["size"] for d in row["distances"]] == [20, 40]
    assert all(0 < d["distance"] < 5 * d["error"] for d in row["distances"])


def test_late_listeners_get_the_newest_state_of_a_point_only(surroundings):
    import asyncio

    async def heard():
        job = Job("session", View.checked(VIEW))
        for seeds in (1, 2, 12):
            job.emit("points", {"observable": "test_error", "size": 20, "x": 0.5, "seeds": seeds})
            job.emit("points", {"observable": "test_error", "size": 40, "x": 0.5, "seeds": seeds})
        job.emit("done", {})
        return [part async for part in job.stream()]

    text = b"".join(asyncio.run(heard())).decode()
    assert text.count("event: points") == 2
    assert text.count('"seeds": 12') == 2
    assert "outdated" not in text


def test_the_first_block_of_every_program_is_computed_ahead(study):
    blocks, threads = in_waves(study.plan(), "vmap", cost_of(study)), set()

    def compute(block):
        threads.add(threading.current_thread().name)
        return {"cells": block["cells"]}

    with ahead.Ahead(blocks, compute, threads=2) as computing:
        results = [computing.compute(block)["cells"] for block in blocks]
    assert results == [b["cells"] for b in blocks]
    assert len([name for name in threads if name.startswith("ahead")]) >= 1


def test_the_program_whose_points_are_awaited_is_compiled_before_all_others(study, monkeypatch):
    monkeypatch.setattr(ahead, "LEAD", 60.0)
    blocks, order, go_on = in_waves(study.plan(), "vmap", cost_of(study)), [], threading.Event()

    def compute(block):
        order.append(block_id(block))
        if len(order) == 1:
            assert not go_on.wait(0.3)
        order.append(block_id(block))
        return {}

    with ahead.Ahead(blocks, compute, threads=3) as computing:
        until(lambda: not computing.compiling())
    first = block_id(ahead.firsts(blocks)[0])
    assert order[:2] == [first, first]
    assert len(order) == 2 * len(ahead.firsts(blocks))


def test_a_failure_ahead_is_reported_when_its_turn_comes(study):
    blocks = in_waves(study.plan(), "vmap", cost_of(study))

    def compute(block):
        raise ZeroDivisionError

    with ahead.Ahead(blocks, compute) as computing, pytest.raises(ZeroDivisionError):
        computing.compute(blocks[0])


def test_what_is_warm_is_not_computed_again(study, monkeypatch):
    monkeypatch.setattr(worker, "QUICK", 1e9)
    blocks, warming = worker.ordered(study), ahead.Warming()
    ahead.WARMED.clear()
    worker.warm_up(VIEW, warming)
    wanted = [block_id(b) for b in ahead.firsts(blocks)]
    until(lambda: list(ahead.WARMED) == wanted and all(f.done() for f in ahead.WARMED.values()))  # every program
    expected = [future.result() for future in ahead.WARMED.values()]
    computed = []

    def compute(block):
        computed.append(block)
        return None

    with ahead.Ahead(blocks, compute) as computing:
        found = [computing.compute(block) for block in ahead.firsts(blocks)]
    assert all(a is b for a, b in zip(found, expected, strict=True))
    assert computed == []
    assert not ahead.WARMED


def test_nothing_more_is_compiled_ahead_once_a_simulation_begins_or_another_model_is_looked_at(study):
    blocks, warming, begun, go_on = worker.ordered(study), ahead.Warming(), [], threading.Event()
    ahead.WARMED.clear()

    def compute(block):
        begun.append(block_id(block))
        assert go_on.wait(60)

    warming.begin(blocks, compute)
    until(lambda: begun)
    warming.stop()
    go_on.set()
    until(lambda: all(f.done() for f in ahead.WARMED.values()))
    until(lambda: not [t for t in threading.enumerate() if t.name == "warm"])
    assert begun == [block_id(blocks[0])]
    ahead.WARMED.clear()


def test_what_takes_long_is_compiled_ahead_but_not_computed(surroundings, monkeypatch):
    monkeypatch.setattr(worker, "QUICK", 0.0)
    made = []
    monkeypatch.setattr("solvable.lab.compute.needed_memory", lambda model, block: made.append(block_id(block)))
    ahead.WARMED.clear()
    worker.warm_up(VIEW, ahead.Warming())
    wanted = [block_id(b) for b in ahead.firsts(worker.ordered(View.checked(VIEW).study()))]
    until(lambda: made == wanted)
    until(lambda: [f.result() for f in ahead.WARMED.values()] == [None] * len(wanted))
    ahead.WARMED.clear()


def test_a_cheap_simulation_has_one_program_for_every_size(surroundings, monkeypatch):
    """What another padded length would save is less than its compilation takes."""
    from toys import Toy

    monkeypatch.setattr(Toy, "simulation_seconds", 1e-2)
    study = View.checked(VIEW).study()
    programs = [parts_of(b)[0] for b in ahead.firsts(study.plan()) if b["kind"] == "simulation"]
    assert [(p["size"], p["padded"]) for p in programs] == [(20, [160]), (40, [320])]


def test_a_theory_whose_points_come_one_by_one_is_not_padded_to_a_full_program(study):
    (theory,) = [b for b in in_waves(study.plan(), "vmap", cost_of(study), together=1) if b["kind"] == "theory"]
    assert (theory["cells"], theory["lanes"]) == (9, 8)  # as many as the page's curve then has


def test_programs_run_one_at_a_time_while_others_are_compiled(study, monkeypatch):
    """Batched decompositions of two running programs can wait for each other's threads for ever (jaxlib's thread pool)."""
    blocks = ahead.firsts(worker.ordered(study))
    both, state = threading.Barrier(2), {"running": 0, "most": 0}

    def compiled(model, block):
        both.wait(60)  # two are compiled at the same time

    def run(block):
        state["running"] += 1
        state["most"] = max(state["most"], state["running"])
        time.sleep(0.05)
        state["running"] -= 1
        return block["cells"]

    monkeypatch.setattr("solvable.lab.compute.needed_memory", compiled)
    monkeypatch.setattr(study, "compute", run)
    pair = blocks[:2]
    with ahead.Ahead(pair, taking_turns(study), threads=2) as computing:
        assert [computing.compute(block) for block in pair] == [block["cells"] for block in pair]
    assert state["most"] == 1


def test_curves_are_not_computed_while_another_program_runs(surroundings):
    view, done = View.checked({**VIEW, "observables": ["test_error"]}), threading.Event()

    def work():
        compute(view)
        done.set()

    with RUNNING:
        thread = threading.Thread(target=work)
        thread.start()
        assert not done.wait(1.0)
    assert done.wait(60)
    thread.join()
