"""The first view of every model, simulated as the page does it: it shows something, and it decides."""

import threading

import pytest

import solvable as sv
from solvable.explorer import room, worker
from solvable.explorer.defaults import default_view

CONCLUSIVE = {"agree", "finite-size"}


@pytest.mark.parametrize("model", sv.listings())
def test_the_first_view_of_a_model_decides(model):
    view = default_view(sv.model_class(model))
    points, verdicts = [], {}

    def send(message, data=b""):
        if message.get("event") == "points":
            points.append(message["data"]["observable"])
        elif message.get("event") == "agreement":
            verdicts.update({row["observable"]: row["verdict"] for row in message["data"]["rows"]})

    worker.Simulation("job", view.json(), send, threading.Event()).run()
    room.forget_programs()
    assert set(points) & set(view.observables)
    known = view.model.observables()
    compared = [n for n in view.observables if known[n].predicted and known[n].simulated]
    assert {n: verdicts[n] for n in compared if verdicts[n] not in CONCLUSIVE} == {}
    assert bool(compared) == view.model.has_theory
