"""PPO on CartPole-v1 in one file, in plain numpy: what a training on gymshm's slots looks like.

    python benchmarks/ppo_cartpole.py [--quick] [--seed 1] [--num-workers auto]

With T + 1 slots the workers write the rollout itself: `rollout()` gives arrays of shape (T, n, ...), and they are what
the learner trains on. Nothing is copied but the rows of each minibatch, as they are drawn. The algorithm is that of
CleanRL's `ppo.py`, except that an episode which ran out of time counts as one that would have gone on.

Ends with code 0 when the mean return of the last 100 episodes is 475, which is what "solved" means for this
environment, and with 1 when it is not after as many steps as it may take. `--quick` is a short run without a verdict.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import time
from typing import Any

# Before numpy: matrices as small as ours gain nothing by threads, which would take the CPUs from the environments.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np

from gymshm import ShmVectorEnv

NUM_ENVS, T = 8, 128  # environments, and steps of each in a rollout
MAX_STEPS = 800_000  # of all environments together; the learning rate falls to 0 on the way there
EPOCHS, MINIBATCHES = 4, 4
LEARNING_RATE = 1e-3
GAMMA, LAMBDA = 0.99, 0.95  # of rewards; of advantages (GAE)
CLIP, ENTROPY, VALUE, MAX_NORM = 0.2, 0.01, 0.5, 0.5
HIDDEN = 64
SOLVED, EPISODES = 475.0, 100


class Network:
    """Two hidden layers of tanh, then a linear one; with the gradient of whatever is wanted of its output.

    Args:
        sizes: Numbers of inputs, hidden units and outputs.
        last_scale: Of the initial weights of the last layer.
        rng: Draws them.
    """

    def __init__(self, sizes: tuple[int, int, int], last_scale: float, rng: np.random.Generator) -> None:
        inputs, hidden, outputs = sizes
        shapes = [(inputs, hidden), (hidden, hidden), (hidden, outputs)]
        scales = [2**0.5, 2**0.5, last_scale]
        self.parameters: list[np.ndarray] = []
        for shape, scale in zip(shapes, scales, strict=True):
            self.parameters += [orthogonal(shape, rng) * scale, np.zeros(shape[1])]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The output for ``x``, shape (batch, inputs); remembers what :meth:`gradient` needs."""
        w1, b1, w2, b2, w3, b3 = self.parameters
        h1 = np.tanh(x @ w1 + b1)
        h2 = np.tanh(h1 @ w2 + b2)
        self._layers = x, h1, h2
        return h2 @ w3 + b3

    def gradient(self, d_output: np.ndarray) -> list[np.ndarray]:
        """The gradient of a loss by the parameters, given that by the last output: the chain rule, backwards."""
        x, h1, h2 = self._layers
        _, _, w2, _, w3, _ = self.parameters
        d_z2 = (d_output @ w3.T) * (1 - h2**2)  # tanh' = 1 - tanh²
        d_z1 = (d_z2 @ w2.T) * (1 - h1**2)
        pairs = ((x, d_z1), (h1, d_z2), (h2, d_output))
        return [part for before, d_after in pairs for part in (before.T @ d_after, d_after.sum(axis=0))]


def orthogonal(shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """A random matrix whose rows, or columns if these are fewer, are orthonormal."""
    q, r = np.linalg.qr(rng.standard_normal((max(shape), min(shape))))
    q = q * np.sign(np.diag(r))  # makes it uniform among them
    return q if shape[0] >= shape[1] else q.T


class Adam:
    """Adam, over parameters that it changes in place."""

    def __init__(self, parameters: list[np.ndarray]) -> None:
        self.parameters = parameters
        self._means = [np.zeros_like(parameter) for parameter in parameters]
        self._squares = [np.zeros_like(parameter) for parameter in parameters]
        self._steps = 0

    def step(self, gradients: list[np.ndarray], rate: float) -> None:
        """Goes against ``gradients``, which are shortened to a common norm of MAX_NORM first."""
        norm = np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients))
        scale = min(1.0, MAX_NORM / (norm + 1e-6))
        self._steps += 1
        fix1, fix2 = 1 - 0.9**self._steps, 1 - 0.999**self._steps  # both averages start at 0
        for parameter, mean, square, gradient in zip(
            self.parameters, self._means, self._squares, gradients, strict=True
        ):
            gradient = gradient * scale
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            parameter -= rate * (mean / fix1) / (np.sqrt(square / fix2) + 1e-5)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def policy_loss(
    logits: np.ndarray, actions: np.ndarray, old_log_p: np.ndarray, advantages: np.ndarray
) -> tuple[float, np.ndarray]:
    """PPO's clipped loss, less the entropy's share; and its gradient by ``logits``."""
    rows, batch = np.arange(len(actions)), len(actions)
    log_p = log_softmax(logits)
    p = np.exp(log_p)
    ratio = np.exp(log_p[rows, actions] - old_log_p)
    gain, clipped = ratio * advantages, ratio.clip(1 - CLIP, 1 + CLIP) * advantages
    entropy = -(p * log_p).sum(axis=1)
    loss = -np.minimum(gain, clipped).mean() - ENTROPY * entropy.mean()
    # Where the clipped one is the lesser, it is constant. d ratio = ratio d log p(a), and d log p(a) = onehot(a) - p.
    d_log_p = np.where(gain <= clipped, -gain, 0.0) / batch
    d_logits = -p * d_log_p[:, np.newaxis]
    d_logits[rows, actions] += d_log_p
    d_logits += ENTROPY / batch * p * (log_p + entropy[:, np.newaxis])
    return float(loss), d_logits


