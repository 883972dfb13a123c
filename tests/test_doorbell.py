"""``doorbell``: nothing is lost, nothing is taken for something else, and nobody waits for ever."""

from __future__ import annotations

import mmap
import multiprocessing
import threading
import time

import numpy as np
import pytest

from gymshm import doorbell, ordering
from gymshm.doorbell import LINE_WORDS, Doorbell, Doorbells
from gymshm.ordering import fence
from support import wait_until


class Pair:
    """Both sides in this process."""

    def __init__(self):
        self.memory = mmap.mmap(-1, 2 * LINE_WORDS * 8)
        lines = np.frombuffer(self.memory, np.int64).reshape(2, LINE_WORDS)
        one, other = multiprocessing.Pipe()
        self.ours = Doorbell(memoryview(lines[0]), memoryview(lines[1]), one)
        self.theirs = Doorbell(memoryview(lines[1]), memoryview(lines[0]), other)

    def close(self):
        self.ours.connection.close()
        self.theirs.connection.close()


@pytest.fixture
def pair():
    made = Pair()
    yield made
    made.close()


@pytest.fixture(params=[True, False], ids=["ordered stores", "weak order"])
def _memory_order(request, monkeypatch):
    monkeypatch.setattr(doorbell, "STORES_ARE_ORDERED", request.param)
    # Chosen when it was imported, as this machine needs it.
    chosen = ordering._pass_lock if request.param else ordering._pass_lock_twice
    monkeypatch.setattr(doorbell, "fence", chosen)


@pytest.fixture
def _long_sleeps(monkeypatch):
    """A sleeper that is not rung for sleeps longer than any test takes."""
    monkeypatch.setattr(doorbell, "SLEEP_SECONDS", 600.0)


class Other:
    """Does ``work`` in a thread of its own; ``join`` gives what it gave, or raises what it raised."""

    def __init__(self, work):
        self._work, self._result, self._error = work, None, None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self._result = self._work()
        except BaseException as error:
            self._error = error

    def join(self):
        self._thread.join(60)
        assert not self._thread.is_alive(), "it waits for ever"
        if self._error is not None:
            raise self._error
        return self._result


def wait_for(bell, sequence):
    """What both sides do: look, spin, sleep."""
    while not bell.spin(sequence):
        bell.sleep(sequence, 600.0)
    return bell.said()


@pytest.mark.usefixtures("_memory_order")
@pytest.mark.parametrize("message", [(1, 0, 0), (7, 255, 65535), (1 << 38, 3, 1)])
def test_a_message_arrives_whole(pair, message):
    pair.ours.signal(*message)
    assert pair.theirs.said() == message


@pytest.mark.usefixtures("_memory_order")
def test_a_number_is_heard_once_it_or_a_later_one_was_announced(pair):
    assert not pair.theirs.heard(1)
    pair.ours.post(2, 255, 65535)
    assert pair.theirs.heard(1)
    assert pair.theirs.heard(2)
    assert not pair.theirs.heard(3)


def test_each_side_hears_the_other_and_not_itself(pair):
    pair.ours.post(5, 1)
    assert pair.theirs.heard(5)
    assert not pair.ours.heard(1)


def test_clear_makes_both_lines_new(pair):
    pair.ours.post(5, 1)
    pair.theirs.post(4, 1)
    pair.ours.clear()
    assert pair.theirs.said() == pair.ours.said() == (0, 0, 0)


def test_a_spin_ends_without_an_announcement(pair):
    assert not pair.ours.spin(1)


@pytest.mark.usefixtures("_memory_order")
def test_a_spin_sees_what_was_announced(pair):
    pair.ours.signal(1, 2)
    assert pair.theirs.spin(1)


def test_who_is_awake_is_not_rung(pair):
    pair.ours.signal(1, 0)
    assert not pair.theirs.connection.poll()


@pytest.mark.usefixtures("_long_sleeps", "_memory_order")
def test_who_sleeps_is_rung(pair):
    waiter = Other(lambda: wait_for(pair.theirs, 1))
    # However long this takes, the waiter spins or sleeps meanwhile.
    for _ in range(3):
        assert not pair.ours.spin(1)
    pair.ours.signal(1, 7, 9)
    assert waiter.join() == (1, 7, 9)


