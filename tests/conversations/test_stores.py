"""Each store does the same: a lease that one token has, writes in one step that nobody else can make, and lists."""

import anyio
import pytest

from toolkit.conversation_stores import StoredChange
from toolkit.conversations import ConversationStore

pytestmark = pytest.mark.anyio


def change(version: int, *texts: str, start: int = 0, taken: int = 0, ends: bool = False) -> StoredChange:
    messages = {start + place: text for place, text in enumerate(texts)}
    return StoredChange(
        version=version, length=start + len(texts), messages=messages, state=f"s{version}", taken=taken, ends=ends
    )


async def test_a_lease_is_of_one_token_and_its_writes_are_read_as_they_were_made(store: ConversationStore) -> None:
    assert await store.read("a") is None
    begun = await store.acquire("a", "t1", 60)
    assert begun is not None
    assert (begun.version, begun.messages, begun.state, begun.queue) == (0, (), "", ())
    assert await store.acquire("a", "t2", 60) is None
    assert await store.acquire("a", "t1", 60) is not None  # the same step again
    assert await store.write("a", "t1", change(1, "eins", "zwei ü", "drei"), 60) == "written"
    assert await store.write("a", "t1", change(2, "ZWEI", start=1), 60) == "written"
    assert await store.write("a", "t2", change(3, "other"), 60) == "lost"
    read = await store.read("a")
    assert read is not None
    assert (read.version, read.messages, read.state, read.is_busy) == (2, ("eins", "ZWEI"), "s2", True)
    assert await store.write("a", "t1", change(3, start=2, ends=True), 60) == "written"
    read = await store.read("a")
    assert read is not None
    assert not read.is_busy
    taken = await store.acquire("a", "t2", 60)
    assert taken is not None
    assert taken.messages == ("eins", "ZWEI")


async def test_a_step_that_is_done_twice_is_done_once(store: ConversationStore) -> None:
    await store.acquire("a", "t1", 60)
    assert await store.enqueue("a", "q1")
    assert await store.enqueue("a", "q2")
    for _ in range(2):
        assert await store.write("a", "t1", change(1, "x", taken=1), 60) == "written"
    read = await store.read("a")
    assert read is not None
    assert read.queue == ("q2",)
    for _ in range(2):
        assert await store.write("a", "t1", change(2, "x", taken=1, ends=True), 60) == "written"
    await store.acquire("a", "t2", 60)
    assert [await store.delete("a", "t2") for _ in range(2)] == [True, True]
    assert await store.read("a") is None


async def test_a_lease_does_not_end_over_a_question_in_line_and_nobody_queues_behind_nobody(
    store: ConversationStore,
) -> None:
    assert not await store.enqueue("a", "q")
    await store.acquire("a", "t1", 60)
    assert await store.enqueue("a", "q1")
    assert await store.write("a", "t1", change(1, "x", ends=True), 60) == "queued"
    read = await store.read("a")
    assert read is not None
    assert (read.version, read.messages, read.queue, read.is_busy) == (0, (), ("q1",), True)
    assert await store.write("a", "t1", change(1, "x", taken=1, ends=True), 60) == "written"
    assert not await store.enqueue("a", "q2")


async def test_a_lease_that_ran_out_is_anybodys_and_whoever_had_it_can_write_nothing(store: ConversationStore) -> None:
    await store.acquire("a", "frozen", 60)
    assert await store.write("a", "frozen", change(1, "question"), 60) == "written"
    assert await store.renew("a", "frozen", 0)
    assert not await store.enqueue("a", "q")
    taken = await store.acquire("a", "next", 60)
    assert taken is not None
    assert taken.messages == ("question",)
    assert not await store.renew("a", "frozen", 60)
    assert await store.write("a", "frozen", change(2, "question", "late"), 60) == "lost"
    assert await store.write("a", "frozen", change(2, "question", "late", ends=True), 60) == "lost"
    assert not await store.delete("a", "frozen")
    assert await store.write("a", "next", change(2, "answer", start=1, ends=True), 60) == "written"


async def test_a_list_begins_with_the_last_written_and_goes_on_from_page_to_page(store: ConversationStore) -> None:
    names = [f"ada/{number}" for number in range(5)] + ["bob/1", "ada_2", "ad%"]
    for name in names:
        await store.acquire(name, "t", 60)
        await store.write(name, "t", change(1, "x", "y", ends=True), 60)
        await anyio.sleep(0.003)  # the clock of a list counts milliseconds
    await store.acquire("ada/1", "t2", 60)
    await store.write("ada/1", "t2", change(2, "x", ends=True), 60)
    first = await store.list_entries("ada/", 3, None)
    rest = await store.list_entries("ada/", 3, first[-1])
    assert [each.id for each in [*first, *rest]] == ["ada/1", "ada/4", "ada/3", "ada/2", "ada/0"]
    assert (first[0].version, first[0].length, first[1].length) == (2, 1, 2)
    assert [each.id for each in await store.list_entries("ad%", 9, None)] == ["ad%"]
    assert len(await store.list_entries("", 99, None)) == len(names)


async def test_of_many_at_once_one_gets_the_lease(store: ConversationStore) -> None:
    tokens: list[str] = []

    async def acquire(token: str) -> None:
        if await store.acquire("a", token, 60) is not None:
            tokens.append(token)

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(acquire, f"t{number}")
    assert len(tokens) == 1


async def test_ids_that_look_like_keys_or_patterns_of_a_store_are_ids_like_others(store: ConversationStore) -> None:
    ids = ["ada/1", "ada/1:messages", "ada/1:queue", "index", "Ada/1", "ada_1", "adaX1", "a%b", "aXb"]
    for name in ids:
        await store.acquire(name, name, 60)
        change = StoredChange(version=1, length=1, messages={0: f"of {name}"}, state="s")
        assert await store.write(name, name, change, 60) == "written"
        assert await store.enqueue(name, f"in line for {name}")
    for name in ids:
        found = await store.read(name)
        assert found is not None
        assert (list(found.messages), list(found.queue)) == ([f"of {name}"], [f"in line for {name}"])
    for prefix in ("ada/", "Ada", "ada_", "a%", "index", ""):
        listed = [each.id for each in await store.list_entries(prefix, 100, None)]
        assert sorted(listed) == sorted(name for name in ids if name.startswith(prefix)), prefix
