"""Attacks. Only the browser that holds the token gets replies, and only to requests that the page may send."""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import pickle
import random
import re
import socket
from pathlib import Path
from urllib.parse import quote

import pytest
from running import Running

import solvable as sv
from solvable.explorer import connections as bounds
from solvable.explorer import security
from solvable.lab._records import manifest_line
from waiting import LONG, until

VIEW = {"model": "toy", "x": {"field": "samples"}, "sizes": [20], "seeds": 2}
GET = ("/", "/api/models", "/api/models/toy", "/api/models/toy/claims", "/api/status", "/plotly.js", "/static/index.html",
       "/api/study", "/api/stories",
       "/thumbnails/toy.svg", "/api/words", "/api/models/toy/kept", "/figures/none.svg", "/api/jobs", "/api/jobs/x/events",
       "/nothing")  # fmt: skip
POST = ("/api/theory", "/api/simulate", "/api/reproduce", "/api/export", "/api/jobs/x/cancel", "/api/study/series")


def json_headers(running, **more):
    return {"Content-Type": "application/json", "Origin": running.origin} | more


# --- token and cookie -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", GET)
def test_without_a_cookie_every_read_is_refused(running, path):
    response = running.get(path, cookie=None)
    assert response.status == 401
    assert b"token" in response.body
    assert len(response.body) < 300


@pytest.mark.parametrize("path", POST)
def test_without_a_cookie_every_action_is_refused(running, path):
    assert running.post(path, {"view": VIEW}, cookie=None).status == 401


@pytest.mark.parametrize(
    "token",
    ["", "x", "0" * 43, "é" * 20, "a" * 30_000, "\x00", "%00", "../", "null"],
    ids=["empty", "short", "zeros", "accents", "long", "nul", "percent", "dots", "null"],
)
def test_a_wrong_token_is_refused(running, token):
    response = running.get(f"/?token={quote(token)}", cookie=None)
    assert response.status == 401
    assert "set-cookie" not in response.headers


def test_no_part_of_the_token_is_enough(running):
    token = running.door.issue()
    for part in (token[:-1], token[1:], token + "x", token.swapcase(), token[::-1]):
        assert running.get(f"/?token={part}", cookie=None).status == 401


def test_a_token_given_twice_is_refused(running):
    token = running.door.issue()
    for query in (f"token={token}&token=x", f"token=x&token={token}", f"token={token}&token={token}"):
        assert running.get(f"/?{query}", cookie=None).status == 401


def test_the_token_is_accepted_nowhere_else(running):
    token = running.door.issue()
    for path in ("/api/models", "/static/index.html", "/plotly.js", "//", "/index.html"):
        assert running.get(f"{path}?token={token}", cookie=None).status == 401
    for header in ({"Authorization": f"Bearer {token}"}, {"X-Token": token}, {"Cookie": f"token={token}"}):
        assert running.get("/api/models", headers=header, cookie=None).status == 401
    assert running.get("/api/models", cookie=f"{running.door.cookie}={token}").status == 401
    assert running.post("/api/theory", {"view": VIEW, "token": token}, cookie=None).status == 401
    assert running.ask("HEAD", f"/?token={token}", cookie=None).status == 401


def test_the_token_has_256_bits_and_the_cookie_is_for_this_page_only(running):
    response = running.get(f"/?token={running.door.issue()}&model=toy&penalty=1", cookie=None)
    assert response.status == 303
    assert response.headers["location"] == "/?model=toy&penalty=1"
    name, _, rest = response.headers["set-cookie"].partition("=")
    secret, *flags = rest.split("; ")
    assert name == f"solvable_{running.port}"
    assert set(flags) == {"HttpOnly", "SameSite=Strict", "Path=/"}
    for word in (secret, running.door.issue()):
        assert len(base64.urlsafe_b64decode(word + "=")) == 32
    assert secret != running.door.issue()


def test_every_session_has_its_own_secret(running):
    assert len({running.enter() for _ in range(5)}) == 5


def test_a_logged_in_browser_keeps_its_session(running):
    for token in (running.door.issue(), "spent"):
        response = running.get(f"/?token={token}")
        assert response.status == 303
        assert "set-cookie" not in response.headers


