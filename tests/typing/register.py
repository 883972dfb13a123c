"""Handlers on the functions of the contract, as ``functools.singledispatch`` takes them; read by mypy alone."""

from __future__ import annotations

import multiprocessing
from typing import Any

from gymnasium import spaces

import gymshm


class Celsius(spaces.Space[float]):
    pass


@gymshm.create_shared_memory.register(Celsius)
def create(space: Celsius, n: int = 1, ctx: Any = multiprocessing) -> Any:
    return ctx.Array("d", n)


@gymshm.read_from_shared_memory.register(Celsius)
def read(space: Celsius, shared_memory: Any, n: int = 1) -> Any:
    return shared_memory


@gymshm.write_to_shared_memory.register(Celsius)
def write(space: Celsius, index: int, value: float, shared_memory: Any) -> None:
    shared_memory[index] = value
