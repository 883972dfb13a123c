"""Names that others remove, and that are given anew: whose they are, and who removes them."""

from __future__ import annotations

import signal

import gymshm
from child_tasks import SPACE
from support import CHILD_ENV as TESTS
from support import check_python, running_python
from test_lifetime import CREATE, SHM, create_and


def test_an_unlink_by_an_attacher_takes_the_name_and_leaves_the_views():
    with running_python(f"{CREATE}\n    input()\n    print(memory['numbers'].view.sum())", env=TESTS) as creator:
        name = creator.stdout.readline().strip()
        check_python(
            f"from child_tasks import *; a = gymshm.attach({name!r}); a.write(0, value(5)); a.segment.unlink(); "
            "a.segment.unlink(); print(a.read()['word'])",
            env=TESTS,
        )
        assert not (SHM / name).exists()
        assert creator.communicate("\n", timeout=30) == ("15.0\n", "")
        assert creator.returncode == 0


def test_a_later_segment_of_the_same_name_survives_the_end_of_the_first_creator():
    with running_python(f"{CREATE}\n    input()", env=TESTS) as creator:
        name = creator.stdout.readline().strip()
        gymshm.attach(name).segment.unlink()
        memory = gymshm.create_shared_memory(SPACE, n=3, name=name)
        assert creator.communicate("\n", timeout=30) == ("", "")
        assert gymshm.attach(name).n == 3
    del memory
    assert not (SHM / name).exists()


def test_a_name_that_its_creator_removed_is_no_longer_its_tracker_s_to_remove():
    with running_python(
        f"{CREATE}\n    gymshm.attach(name).segment.unlink()\n    print('gone', flush=True)\n    input()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)",
        env=TESTS,
    ) as creator:
        name = creator.stdout.readline().strip()
        assert creator.stdout.readline() == "gone\n"
        memory = gymshm.create_shared_memory(SPACE, n=3, name=name)
        assert creator.communicate("\n", timeout=30) == ("", "")
        assert creator.returncode == -signal.SIGKILL
        assert gymshm.attach(name).n == 3
        del memory


def test_a_name_given_twice_by_one_process_is_still_watched_after_the_first_has_gone():
    name, returncode, stderr = create_and(
        "old, segment = memory, gymshm.segment_of(memory); segment.unlink(); "
        "memory = gymshm.create_shared_memory(SPACE, n=3, name=name); del old, segment; gc.collect(); "
        "assert gymshm.attach(name).n == 3; os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert (returncode, stderr) == (-signal.SIGKILL, "")
    assert not (SHM / name).exists()