def value_loss(values: np.ndarray, returns: np.ndarray) -> tuple[float, np.ndarray]:
    """Half the mean squared error, times its weight; and its gradient by ``values``, shape (batch, 1)."""
    error = values[:, 0] - returns
    return float(VALUE * 0.5 * (error**2).mean()), (VALUE / len(error) * error)[:, np.newaxis]


def advantages_of(rewards: np.ndarray, ends: np.ndarray, values: np.ndarray, last_values: np.ndarray) -> np.ndarray:
    """Generalized advantage estimates, shape (T, n); nothing that comes after an end counts for what was before."""
    advantages, following, next_values = np.empty_like(values), np.zeros(values.shape[1]), last_values
    for t in reversed(range(len(rewards))):
        goes_on = 1.0 - ends[t]
        delta = rewards[t] + GAMMA * goes_on * next_values - values[t]
        advantages[t] = following = delta + GAMMA * LAMBDA * goes_on * following
        next_values = values[t]
    return advantages


def train(seed: int, num_workers: Any, max_steps: int) -> float:
    """Trains until it is solved, or for ``max_steps``; the mean return of the last episodes."""
    rng = np.random.default_rng(seed)
    envs = ShmVectorEnv(
        [lambda: gym.make("CartPole-v1")] * NUM_ENVS,
        copy=False,
        slots=T + 1,
        autoreset_mode="SameStep",
        num_workers=num_workers,
    )
    (inputs,), outputs = envs.single_observation_space.shape, int(envs.single_action_space.n)
    actor, critic = Network((inputs, HIDDEN, outputs), 0.01, rng), Network((inputs, HIDDEN, 1), 1.0, rng)
    optimizer = Adam(actor.parameters + critic.parameters)
    log_p, values, bonuses = (np.empty((T, NUM_ENVS)) for _ in range(3))
    recent: collections.deque[float] = collections.deque(maxlen=EPISODES)
    episode_returns = np.zeros(NUM_ENVS)
    in_envs, steps, start = 0.0, 0, time.perf_counter()
    envs.reset(seed=seed)
    while steps < max_steps:
        rollout = envs.rollout()
        for t in range(T):
            observations = rollout.observations[t]  # as the workers wrote them
            all_log_p = log_softmax(actor(observations))
            # The largest of log p + Gumbel noise is drawn with probability p.
            actions = (all_log_p + rng.gumbel(size=all_log_p.shape)).argmax(axis=1)
            log_p[t] = all_log_p[np.arange(NUM_ENVS), actions]
            values[t] = critic(observations)[:, 0]
            before = time.perf_counter()
            _, rewards, _, truncations, infos = envs.step(actions)
            in_envs += time.perf_counter() - before
            bonuses[t] = 0.0
            for env in np.flatnonzero(truncations):  # time ran out: what would have come is what the critic says
                bonuses[t, env] = GAMMA * critic(infos["final_obs"][env][np.newaxis])[0, 0]
            episode_returns += rewards
            for env in np.flatnonzero(rollout.terminations[t] | rollout.truncations[t]):
                recent.append(float(episode_returns[env]))
                episode_returns[env] = 0.0
        steps += T * NUM_ENVS
        ends = rollout.terminations | rollout.truncations
        last_values = critic(rollout.last_observations)[:, 0]
        advantages = advantages_of(rollout.rewards + bonuses, ends, values, last_values)
        # All (T * n, ...) and, of observations and actions, views of the segment still.
        batch = (
            rollout.observations.reshape(-1, inputs),
            rollout.actions.reshape(-1),
            log_p.reshape(-1),
            advantages.reshape(-1),
            (advantages + values).reshape(-1),
        )
        rate = LEARNING_RATE * (1 - steps / (MAX_STEPS + T * NUM_ENVS))
        for _ in range(EPOCHS):
            for rows in np.split(rng.permutation(T * NUM_ENVS), MINIBATCHES):
                x, actions, old_log_p, gains, returns = (part[rows] for part in batch)
                gains = (gains - gains.mean()) / (gains.std() + 1e-8)
                _, d_logits = policy_loss(actor(x), actions, old_log_p, gains)
                _, d_values = value_loss(critic(x), returns)
                optimizer.step(actor.gradient(d_logits) + critic.gradient(d_values), rate)
        mean = float(np.mean(recent or [0.0]))
        solved = len(recent) == EPISODES and mean >= SOLVED
        if solved or steps >= max_steps or steps % (T * NUM_ENVS * 20) == 0:
            seconds = time.perf_counter() - start
            print(
                f"{steps:8,} steps in {seconds:5.1f} s: {steps / seconds:7,.0f} steps/s, {in_envs / seconds:3.0%} of "
                f"the time in the environments; mean return of the last {len(recent)} episodes {mean:5.1f}",
                flush=True,
            )
        if solved:
            break
    envs.close()
    return mean


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few updates, to see that it works; gives no verdict")
    parser.add_argument("--seed", type=int, default=1, help="the same seed learns the same; default: %(default)s")
    parser.add_argument(
        "--num-workers", default="auto", type=lambda text: text if text == "auto" else int(text), help="default: auto"
    )
    options = parser.parse_args()
    mean = train(options.seed, options.num_workers, 3 * T * NUM_ENVS if options.quick else MAX_STEPS)
    if options.quick:
        return 0
    print("solved" if mean >= SOLVED else f"not solved: {mean:.1f} is less than {SOLVED}")
    return 0 if mean >= SOLVED else 1


if __name__ == "__main__":
    sys.exit(main())
