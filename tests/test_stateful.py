"""Creating, attaching, viewing, writing, closing and unlinking, in any order."""

from __future__ import annotations

import pathlib
import pickle

import numpy as np
from gymnasium import spaces as gs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import gymshm
from gymshm.views import leaves
from support import check_python

SPACE = gs.Dict(a=gs.Box(-np.inf, np.inf, (3,), np.float64), b=gs.Tuple([gs.Discrete(9), gs.Text(3)]))
N = 2
PICK = st.integers(0, 2**16)


class Lifetime(RuleBasedStateMachine):
    """Any number of memories, attachments and views.

    The model: what each segment holds, by name; which names were unlinked; and which may have gone by themselves, for
    they go with the last array of their creator.
    """

    def __init__(self):
        super().__init__()
        self.memories, self.attachments, self.views = [], [], []
        self.contents, self.unlinked, self.perhaps_gone = {}, set(), set()

    def picked(self, things, pick):
        return things[pick % len(things)]

    @rule()
    def create(self):
        memory = gymshm.create_shared_memory(SPACE, N)
        self.contents[gymshm.segment_of(memory).name] = np.zeros((N, 3))
        self.memories.append(memory)

    @precondition(lambda self: self.memories)
    @rule(pick=PICK)
    def send_and_receive(self, pick):
        memory = self.picked(self.memories, pick)
        name = gymshm.segment_of(memory).name
        try:
            self.memories.append(pickle.loads(pickle.dumps(memory)))
        except gymshm.SegmentNotFoundError:
            assert gymshm.segment_of(memory).closed
            assert name in self.unlinked | self.perhaps_gone

    @precondition(lambda self: self.contents)
    @rule(pick=PICK, read_only=st.booleans())
    def attach(self, pick, read_only):
        name = self.picked(list(self.contents), pick)
        try:
            self.attachments.append(gymshm.attach(name, read_only))
        except gymshm.SegmentNotFoundError:
            assert name in self.unlinked | self.perhaps_gone
        else:
            assert name not in self.unlinked

    @precondition(lambda self: self.memories)
    @rule(pick=PICK)
    def view(self, pick):
        memory = self.picked(self.memories, pick)
        segment = gymshm.segment_of(memory)
        try:
            self.views.append((segment.name, gymshm.read_from_shared_memory(SPACE, memory, N)["a"]))
        except ValueError:
            assert segment.closed

    @precondition(lambda self: self.attachments)
    @rule(pick=PICK)
    def view_attached(self, pick):
        attachment = self.picked(self.attachments, pick)
        try:
            self.views.append((attachment.name, attachment.arrays["a"]))
        except ValueError:
            assert attachment.segment.closed

    @precondition(lambda self: self.memories)
    @rule(pick=PICK, index=st.integers(0, N - 1), number=st.floats(allow_nan=False))
    def write(self, pick, index, number):
        memory = self.picked(self.memories, pick)
        segment = gymshm.segment_of(memory)
        try:
            gymshm.write_to_shared_memory(SPACE, index, {"a": np.full(3, number), "b": (1, "x")}, memory)
        except ValueError:
            assert segment.closed
        else:
            self.contents[segment.name][index] = number

    @precondition(lambda self: self.attachments)
    @rule(pick=PICK, index=st.integers(0, N - 1), number=st.floats(allow_nan=False))
    def write_attached(self, pick, index, number):
        attachment = self.picked(self.attachments, pick)
        try:
            attachment.write(index, {"a": np.full(3, number), "b": (2, "")})
        except ValueError:
            assert attachment.segment.closed or not attachment.segment.writeable
        else:
            self.contents[attachment.name][index] = number

    @precondition(lambda self: self.memories)
    @rule(pick=PICK)
    def close(self, pick):
        memory = self.picked(self.memories, pick)
        self.perhaps_gone.add(gymshm.segment_of(memory).name)
        gymshm.segment_of(memory).close()
        assert all(leaf.view is None for leaf in leaves(memory))

    @precondition(lambda self: self.attachments)
    @rule(pick=PICK)
    def close_attached(self, pick):
        self.picked(self.attachments, pick).close()

    @precondition(lambda self: self.memories)
    @rule(pick=PICK)
    def unlink(self, pick):
        segment = gymshm.segment_of(self.picked(self.memories, pick))
        segment.unlink()
        self.unlinked.add(segment.name)

    @precondition(lambda self: self.attachments)
    @rule(pick=PICK)
    def unlink_attached(self, pick):
        attachment = self.picked(self.attachments, pick)
        attachment.segment.unlink()
        self.unlinked.add(attachment.name)

    @precondition(lambda self: self.memories)
    @rule(pick=PICK)
    def drop(self, pick):
        memory = self.memories.pop(pick % len(self.memories))
        self.perhaps_gone.add(gymshm.segment_of(memory).name)

    @precondition(lambda self: self.attachments)
    @rule(pick=PICK)
    def drop_attached(self, pick):
        self.attachments.pop(pick % len(self.attachments))

    @precondition(lambda self: self.views)
    @rule(pick=PICK)
    def drop_view(self, pick):
        self.views.pop(pick % len(self.views))

    @invariant()
    def every_view_shows_what_was_written(self):
        for name, view in self.views:
            assert np.array_equal(view, self.contents[name])

    @invariant()
    def every_open_memory_shows_what_was_written(self):
        for memory in self.memories:
            if not gymshm.segment_of(memory).closed:
                assert np.array_equal(memory["a"].view, self.contents[gymshm.segment_of(memory).name])


TestLifetime = Lifetime.TestCase
TestLifetime.settings = settings(max_examples=40, stateful_step_count=40)


def test_no_order_crashes_an_interpreter():
    check_python(
        """
        import gc, sys
        sys.path.insert(0, sys.argv[1])
        from hypothesis import settings
        from hypothesis.stateful import run_state_machine_as_test
        from test_stateful import Lifetime

        gc.set_threshold(10)  # objects go in as many orders as can be
        quick = settings(max_examples=20, stateful_step_count=30, deadline=None, database=None)
        run_state_machine_as_test(Lifetime, settings=quick)
        """,
        str(pathlib.Path(__file__).parent),
    )