def test_a_token_is_spent_by_its_first_use(running):
    token = running.door.issue()
    assert running.get(f"/?token={token}", cookie=None).status == 303
    again = running.get(f"/?token={token}", cookie=None)
    assert again.status == 401
    assert b"press Enter" in again.body
    assert "set-cookie" not in again.headers
    assert running.get(f"/?token={token}").status == 303  # a reader who is in loads the address again


def test_only_so_many_tokens_are_unspent(running):
    first = running.door.issue()
    for _ in range(security.MOST_TOKENS):
        running.door.issue()
    assert running.get(f"/?token={first}", cookie=None).status == 401


@pytest.mark.parametrize(
    "other",
    ['prefs={"theme":"dark"}', 'prefs={"a": "b,c"}', "a b=c d", "=", ";;;", '"', 'x="un;closed', "é=ÿ", "big=" + "x" * 30_000,
     "solvable_1=x", "{}={}={}"],
    ids=lambda c: c[:16],
)  # fmt: skip
def test_cookies_of_other_programs_lock_nobody_out(running, other):
    for cookie in (f"{other}; {running.session}", f"{running.session}; {other}"):
        assert running.get("/api/status", cookie=cookie).status == 200, cookie[:60]
    assert running.get("/api/status", cookie=other).status == 401


def test_a_cookie_of_our_name_set_by_another_program_does_not_hide_ours(running):
    other = f"{running.door.cookie}=theirs"
    for cookie in (f"{other}; {running.session}", f"{running.session}; {other}"):
        assert running.get("/api/status", cookie=cookie).status == 200


def test_a_tampered_cookie_is_refused(running):
    name, _, secret = running.session.partition("=")
    odd = (secret[:-1], secret + "A", secret.swapcase(), secret[::-1], "", '"', "a" * 5000, "\xff\xfe", f'"{secret}x"')
    for value in odd:
        assert running.get("/api/models", cookie=f"{name}={value}").status == 401
    for cookie in (f"Solvable={secret}", f"solvable={secret}", secret, f"{name.upper()}={secret}"):
        assert running.get("/api/models", cookie=cookie).status == 401


def test_the_cookie_of_another_server_is_refused(running, fresh):
    secret = fresh.session.partition("=")[2]
    assert running.get("/api/models", cookie=f"{running.door.cookie}={secret}").status == 401


def test_the_number_of_sessions_is_limited(fresh):
    first = fresh.session
    for _ in range(security.MOST_SESSIONS):
        fresh.enter()
    assert fresh.get("/api/models", cookie=first).status == 401


# --- other pages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{port}", "0.0.0.0:{port}",
     "127.0.0.1:{port}.evil.example", "127.0.0.1:{port}@evil.example", "", " ", "127.0.0.2:{port}", "127.1:{port}",
     "2130706433:{port}", "user@127.0.0.1:{port}"],
)  # fmt: skip
def test_a_rebound_host_name_is_refused(running, host):
    response = running.get("/api/models", headers={"Host": host.format(port=running.port)})
    assert response.status in (400, 421)
    response = running.get(
        f"/?token={running.door.issue()}", headers={"Host": host.format(port=running.port)}, cookie=None
    )
    assert response.status in (400, 421)
    assert "set-cookie" not in response.headers


def test_the_host_names_of_this_machine_are_accepted(running):
    for host in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        assert running.get("/api/models", headers={"Host": f"{host}:{running.port}"}).status == 200


def test_no_host_or_two_hosts_are_refused(running):
    line = b"GET /api/models HTTP/1.1\r\nCookie: " + running.session.encode() + b"\r\n"
    ours = f"Host: 127.0.0.1:{running.port}\r\n".encode()
    for headers in (b"", ours + b"Host: evil.example\r\n", b"Host: evil.example\r\n" + ours):
        assert running.raw(line + headers + b"Connection: close\r\n\r\n").split(b" ")[1] in (b"400", b"421")