def test_who_sleeps_for_a_count_is_rung_once_it_is_reached(pair):
    def count() -> int:
        asked.append(counted)
        return counted

    asked: list[int] = []
    counted = 5
    pair.ours.ring_at(count)
    assert asked == []  # nobody sleeps
    pair.theirs.lie_down(until=5)
    counted = 4
    pair.ours.ring_at(count)
    assert not pair.theirs.connection.poll()
    counted = 5
    pair.ours.ring_at(count)
    pair.theirs.drop_ring()
    assert asked == [4, 5]
    pair.theirs.get_up()
    pair.ours.ring_at(count)
    assert not pair.theirs.connection.poll()


def test_who_sleeps_for_anything_is_rung_at_any_count(pair):
    pair.theirs.lie_down(until=5)
    pair.theirs.get_up()
    pair.theirs.lie_down()
    pair.ours.ring_at(lambda: 0)
    pair.theirs.drop_ring()


@pytest.mark.usefixtures("_long_sleeps")
def test_sleep_returns_at_once_if_the_number_is_there(pair):
    pair.ours.post(1, 0)
    assert pair.theirs.sleep(1, 600.0)


def test_sleep_is_bounded_by_the_seconds_that_are_given(pair):
    pair.theirs.sleep(1, 0.0)
    assert not pair.theirs.heard(1)


def test_a_lost_ring_costs_a_moment_and_no_more(pair, monkeypatch):
    monkeypatch.setattr(doorbell, "SLEEP_SECONDS", 0.01)
    waiter = Other(lambda: wait_for(pair.theirs, 1))
    for _ in range(3):
        assert not pair.ours.spin(1)
    pair.ours.post(1, 7, 9)  # and nobody rings
    assert waiter.join() == (1, 7, 9)


@pytest.mark.usefixtures("_long_sleeps")
def test_a_stale_ring_wakes_and_is_used_up(pair):
    pair.ours.connection.send_bytes(b"")
    pair.theirs.sleep(1, 600.0)
    assert not pair.theirs.heard(1)
    assert not pair.theirs.connection.poll()


def test_rings_in_front_of_a_payload_are_passed_over(pair):
    for packet in (b"", b"", b"payload", b"", b"next"):
        pair.ours.connection.send_bytes(packet)
    assert pair.theirs.receive() == b"payload"
    assert pair.theirs.receive() == b"next"


@pytest.mark.usefixtures("_long_sleeps", "_memory_order")
def test_a_sleeper_never_takes_a_payload_for_a_ring(pair):
    for sequence in range(1, 200):
        waiter = Other(lambda sequence=sequence: (wait_for(pair.theirs, sequence), pair.theirs.receive()))
        if sequence % 2:
            assert not pair.ours.spin(1)
        pair.ours.signal(sequence, 1)
        pair.ours.connection.send_bytes(b"%d" % sequence)
        assert waiter.join() == ((sequence, 1, 0), b"%d" % sequence)


def test_a_sleeper_is_told_that_a_process_ended(pair, monkeypatch):
    monkeypatch.setattr(doorbell, "SLEEP_SECONDS", 600.0)
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    start = time.monotonic()
    assert not pair.theirs.sleep(1, 600.0, [process.sentinel])
    assert time.monotonic() - start < 300
    process.join()
    process.close()


@pytest.mark.usefixtures("_long_sleeps")
def test_a_sleeper_is_told_that_the_other_side_is_gone(pair):
    pair.ours.connection.close()
    with pytest.raises((EOFError, OSError)):
        pair.theirs.sleep(1, 600.0)


@pytest.mark.usefixtures("_long_sleeps")
def test_what_was_said_before_the_end_is_heard(pair):
    pair.ours.signal(1, 3)
    pair.ours.connection.close()
    assert wait_for(pair.theirs, 1) == (1, 3, 0)
    with pytest.raises((EOFError, OSError)):
        pair.theirs.receive()


def test_ringing_who_died_in_its_sleep_is_an_error(pair):
    process = multiprocessing.get_context("fork").Process(target=echo_process, args=(pair, 1), daemon=True)
    process.start()
    pair.theirs.connection.close()
    wait_until(lambda: any(pair.memory[LINE_WORDS * 8 :]))  # its line says that it sleeps
    process.kill()
    process.join(60)
    process.close()
    with pytest.raises(OSError, match="Broken pipe"):
        pair.ours.signal(1, 0)


