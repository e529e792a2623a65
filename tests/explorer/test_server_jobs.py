"""Simulations: points as they arrive, verdicts, cancelling, and the death of a worker."""

import asyncio
import os
import signal
from pathlib import Path

import numpy as np
import pytest

import solvable as sv
from solvable.errors import SolvableError
from solvable.explorer.jobs import Jobs
from waiting import until

VIEW = {
    "model": "toy",
    "x": {"field": "samples", "from": 0.5, "to": 8, "points": 9, "scale": "log"},
    "sizes": [20, 40],
    "seeds": 4,
    "simulated": 3,
}
SLEEPY = {"model": "sleepy", "sizes": [2], "seeds": 3}


def kinds(events):
    return [kind for kind, _ in events]


@pytest.fixture(scope="module")
def done(running):
    return running.simulated(VIEW)


def test_points_progress_and_the_verdict_arrive(done):
    assert done.last[0] == "done"
    assert kinds(done.events).index("points") < kinds(done.events).index("agreement")
    final = [data for kind, data in done.events if kind == "progress"][-1]
    assert final["done"] == final["cells"] == len(sv.Study(*_study()[0], **_study()[1]).cells())
    verdict = next(data for kind, data in done.events if kind == "agreement")
    assert {r["observable"] for r in verdict["rows"]} == {"test_error", "curve"}
    assert verdict["rows"][0]["sizes"] == [20, 40]
    assert verdict["rows"][0]["seeds"] == 4


def _study():
    from toys import Toy

    return (Toy(), {"samples": np.geomspace(0.5, 8, 3)}), {"sizes": [20, 40], "seeds": 4}


def test_points_are_those_of_the_study_bit_by_bit(done):
    (model, over), more = _study()
    data = sv.Study(model, over, **more).run(progress=False)
    assert len(done.points) == 2 * 3 * 2
    for (name, size, x, y), point in done.points.items():
        seeds = data[f"{name}_simulated"].sel(samples=x, size=size).values
        assert y is None
        np.testing.assert_array_equal(point["mean"], seeds.mean(0))
        np.testing.assert_allclose(point["error"], seeds.std(0, ddof=1) / 2, rtol=1e-12)
        assert point["seeds"] == 4
        assert point["dims"] == (["time"] if name == "curve" else [])


def test_late_listeners_receive_everything(running, done):
    again = running.events(done.job)
    where = lambda p: (p["observable"], p["size"], p["x"], p.get("y"))  # noqa: E731
    assert {where(data): data for kind, data in again if kind == "points"} == done.points
    others = [[e for e in events if e[0] not in ("progress", "points")] for events in (again, done.events)]
    assert others[0] == others[1]


def test_the_files_of_a_simulation_hold_its_seeds(running, done):
    import csv
    import io

    response = running.post("/api/export", {"view": VIEW, "format": "csv", "job": done.job})
    rows = [
        r for r in csv.DictReader(io.StringIO(response.body.decode())) if r["kind"] == "simulated" and r["test_error"]
    ]
    assert len(rows) == 3 * 2 * 4
    for (name, size, x, _), point in done.points.items():
        if name == "test_error":
            mine = [float(r["test_error"]) for r in rows if (int(r["size"]), float(r["samples"])) == (size, x)]
            assert np.mean(mine) == pytest.approx(point["mean"], rel=1e-14)
    picture = running.post("/api/export", {"view": VIEW, "format": "png", "job": done.job})
    assert picture.body.startswith(b"\x89PNG")


def test_a_plane_is_simulated_on_its_own_grid(running):
    view = VIEW | {"y": {"field": "penalty", "from": 0, "to": 1, "points": 5}, "simulated": 2, "sizes": [20]}
    ran = running.simulated(view)
    assert {(x, y) for name, _, x, y in ran.points if name == "test_error"} == {(0.5, 0), (0.5, 1), (8, 0), (8, 1)}


def test_an_observable_that_is_only_measured_has_points(running):
    ran = running.simulated(VIEW | {"values": {"kind": "odd"}, "x": None, "sizes": [20]})
    assert ("extra", 20, None, None) in ran.points


def test_a_job_is_cancelled_and_the_next_one_runs(running):
    job = running.post("/api/simulate", {"view": SLEEPY | {"values": {"delay": 1.0}, "seeds": 600}}).json["job"]
    until(lambda: any(d["done"] for k, d in running.explorer.jobs.jobs[job].events if k == "progress"))
    assert running.post(f"/api/jobs/{job}/cancel", {}).status == 202
    events = running.events(job)
    assert kinds(events)[-1] == "cancelled"
    assert running.simulated(SLEEPY | {"values": {"delay": 0.0}}).last[0] == "done"


