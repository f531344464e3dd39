"""Secrets are struck out, and nothing else."""

from dataclasses import dataclass
from typing import Any

import pytest

from toolkit.redaction import Scrubber


@dataclass(frozen=True)
class Case:
    name: str
    plain: Any
    scrubbed: Any


GONE = "***"
LOOKS_LIKE_A_KEY = "sk-proj-" + "a1B2" * 8
CASES = [
    Case(
        "fields of options",
        {"options": {"api_key": "x", "extra_headers": {"X-Api-Key": "x", "Authorization": "x", "Accept": "x"}}},
        {"options": {"api_key": GONE, "extra_headers": {"X-Api-Key": GONE, "Authorization": GONE, "Accept": "x"}}},
    ),
    Case(
        "words of camel case",
        {"options": {"accessToken": "x", "clientSecret": "x", "APIKey": "x", "keyboard": "x", "tokenizer": "x"}},
        {"options": {"accessToken": GONE, "clientSecret": GONE, "APIKey": GONE, "keyboard": "x", "tokenizer": "x"}},
    ),
    Case(
        "headers and queries of neutral names",
        {
            "options": {
                "extra_headers": {"X-Tenant": "acme"},
                "extra_query": {"v": "abcd"},
                "extra_body": {"top_k": "x"},
            }
        },
        {"options": {"extra_headers": {"X-Tenant": GONE}, "extra_query": {"v": GONE}, "extra_body": {"top_k": "x"}}},
    ),
    Case("several", {"options": {"api_keys": ["x", "y", 3]}}, {"options": {"api_keys": GONE}}),
    Case("all below a telling name", {"options": {"auth": {"value": "x"}}}, {"options": {"auth": GONE}}),
    Case("a list below one", {"arguments": {"tokens_of": [{"by": "x"}]}}, {"arguments": {"tokens_of": GONE}}),
    Case(
        "a name beside its value",
        {"arguments": {"env": [{"name": "DB_PASSWORD", "value": "x"}, {"name": "MODE", "value": "y"}]}},
        {"arguments": {"env": [{"name": "DB_PASSWORD", "value": GONE}, {"name": "MODE", "value": "y"}]}},
    ),
    Case(
        "a field of a form beside its text",
        {"arguments": {"fill": [{"selector": "#password", "text": "x"}, {"element": "City", "text": "Rome"}]}},
        {"arguments": {"fill": [{"selector": "#password", "text": GONE}, {"element": "City", "text": "Rome"}]}},
    ),
    Case(
        "headers as pairs",
        {"arguments": {"headers": [["Authorization", "ab12"], ["Accept", "ab12"]], "sort": ["key", "name"]}},
        {"arguments": {"headers": [["Authorization", GONE], ["Accept", "ab12"]], "sort": ["key", "name"]}},
    ),
    Case(
        "what follows an option",
        {"arguments": {"argv": ["psql", "--password", "abcd", "--token", "-v", "--user", "ada"]}},
        {"arguments": {"argv": ["psql", "--password", GONE, "--token", "-v", "--user", "ada"]}},
    ),
    Case(
        "lists side by side",
        {"arguments": {"names": ["user", "password"], "values": ["ada", "x"], "sort": ["user", "age"]}},
        {"arguments": {"names": ["user", "password"], "values": ["ada", GONE], "sort": ["user", "age"]}},
    ),
    Case(
        "rows beside the names of their columns",
        {"arguments": {"columns": [{"name": "user"}, {"name": "token"}], "rows": [["ada", "x"], ["bob", "y"]]}},
        {"arguments": {"columns": [{"name": "user"}, {"name": "token"}], "rows": [["ada", GONE], ["bob", GONE]]}},
    ),
    Case(
        "values below the head of a table, and behind names in rows of two",
        {"arguments": {"a": [["user", "api key"], ["ada", "x"]], "b": [["user", "ada"], ["password", "x"]]}},
        {"arguments": {"a": [["user", "api key"], ["ada", GONE]], "b": [["user", "ada"], ["password", GONE]]}},
    ),
    Case(
        "a value beside a mark, a question, a name of a secret",
        {
            "arguments": [
                {"name": "a", "sensitive": True, "newValue": "x"},
                {"question": "What is your password?", "answer": "x"},
                {"secret_name": "a", "value": "x"},
                {"title": "Password rules", "text": "x"},
                {"path": "src/auth/login.py", "content": "x"},
            ]
        },
        {
            "arguments": [
                {"name": "a", "sensitive": True, "newValue": GONE},
                {"question": "What is your password?", "answer": GONE},
                {"secret_name": "a", "value": GONE},
                {"title": "Password rules", "text": "x"},
                {"path": "src/auth/login.py", "content": "x"},
            ]
        },
    ),
    Case(
        "headers in lists",
        {"arguments": {"headers": ["X-Tenant: x", "Accept: x"], "extra_headers": [{"name": "X-Tenant", "value": "x"}]}},
        {"arguments": {"headers": [GONE, "Accept: x"], "extra_headers": [{"name": "X-Tenant", "value": GONE}]}},
    ),
    Case(
        "names that only contain a telling word",
        {"arguments": {"hockey": "x", "auth_type": "x", "password_length": 12, "pinCount": 8, "authority": "x"}},
        {"arguments": {"hockey": "x", "auth_type": "x", "password_length": 12, "pinCount": 8, "authority": "x"}},
    ),
    Case("tokens", {"arguments": {"tokens": ["x"]}}, {"arguments": {"tokens": GONE}}),
    Case(
        "a count of tokens",
        {"output": {"tokens": 12, "a": '"tokens": 9'}},
        {"output": {"tokens": 12, "a": '"tokens": 9'}},
    ),
    Case(
        "defaults and examples of a tool",
        {
            "name": "log_in",
            "description": "",
            "parameters": {
                "properties": {
                    "password": {"type": "string", "default": "x", "examples": ["y"]},
                    "word": {"anyOf": [{"type": "string", "format": "password", "default": "x"}]},
                    "user": {"default": "ada"},
                    "login": {"default": {"token": "x", "n": 1}},
                },
            },
        },
        {
            "name": "log_in",
            "description": "",
            "parameters": {
                "properties": {
                    "password": {"type": "string"},
                    "word": {"anyOf": [{"type": "string", "format": "password"}]},
                    "user": {"default": "ada"},
                    "login": {},
                },
            },
        },
    ),
    Case(
        "an answer's headers",
        {"metadata": {"headers": {"set-cookie": "a=b"}}},
        {"metadata": {"headers": {"set-cookie": GONE}}},
    ),
    Case(
        "a signature in an address",
        "at https://b.example/?X-Amz-Signature=ab12&p=2",
        f"at https://b.example/?X-Amz-Signature={GONE}&p=2",
    ),
    Case("what a text says of a password", "password=hunter3", f"password={GONE}"),
    Case(
        "numbers, and not whether there is a secret",
        {"options": {"token": 5, "api_key": None, "session": True, "max_tokens": 5}},
        {"options": {"token": GONE, "api_key": None, "session": True, "max_tokens": 5}},
    ),
    Case("a key of data", {"arguments": {"key": "x", "issue_key": "y"}}, {"arguments": {"key": "x", "issue_key": "y"}}),
    Case("metadata", {"response": {"metadata": {"token": "x"}}}, {"response": {"metadata": {"token": GONE}}}),
    Case("names elsewhere stay", {"properties": {"password": "x"}}, {"properties": {"password": "x"}}),
    Case("keys in texts", ["a " + LOOKS_LIKE_A_KEY + "."], ["a " + GONE + "."]),
    *[
        Case(f"the key of {vendor}", f"with {key}, then", f"with {GONE}, then")
        for vendor, key in {
            "Groq": "gsk_" + "a1B2" * 10,
            "Hugging Face": "hf_" + "a1B2" * 9,
            "xAI": "xai-" + "a1B2" * 9,
            "GitHub": "github_pat_11AB_" + "a1B2" * 9,
            "Amazon": "AKIA" + "A1B2" * 4,
            "Google": "AQ.Ab8" + "a1B2" * 9,
            "Stripe": "sk_live_" + "a1B2" * 6,
            "whoever signs web tokens": "eyJ" + "a1B2" * 4 + ".eyJ" + "a1B2" * 4 + "." + "a1B2" * 4,
        }.items()
    ],
    Case("a private key", "-----BEGIN PRIVATE KEY-----\nMII=\n-----END", f"-----BEGIN PRIVATE KEY-----{GONE}-----END"),
    Case("a basic authorization", "Authorization: Basic YWRhOnBhc3M=", f"Authorization: Basic {GONE}"),
    Case("a bearer", ["Authorization: Bearer abcdefgh12345678=="], ["Authorization: Bearer " + GONE]),
    Case("a password in an address", "see https://ada:pass@host/x", f"see https://{GONE}@host/x"),
    Case("an address stays", "see https://host:80/x?a=b@c", "see https://host:80/x?a=b@c"),
    Case("what is told", {"text": "the hunter2 is in hunter22"}, {"text": f"the {GONE} is in {GONE}"}),
    Case("sealed texts stay", {"data": LOOKS_LIKE_A_KEY}, {"data": LOOKS_LIKE_A_KEY}),
    *[
        Case(f"{words} stays", words, words)
        for words in ("ask-me-anything-about-this task", "pk_users_organization_id_fkey", "basic responsibilities")
    ],
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_secrets_are_struck_out_and_the_rest_stays(case: Case) -> None:
    scrub = Scrubber(["hunter2", "", "hunter22"])
    assert scrub(case.plain) == case.scrubbed
    assert scrub(case.scrubbed) == case.scrubbed


def test_more_names_can_be_given() -> None:
    assert Scrubber(words=["Tenant"])({"options": {"user_tenant": "1", "api_key": "2", "color": "3"}}) == {
        "options": {"user_tenant": GONE, "api_key": GONE, "color": "3"}
    }


def test_a_secret_that_is_spread_over_deltas_is_struck_out_and_the_other_deltas_stay() -> None:
    end = {"response": {"message": {"content": [{"type": "text", "text": "the hunter2"}]}}}
    events: list[dict[str, Any]] = [
        {"reasoning": "Hm"},
        {"text": "the hun"},
        {"reasoning": "."},
        {"arguments": [0, "1", "log_in", '{"word": "hunt']},
        {"text": "ter2!"},
        {"arguments": [1, "2", "log_out", "{"]},
        {"arguments": [0, "1", "log_in", 'er2"}']},
        {"arguments": [1, "2", "log_out", "}"]},
        end,
    ]
    assert Scrubber(["hunter2"]).events(events) == [
        {"reasoning": "Hm"},
        {"text": f"the {GONE}!"},
        {"reasoning": "."},
        {"arguments": [0, "1", "log_in", f'{{"word": "{GONE}"}}']},
        {"arguments": [1, "2", "log_out", "{"]},
        {"arguments": [1, "2", "log_out", "}"]},
        {"response": {"message": {"content": [{"type": "text", "text": f"the {GONE}"}]}}},
    ]
