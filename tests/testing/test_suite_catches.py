"""The suite is worth something: adapters with the usual mistakes fail it, each at the test that is about it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
WHOLE = "test_whatever_is_said_is_heard_whole_and_in_pieces"
REFUSAL = "test_a_refusal_says_what_and_whether_to_try_again"
CAUGHT_BY = {
    "LosesCallIds": f"{WHOLE}[one call]",
    "SaysNoCost": "test_usage_tells_of_caches_and_reasoning[generate]",
    "AlwaysEndsItsTurn": "test_the_reason_to_stop_is_told[stream]",
    "LosesWhatWaits": "test_what_only_the_application_can_answer_ends_a_loop_by_its_name[stream]",
    "LosesItems": "test_each_kind_of_item_is_kept_and_goes_back[stream]",
    "TellsTheEndTwice": "test_many_deltas_are_one_text[stream]",
    "TellsArgumentsTwice": f"{WHOLE}[one call]",
    "LosesSpaces": f"{WHOLE}[text]",
    "ChangesTheMessages": "test_a_request_is_left_as_it_is[generate]",
    "RepeatsItsFirstRequest": "test_a_request_is_left_as_it_is[generate]",
    "ForgetsTheChoice": "test_the_choice_of_tools_is_asked_for",
    "DoesOneThingAtATime": "test_requests_may_run_side_by_side[generate]",
    "TriesAgain": f"{REFUSAL}[503]",
    "ShowsTheKey": f"{REFUSAL}[500]",
    "ForgetsTheStatus": f"{REFUSAL}[400]",
    "TakesACutForTheEnd": "test_a_stream_that_breaks_off_is_an_error_and_never_a_short_answer[cut]",
    "HasNoTime": "test_a_timeout_is_an_error_and_closes_the_connection[generate]",
    "LeavesStreamsOpen": "test_leaving_a_stream_closes_the_connection",
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
