"""Shared memory for Gymnasium: every array of a space tree in one named segment, and a vector environment on top of it.

::

    import gymshm

    memory = gymshm.create_shared_memory(space, n=8)        # what gymnasium's function of that name does
    gymshm.write_to_shared_memory(space, 3, value, memory)  # in any process: memory travels as a name
    batch = gymshm.read_from_shared_memory(space, memory, n=8)
    gymshm.segment_of(memory).name                          # ... by which any process can gymshm.attach(name)

    envs = gymshm.ShmVectorEnv(env_fns)                     # where gymnasium's AsyncVectorEnv stood

``help(gymshm.ShmVectorEnv)`` says how to choose its workers, copies and slots. What others call it:

================================  ======================================================================================
here                              there
================================  ======================================================================================
``ShmVectorEnv(env_fns)``         gymnasium ``AsyncVectorEnv``, Stable-Baselines3 ``SubprocVecEnv``, tianshou
                                  ``ShmemVectorEnv``, PufferLib ``vector.Multiprocessing``
``make_vec(id, num_envs)``        gymnasium ``make_vec``, Stable-Baselines3 ``make_vec_env``, EnvPool ``make``
``num_workers=``                  PufferLib ``num_workers``, EnvPool ``num_threads``; elsewhere it is one process for
                                  each environment
``num_workers=0``                 gymnasium ``SyncVectorEnv``, Stable-Baselines3 and tianshou ``Dummy...``, PufferLib
                                  ``vector.Serial``
``batch_size=``                   PufferLib and EnvPool ``batch_size``, tianshou ``wait_num``
``async_reset, recv, send``       PufferLib and EnvPool the same; tianshou ``step(action, id)``
``infos["env_id"]``               tianshou and EnvPool ``info["env_id"]``, PufferLib an item of what ``recv`` returns
``copy=False, slots=K``           gymnasium ``copy=False`` and PufferLib's buffers are like K = 1
``autoreset_mode="SameStep"``,    what Stable-Baselines3 does, and its ``info["terminal_observation"]``
``infos["final_obs"]``
``autoreset_mode="Disabled"``,    what tianshou leaves to its caller: ``reset(id)``
``options={"reset_mask": ...}``
``call, get_attr, set_attr``      Stable-Baselines3 ``env_method, get_attr, set_attr``, tianshou ``get_env_attr,
                                  set_env_attr``
================================  ======================================================================================
"""

from ._version import __version__
from .attachment import Attachment, attach
from .create import create_shared_memory
from .dispatch import iterate
from .errors import (
    CustomSpaceError,
    FallbackWarning,
    SegmentError,
    SegmentExistsError,
    SegmentFormatError,
    SegmentNotFoundError,
    WorkerDiedError,
)
from .factory import make_vec
from .patch import patch_gymnasium
from .read import read_from_shared_memory
from .row_writer import row_writer
from .segment import Segment
from .spaces import describe
from .vector_env import ShmVectorEnv
from .views import segment_of
from .write import write_to_shared_memory

__all__ = [
    "Attachment",
    "CustomSpaceError",
    "FallbackWarning",
    "Segment",
    "SegmentError",
    "SegmentExistsError",
    "SegmentFormatError",
    "SegmentNotFoundError",
    "ShmVectorEnv",
    "WorkerDiedError",
    "__version__",
    "attach",
    "create_shared_memory",
    "describe",
    "iterate",
    "make_vec",
    "patch_gymnasium",
    "read_from_shared_memory",
    "row_writer",
    "segment_of",
    "write_to_shared_memory",
]