@pytest.mark.usefixtures("_long_sleeps")
def test_big_payloads_go_both_ways(pair):
    def echo():
        for sequence in (1, 2):
            wait_for(pair.theirs, sequence)
            payload = pair.theirs.receive()
            pair.theirs.signal(sequence, 1)
            pair.theirs.connection.send_bytes(payload[::-1])

    other = Other(echo)
    for sequence in (1, 2):
        payload = np.random.default_rng(sequence).bytes(8 << 20)
        pair.ours.signal(sequence, 1)
        pair.ours.connection.send_bytes(payload)
        wait_for(pair.ours, sequence)
        assert pair.ours.receive() == payload[::-1]
    other.join()


def echo_process(pair, rounds):
    """Answers each number with the same words; with a payload, if one came."""
    pair.ours.connection.close()
    for sequence in range(1, rounds + 1):
        _, word, argument = wait_for(pair.theirs, sequence)
        payload = pair.theirs.receive() if word else None
        pair.theirs.signal(sequence, word, argument)
        if payload is not None:
            pair.theirs.connection.send_bytes(payload)


@pytest.mark.usefixtures("_long_sleeps", "_memory_order")
def test_thousands_of_round_trips_with_a_process_lose_nothing(pair):
    rounds, random = 5000, np.random.default_rng(5)
    process = multiprocessing.get_context("fork").Process(target=echo_process, args=(pair, rounds), daemon=True)
    process.start()
    for sequence in range(1, rounds + 1):
        payload = random.bytes(random.integers(1, 300)) if random.random() < 0.3 else None
        if random.random() < 0.01:
            pair.ours.spin(1 << 30)  # meanwhile the other side falls asleep
        pair.ours.signal(sequence, int(payload is not None), sequence % 65536)
        if payload is not None:
            pair.ours.connection.send_bytes(payload)
        assert wait_for(pair.ours, sequence) == (sequence, int(payload is not None), sequence % 65536)
        if payload is not None:
            assert pair.ours.receive() == payload
    process.join(60)
    assert process.exitcode == 0
    process.close()


class Pairs:
    """Several pairs, one side's bells taken together."""

    def __init__(self, count):
        self._pairs = [Pair() for _ in range(count)]
        self.theirs = [pair.theirs for pair in self._pairs]
        self.ours = Doorbells([pair.ours for pair in self._pairs])

    def close(self):
        for pair in self._pairs:
            pair.close()


@pytest.fixture
def pairs():
    made = Pairs(3)
    yield made
    made.close()


@pytest.mark.usefixtures("_memory_order")
def test_all_are_told_the_same(pairs):
    assert list(pairs.ours.post(7, 255, 65535)) == []
    assert [bell.said() for bell in pairs.theirs] == [(7, 255, 65535)] * 3


def test_who_tells_all_learns_who_sleeps(pairs):
    pairs.theirs[1].lie_down()
    assert list(pairs.ours.post(1, 0)) == [1]
    pairs.theirs[0].lie_down()
    assert list(pairs.ours.post(2, 0)) == [0, 1]
    pairs.theirs[0].get_up()
    pairs.theirs[1].get_up()
    assert list(pairs.ours.post(3, 0)) == []
    assert not any(bell.connection.poll() for bell in pairs.theirs)  # nobody was rung: that is the caller's to do


@pytest.mark.usefixtures("_memory_order")
def test_all_are_heard_once_the_last_has_said_it(pairs):
    for bell in pairs.theirs:
        assert not pairs.ours.spin(4)
        bell.signal(4, 0)
    assert pairs.ours.spin(4)
    assert not pairs.ours.spin(5)


@pytest.mark.parametrize(("word", "argument"), [(1, 0), (255, 0), (0, 1), (0, 65535)])
def test_who_says_more_than_the_number_is_noticed(pairs, word, argument):
    for bell in pairs.theirs[:2]:
        bell.signal(4, 0)
    pairs.theirs[2].signal(4, word, argument)
    assert not pairs.ours.spin(4)


def test_a_bell_that_is_made_anew_over_its_lines_is_heard_among_the_others():
    made = Pairs(2)
    try:
        memory = made._pairs[1].memory
        lines = np.frombuffer(memory, np.int64).reshape(2, LINE_WORDS)
        made.theirs[0].signal(1, 0)
        Doorbell(memoryview(lines[1]), memoryview(lines[0]), made.theirs[1].connection).signal(1, 0)
        assert made.ours.spin(1)
    finally:
        made.close()


def test_a_fork_in_the_middle_of_a_fence_leaves_the_child_a_fence_that_works():
    with ordering._lock:
        process = multiprocessing.get_context("fork").Process(target=fence, daemon=True)
        process.start()
        process.join(60)
        assert process.exitcode == 0
    process.close()
