"""The suite is worth something: adapters with the usual mistakes fail it, each at the test that is about it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
WHOLE = "test_both_methods_return_the_whole_response"
REFUSAL = "test_an_error_response_becomes_the_right_exception"
CAUGHT_BY = {
    "LosesCallIds": f"{WHOLE}[one call]",
    "SaysNoCost": "test_usage_includes_cache_and_reasoning_tokens[generate]",
    "AlwaysEndsItsTurn": "test_the_stop_reason_is_reported[stream]",
    "LosesWhatWaits": "test_an_item_for_the_application_ends_the_loop[stream]",
    "LosesItems": "test_each_kind_of_item_is_stored_and_sent_back[stream]",
    "TellsTheEndTwice": "test_many_deltas_join_to_one_text[stream]",
    "TellsArgumentsTwice": f"{WHOLE}[one call]",
    "LosesSpaces": f"{WHOLE}[text]",
    "ChangesTheMessages": "test_a_request_is_not_changed[generate]",
    "RepeatsItsFirstRequest": "test_a_request_is_not_changed[generate]",
    "ForgetsTheChoice": "test_the_tool_choice_is_sent",
    "DoesOneThingAtATime": "test_requests_may_run_concurrently[generate]",
    "TriesAgain": f"{REFUSAL}[503]",
    "ShowsTheKey": f"{REFUSAL}[500]",
    "ForgetsTheStatus": f"{REFUSAL}[400]",
    "TakesACutForTheEnd": "test_an_interrupted_stream_is_an_error[cut]",
    "HasNoTime": "test_a_timeout_is_an_error_and_closes_the_connection[generate]",
    "LeavesStreamsOpen": "test_closing_a_stream_closes_the_connection",
}


def test_adapters_with_the_usual_mistakes_fail_the_suite() -> None:
    tests = [f"tests/testing/wrong_adapters.py::Test{name}::{test}" for name, test in CAUGHT_BY.items()]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=no", "-rA", *tests],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=200,
    )
    assert [test for test in tests if f"FAILED {test}" not in run.stdout] == [], run.stdout
