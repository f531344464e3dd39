"""Who gets the page and what it gives, seen without a browser."""

import json
import socket
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from tests.run_log.planted_secrets import PLANTED
from tests.run_log.questions import find_question
from tests.ui.serving_viewer import ask, enter, viewer_of
from toolkit import ConfigurationError, ToolCall, ToolLoopConfig, ToolRegistry, tool, tool_loop_sync
from toolkit.run_log import RunLog, ask_on_page
from toolkit.testing import ScriptedProvider
from toolkit.ui import serve_viewer


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
def say(text: str) -> str:
    """Say."""
    return text


@pytest.fixture
def log(tmp_path: Path) -> RunLog:
    log = RunLog(tmp_path / "runs")
    provider = ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "It is 3."])
    tool_loop_sync(provider, ToolRegistry([add]), "1 + 2?", config=ToolLoopConfig(middleware=(log,)))
    return log


def test_only_a_page_that_was_let_in_gets_anything(log: RunLog) -> None:
    run_id = log.runs()[0].id
    paths = ["/runs", f"/runs/{run_id}/live", f"/runs/{run_id}/steps/0", f"/runs/{run_id}/export/test", "/nothing"]
    with viewer_of(log) as link:
        token = enter(link)
        wrong = ["", "Bearer", "Bearer wrong", "Bearer a.b", f"{token}x", token.partition(".")[0], token[:-1]]
        for path in paths:
            assert ask(link, path).status == 403
            for each in wrong:
                assert ask(link, path, Authorization=each).status == 403
            assert ask(link, path, Cookie=f"toolkit_viewer={token}").status == 403
            assert ask(link, f"{path}?token={token.split()[1]}&code={urlsplit(link).fragment}").status == 403
        assert "1 + 2?" not in ask(link, "/").text
        assert "1 + 2?" in ask(link, "/runs", Authorization=token).text


def test_a_link_opens_one_page_and_the_next_one_is_reported(log: RunLog) -> None:
    links: list[str] = []
    with viewer_of(log, on_ready=links.append) as link:
        first = enter(link)
        again = ask(link, "/page", method="POST", body=json.dumps({"code": urlsplit(link).fragment[5:]}))
        assert again.status == 403
        assert "opened already" in again.text
        for body in ("{}", '{"code": 5}', '{"code": ""}', "[]"):
            assert ask(link, "/page", method="POST", body=body).status == 403
        for body in ('{"code": "\\ud800"}', "[" * 60_000, '{"code": ' + "9" * 5_000 + "}", '{"a":' * 10_000, "{", "\0"):
            assert ask(link, "/page", method="POST", body=body).status == 400
        assert len(links) == 2
        second = enter(links[-1])
        assert first != second
        for token in (first, second):
            assert ask(link, "/runs", Authorization=token).status == 200
        assert not [name for name in ask(link, "/").headers if name == "set-cookie"]
        assert all("?" not in each and urlsplit(each).fragment for each in links)


def test_only_the_page_that_was_shown_a_question_can_answer_it(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs")
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log,), on_tool_call=ask_on_page(log))
    results: list[Any] = []

    def play() -> None:
        provider = ScriptedProvider([ToolCall("1", "add", '{"a": 1, "b": 2}'), "It is 3."])
        registry = ToolRegistry([add]).configured("add", requires_approval=True)
        results.append(tool_loop_sync(provider, registry, "1 + 2?", config=config))

    thread = threading.Thread(target=play)
    thread.start()
    question = anyio.run(find_question, log)["question"]
    run_id = log.runs()[0].id
    links: list[str] = []
    with viewer_of(log, on_ready=links.append) as link:
        page, other = enter(link), enter(links[-1])
        ask(link, f"/runs/{run_id}/steps/0", Authorization=page)
        steps = [
            (number, json.loads(ask(link, f"/runs/{run_id}/steps/{number}", Authorization=page).text))
            for number in range(6)
        ]
        [(step, shown)] = [(number, each["shown"]) for number, each in steps if _has_question(each)]
        right = {"question": question, "answer": "approve", "step": step, "shown": shown}

        def answer(token: str, **changes: Any) -> int:
            body = json.dumps({**right, **changes})
            return ask(link, f"/runs/{run_id}/answers", method="POST", body=body, Authorization=token).status

        assert answer(other) == 400
        assert answer(page, shown="") == 400
        assert answer(page, shown=None) == 400
        assert answer(page, step=step - 1) == 400
        assert answer(page, question="another") == 400
        assert not results
        assert answer(page) == 200
        thread.join(30)
    assert results[0].text == "It is 3."