ORIGINS = ("http://evil.example", "null", "https://127.0.0.1:{port}", "http://127.0.0.1", "http://127.0.0.1:1", "",
           "http://127.0.0.1:{port}.evil.example", "http://127.0.0.1:{port}/", "file://", "http://localhost")  # fmt: skip


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_foreign_origin_is_refused(running, origin):
    header = origin.format(port=running.port)
    assert running.post("/api/theory", {"view": VIEW}, Origin=header).status == 403
    assert running.get("/api/models", headers={"Origin": header}).status == 403


def test_a_post_without_an_origin_is_refused(running):
    body = json.dumps({"view": VIEW}).encode()
    response = running.ask("POST", "/api/simulate", body, {"Content-Type": "application/json"})
    assert response.status == 403
    assert not running.explorer.jobs.jobs


def test_requests_marked_cross_site_are_refused(running):
    for site in ("cross-site", "same-site"):  # another port of this machine is the same site
        assert running.get("/api/models", headers={"Sec-Fetch-Site": site}).status == 403
        assert running.post("/api/theory", {"view": VIEW}, **{"Sec-Fetch-Site": site}).status == 403
    assert running.get("/api/models", headers={"Sec-Fetch-Site": "same-origin"}).status == 200


def test_a_link_in_another_page_still_lets_its_reader_in(running):
    """After a redirect a strict cookie would not be sent, so the browser is asked to repeat the request itself."""
    response = running.get(f"/?token={running.door.issue()}", headers={"Sec-Fetch-Site": "cross-site"}, cookie=None)
    assert response.status == 200
    assert response.headers["refresh"] == "0; url=/"
    assert "SameSite=Strict" in response.headers["set-cookie"]


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonx",
     "text/json", "application/json, text/plain"],
)  # fmt: skip
def test_a_form_is_not_a_request(running, kind):
    assert running.post("/api/theory", {"view": VIEW}, **{"Content-Type": kind}).status == 415


def test_no_other_origin_is_ever_allowed(running):
    for response in (running.get("/api/models"), running.post("/api/theory", {"view": VIEW})):
        assert not [h for h in response.headers if h.startswith("access-control")]


def test_a_preflight_is_refused(running):
    response = running.ask("OPTIONS", "/api/theory", headers={"Origin": "http://evil.example",
                                                          "Access-Control-Request-Method": "POST"})  # fmt: skip
    assert response.status == 405
    assert not [h for h in response.headers if h.startswith("access-control")]


# --- methods ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "X" * 100]
)
def test_unknown_methods_are_refused(running, method):
    response = running.raw(
        f"{method} /api/models HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nCookie: {running.session}\r\n"
        f"Connection: close\r\n\r\n".encode()
    )
    assert response.split(b" ")[1] in (b"400", b"405")
    assert running.session.encode() not in response


@pytest.mark.parametrize("path", [*POST])
def test_reads_have_no_side_effects(running, path):
    response = running.get(f"{path}?view={quote(json.dumps(VIEW))}")
    assert response.status in (404, 405)
    assert not running.explorer.jobs.jobs


def test_head_has_the_headers_and_no_body(running):
    response = running.ask("HEAD", "/api/models")
    assert (response.status, response.body) == (200, b"")
    assert "content-security-policy" in response.headers


def test_posting_to_a_page_is_refused(running):
    for path in ("/", "/api/models", "/static/index.html", "/plotly.js"):
        assert running.post(path, {}).status == 405


