"""`@guard.guarded()`: a function, coroutine function or generator function becomes one that asks first."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import TYPE_CHECKING, Any, Callable, TypeVar, cast

from recloser_guard.decision import HALT, Decision
from recloser_guard.errors import CallDenied, RunHalted
from recloser_guard.permit import Permit

if TYPE_CHECKING:
    from recloser_guard.guard import Guard

_HALTED = Decision(HALT, "halted", "This run was stopped. End it.", strength=HALT)  # and let go on since
_OF_WHOM = ("session", "run", "agent")
F = TypeVar("F", bound=Callable[..., Any])
_Any = Callable[..., Any]
_Permits = Callable[[Any, Any], Permit]


def decorated(
    guard: Guard,
    function: F,
    *,
    tool: str | None,
    tell_model: bool,
    cancel: bool,
    how: Mapping[str, Any],
) -> F:
    """Return `function` behind the guard; see `Guard.guarded`."""
    if isinstance(function, (classmethod, staticmethod)):
        inner = decorated(guard, function.__func__, tool=tool, tell_model=tell_model, cancel=cancel, how=how)
        return cast("F", type(function)(inner))
    name = str(tool or getattr(function, "__name__", type(function).__name__))
    arguments = _arguments_of(function)

    def permit(args: Any, kwargs: Any) -> Permit:
        return guard.permit(name, arguments(args, kwargs), **how)

    if inspect.isasyncgenfunction(function):
        made = _streamed(function, permit, tell_model=tell_model)
    elif inspect.isgeneratorfunction(function):
        made = _generated(function, permit, tell_model=tell_model)
    elif not inspect.iscoroutinefunction(function):
        made = _called(function, permit, tell_model=tell_model)
    else:
        asked = _cancelled(guard, function, name, how) if cancel else function
        made = _awaited(asked, permit, tell_model=tell_model)
    return cast("F", made)


def _called(function: _Any, permit: _Permits, *, tell_model: bool) -> _Any:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            with permit(args, kwargs):
                return function(*args, **kwargs)
        except CallDenied as refusal:
            return _told(refusal, tell_model=tell_model)

    return called


def _awaited(function: _Any, permit: _Permits, *, tell_model: bool) -> _Any:
    @functools.wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        try:
            async with permit(args, kwargs):
                return await function(*args, **kwargs)
        except CallDenied as refusal:
            return _told(refusal, tell_model=tell_model)

    return awaited


def _cancelled(guard: Guard, function: _Any, tool: str, how: Mapping[str, Any]) -> _Any:
    """Return a coroutine function that is cancelled when its run is halted."""
    whose = {key: how[key] for key in _OF_WHOM if key in how}

    @functools.wraps(function)
    async def cancelled(*args: Any, **kwargs: Any) -> Any:
        return await guard.run(function(*args, **kwargs), tool=tool, **whose)

    return cancelled


def _generated(function: _Any, permit: _Permits, *, tell_model: bool) -> _Any:
    @functools.wraps(function)
    def generated(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        try:
            with permit(args, kwargs):
                return (yield from function(*args, **kwargs))
        except CallDenied as refusal:
            yield _told(refusal, tell_model=tell_model)

    return generated


def _streamed(function: _Any, permit: _Permits, *, tell_model: bool) -> _Any:
    @functools.wraps(function)
    async def streamed(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        try:
            async with permit(args, kwargs):
                inner = function(*args, **kwargs)
                step = inner.__anext__()
                try:
                    while True:
                        given = await step
                        try:
                            step = inner.asend((yield given))
                        except Exception as error:  # noqa: BLE001 - it is for whoever is inside
                            step = inner.athrow(error)
                except StopAsyncIteration:
                    return
                finally:
                    await inner.aclose()
        except CallDenied as refusal:
            yield _told(refusal, tell_model=tell_model)

    return streamed


def _told(refusal: CallDenied, *, tell_model: bool) -> str:
    """Return the text for the model, or raise the refusal on."""
    if tell_model:
        return refusal.message_for_model
    raise refusal


def _arguments_of(function: Callable[..., Any]) -> Callable[[Any, Any], Mapping[str, Any]]:
    """Return what names the arguments of a call of `function`; self and cls are none."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return lambda _args, kwargs: dict(kwargs)

    def named(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError:  # the call itself will say so
            return dict(kwargs)
        found: dict[str, Any] = {}
        for name, value in bound.items():
            kind = signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_KEYWORD:
                found.update(value)
            elif name not in ("self", "cls"):
                found[name] = list(value) if kind is inspect.Parameter.VAR_POSITIONAL else value
        return found

    return named


async def run_until_halted(guard: Guard, work: Any, how: Mapping[str, Any]) -> Any:
    """See `Guard.run`."""
    task = asyncio.ensure_future(work)
    watched = guard.cancel_on_halt(task, **how)
    try:
        return await task
    except asyncio.CancelledError:
        if watched.halted:
            decision = guard.check(**how)
            raise RunHalted(decision if decision.halted else _HALTED) from None
        task.cancel()
        raise