def _has_question(answer: Any) -> bool:
    return any(section["kind"] == "question" for section in answer["sections"])


def test_it_answers_for_its_own_host_and_its_own_page_alone(log: RunLog) -> None:
    with viewer_of(log) as link:
        token, port = enter(link), urlsplit(link).port
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{(port or 0) + 1}", "localhost"):
            assert ask(link, "/runs", Authorization=token, Host=host).status == 421
        assert ask(link, "/runs", Authorization=token, Host=f"localhost:{port}").status == 200
        for origin in ("http://evil.example", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{port}"):
            assert ask(link, "/runs", Authorization=token, Origin=origin).status == 403
        assert ask(link, "/runs", Authorization=token, Origin=f"http://127.0.0.1:{port}").status == 200
        for site in ("cross-site", "same-site"):
            assert ask(link, "/runs", Authorization=token, Sec_Fetch_Site=site).status == 403


def test_the_page_may_run_only_what_is_its_own(log: RunLog) -> None:
    with viewer_of(log) as link:
        token = enter(link)
        pages = [ask(link, "/", Authorization=token) for _ in range(2)]
    policies = [page.headers["content-security-policy"] for page in pages]
    assert policies[0] != policies[1]
    for page, policy in zip(pages, policies, strict=True):
        nonce = policy.split("'nonce-")[1].split("'")[0]
        assert page.text.count(f'nonce="{nonce}"') == 2
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "{{" not in page.text
        assert page.headers["x-content-type-options"] == "nosniff"
        assert page.headers["cache-control"] == "no-store"
        assert not [word for word in (" onclick=", " onload=", " style=", "http://", "https://") if word in page.text]


def test_what_is_not_there_is_said_in_words(log: RunLog) -> None:
    run_id = log.runs()[0].id
    with viewer_of(log) as link:
        token = enter(link)

        def problem_of(path: str, body: object = None) -> str:
            method, sent = ("GET", None) if body is None else ("POST", json.dumps(body))
            answer = ask(link, path, method=method, body=sent, Authorization=token)
            assert answer.status == 400
            return str(json.loads(answer.text)["problem"])

        assert "there is no run 'abc'" in problem_of("/runs/abc/steps/0")
        assert "exported as lines, markdown, test" in problem_of(f"/runs/{run_id}/export/pdf")
        assert "an answer has a question" in problem_of(f"/runs/{run_id}/answers", {"answer": "maybe"})
        answer: dict[str, object] = {"question": "x", "answer": "approve"}
        assert "the step that was shown" in problem_of(f"/runs/{run_id}/answers", answer)
        answer |= {"step": 0, "shown": "x"}
        assert "not shown the question" in problem_of(f"/runs/{run_id}/answers", answer)
        assert "short" in problem_of(f"/runs/{run_id}/answers", {"reason": "x" * 100_000})
        assert ask(link, f"/runs/{run_id}/answers", method="POST", body="{", Authorization=token).status == 400
        assert json.loads(ask(link, f"/runs/{run_id}/steps/99", Authorization=token).text)["sections"] == []


def test_what_is_no_number_of_a_step_or_an_event_is_none(log: RunLog) -> None:
    run_id = log.runs()[0].id
    with viewer_of(log) as link:
        token = enter(link)
        for number in ("9" * 5_000, "%C2%B2", "-1", "x"):
            shown = ask(link, f"/runs/{run_id}/steps/{number}", Authorization=token)
            assert json.loads(shown.text)["sections"] == []
        whole = ask(link, f"/runs/{run_id}/live", Authorization=token).text
        mark = whole.partition("id: ")[2].partition("-")[0]
        for number in ("9" * 5_000, "\u00b2", "-1", "x"):
            place = {"Authorization": token, "Last_Event_ID": f"{mark}-{number}"}
            assert ask(link, f"/runs/{run_id}/live", **place).text == whole


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", b"GET / HTTP/1.1\r\nHost: $\r\n\r\nGET / HTT"])
def test_a_head_that_never_ends_closes_its_connection(
    log: RunLog, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkit.asgi_server._HEAD_SECONDS", 0.05)
    with viewer_of(log) as link:
        place = urlsplit(link)
        with socket.create_connection((place.hostname or "", place.port or 0), timeout=30) as stream:
            stream.sendall(sent.replace(b"$", place.netloc.encode()))
            while stream.recv(65_536):
                pass


def test_a_body_that_never_ends_is_given_up(log: RunLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolkit.asgi_server._BODY_SECONDS", 0.05)
    with viewer_of(log) as link:
        place = urlsplit(link)
        with socket.create_connection((place.hostname or "", place.port or 0), timeout=30) as stream:
            stream.sendall(f"POST /page HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: 9\r\n\r\n{{".encode())
            assert stream.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_run_is_exported_in_each_form(log: RunLog) -> None:
    run_id = log.runs()[0].id
    with viewer_of(log) as link:
        token = enter(link)
        texts = {
            form: ask(link, f"/runs/{run_id}/export/{form}", Authorization=token)
            for form in ("lines", "markdown", "test")
        }
    assert texts["lines"].text.startswith('{"toolkit_run":1,"event":"run_opened"')
    assert texts["markdown"].text.startswith(f"# Run {run_id}")
    assert f"def test_run_{run_id[:12]}" in texts["test"].text
    assert texts["markdown"].headers["content-disposition"] == f'attachment; filename="run-{run_id[:12]}.md"'


def test_nothing_that_it_gives_holds_a_planted_secret(tmp_path: Path) -> None:
    log = RunLog(tmp_path / "runs.db")
    texts = [planted.text for planted in PLANTED]
    replies: list[Any] = [
        *[ToolCall(str(at), "say", json.dumps({"text": text})) for at, text in enumerate(texts)],
        "\n".join(texts),
    ]
    config: ToolLoopConfig[None] = ToolLoopConfig(middleware=(log,), max_iterations=50)
    tool_loop_sync(ScriptedProvider(replies), ToolRegistry([say]), "\n".join(texts), config=config)
    run_id = log.runs()[0].id
    with viewer_of(log) as link:
        token = enter(link)
        paths = [
            "/runs",
            f"/runs/{run_id}/live",
            *(f"/runs/{run_id}/export/{form}" for form in ("lines", "markdown", "test")),
        ]
        shown = "\n".join([ask(link, path, Authorization=token).text for path in paths])
        count = shown.count('"say"')
        for number in range(3 * len(texts)):
            shown += ask(link, f"/runs/{run_id}/steps/{number}", Authorization=token).text
    assert count > 0
    assert [planted.kind for planted in PLANTED if planted.secret in shown] == []


def test_a_port_that_is_taken_is_said_in_words(log: RunLog) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ConfigurationError, match=f"port {port} of 127.0.0.1 can't be had .* give another port, or 0"
        ):
            anyio.run(serve_viewer, log, port)
    with pytest.raises(ConfigurationError, match="a port is a number from 0 to 65535, and 99999 is none"):
        anyio.run(serve_viewer, log, 99999)


def test_on_trio_it_says_what_to_do(log: RunLog) -> None:
    with pytest.raises(ConfigurationError, match="give viewer_app"):
        anyio.run(serve_viewer, log, backend="trio")