def test_web_sockets_are_refused(running):
    response = running.raw(
        f"GET /api/models HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nCookie: {running.session}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    assert not response.startswith(b"HTTP/1.1 101")


# --- paths ------------------------------------------------------------------------------------------------------------

CLIMBS = (
    "../app.py", "..%2fapp.py", "%2e%2e/app.py", "%2e%2e%2fapp.py", "..%252fapp.py", "..\\app.py", "..%5capp.py",
    "....//app.py", "%c0%ae%c0%ae/app.py", "/etc/passwd", "%2fetc%2fpasswd", "index.html%00.js", "index.html/", ".",
    "..", "", "index.html/../../app.py", "~root", "C:%5cwindows", "file:%2f%2f%2fetc%2fpasswd", "%ff%fe", "a" * 8000,
    "__init__.py", "../static/index.html",
)  # fmt: skip


@pytest.mark.parametrize("climb", CLIMBS, ids=[c[:30] or "nothing" for c in CLIMBS])
def test_no_file_outside_the_page_is_served(running, climb):
    for folder in ("static", "thumbnails", "api/models", "api/jobs"):
        head = f"GET /{folder}/{climb}".encode("latin-1")
        response = running.raw(
            head + f" HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nCookie: {running.session}\r\n"
            "Connection: close\r\n\r\n".encode()
        )  # fmt: skip
        assert response.split(b" ")[1] in (b"400", b"404")
        assert b"import" not in response
        assert b"root:" not in response


def test_a_link_out_of_the_page_is_not_followed_by_a_request(running, tmp_path):
    """Only names known at the start are served, so that a file that appears later is not."""
    assert set(running.explorer.files) == {f.name for f in (Path(security.__file__).parent / "static").iterdir()}
    assert running.get("/static/security.py").status == 404


# --- bodies -----------------------------------------------------------------------------------------------------------


def body(running, data: bytes, path="/api/theory", **headers):
    return running.ask("POST", path, data, json_headers(running, **headers))


def test_a_large_body_is_refused_by_its_length(running):
    assert body(running, b" " * (security.LARGEST_BODY + 1)).status == 413


def test_a_large_body_is_refused_before_it_is_sent(running):
    response = running.raw(
        f"POST /api/theory HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nCookie: {running.session}\r\n"
        f"Origin: {running.origin}\r\nContent-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n".encode()
    )
    assert response.split(b" ")[1] == b"413"


@pytest.mark.parametrize("path", POST)
def test_a_large_body_in_chunks_is_refused(running, path):
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=LONG)
    chunks = (b'{"view": "' if i == 0 else b"x" * 65536 for i in range(20))
    try:
        connection.request(
            "POST", path, chunks, json_headers(running, Cookie=running.session, **{"Transfer-Encoding": "chunked"}),
            encode_chunked=True,
        )  # fmt: skip
        assert connection.getresponse().status in (404, 413)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it stopped listening
    finally:
        connection.close()
    assert running.get("/api/status").status == 200


@pytest.mark.parametrize("length", ["-1", "abc", "1e3", "0x10", "+5", "1 2"])
def test_an_odd_length_is_refused(running, length):
    response = running.raw(
        f"POST /api/theory HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nCookie: {running.session}\r\n"
        f"Origin: {running.origin}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{{}}".encode()
    )
    assert response.split(b" ")[1] in (b"400", b"413")


@pytest.mark.parametrize(
    "data",
    [b"[" * 100_000, b'{"a":' * 50_000, b'{"view":' + b"[" * 60 + b"]" * 60 + b"}", b"{", b'{"view": NaN}', b"\xff\xfe{}",
     b'{"view": Infinity}', b'{"view": -Infinity}', b'{"view": {}, "view": {}}', b"\x00", b"{}{}", b"{'view': 1}",
     b'{"view": ' + b"9" * 5000 + b"}", b'{"view": "\xed\xa0\x80"}', b"\xef\xbb\xbf{}", b'{"view": "\x01"}', b"[]", b"3", b'"x"',
     b'{"view": {"model": "toy"}, "more": 1}'],
    ids=lambda d: d[:24].decode("latin-1"),
)  # fmt: skip
def test_anything_but_plain_json_is_refused(running, data):
    response = body(running, data)
    assert response.status == 400
    assert set(response.json) == {"error"}
    assert len(response.error) < 200


def test_lone_surrogates_are_harmless(running):
    response = body(running, b'{"view": {"model": "\\ud800"}}')
    assert response.status == 422
    response.body.decode("utf-8")


@pytest.mark.parametrize("number", ["1e999", "-1e999", "1e308", "1e-320", "9" * 4000, "-0.0"])
def test_huge_numbers_are_refused_or_harmless(running, number):
    for part in (
        f'"values": {{"samples": {number}}}',
        f'"x": {{"field": "samples", "to": {number}}}',
        f'"x": {{"field": "samples", "points": {number}}}',
        f'"seeds": {number}',
        f'"sizes": [{number}]',
    ):
        response = body(running, f'{{"view": {{"model": "toy", {part}}}}}'.encode())
        assert response.status in (200, 422)
        assert "NaN" not in response.body.decode()
        assert "Infinity" not in response.body.decode()