def test_a_block_that_does_not_end_is_stopped(running):
    before = running.explorer.jobs.process
    job = running.post("/api/simulate", {"view": SLEEPY | {"values": {"delay": 600.0}}}).json["job"]
    until(lambda: running.explorer.jobs.jobs[job].events)
    running.post(f"/api/jobs/{job}/cancel", {})
    assert kinds(running.events(job))[-1] == "cancelled"
    until(lambda: not Path(f"/proc/{before}").exists())
    assert running.simulated(SLEEPY | {"values": {"delay": 0.0}}).last[0] == "done"


def test_a_job_is_cancelled_before_its_worker_is_ready(fresh):
    job = fresh.post("/api/simulate", {"view": SLEEPY | {"values": {"delay": 600.0}}}).json["job"]
    fresh.post(f"/api/jobs/{job}/cancel", {})
    assert kinds(fresh.events(job))[-1] == "cancelled"
    assert fresh.simulated(SLEEPY | {"values": {"delay": 0.0}}).last[0] == "done"


def test_theories_are_computed_while_a_simulation_runs(running):
    job = running.post("/api/simulate", {"view": SLEEPY | {"values": {"delay": 600.0}}}).json["job"]
    assert running.post("/api/theory", {"view": VIEW}).status == 200
    assert not running.explorer.jobs.jobs[job].ended
    running.post(f"/api/jobs/{job}/cancel", {})
    assert kinds(running.events(job))[-1] == "cancelled"


def test_one_simulation_at_a_time_per_session(running):
    job = running.post("/api/simulate", {"view": SLEEPY | {"values": {"delay": 600.0}}}).json["job"]
    refused = running.post("/api/simulate", {"view": VIEW})
    assert refused.status == 429
    assert "already running" in refused.error
    running.post(f"/api/jobs/{job}/cancel", {})
    running.events(job)


def test_a_failed_simulation_is_reported_without_details(running):
    ran = running.simulated(SLEEPY | {"values": {"mood": "angry"}})
    assert ran.last == ("failed", {"error": "the simulation failed: RuntimeError."})
    assert "secret" not in str(ran.events)  # that is for the terminal


def test_a_worker_that_dies_fails_its_job_and_is_replaced(running):
    ran = running.simulated(SLEEPY | {"values": {"mood": "gone"}})
    assert ran.last == ("failed", {"error": "the simulation ended early because its process died."})
    job = running.post("/api/simulate", {"view": SLEEPY | {"values": {"delay": 600.0}}}).json["job"]
    until(lambda: running.explorer.jobs.jobs[job].events)
    os.kill(running.explorer.jobs.process, signal.SIGKILL)
    assert kinds(running.events(job))[-1] == "failed"
    assert running.simulated(SLEEPY | {"values": {"delay": 0.0}}).last[0] == "done"


def test_a_simulation_that_is_too_large_for_a_page_is_refused(running):
    response = running.post("/api/simulate", {"view": VIEW | {"simulated": 1000, "seeds": 1000}})
    assert response.status == 422
    assert "use a study" in response.error
    assert (
        running.post("/api/simulate", {"view": VIEW | {"sizes": []}}).error == "a simulation needs at least one size."
    )


def test_finished_jobs_are_eventually_forgotten(running):
    for _ in range(20):
        running.simulated(VIEW | {"x": None, "sizes": [20], "seeds": 2})
    assert len(running.explorer.jobs.jobs) <= 17


def test_the_jobs_of_a_session_are_listed_found_again_and_cancelled(running):
    """A page that is loaded again, or opened in another tab, has the same cookie and nothing else."""
    job = running.post("/api/simulate", {"view": SLEEPY | {"values": {"delay": 600.0}}}).json["job"]
    until(lambda: running.get("/api/jobs").json["jobs"][0]["state"] == "running")
    found = running.get("/api/jobs").json["jobs"][0]
    assert (found["job"], found["view"]["model"], found["view"]["values"]) == (job, "sleepy", {"delay": 600.0})
    assert found["done"] == 0 < found["cells"]
    assert job not in str(running.get("/api/jobs", cookie=running.enter()).json)  # another session
    assert running.post(f"/api/jobs/{found['job']}/cancel", {}).status == 202
    until(lambda: running.get("/api/jobs").json["jobs"][0]["state"] == "cancelled")


