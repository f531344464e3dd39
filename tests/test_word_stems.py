"""Words by their stems."""

import pytest

from toolkit.word_stems import STOP_WORDS, list_stems, split_words, stem_word


@pytest.mark.parametrize(
    "forms",
    [
        "book books booked booking",
        "city cities",
        "stop stops stopped stopping",
        "make makes making",
        "address addresses",
        "box boxes",
        "status",
        "schedule schedules scheduled scheduling",
        "customer customers customer's customer\u2019s",
        "happy happily happiness",
    ],
)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len({stem_word(form) for form in forms.split()}) == 1


def test_other_words_have_other_stems() -> None:
    words = ["send", "sand", "light", "late", "red", "ring", "bus", "bed", "add", "odd", "string"]
    assert len({stem_word(word) for word in words}) == len(words)


def test_names_of_tools_are_words_too() -> None:
    assert split_words("getUserByID list_files HTTPServer") == [
        "get", "user", "by", "id", "list", "files", "http", "server",
    ]  # fmt: skip


def test_numbers_stay_whole() -> None:
    numbers = "3.5 kg, 1,200 people and 2026-01-05"
    assert split_words(numbers) == [
        "3.5",
        "kg",
        "1,200",
        "people",
        "and",
        "2026",
        "01",
        "05",
    ]


def test_words_that_say_nothing_are_left_out() -> None:
    assert list_stems("Could you please tell me what the weather is like?") == ["weather"]
    assert all(word == word.lower() for word in STOP_WORDS)


def test_other_scripts_are_words() -> None:
    assert split_words("Погода в Москве, 東京 und Köln") == ["погода", "в", "москве", "東京", "und", "köln"]
    assert list_stems("") == []
