"""A ``VectorEnv`` over a crew: what it does besides steps. Its state, calls into environments, and its end."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import weakref
from collections.abc import Sequence
from multiprocessing.util import Finalize
from typing import Any, Final

import numpy as np
from gymnasium import logger
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector.async_vector_env import AsyncState

from .compat import VectorEnv
from .crew import Crew
from .errors import TimedOutError, WorkerDiedError
from .failures import Failure, rebuild
from .layout import entries, layout_html, layout_text
from .local_crew import LocalCrew
from .reply import Reply
from .requests import Operation
from .segment import Segment
from .time_limits import seconds

__all__ = ["CrewVectorEnv"]

_DEFAULT: Final = AsyncState.DEFAULT  # looked up at every step: see ``requests.STEP``

#: Seconds that workers are given to close their environments, unless the caller says otherwise.
_CLOSE_SECONDS = 15.0

#: The same, where nobody closed the vector environment: it was dropped, or the interpreter exits.
_DROPPED_CLOSE_SECONDS = 1.0

_FORBIDDEN_CALLS = ("reset", "step", "close", "_setattr", "_check_spaces")


class CrewVectorEnv(VectorEnv):
    """The part of :class:`~gymshm.ShmVectorEnv` that does not depend on what is exchanged at each step."""

    _finalizer: Finalize | None = None

    def _hire(self, crew: Crew | LocalCrew) -> None:
        """Takes ``crew``, and answers for its end from now on."""
        self._crew = crew
        self._state = AsyncState.DEFAULT
        self._in_turns = False
        self._slot = 0  # where the current observations are
        self._broken: Exception | None = None
        self._answer_for(None)
        _alive.add(self)

    def _answer_for(self, segment: Segment | None) -> None:
        """Sees to it that the crew ends, and ``segment`` loses its name, where nobody calls ``close``."""
        if self._finalizer is not None:
            self._finalizer.cancel()
        self._segment = segment
        # At interpreter exit too, and there before multiprocessing joins the processes: else both would wait.
        self._finalizer = Finalize(self, _end, (self._crew, segment), exitpriority=100)

    def _disown(self) -> None:
        """What a fork does with the vector environment that it inherited: it belongs to the parent."""
        if self._finalizer is not None:
            self._finalizer.cancel()
        self._crew.disown()
        self._segment = None
        self._broken = RuntimeError(
            f"This {type(self).__name__} belongs to process {os.getppid()}, of which process {os.getpid()} is a fork. "
            "Make another one here."
        )

    # --- how it is shown ----------------------------------------------------------------------------------------------

    def __str__(self) -> str:
        """What gymnasium shows, in one line: for wrappers and logs."""
        return super().__repr__()

    def __repr__(self) -> str:
        """The same, and the layout of the segment."""
        segment: Segment | None = getattr(self, "_segment", None)
        return str(self) if segment is None else f"{self}, {segment!r}\n{layout_text(entries(segment.header))}"

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        segment: Segment | None = getattr(self, "_segment", None)
        caption = str(self) if segment is None else f"{self}, {segment!r}"
        return layout_html(caption, () if segment is None else entries(segment.header))

    # --- state --------------------------------------------------------------------------------------------------------

    def _check_idle(self, caller: str) -> None:
        if self._state is not _DEFAULT or self._in_turns or self.closed or self._broken is not None:
            self._check_running()
            pending = "recv" if self._in_turns else str(self._state.value)
            raise AlreadyPendingCallError(
                f"Calling `{caller}` while waiting for a pending call to `{pending}` to complete.", pending
            )

    def _check_running(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"Trying to operate on `{type(self).__name__}`, after a call to `close()`.")
        if self._broken is not None:
            raise self._broken

    def _wait(self, state: AsyncState, timeout: float | None) -> Sequence[Reply | None]:
        """Waits for what is pending; on return, or where an environment raised, nothing is pending any more."""
        if self._state is not state or self.closed or self._broken is not None:
            self._check_running()
            raise NoAsyncCallError(
                f"Calling `{state.value}_wait` without any prior call to `{state.value}_async`.", state.value
            )
        limit = None if timeout is None else seconds(timeout, "timeout", zero=True)
        try:
            replies = self._crew.wait(limit)
        except multiprocessing.TimeoutError:
            raise TimedOutError(f"The call to `{state.value}_wait` has timed out after {timeout} second(s).") from None
        except BaseException as error:
            self._refuse_after(error, f"{state.value}_wait")
            raise
        if replies is self._crew.nothing_to_add:
            self._state = _DEFAULT
            return replies
        # In this order: who is interrupted in between calls again, and gets the same replies.
        self._take_note(replies)
        self._state = _DEFAULT
        for reply in replies:
            if reply is not None and reply.failures:
                raise self._raised(self._failures_in(replies))
        return replies

    @staticmethod
    def _failures_in(replies: Sequence[Reply | None]) -> list[Failure]:
        """The failures, taken out of ``replies``: of one's own exception, its traceback would hold them for ever."""
        failures: list[Failure] = []
        for reply in replies:
            if reply is not None:
                failures += reply.failures
                reply.failures = []
        return failures

    def _ask(self, state: AsyncState, operation: Operation, slot: int, payloads: Sequence[Any] | None = None) -> None:
        """Posts a request to all workers, whose replies are waited for in ``state``."""
        before = self._slot
        self._slot, self._state = slot, state
        try:
            self._crew.post(operation, slot, payloads)
        except BaseException as error:
            self._slot, self._state = before, _DEFAULT
            self._refuse_unanswered(error, f"{state.value}_async")
            raise

    def _refuse_unanswered(self, error: BaseException, caller: str) -> None:
        """As :meth:`_refuse_after`, also where something was asked that nobody waits for, since ``error`` came."""
        self._crew.torn |= self._crew.is_busy and self._state is _DEFAULT
        self._refuse_after(error, caller)

    def _refuse_after(self, error: BaseException, caller: str) -> None:
        """Refuses all further calls, if ``error`` left the workers in a state from which nothing can go on.

        A worker died; or something was raised in the middle of a request, or of a reply, by the handler of a signal:
        Ctrl-C, a batch system's, a deadline's.
        """
        if isinstance(error, WorkerDiedError):
            self._broken = error
        elif self._crew.torn:
            self._broken = RuntimeError(
                f"`{caller}` was interrupted in the middle of talking to the workers, some of which may be a call "
                f"ahead. Close this {type(self).__name__} and make another one."
            )
        if self._broken is not None:
            self._state = _DEFAULT

    def _remember_seeds(self, seeds: Sequence[int | None], chosen: Sequence[bool]) -> None:
        """Has restarts derive their seeds from those of a reset of the environments ``chosen``; None changes none."""
        told = zip(seeds, chosen, self._crew.seeds, strict=True)
        self._crew.seeds = [new if is_chosen and new is not None else old for new, is_chosen, old in told]

    def _take_note(self, replies: Sequence[Reply | None]) -> None:
        """Keeps of ``replies`` what later ones build on, whatever becomes of this call. Idempotent."""

    def _raised(self, failures: list[Failure]) -> BaseException:
        """What to raise for ``failures``; reports each in gymnasium's own words, which its tests expect.

        They take each environment for a worker, and none is shut down here.
        """
        with contextlib.suppress(Warning):  # where warnings are errors, the environment's is the one to raise
            for failure in failures:
                logger.error(f"Received the following error from Worker-{failure.env} - Shutting it down")
                logger.error("%s", failure.trace)  # as a format, it would be filled in
            logger.error("Raising the last exception back to the main process.")
        return rebuild(failures)

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, name: str, /, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Calls a method of every environment, or gets an attribute of it; a tuple of the ``n`` results.

        Raises:
            Exception: See :meth:`call_async` and :meth:`call_wait`.
        """
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Asks all workers for a call; :meth:`call_wait` gives the result.

        Raises:
            AlreadyPendingCallError: Another call is pending.
            ClosedEnvironmentError: It is closed.
            ValueError: ``name`` has a method of its own here.
        """
        self._check_idle("call_async")
        if name in _FORBIDDEN_CALLS:
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        payloads = [(name, args, kwargs)] * len(self._crew.shares)
        self._ask(AsyncState.WAITING_CALL, Operation.CALL, self._slot, payloads)

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Waits for :meth:`call_async`.

        Args:
            timeout: Seconds to wait at most; None for no limit.

        Raises:
            NoAsyncCallError: Nothing was asked.
            ValueError, TypeError: ``timeout`` is not a time limit; it can be called again.
            multiprocessing.TimeoutError: ``timeout`` ran out; it can be called again.
            WorkerDiedError: A worker process ended.
            ClosedEnvironmentError: It is closed.
            Exception: What an environment raised.
        """
        replies = self._wait(AsyncState.WAITING_CALL, timeout)
        return tuple(result for reply in replies if reply is not None for result in reply.results or ())

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """An attribute of every environment; a tuple of the ``n`` values. Raises as :meth:`call`."""
        return self.call(name)

    def set_attr(self, name: str, values: list[Any] | tuple[Any, ...] | Any) -> None:
        """Sets an attribute of every environment.

        Args:
            name: The attribute.
            values: A list or tuple of ``n`` values, or one value for all.

        Raises:
            ValueError: There are not ``n`` values.
            AlreadyPendingCallError: Another call is pending.
            ClosedEnvironmentError: It is closed.
            WorkerDiedError: A worker process ended.
            Exception: What an environment raised.
        """
        self._check_idle("set_attr")
        if not isinstance(values, list | tuple):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {self.num_envs} environments."
            )
        payloads = [(name, values[envs.start : envs.stop]) for envs in self._crew.shares]
        self._ask(AsyncState.WAITING_CALL, Operation.SET_ATTR, self._slot, payloads)
        self._wait(AsyncState.WAITING_CALL, None)

    def render(self) -> tuple[Any, ...] | None:
        """A frame of every environment; a tuple of ``n``. Raises as :meth:`call`."""
        return self.call("render")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every environment's random generator."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]  # read-only, as gymnasium's own vector environments have it
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Every environment's random generator, as a copy."""
        return self.get_attr("np_random")

    # --- processes ----------------------------------------------------------------------------------------------------

    @property
    def processes(self) -> list[Any]:
        """The worker processes, in the order of their environments."""
        return list(self._crew.processes)

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Ends the workers, in bounded time: asks them to close their environments, then SIGTERM, then SIGKILL.

        What a pending call would have given is dropped. An exception that an environment raises while it is closed
        comes as a warning: it never takes the place of one that is on its way. An interrupt ends the workers at once;
        where it comes when that is under way, calling again goes on with it.

        Args:
            timeout: Seconds that the environments are given; None for 15.
            terminate: True does not ask at all.

        Raises:
            ValueError, TypeError: ``timeout`` is not a time limit; nothing was ended, and it can be called again.
        """
        given = _CLOSE_SECONDS if timeout is None else seconds(timeout, "timeout", zero=True)
        pending, self._state = self._state, AsyncState.DEFAULT
        try:
            failures = self._crew.close(0.0 if terminate else given)
        finally:
            if self._crew.has_ended:  # else it is to be called again, or the finalizer does so
                if self._finalizer is not None:
                    self._finalizer.cancel()
                if self._segment is not None:
                    self._segment.unlink()
                self.closed = True
        # Last: where warnings are errors, all is done.
        if pending is not AsyncState.DEFAULT:
            logger.warn(f"Calling `close` while waiting for a pending call to `{pending.value}` to complete.")
        for failure in failures:
            logger.warn("%s", f"Environment {failure.env} raised while it was closed:\n{failure.trace}")


def _end(crew: Crew | LocalCrew, segment: Segment | None) -> None:
    """Ends a vector environment that nobody closed; never in a fork, which ``Finalize`` knows."""
    crew.close(_DROPPED_CLOSE_SECONDS)
    if segment is not None:
        segment.unlink()


#: What a fork has to let go of.
_alive: weakref.WeakSet[CrewVectorEnv] = weakref.WeakSet()


def _after_fork() -> None:
    for envs in list(_alive):
        envs._disown()


os.register_at_fork(after_in_child=_after_fork)