def test_nested_lists_as_values_are_refused(running):
    deep: list = []
    for _ in range(5):
        deep = [deep]
    response = running.post("/api/theory", {"view": {"model": "soft-committee", "values": {"times": deep}}})
    assert response.status in (400, 422)
    wide = {"model": "soft-committee", "values": {"times": list(range(60_000))}}
    assert running.post("/api/theory", {"view": wide}).status in (413, 422)


def test_a_sequence_or_stream_of_the_wrong_kind_is_refused(running):
    for more in ({"sequence": "1"}, {"sequence": 1.5}, {"sequence": True}, {"stream": 7}, {"stream": "s" * 65}):
        assert running.post("/api/theory", {"view": VIEW, **more}).status == 422


# --- echoes -----------------------------------------------------------------------------------------------------------

HTML = "<script>alert(1)</script>"


def test_html_is_echoed_as_text_only(running):
    views = (
        {"model": HTML},
        {"model": "toy", HTML: 1},
        {"model": "toy", "values": {HTML: 1}},
        {"model": "toy", "values": {"kind": HTML}},
        {"model": "toy", "observables": [HTML]},
        {"model": "toy", "x": {"field": HTML}},
    )
    for view in views:
        response = running.post("/api/theory", {"view": view})
        assert response.status == 422
        assert response.headers["content-type"] == "application/json"
        assert response.headers["x-content-type-options"] == "nosniff"
    response = running.get(f"/api/models/{quote(HTML, safe='')}")
    assert response.status == 404
    assert response.headers["content-type"] == "application/json"
    response = running.get(f"/{quote(HTML)}?token={quote(HTML)}", cookie=None)
    assert HTML.encode() not in response.body


def test_long_values_are_not_echoed_whole(running):
    response = running.post("/api/theory", {"view": {"model": "toy", "values": {"kind": "x" * 100_000}}})
    assert response.status == 422
    assert len(response.body) < 2000


@pytest.mark.parametrize(
    "text", ["a\r\nSet-Cookie: x=y", "a%0d%0aSet-Cookie:%20x=y", "\r\n\r\n<html>", "//evil.example", "é€"]
)
def test_query_text_never_becomes_a_header(running, text):
    response = running.get(f"/?token={running.door.issue()}&model={quote(text)}", cookie=None)
    assert response.status == 303
    assert "x=y" not in response.headers["set-cookie"]
    assert response.headers["location"].startswith("/?model=")
    assert "\r" not in response.headers["location"]


def test_the_redirect_stays_on_this_server(running):
    for query in ("//evil.example", "&url=http://evil.example", "/\\evil.example"):
        response = running.get(f"/?token={running.door.issue()}&{query}", cookie=None)
        assert re.match(r"/(\?|$)", response.headers["location"])


def test_file_names_are_chosen_by_the_server(running):
    response = running.post("/api/export", {"view": {**VIEW, "observables": ["test_error"]}, "format": "csv"})
    assert response.headers["content-disposition"] == 'attachment; filename="toy.csv"'
    assert running.post("/api/export", {"view": VIEW, "format": '../../x"\r\n'}).status == 422


def test_an_internal_failure_is_reported_without_details(fresh, monkeypatch, capfd):
    def fail(*_):
        raise RuntimeError("a secret detail")

    monkeypatch.setattr("solvable.explorer.theory.compute", fail)
    response = fresh.post("/api/theory", {"view": VIEW})
    assert response.status == 500
    assert "secret" not in response.error
    assert "a secret detail" in capfd.readouterr().err


# --- headers ----------------------------------------------------------------------------------------------------------


