"""The first points come from a draft, which the results replace; nothing else is made of it."""

import asyncio
import threading
from concurrent.futures import Future

import numpy as np
import pytest

import solvable as sv
from explorer.test_server_waves import VIEW
from solvable.explorer import ahead, drafts, worker
from solvable.explorer.jobs import Job
from solvable.explorer.turns import MADE, name_of
from solvable.explorer.views import View
from solvable.lab import compute
from solvable.lab.planning import cells_of
from solvable.lab.store import block_id
from waiting import until


@pytest.fixture
def study(surroundings, monkeypatch):
    for limit in ("SECONDS", "LONGEST"):
        monkeypatch.setattr(drafts, limit, 1e9)
    for known in (MADE, drafts._DRAFTS, ahead.WARMED):
        known.clear()
    yield View.checked(VIEW).study()
    for known in (MADE, drafts._DRAFTS, ahead.WARMED):
        known.clear()


def simulated():
    """The messages of a simulation."""
    sent = []
    worker.Simulation("job", VIEW, lambda m, data=b"": sent.append(m), threading.Event()).run()
    return sent


def points(sent):
    return [m["data"] for m in sent if m.get("event") == "points"]


def place(point):
    return point["observable"], point["size"], point["x"]


def test_drafts_come_first_and_the_points_of_the_study_replace_them(study):
    """As if a draft were far away: a point that is not replaced would be seen."""
    found, real = points(simulated()), {}
    number = [p.get("draft", False) for p in found].count(True)
    assert number > 0
    assert all(p["draft"] for p in found[:number])
    for point in found[number:]:
        real[place(point)] = point
    assert {place(p) for p in found[:number]} <= set(real)
    from toys import Toy

    data = sv.Study(Toy(), {"samples": np.geomspace(0.5, 8, 3)}, sizes=[20, 40], seeds=12).run(progress=False)
    for (name, size, x), point in real.items():
        values = data[f"{name}_simulated"].sel(samples=x, size=size).values
        np.testing.assert_array_equal(point["mean"], values.mean(0))
    for point in found[:number]:  # the same realisations, up to rounding
        values = data[f"{point['observable']}_simulated"].sel(samples=point["x"], size=point["size"]).values
        np.testing.assert_allclose(point["mean"], values[: point["seeds"]].mean(0), rtol=1e-9)


def test_what_a_draft_says_reaches_neither_results_nor_verdict(study, monkeypatch):
    wrong = {"test_error": 1e3, "curve": 1e3}
    plain = simulated()

    def far_off(model, block, program=None):
        found = compute_block(model, block, program)
        return found if program is None else found | {n: found[n] + v for n, v in wrong.items()}

    compute_block = compute.compute_block
    monkeypatch.setattr(compute, "compute_block", far_off)
    MADE.clear()
    drafts._DRAFTS.clear()
    sent = simulated()
    assert any(p.get("draft") and np.min(p["mean"]) > 900 for p in points(sent))
    shown = ("mean", "error", "seeds", "draft")
    last = [{place(p): [p.get(name) for name in shown] for p in points(messages)} for messages in (plain, sent)]
    assert last[0] == last[1]
    verdicts = [next(m["data"] for m in messages if m.get("event") == "agreement") for messages in (plain, sent)]
    assert verdicts[0] == verdicts[1]


def test_a_draft_that_fails_does_no_harm(study, monkeypatch):
    """As with a compiler that does not know these options."""

    def refuse(model, block):
        raise ValueError

    monkeypatch.setattr(drafts, "_computed", refuse)
    sent = simulated()
    assert sent[-1]["event"] == "done"
    assert not any(p.get("draft") for p in points(sent))


def test_a_draft_has_a_program_of_its_own(study):
    """Compiling it leaves that of the results to be compiled: no bit of them is a draft's."""
    (model,) = study.variants().values()
    lowered = compute.lowered_simulation(model, worker.ordered(study)[0])
    made = [lowered.compile(options).compiled.runtime_executable() for options in (drafts.UNOPTIMISED, None, None)]
    assert made[0] is not made[1]
    assert made[1] is made[2]  # the results' is kept


