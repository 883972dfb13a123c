"""Shared memory for Gymnasium: every array of a space tree in one named segment, and a vector environment on top of it.

::

    import gymshm

    memory = gymshm.create_shared_memory(space, n=8)        # what gymnasium's function of that name does
    gymshm.write_to_shared_memory(space, 3, value, memory)  # in any process: memory travels as a name
    batch = gymshm.read_from_shared_memory(space, memory, n=8)
    gymshm.segment_of(memory).name                          # ... by which any process can gymshm.attach(name)
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