def test_every_response_carries_the_headers(running):
    answers = [
        running.get("/"), running.get("/api/models"), running.get("/nothing"), running.get("/plotly.js"),
        running.get("/static/none"), running.get("/thumbnails/toy.svg"), running.get("/", cookie=None),
        running.get("/api/models", cookie=None), running.post("/api/theory", {"view": VIEW}), running.post("/api/theory", {}),
        running.post("/api/theory", {}, Origin="http://evil.example"), running.ask("PUT", "/"), body(running, b"{"),
        running.get("/", headers={"Host": "evil.example"}), running.get(f"/?token={running.door.issue()}"),
    ]  # fmt: skip
    for response in answers:
        policy = dict(p.split(" ", 1) for p in response.headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        assert policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert policy["form-action"] == policy["base-uri"] == "'none'"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cross-origin-opener-policy"] == "same-origin"
        assert response.headers["cross-origin-resource-policy"] == "same-origin"
        assert "cache-control" in response.headers
    assert running.get("/api/models").headers["cache-control"] == "no-store"


def test_the_server_listens_on_the_loopback_only():
    from solvable.explorer.command import _listener

    with _listener(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_random_requests_never_cause_a_server_error(running, capfd):
    """Random bytes in addresses, cookies and headers: refused or served, without a traceback."""
    draw = random.Random(7)

    def noise(most):
        return bytes(draw.randrange(33, 256) for _ in range(draw.randrange(most)))

    for _ in range(150):
        lines = [
            draw.choice([b"GET", b"POST", b"HEAD", noise(8)]) + b" /" + draw.choice([b"", b"?token=", b"api/", b"?"])
            + noise(60) + b" HTTP/1.1",
            f"Host: 127.0.0.1:{running.port}".encode(),
            b"Cookie: " + draw.choice([running.session.encode(), noise(80)]),
            draw.choice([b"Origin: ", b"X: ", b"Content-Type: ", b"Sec-Fetch-Site: "]) + noise(40),
            b"Connection: close",
        ]  # fmt: skip
        response = running.raw(b"\r\n".join(lines) + b"\r\n\r\n" + noise(50))
        assert response.startswith(b"HTTP/1.1 ")
        assert response[9:10] in b"234", response[:200]
    many = "&".join("a=1" for _ in range(1000))
    assert running.get(f"/?{many}").status == 400
    assert "Traceback" not in capfd.readouterr().err


# --- too much ---------------------------------------------------------------------------------------------------------


def test_too_many_requests_are_refused_then_accepted_again(surroundings):
    server = Running(rate=0.5, burst=5)
    try:
        answers = [server.get("/api/status").status for _ in range(30)]
        assert answers[0] == 200
        assert 429 in answers
        until(lambda: server.get("/api/status").status == 200)
    finally:
        server.close()


def test_strangers_do_not_use_up_the_requests_of_the_page(surroundings):
    server = Running(rate=0.01, burst=10)
    try:
        assert 429 in [server.get("/api/status", cookie=None).status for _ in range(12)]
        assert server.get("/api/status").status == 200
    finally:
        server.close()


def test_strangers_do_not_use_up_the_exchange_of_tokens(surroundings):
    server = Running(rate=0.01, burst=10)
    try:
        assert 429 in [server.get("/?token=guess", cookie=None).status for _ in range(12)]
        assert server.enter()
        assert server.get("/?token=guess", cookie=None).status == 429
    finally:
        server.close()


@contextlib.contextmanager
def connections(server, number, text=b""):
    """Connections that have sent some text and wait."""
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(number):
            found.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=LONG)))
            with contextlib.suppress(ConnectionError):  # it was closed to make room
                found[-1].sendall(text)
        yield found


