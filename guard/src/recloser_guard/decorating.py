"""`@guard.guarded()`: a plain function or coroutine function becomes one that asks first."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Callable, TypeVar, cast

from recloser_guard.decision import HALT, Decision
from recloser_guard.errors import CallDenied, RunHalted

if TYPE_CHECKING:
    from recloser_guard.guard import Guard

_HALTED = Decision(HALT, "halted", "This run was stopped. End it.", strength=HALT)  # and let go on since
F = TypeVar("F", bound=Callable[..., Any])


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
    name = tool or getattr(function, "__name__", type(function).__name__)
    arguments = _arguments_of(function)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            try:
                async with guard.permit(name, arguments(args, kwargs), **how):
                    if cancel:
                        return await guard.run(function(*args, **kwargs), tool=name)
                    return await function(*args, **kwargs)
            except CallDenied as refusal:
                if tell_model:
                    return refusal.message_for_model
                raise

        return cast("F", awaited)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            with guard.permit(name, arguments(args, kwargs), **how):
                return function(*args, **kwargs)
        except CallDenied as refusal:
            if tell_model:
                return refusal.message_for_model
            raise

    return cast("F", called)


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
