"""The training script: its gradients are those of its losses, its advantages those of the definition, and it runs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "ppo_cartpole.py"


@pytest.fixture(scope="module")
def ppo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ppo_cartpole", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def slopes(loss, array):
    """The gradient of ``loss()`` by ``array``, from differences."""
    found = np.empty_like(array)
    for index in np.ndindex(array.shape):
        kept, ends = array[index], []
        for change in (1e-6, -1e-6):
            array[index] = kept + change
            ends.append(loss())
        array[index] = kept
        found[index] = (ends[0] - ends[1]) / 2e-6
    return found


def test_gradients_are_those_of_the_losses(ppo):
    rng = np.random.default_rng(2)
    actor, critic = ppo.Network((4, 5, 3), 1.0, rng), ppo.Network((4, 5, 1), 1.0, rng)
    x, actions = rng.standard_normal((40, 4)), rng.integers(0, 3, 40)
    # Ratios on both sides of what is clipped, with gains and losses.
    old_log_p = ppo.log_softmax(actor(x))[np.arange(40), actions] + rng.uniform(-0.5, 0.5, 40)
    advantages, returns = rng.standard_normal(40), rng.standard_normal(40)

    def of_policy():
        return ppo.policy_loss(actor(x), actions, old_log_p, advantages)

    def of_values():
        return ppo.value_loss(critic(x), returns)

    for network, loss in ((actor, of_policy), (critic, of_values)):
        gradients = network.gradient(loss()[1])
        for parameter, gradient in zip(network.parameters, gradients, strict=True):
            np.testing.assert_allclose(gradient, slopes(lambda loss=loss: loss()[0], parameter), atol=1e-7)


def test_the_clipped_loss_is_that_of_the_definition(ppo):
    log_p = np.log([[0.5, 0.5], [0.9, 0.1]])
    advantages, old = np.array([1.0, -1.0]), np.log([0.25, 0.9])
    # Ratio 2, clipped to 1.2, gain 1.2; ratio 1, gain -1.
    entropies = np.log(2), -(0.9 * np.log(0.9) + 0.1 * np.log(0.1))
    loss, _ = ppo.policy_loss(log_p, np.array([0, 0]), old, advantages)
    assert loss == pytest.approx(-(1.2 - 1) / 2 - ppo.ENTROPY * sum(entropies) / 2)


def test_advantages_are_those_of_the_definition(ppo):
    rng = np.random.default_rng(3)
    rewards, values, last = rng.standard_normal((9, 2)), rng.standard_normal((9, 2)), rng.standard_normal(2)
    ends = rng.random((9, 2)) < 0.3
    told = ppo.advantages_of(rewards, ends, values, last)
    following = np.vstack([values[1:], last])
    for env in range(2):
        for t in range(9):
            expected, weight = 0.0, 1.0
            for k in range(t, 9):
                goes_on = not ends[k, env]
                expected += weight * (rewards[k, env] + ppo.GAMMA * goes_on * following[k, env] - values[k, env])
                weight *= ppo.GAMMA * ppo.LAMBDA
                if not goes_on:
                    break
            assert told[t, env] == pytest.approx(expected)


def test_first_weights_are_orthogonal(ppo):
    for shape in ((4, 7), (7, 4), (5, 5)):
        matrix = ppo.orthogonal(shape, np.random.default_rng(0))
        assert matrix.shape == shape
        small = matrix @ matrix.T if shape[0] < shape[1] else matrix.T @ matrix
        np.testing.assert_allclose(small, np.eye(min(shape)), atol=1e-12)


def test_adam_goes_downhill_by_its_rate_and_no_further(ppo):
    parameter = np.array([3.0, -2.0])
    optimizer = ppo.Adam([parameter])
    optimizer.step([np.array([1e6, -1e6])], 0.1)
    np.testing.assert_allclose(parameter, [2.9, -1.9], atol=1e-4)
    for _ in range(400):
        optimizer.step([parameter.copy()], 0.05)
    np.testing.assert_allclose(parameter, [0, 0], atol=0.05)


def quick(*options: str) -> list[str]:
    done = subprocess.run([sys.executable, SCRIPT, "--quick", *options], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_quick_run_says_how_fast_it_was_and_where_the_time_went():
    line = quick("--num-workers", "1")[-1]
    assert re.fullmatch(
        r" +3,072 steps in +[\d.]+ s: +[\d,]+ steps/s, \d+% of the time in the environments; "
        r"mean return of the last \d+ episodes +[\d.]+",
        line,
    )


def test_the_same_seed_learns_the_same_with_any_number_of_workers():
    ends = [quick("--num-workers", workers, "--seed", seed)[-1].split(";")[1] for workers, seed in ("04", "24", "05")]
    assert ends[0] == ends[1] != ends[2]


@pytest.mark.slow
def test_it_solves_cartpole():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, check=False, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "solved"