def test_a_simulation_that_nobody_listens_to_makes_room_for_another_browser(running, monkeypatch):
    job = running.post("/api/simulate", {"view": SLEEPY | {"values": {"delay": 600.0}}}).json["job"]
    until(lambda: running.explorer.jobs.jobs[job].events)
    other = running.enter()
    mine = running.post("/api/simulate", {"view": SLEEPY | {"values": {"delay": 0.0}}}, cookie=other).json["job"]
    assert not running.explorer.jobs.jobs[job].ended  # it was left just now
    monkeypatch.setattr("solvable.explorer.jobs.UNATTENDED", -1.0)
    third = running.enter()
    assert running.post("/api/simulate", {"view": SLEEPY | {"values": {"delay": 0.0}}}, cookie=third).status == 202
    until(lambda: running.explorer.jobs.jobs[job].ended)
    assert kinds(running.events(mine, cookie=other))[-1] == "done"


def row(**more):
    from types import SimpleNamespace

    given = {"observable": "a", "point": {"samples": 2.0}, "verdict": "agree", "theory": 0.5, "simulated": 0.51,
             "error": 0.004, "z": 2.5, "size": 40, "seeds": 8, "power": 1.0, "amplitude": 0.4,
             "status": "asymptotic"}  # fmt: skip
    return SimpleNamespace(**given | more)


@pytest.mark.parametrize(
    ("verdict", "rows", "sizes", "words"),
    [
        ("agree", [row(), row(z=-0.3)], (20, 40), "agrees at all 2 points; the largest difference, 0.51 ± 0.004 against 0.5"),
        ("finite-size", [row(verdict="finite-size", z=9.0), row()], (20, 40), "at 1 of 2 points.* 0.4/N fits at all sizes"),
        ("finite-size", [row(z=9.5), row(verdict="finite-size", z=9.0, amplitude=-2.0, power=0.5)], (20, 40), "-2/√N fits"),
        ("inconclusive", [row(seeds=2)], (20, 40), "2 seeds are too few"),
        ("inconclusive", [row()], (20, 40), "use more seeds"),
        ("disagree", [row(verdict="disagree", z=53.0)], (20, 40), "differs at 1 of 1 point .*not as a finite-size effect"),
        ("disagree", [row(verdict="disagree", z=53.0)], (40,), "single size.*simulate a second"),
        ("disagree", [row(verdict="disagree", z=53.0, status="exact")], (40,), "not as a finite-size effect"),
        ("undefined", [row(verdict="undefined", z=float("nan"))], (40,), "did not converge"),
    ],
)  # fmt: skip
def test_a_verdict_is_one_sentence(verdict, rows, sizes, words):
    import re

    from solvable.explorer.worker import verdict_sentence

    sentence = verdict_sentence(verdict, rows, sizes)
    assert re.search(words, sentence), sentence
    assert sentence.endswith(".")
    assert sentence.count(". ") == 0


def test_two_seeds_never_agree_and_their_deviation_is_given_on_the_scale_of_a_normal_variable(running):
    """With one degree of freedom t = −100 is no rarer than 2.7 standard errors."""
    from solvable.explorer.worker import gaussian_z

    assert gaussian_z(-100.0, 2) == pytest.approx(-2.73, abs=0.01)
    ran = running.simulated(VIEW | {"seeds": 2, "sizes": [20]})
    (found,) = [data for kind, data in ran.events if kind == "agreement"]
    for each in found["rows"]:
        assert each["verdict"] != "agree"
        assert each["z"] < 6
        assert each["sentence"]


# --- claims -----------------------------------------------------------------------------------------------------------


def test_claims_are_judged_by_the_worker(running, monkeypatch):
    """Reading their data sets takes seconds of the interpreter, for which the curves of the server would wait."""

    def here(id):
        raise AssertionError("judged in the server")

    monkeypatch.setattr("solvable.explorer.describe.claims", here)
    answer = running.get("/api/models/masked-regression/claims")
    assert answer.status == 200, answer
    assert answer.json["claims"]


@pytest.mark.parametrize("ends", [1, 3])
def test_claims_are_asked_again_when_the_worker_has_ended(monkeypatch, ends):
    asked = []

    async def scenario():
        jobs = Jobs()

        async def worker():
            return None

        async def write(process, message):
            asked.append(message)
            ended = len(asked) <= ends
            then = jobs._forget_unjudged if ended else lambda: jobs._hear({"claims": "toy", "found": ["claim"]}, b"")
            asyncio.get_running_loop().call_soon(then)

        monkeypatch.setattr(jobs, "_worker", worker)
        monkeypatch.setattr("solvable.explorer.jobs._write", write)
        return await jobs.judged("toy")

    if ends == 1:
        assert asyncio.run(scenario()) == ["claim"]
        assert asked == 2 * [{"claims": "toy"}]
    else:
        with pytest.raises(SolvableError, match="their process ended"):
            asyncio.run(scenario())
        assert len(asked) == 3
