"""``ordering``: fences as either kind of machine needs them; what they order can be seen on the machine alone."""

from __future__ import annotations

import pytest

from gymshm import ordering
from support import CHILD_ENV, check_python


@pytest.mark.parametrize(
    ("machine", "ordered", "locks"),
    [("x86_64", True, 1), ("AMD64", True, 1), ("aarch64", False, 2), ("arm64", False, 2)],
)
def test_a_fence_is_what_the_machine_needs(machine, ordered, locks):
    told = check_python(
        f"""
        import platform
        platform.machine = lambda: {machine!r}
        from gymshm import ordering
        passed = []
        class Lock:
            def acquire(self, blocking):
                passed.append("taken")
                return True
            def release(self):
                passed.append("released")
        ordering._lock = Lock()
        ordering.fence()
        print(ordering.STORES_ARE_ORDERED, passed == ["taken", "released"] * {locks})
        passed.clear()
        ordering.store_fence()
        print(len(passed))
        """
    )
    assert told.split() == [str(ordered), "True", str(0 if ordered else 2 * locks)]


@pytest.mark.parametrize("pass_lock", [ordering._pass_lock, ordering._pass_lock_twice])
def test_a_lock_that_somebody_left_taken_keeps_nobody(monkeypatch, pass_lock):
    monkeypatch.setattr(ordering, "_lock", ordering.threading.Lock())
    assert ordering._lock.acquire(False)
    pass_lock()
    pass_lock()


def test_everything_works_where_stores_may_overtake_each_other():
    check_python(
        """
        import platform
        platform.machine = lambda: "aarch64"
        import numpy as np
        from gymnasium.spaces import Box, Dict, Discrete
        import gymshm
        from environments import clocks, times, zeros

        space = Dict(a=Box(-1, 1, (3,)), b=Discrete(9))
        memory = gymshm.create_shared_memory(space, n=2, snapshots=True)
        value = {"a": np.ones(3, np.float32), "b": np.int64(4)}
        gymshm.write_to_shared_memory(space, 0, value, memory)
        gymshm.row_writer(space, memory, 1)(value)
        array = gymshm.create_shared_memory(space["a"], n=2, snapshots=True)
        for _ in range(2):
            gymshm.write_to_shared_memory(space["a"], 0, value["a"], array)
        with gymshm.attach(gymshm.segment_of(memory).name) as attachment:
            assert all(attachment.snapshot(index)["b"] == 4 for index in range(2))
        with gymshm.attach(gymshm.segment_of(array).name) as attachment:
            assert attachment.snapshot(0).tolist() == [1, 1, 1]

        for num_workers in (0, 2):
            envs = gymshm.ShmVectorEnv(clocks(3), num_workers=num_workers, context="fork")
            envs.reset()
            for t in range(1, 50):
                assert times(envs.step(zeros(3))[0]) == [t] * 3
            envs.async_reset()
            for _ in range(50):
                env_id = envs.recv(timeout=60)[4]["env_id"]
                envs.send(zeros(len(env_id)), env_id)
            envs.close()
        """,
        env=CHILD_ENV,
    )
