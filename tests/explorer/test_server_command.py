"""`solvable explore`: the address, Ctrl-C, refusals, and packages that are not imported."""

import http.client
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import solvable as sv
from commands import answer
from waiting import LONG, until

SOURCE = str(Path(sv.__file__).parents[1])


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join([SOURCE, os.environ.get("PYTHONPATH", "")])}


def explore(*words):
    return subprocess.Popen(
        [sys.executable, "-m", "solvable", "explore", "--no-browser", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip


def get(address, path, cookie=None, unread=False):
    at = urlsplit(address)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=LONG)

    def asked():
        try:
            connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
        except ConnectionRefusedError:
            connection.close()
            return False
        return True

    until(asked)
    response = connection.getresponse()
    return response.status, dict(response.getheaders()), response.read if unread else response.read()


def enter(address):
    status, headers, _ = get(address, f"/?{urlsplit(address).query}")
    assert status == 303
    return headers["set-cookie"].split(";")[0]


def listen(address, cookie):
    """Start a long simulation and listen to it in a separate thread."""
    at = urlsplit(address)
    connection = http.client.HTTPConnection(at.hostname, at.port, timeout=LONG)
    headers = {"Cookie": cookie, "Content-Type": "application/json", "Origin": f"http://{at.netloc}"}
    view = {"model": "sleepy", "values": {"delay": 600.0}, "sizes": [2], "seeds": 2}
    connection.request("POST", "/api/simulate", json.dumps({"view": view}), headers)
    job = json.loads(connection.getresponse().read())["job"]
    pool = ThreadPoolExecutor(1)
    heard = pool.submit(get(address, f"/api/jobs/{job}/events", cookie, unread=True)[2])  # the answer has begun
    pool.shutdown(wait=False)
    return heard


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM])
def test_the_server_and_its_worker_end_cleanly(surroundings, kind):
    server = explore("--json")
    try:
        started = json.loads(server.stdout.readline())
        cookie = enter(started["address"])
        assert get(started["address"], "/api/models/toy", cookie)[0] == 200  # which starts a worker
        children = until(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text).split()
        listener = listen(started["address"], cookie)
        server.send_signal(kind)
        out, err = server.communicate(timeout=LONG)
    finally:
        server.kill()
    assert server.returncode in (0, -kind if kind == signal.SIGTERM else 0)
    assert (out, err) == ("", "")
    assert listener.result(LONG).rstrip().endswith(b"event: cancelled\ndata: {}")
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.kill(int(child), 0)


def test_a_worker_does_not_outlive_a_killed_server(surroundings):
    server = explore("--json")
    started = json.loads(server.stdout.readline())
    assert get(started["address"], "/api/models/toy", enter(started["address"]))[0] == 200
    children = until(Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text).split()
    server.kill()
    server.communicate()
    until(lambda: not Path(f"/proc/{children[0]}").exists())


def test_the_address_is_printed_for_people_too(surroundings):
    server = explore()
    try:
        line = server.stdout.readline()
        assert line.startswith("solvable explorer: http://127.0.0.1:")
        assert "/?token=" in line
        assert get(line.split()[-1], "/api/models", enter(line.split()[-1]))[0] == 200
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=LONG)


def test_the_browser_gets_a_file_that_only_its_owner_reads(surroundings, tmp_path):
    """Every user of a machine reads the arguments of its processes: no token may be among them."""
    browser, seen = tmp_path / "browser", tmp_path / "seen"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$*" > {seen}.part && mv {seen}.part {seen}\n')
    browser.chmod(0o755)
    folder = tmp_path / "temporary"
    folder.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-m", "solvable", "explore", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment() | {"BROWSER": f"{browser} %s", "TMPDIR": str(folder)},
    )  # fmt: skip
    try:
        printed = json.loads(server.stdout.readline())["address"]
        until(seen.exists)
        assert "token" not in seen.read_text()
        file = Path(seen.read_text().removeprefix("file://"))
        assert file.stat().st_mode & 0o777 == 0o600
        address = file.read_text().partition("url=")[2].partition('"')[0]
        assert address != printed
        for given in (address, printed):  # the printed address is still unspent
            enter(given)
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=LONG)
    assert not file.exists()


def test_enter_prints_a_new_address(surroundings):
    import pty

    ours, theirs = pty.openpty()
    server = subprocess.Popen(
        [sys.executable, "-m", "solvable", "explore", "--no-browser", "--json"],
        stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    try:
        first = json.loads(server.stdout.readline())["address"]
        enter(first)
        assert get(first, f"/?{urlsplit(first).query}")[0] == 401
        os.write(ours, b"\n")
        second = json.loads(server.stdout.readline())["address"]
        enter(second)
        assert second != first
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=LONG)
        os.close(ours)
        os.close(theirs)


def test_a_stored_study_is_opened(surroundings, tmp_path):
    from toys import Toy

    run = tmp_path / "run"
    sv.Study(Toy(), {"samples": [1.0, 2.0]}).run(run, progress=False)
    server = explore(str(run), "--json")
    try:
        started = json.loads(server.stdout.readline())
        assert started["run"] == str(run)
        status, _, body = get(started["address"], "/api/study", enter(started["address"]))
        assert (status, json.loads(body)["name"]) == (200, "run")
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=LONG)


def test_a_folder_that_is_not_a_run_is_refused(capsys, tmp_path):
    code, out, err = answer(capsys, "explore", tmp_path / "none", "--no-browser", "--json")
    assert code == 2
    assert "There is no run at" in json.loads(out)["error"]
    assert "Traceback" not in err


def test_a_taken_or_invalid_port_is_refused(capsys):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = answer(capsys, "explore", "--no-browser", "--port", port)
    assert code == 2
    assert f"port {port} of this machine cannot be used" in err
    code, _, err = answer(capsys, "explore", "--no-browser", "--port", "70000")
    assert code == 2
    assert "port = 70000" in err


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "latex2mathml", "plotly"])
def test_a_missing_package_is_reported_in_one_sentence(capsys, monkeypatch, missing):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == missing else real(name, *a))
    code, _, err = answer(capsys, "explore", "--no-browser")
    assert code == 2
    assert err == f"solvable: the explorer needs {missing}: pip install 'solvable[explore]'\n"


def test_the_laboratory_does_not_import_the_server():
    code = (
        "import sys, solvable.study, solvable.cli.app, solvable.lab.check, solvable.render.plots\n"
        "found = [m for m in ('starlette', 'uvicorn', 'plotly', 'latex2mathml', 'anyio') if m in sys.modules]\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


def test_the_gallery_and_the_gate_need_no_jax():
    code = (
        "import sys\n"
        "from solvable.explorer.app import Explorer, make_app\n"
        "from solvable.explorer.security import Doorkeeper\n"
        "from solvable.explorer.gallery import models\n"
        "make_app(Explorer(Doorkeeper(1)))\n"
        "assert models()['models']\n"
        "assert 'jax' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())
