"""Real environments in gymnasium's own ``AsyncVectorEnv`` over our memory, watched from a process of its own."""

from __future__ import annotations

import functools
import json
import subprocess
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv

import gymshm
from child_tasks import make, nested, plain
from support import CHILD_ENV, check_python, running_python

#: Started on its own, with the name on its command line: at each line on stdin it tells what stands in the segment.
ONLOOKER = """
    import json, sys
    import gymshm
    from child_tasks import plain
    with gymshm.attach(sys.argv[1], read_only=True) as attachment:
        print(json.dumps([repr(attachment.space), attachment.n]), flush=True)
        for _ in sys.stdin:
            print(json.dumps(plain(attachment.read())), flush=True)
"""


def seen_by(onlooker: subprocess.Popen[str]) -> Any:
    """What the onlooker sees at this moment."""
    assert onlooker.stdin is not None
    assert onlooker.stdout is not None
    onlooker.stdin.write("\n")
    onlooker.stdin.flush()
    return json.loads(onlooker.stdout.readline())


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Blackjack-v1", "nested"])
def test_an_onlooker_sees_what_gymnasium_s_vector_environment_observes(env_id, method, monkeypatch):
    names = []

    def create(*args: Any, **kwargs: Any) -> Any:
        memory = gymshm.create_shared_memory(*args, **kwargs)
        names.append(gymshm.segment_of(memory).name)
        return memory

    monkeypatch.setattr("gymnasium.vector.async_vector_env.create_shared_memory", create)
    env = AsyncVectorEnv([functools.partial(make, env_id)] * 3, context=method)
    try:
        (name,) = names
        with running_python(ONLOOKER, name, env=CHILD_ENV) as onlooker:
            assert onlooker.stdout is not None
            assert json.loads(onlooker.stdout.readline()) == [repr(env.single_observation_space), 3]
            env.action_space.seed(1)
            observations, _ = env.reset(seed=1)
            changes, before = 0, None
            for step in range(20):
                seen, told = seen_by(onlooker), plain(observations)
                if env_id == "nested":
                    # gymnasium reads text once, at construction; who attaches reads what stands there.
                    assert seen.pop("sign") == [nested(step % 8)["sign"]] * 3
                    told.pop("sign")
                assert seen == told
                changes += seen != before
                before = seen
                observations, *_ = env.step(env.action_space.sample())
            assert changes >= 10
            assert onlooker.communicate(timeout=30) == ("", "")
            assert onlooker.returncode == 0
    finally:
        env.close()


def test_environments_in_a_process_of_their_own_write_where_this_one_reads():
    memory = gymshm.create_shared_memory(make("CartPole-v1").observation_space, n=2)
    name = gymshm.segment_of(memory).name
    code = f"""
        import gymnasium, gymshm
        attachment = gymshm.attach({name!r})
        env = gymnasium.make("CartPole-v1")
        for index in range(attachment.n):
            attachment.write(index, env.reset(seed=index)[0])
    """
    check_python(code)
    env = make("CartPole-v1")
    np.testing.assert_array_equal(memory.view, [env.reset(seed=index)[0] for index in range(2)])