def test_a_draft_has_one_realisation_of_each_point_or_of_as_many_as_are_quick(study, monkeypatch):
    block = worker.ordered(study)[0]
    few = drafts.first_realisations(study, block)
    assert [c.seed for c in cells_of(few, "")] == [0] * few["lanes"]
    assert len({c.controls for c in cells_of(few, "")}) == few["lanes"]
    assert set(cells_of(few, "")) <= set(cells_of(block, ""))
    monkeypatch.setattr(drafts, "SECONDS", 0.0)
    assert drafts.first_realisations(study, block)["lanes"] == 1


def test_only_what_is_to_be_compiled_and_quick_has_a_draft(study, monkeypatch):
    block = worker.ordered(study)[0]
    assert drafts.first_realisations(study, block) is not None
    MADE.add(name_of(block))
    monkeypatch.setattr(drafts, "SOON", 1e9)
    assert drafts.first_realisations(study, block) is None
    monkeypatch.setattr(drafts, "SOON", 0.0)  # compiled, but its results take long
    assert drafts.first_realisations(study, block) is not None
    MADE.clear()
    slept = View.checked({"model": "sleepy", "sizes": [2], "seeds": 3}).study()
    assert drafts.first_realisations(slept, worker.ordered(slept)[0]) is None  # it runs on the host
    monkeypatch.setattr(drafts, "LONGEST", 0.0)
    assert drafts.first_realisations(study, block) is None


def test_a_draft_is_computed_once_for_everybody_who_asks(study, monkeypatch):
    block, asked, go_on, found = worker.ordered(study)[0], [], threading.Event(), []

    def slowly(study, block):
        asked.append(block)
        assert go_on.wait(60)
        return {"a": 1}

    monkeypatch.setattr(drafts, "_computed", slowly)
    for _ in range(2):
        threading.Thread(target=lambda: found.append(drafts.draft_of(study, block)), daemon=True).start()
    until(lambda: asked)
    go_on.set()
    until(lambda: len(found) == 2)
    assert found == [(asked[0], {"a": 1})] * 2
    assert len(asked) == 1


def test_nothing_is_drafted_whose_results_are_there(study):
    blocks, drafted = worker.ordered(study), []
    with ahead.Ahead(blocks, lambda block: {}, draft=drafted.append) as computing:
        computing.compute(blocks[0])
    assert drafted == blocks[:1]
    ahead.WARMED[block_id(blocks[0])] = there = Future()
    there.set_result({"a": 1})
    with ahead.Ahead(blocks, lambda block: {}, draft=drafted.append) as computing:
        assert computing.compute(blocks[0]) == {"a": 1}
    assert drafted == blocks[:1]
    ahead.WARMED[block_id(blocks[0])] = compiled = Future()
    compiled.set_result(None)  # compiled, but not computed
    with ahead.Ahead(blocks, lambda block: {"b": 2}, draft=drafted.append) as computing:
        assert computing.compute(blocks[0]) == {"b": 2}
    assert drafted == 2 * blocks[:1]


def test_a_draft_is_made_while_the_model_is_looked_at_before_its_program_is_compiled(study, monkeypatch):
    monkeypatch.setattr(worker, "QUICK", 1e9)
    order = []
    monkeypatch.setattr(drafts, "_computed", lambda study, block: order.append("draft"))
    monkeypatch.setattr(compute, "needed_memory", lambda model, block: order.append("program"))
    worker.warm_up(VIEW, ahead.Warming())
    until(lambda: len(ahead.WARMED) == len(ahead.firsts(worker.ordered(study))))
    until(lambda: all(future.done() for future in ahead.WARMED.values()))
    assert order[:2] == ["draft", "program"]
    assert order.count("draft") == 1


@pytest.mark.parametrize("end", ["done", "cancelled", "failed"])
def test_a_draft_that_nothing_has_replaced_does_not_outlast_the_simulation(surroundings, end):
    async def heard():
        job = Job("session", View.checked(VIEW))
        for x in (0.5, 2.0):
            job.emit("points", {"observable": "test_error", "size": 20, "x": x, "seeds": 1, "draft": True})
        job.emit("points", {"observable": "test_error", "size": 20, "x": 0.5, "seeds": 1})
        job.emit(end, {})
        return [part async for part in job.stream()]

    text = b"".join(asyncio.run(heard())).decode()
    assert text.count("event: points") == 1
    assert "draft" not in text