def closed(connection):
    """Wait until the server has closed a connection; what it sent before."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(4096):
            found += part
    return found


HALF = b"GET /api/models HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "


@pytest.mark.parametrize("text", [b"", HALF], ids=["idle", "half a request"])
def test_connections_of_strangers_shut_nobody_out(fresh, text):
    kept = http.client.HTTPConnection("127.0.0.1", fresh.port, timeout=LONG)
    kept.request("GET", "/api/status", headers={"Cookie": fresh.session})
    kept.getresponse().read()
    with connections(fresh, 300, text) as held:
        assert fresh.get("/api/status").status == 200
        assert fresh.enter()
        closed(held[0])  # the oldest made room
        until(lambda: len(fresh.server.server_state.connections) <= bounds.MOST_STRANGERS + 1)
        kept.request("GET", "/api/status", headers={"Cookie": fresh.session})  # the reader's own was spared
        assert kept.getresponse().status == 200
    kept.close()


@pytest.mark.parametrize(
    "text",
    [b"", HALF, b"POST /api/theory HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"],
    ids=["idle", "head", "body"],
)
def test_a_request_that_is_not_completed_is_ended(fresh, monkeypatch, text):
    monkeypatch.setattr(bounds, "REQUEST_SECONDS", 0.2)
    with connections(fresh, 1, text) as (held,):
        assert closed(held).split(b" ")[1] in (b"408", b"421")


def test_a_body_of_the_reader_that_does_not_come_is_ended(fresh, monkeypatch):
    monkeypatch.setattr(bounds, "REQUEST_SECONDS", 0.2)
    head = "".join(f"{n}: {v}\r\n" for n, v in json_headers(fresh, Cookie=fresh.session).items())
    text = f"POST /api/theory HTTP/1.1\r\nHost: 127.0.0.1:{fresh.port}\r\n{head}Content-Length: 9\r\n\r\n{{"
    with connections(fresh, 1, text.encode()) as (held,):
        assert not closed(held).startswith(b"HTTP/1.1 200")  # the server ends the connection


def test_one_session_holds_only_so_many_connections(fresh):
    request = f"GET /api/status HTTP/1.1\r\nHost: 127.0.0.1:{fresh.port}\r\nCookie: {fresh.session}\r\n\r\n".encode()
    with connections(fresh, bounds.MOST_OF_A_SESSION + 8, request) as held:
        assert closed(held[0]).startswith(b"HTTP/1.1 200")
        until(lambda: len(fresh.server.server_state.connections) <= bounds.MOST_OF_A_SESSION)
        assert fresh.get("/api/status").status == 200


@pytest.mark.parametrize(
    "text", ['\\"' * 100_000, '"' * 100_000, '"' + "\\" * 100_001, '"\\\n' * 50_000, '"a' * 100_000], ids=ascii
)
def test_the_nesting_of_a_text_is_found_by_looking_at_it_once(text):
    """Steps are counted, not seconds: a scan that starts again at every quote would need 10^9 of them."""
    found = sum(len(m[0]) for m in security._MARKS.finditer(text))
    assert found <= len(text)
    first = security._MARKS.search(text)
    assert first is not None
    for at in range(0, len(text), 9973):  # every quote begins a match, so that no scan is in vain
        if text[at] == '"':
            assert security._MARKS.match(text, at)
    assert security._depth(text) == 0


def test_brackets_in_strings_are_not_nesting():
    assert security._depth(r'{"[[[\"[[": [1, "]", {"\\": [2]}]}') == 4


def test_the_server_is_generous_to_a_page():
    assert security.RATE >= 50
    assert security.BURST >= 200


def test_too_many_simulations_are_refused(fresh):
    """Sessions queue behind each other, and the queue is short."""
    sleepy = {"model": "sleepy", "values": {"delay": 600.0}, "sizes": [2], "seeds": 2}
    sessions = [fresh.enter() for _ in range(8)]
    statuses = [fresh.post("/api/simulate", {"view": sleepy}, cookie=s).status for s in sessions]
    assert statuses[:5] == [202] * 5
    assert statuses[-1] == 429


def test_simulations_of_other_sessions_are_inaccessible(fresh):
    sleepy = {"model": "sleepy", "values": {"delay": 600.0}, "sizes": [2], "seeds": 2}
    job = fresh.post("/api/simulate", {"view": sleepy}).json["job"]
    other = fresh.enter()
    assert len(job) >= 16
    assert fresh.get(f"/api/jobs/{job}/events", cookie=other).status == 404
    assert fresh.post(f"/api/jobs/{job}/cancel", {}, cookie=other).status == 404
    assert not fresh.explorer.jobs.jobs[job].ended
    response = fresh.post("/api/export", {"view": sleepy, "format": "csv", "job": job}, cookie=other)
    assert response.error == "there is no such simulation."
    for guess in ("x", job[:-1], job + "a", job.swapcase(), "%00", "a" * 5000):
        assert fresh.get(f"/api/jobs/{guess}/events").status in (400, 404)


def test_too_many_curves_at_once_are_refused(fresh, monkeypatch):
    monkeypatch.setattr("solvable.explorer.theory.MOST_OPEN", 0)
    assert fresh.post("/api/theory", {"view": VIEW}).status == 429


# --- a hostile run ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(surroundings, tmp_path_factory):
    from toys import Toy

    run = tmp_path_factory.mktemp("stored") / "run"
    sv.Study(Toy(), {"samples": [1.0, 2.0]}, sizes=[20], seeds=2).run(run, progress=False)
    return run


@pytest.fixture
def run(stored, tmp_path):
    import shutil

    return Path(shutil.copytree(stored, tmp_path / "run"))


def refused(run):
    from solvable.errors import SolvableError
    from solvable.explorer.command import open_study

    with pytest.raises(SolvableError) as header:
        open_study(run)
    assert "\n" not in str(header.value)
    return str(header.value)


def test_a_sound_run_is_opened(run):
    from solvable.explorer.command import open_study

    assert open_study(run).sizes == [20]


class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


def test_a_pickle_in_a_run_is_not_loaded(run, tmp_path):
    block = next((run / "blocks").rglob("*.npz"))
    block.write_bytes(pickle.dumps(Bomb(tmp_path / "was-here")))
    assert "damaged" in refused(run)
    assert not (tmp_path / "was-here").exists()


def test_links_out_of_a_run_are_not_followed(run, tmp_path):
    (tmp_path / "secret.json").write_text('{"a": 1}')
    document = next((run / "documents").glob("study-*.json"))
    document.unlink()
    document.symlink_to(tmp_path / "secret.json")
    assert "symbolic link" in refused(run)


def test_a_run_that_names_an_unknown_model_is_refused(run):
    document = next((run / "documents").glob("study-*.json"))
    document.write_text(document.read_text().replace('"toy"', '"os:system"'))
    refused(run)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "null", "[" * 100_000, '{"models": 3}', '{"models": {"toy": {}}, "several": false}', "\x00"],
)
def test_a_run_with_an_invalid_study_is_refused(run, text):
    next((run / "documents").glob("study-*.json")).write_text(text)
    refused(run)


def test_a_run_that_names_too_many_cells_is_refused(run):
    from solvable.lab._records import document_file, document_in

    document = next((run / "documents").glob("study-*.json"))
    study = document_in(document.read_bytes())
    study |= {"seeds": list(range(200_000)), "sizes": list(range(10, 1000))}
    document.write_bytes(document_file(study))
    assert "cells" in refused(run)


def test_a_pipe_in_a_run_is_refused_without_waiting(run):
    for file in (
        next((run / "documents").glob("study-*.json")),
        next((run / "blocks").rglob("*.npz")),
        run / "run.json",
    ):
        kept = file.read_bytes()
        file.unlink()
        os.mkfifo(file)
        refused(run)
        file.unlink()
        file.write_bytes(kept)


def test_a_block_that_claims_more_than_it_holds_is_refused(run):
    """A compressed archive that unfolds to gigabytes, and a header of eight terabytes, both with a valid manifest."""
    import io
    import zipfile

    import numpy as np

    from solvable.lab.store import Store

    store = Store.open(run)
    block = next(iter(store.done()))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    for method, body in ((zipfile.ZIP_DEFLATED, bytes(10_000_000)), (zipfile.ZIP_STORED, header.getvalue())):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", method) as archive:
            archive.writestr("test_error.npy", body)
        data = buffer.getvalue()
        Path(store.block_file(block)).write_bytes(data)
        record = {
            "block": block,
            "sha256": hashlib.sha256(data).hexdigest(),
            "bytes": len(data),
            "time": "2000",
            "meta": {},
        }
        with next((run / "manifests").glob("*.jsonl")).open("ab") as manifest:
            manifest.write(manifest_line(record))
        refused(run)


def test_a_request_cannot_name_a_path(stored):
    server = Running(sv.open(stored), stored)
    try:
        for header in (
            {"x": "../../etc/passwd"},
            {"run": "/etc"},
            {"at": {"path": "/etc/passwd"}},
            {"observables": ["/etc"]},
        ):
            response = server.post("/api/study/series", header)
            assert response.status in (400, 422)
            assert b"root:" not in response.body
    finally:
        server.close()
