"""Without the token, or under another host name, a client gets nothing. Only listed records can be requested."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path

import pytest

from fairway.diagnostics.errors import UserError
from fairway.record.ui.ui_server import SAFE_HEADERS, PageServer


def ask(server: PageServer, path: str, host: str | None = None, method: str = "GET") -> tuple[int, str, dict[str, str]]:
    """Status, body and headers; the token stands for @."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    headers = {} if host is None else {"Host": host}
    connection.request(method, path.replace("@", server.token), headers=headers)
    answer = connection.getresponse()
    said = answer.status, answer.read().decode(), dict(answer.getheaders())
    connection.close()
    return said


def listed(server: PageServer) -> dict[str, dict]:
    return {row["place"]: row for row in json.loads(ask(server, "/@/shelf")[1])["records"]}


@pytest.mark.parametrize("path", ["/", "/shelf", "//shelf", "/wrong/", "/wrong/shelf", "/@", "/@x/", "", "/%40/"])
def test_without_the_token_there_is_nothing(server: PageServer, path: str) -> None:
    status, said, _ = ask(server, path or "/?of=@")
    assert status == 403
    assert "records" not in said
    assert server.token not in said


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "0.0.0.0", "", "[::2]"])
def test_under_another_name_there_is_nothing_even_with_the_token(server: PageServer, host: str) -> None:
    assert ask(server, "/@/shelf", host)[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:9999", "LOCALHOST:1", "[::1]", "[::1]:8000"])
def test_the_loopback_has_several_names_and_a_tunnel_another_port(server: PageServer, host: str) -> None:
    assert ask(server, "/@/shelf", host)[0] == 200


def test_it_listens_on_the_loopback_alone(server: PageServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address.startswith(f"http://127.0.0.1:{server.server_port}/")
    assert len(server.token) >= 32


def test_two_servers_have_two_tokens(server: PageServer, shelf_folder: Path) -> None:
    with PageServer(shelf_folder) as other:
        assert other.token != server.token


@pytest.mark.parametrize(
    "path",
    [
        "/@/../../etc/passwd",
        "/@/report?of=../../../etc/passwd",
        "/@/report?of=%2e%2e%2fwrong",
        "/@/report",
        "/@/report?of=",
        "/@/wrong.fairway.json",
        "/@/report?of=wrong.onnx",
        "/@/%2e%2e/shelf",
        "/@/shelf/..",
    ],
)
def test_nothing_can_be_asked_for_by_its_path(server: PageServer, path: str) -> None:
    listed(server)
    status, said, _ = ask(server, path)
    assert status == 404
    assert "root:" not in said


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_nothing_but_reading_is_possible(server: PageServer, method: str) -> None:
    status, _, headers = ask(server, "/@/shelf", method=method)
    assert status == 501
    assert "Access-Control-Allow-Origin" not in headers


def test_every_answer_keeps_itself_out_of_frames_caches_and_other_sites(server: PageServer) -> None:
    for path in ("/@/", "/@/shelf", "/nothing", "/@/nothing"):
        headers = ask(server, path)[2]
        assert {key: headers[key] for key in SAFE_HEADERS} == SAFE_HEADERS
        assert "Set-Cookie" not in headers
        assert "Python" not in headers["Server"]


def test_a_record_is_shown_by_its_key_and_several_are_compared(server: PageServer) -> None:
    rows = listed(server)
    wrong, right = rows["wrong.onnx"]["key"], rows["right.onnx"]["key"]
    status, one, _ = ask(server, f"/@/report?of={wrong}")
    assert (status, "first-wrong" in one) == (200, True)
    status, both, _ = ask(server, f"/@/report?of={wrong}&of={right}")
    assert status == 200
    assert '"comparison":{' in both
    assert ask(server, f"/@/report?{'&'.join([f'of={right}'] * 9)}")[0] == 400
    assert ask(server, f"/@/report?of={right}&of={'0' * 24}")[0] == 404


def test_a_record_that_cannot_be_read_says_why(server: PageServer) -> None:
    status, said, _ = ask(server, f"/@/report?of={listed(server)['bad.onnx']['key']}")
    assert (status, said.startswith("FW115: bad.fairway.json: it is not JSON")) == (409, True)


def test_a_model_that_cannot_be_read_still_has_its_record_shown(server: PageServer) -> None:
    status, said, _ = ask(server, f"/@/report?of={listed(server)['older/changed.onnx']['key']}")
    assert status == 200
    assert "is missing or has changed, so its graph is not shown" in said


def test_garbage_on_the_line_leaves_the_server_alive(server: PageServer) -> None:
    for garbage in (b"\0\xff\r\n\r\n", b"GET\r\n\r\n", b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b""):
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as line:
            line.sendall(garbage)
            line.shutdown(socket.SHUT_WR)
            line.recv(1000)
    many = "&".join(f"a{n}=1" for n in range(100))
    assert ask(server, f"/@/report?{many}")[0] == 404
    assert ask(server, "/@/shelf")[0] == 200


def test_a_port_that_is_taken_is_said(server: PageServer, shelf_folder: Path) -> None:
    for port in (server.server_port, 99999):
        with pytest.raises(UserError) as error:
            PageServer(shelf_folder, port)
        assert error.value.finding.code == "FW006"
        assert f"--port {port}: " in error.value.finding.seen
