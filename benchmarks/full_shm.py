"""A vector environment where ``/dev/shm`` has no room: it works in a file, says so with figures, and leaves nothing.

    python benchmarks/full_shm.py [--quick] [--steps N]

In a mount namespace with a ``/dev/shm`` of 1 MB, and a temporary directory of its own; where that is not permitted,
it says so and does nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import warnings

import numpy as np

from verdict import Verdict, options

SHM_BYTES = 1 << 20

#: Of one observation; four of them are far too much.
SHAPE = (1 << 20,)


def child(steps: int, ends: str) -> None:
    """What runs there: prints the warning, and what is to be seen of the file while it is in use."""
    import gymnasium as gym
    from gymnasium import spaces as gs

    import gymshm

    class Big(gym.Env):  # type: ignore[type-arg]
        observation_space, action_space = gs.Box(0, 255, SHAPE, np.uint8), gs.Discrete(2)

        def reset(self, *, seed=None, options=None):  # type: ignore[no-untyped-def]
            self.t = 0
            return np.zeros(SHAPE, np.uint8), {}

        def step(self, action):  # type: ignore[no-untyped-def]
            self.t += 1
            return np.full(SHAPE, self.t % 256, np.uint8), 0.0, False, False, {}

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        envs = gymshm.ShmVectorEnv([Big] * 4, num_workers=2, copy=False)
    print("warning:", *(str(warning.message) for warning in caught), flush=True)
    envs.reset()
    wrong = 0
    for t in range(1, steps + 1):
        wrong += not (envs.step(np.zeros(4, np.int64))[0] == t % 256).all()
    with gymshm.attach(envs.segment_name, read_only=True) as onlooker:
        wrong += not (onlooker.snapshot(3) == steps % 256).all()
    print("wrong:", wrong, flush=True)
    if ends == "SIGKILL":
        os.kill(os.getpid(), 9)
    envs.close()


def main() -> int:
    """In namespaces of their own."""
    if sys.argv[1:2] == ["--child"]:
        child(int(sys.argv[2]), sys.argv[3])
        return 0
    chosen = options(__doc__, steps=(20, 2_000, "steps"))
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        print("skipped: it takes the permission to mount, in a mount namespace")
        return 0
    verdict = Verdict("end", "steps", "needed", "free", "left")
    for ends, code in (("close", 0), ("SIGKILL", -9)):
        with tempfile.TemporaryDirectory() as directory:
            # The shell waits, and then lists what is left: nobody else sees that /dev/shm.
            mount = f"mount -t tmpfs -o size={SHM_BYTES} tmpfs /dev/shm"
            look = 'for i in $(seq 100); do [ -z "$(ls /dev/shm)" ] && break; sleep 0.1; done; ls /dev/shm'
            command = f'{mount} && "$@"; code=$?; {look}; exit $code'
            python = [sys.executable, "-X", "faulthandler", __file__, "--child", str(chosen.steps), ends]
            env = {**os.environ, "TMPDIR": directory}
            full = ["unshare", "-m", "sh", "-c", command, "sh", *python]
            done = subprocess.run(full, capture_output=True, text=True, check=False, env=env)
            lines = done.stdout.splitlines()
            said = next((line for line in lines if line.startswith("warning:")), "")
            figures = re.search(r"(\d+) bytes were needed, (\d+) bytes are free in /dev/shm", said)
            verdict.expect(done.returncode == (code if code >= 0 else 128 - code), ends, "ended with", done.returncode)
            verdict.expect(done.stderr in ("", "Killed\n"), ends, "said", done.stderr)
            verdict.expect("wrong: 0" in lines, ends, "gave", lines)
            needed, free = map(int, figures.groups()) if figures else (0, 0)
            names = figures is not None and needed > 4 * SHAPE[0] and free <= SHM_BYTES and "--shm-size" in said
            verdict.expect(names, ends, "warned with", said)
            left = os.listdir(directory) + [line for line in lines if not line.startswith(("warning:", "wrong:"))]
            verdict.expect(not left, ends, "left", left)
            verdict.row(ends, chosen.steps, needed, free, len(left))
    return verdict.finish()


if __name__ == "__main__":
    sys.exit(main())
