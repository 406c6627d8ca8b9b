"""What messages say: Jinja2 templates in a sandbox, with data that agents wrote and nobody trusts.

Default texts lie in `control/templates`. A file of the user's takes the place of one; when it cannot be read
or fails, the default is used, which is counted, logged once, and told by a test of the destination.

A template cannot run for long nor write much: what it executes is counted line by line, what it writes is
measured, and the few operations that make much out of little are refused.
"""

from __future__ import annotations

import logging
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import ChainableUndefined, TemplateError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from control.plain import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from jinja2 import Template

_log = logging.getLogger(__name__)

UNKNOWN: Final = "unknown"
MAX_OUTPUT: Final = 32_000
"""Characters that a template may write."""
_MAX_STEPS: Final = 50_000
_MAX_PRODUCT: Final = 10_000
_MAX_SOURCE: Final = 200_000
_MAX_FIELD: Final = 2_000
_MAX_ITEMS: Final = 40
_TEMPLATE: Final = "<template>"  # what Jinja2 calls the file of a template that was made from a text
_FOLDER: Final = Path(__file__).parent / "templates"
_RFC3339: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.\d+)?Z")
_PADDING: Final = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "format", "format_map"})
_FILTERS_OUT: Final = ("center", "indent", "format", "wordwrap", "pprint", "xmlattr", "filesizeformat")


class TooMuch(TemplateError):  # noqa: N818 - says what the template did
    """A template runs for too long or writes too much."""


class Raw(str):
    """A text that is in its target's format already."""

    __slots__ = ()


class Unknown(ChainableUndefined):
    """A field that is not there: it reads `unknown`, and so does all in it."""

    def __str__(self) -> str:
        """Return the word."""
        return UNKNOWN


def mrkdwn(text: str) -> str:
    """Escape for Slack, where `<!channel>` would call everybody.

    >>> mrkdwn("<!channel> & co")
    '&lt;!channel&gt; &amp; co'
    """
    return plain(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Environment(ImmutableSandboxedEnvironment):
    """Sandbox for one target: every value written by a template passes `escape`."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, escape: Callable[[str], str]) -> None:
        def finalize(value: object) -> str:
            if isinstance(value, Raw):
                return str(value)
            return escape(UNKNOWN if value is None or value == "" else _written(value))

        self.escape = escape
        super().__init__(undefined=Unknown, finalize=finalize, trim_blocks=True, lstrip_blocks=True)
        self.globals = {"range": self.globals["range"]}
        for name in _FILTERS_OUT:
            self.filters.pop(name, None)
        self.filters["thousands"] = thousands
        self.filters["usd"] = usd
        self.filters["listed"] = listed
        self.filters["moment"] = moment

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:  # noqa: ANN401 - the interface
        """Refuse methods that make long texts out of short ones, too."""
        if isinstance(obj, str) and attr in _PADDING:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401 - the interface
        """Refuse products of texts or lists, and powers."""
        if operator == "**":
            raise SecurityError("** is not available")
        if operator == "%" and isinstance(left, str):
            raise SecurityError("% is not available for texts")
        if operator == "*":
            for one, times in ((left, right), (right, left)):
                if isinstance(one, str | list | tuple) and isinstance(times, int):
                    if len(one) * times > _MAX_PRODUCT:
                        raise SecurityError("the product is too long")
                elif isinstance(one, int) and one.bit_length() > 64:  # noqa: PLR2004 - a machine's word
                    raise SecurityError("the number is too large")
        return super().call_binop(context, operator, left, right)


def thousands(value: object) -> object:
    """Write a whole number with commas; anything else as it is.

    >>> thousands(1234567), thousands("many")
    ('1,234,567', 'many')
    """
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value


def usd(value: object) -> object:
    """Write an amount of dollars; anything else as it is.

    >>> usd(1.5), usd(0.0042), usd(None)
    ('$1.50', '$0.0042', None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return f"${value:.2f}" if value == 0 or value >= 0.01 else f"${value:.4f}"  # noqa: PLR2004 - one cent


def moment(value: object) -> object:
    """Write an RFC 3339 time in UTC to the second; anything else as it is.

    >>> moment("2023-11-14T22:13:20.123456Z"), moment(None)
    ('2023-11-14 22:13:20 UTC', None)
    """
    found = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    return value if found is None else f"{found[1]} {found[2]} UTC"


def listed(value: object, most: int) -> list[object]:
    """Return the first items of a list; nothing for what is none.

    >>> listed(["a", "b"], 1), listed("ab", 1)
    (['a'], [])
    """
    return list(value[:most]) if isinstance(value, list | tuple) else []


class Wording:
    """The texts of one kind of notifier.

    `target` escapes for its format. `override` is the path of the user's template for the text named `part`.
    `on_broken` is told each time that it could not be used.
    """

    def __init__(
        self,
        kind: str,
        escape: Callable[[str], str],
        *,
        part: str = "text",
        override: str = "",
        on_broken: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self._kind = kind
        self._environment = Environment(escape)
        self._part = part
        self._override = override
        self._on_broken = on_broken
        self._templates: dict[str, Template] = {}
        self._source: str | None = None
        self.problem = ""
        if override:
            self._read(override)

    def render(self, part: str, data: Mapping[str, Any]) -> str:
        """Write one of the texts. Never raises for what a template or the data do."""
        data = {name: _fitting(value, _MAX_FIELD) for name, value in data.items()}
        if part == self._part and self._override:
            text = None if self._source is None else self._try(self._source, data)
            if text is not None:
                return text
            self._on_broken(self._kind)
        try:
            return _bounded(self._compiled(default_source(part)), data)
        except Exception:  # noqa: BLE001 - it is rendered in the transaction that fires the alert
            _log.exception("the default text %s failed; the bare summary is sent", part)
            self._on_broken(self._kind)
            return self._environment.escape(str(data.get("summary") or data.get("alert_id") or UNKNOWN))

    def _read(self, path: str) -> None:
        try:
            source = Path(path).read_text(encoding="utf-8")
            if len(source) > _MAX_SOURCE:
                raise TooMuch(f"more than {_MAX_SOURCE} characters")
            self._compiled(source)
            self._source = source
        except (OSError, UnicodeError, TemplateError) as error:
            self._broken(_told(error))

    def _compiled(self, source: str) -> Template:
        if source not in self._templates:
            self._templates[source] = self._environment.from_string(source)
        return self._templates[source]

    def _try(self, source: str, data: Mapping[str, Any]) -> str | None:
        try:
            text = _bounded(self._compiled(source), data)
        except Exception as error:  # noqa: BLE001 - a user's template may fail in any way; the message must go
            self._broken(_told(error))
            return None
        if not text.strip():
            self._broken("it wrote nothing")
            return None
        return text

    def _broken(self, problem: str) -> None:
        if self.problem != problem:
            self.problem = problem
            _log.error("templates.%s: %s: %s; the default text is used", self._kind, self._override, problem)


@cache
def default_source(part: str) -> str:
    """Read a default template by its name without `.j2`."""
    return (_FOLDER / f"{part}.j2").read_text(encoding="utf-8")


def _bounded(template: Template, data: Mapping[str, Any]) -> str:
    steps = 0

    def count(frame: FrameType, _event: str, _argument: object) -> Any:  # noqa: ANN401 - a trace function
        nonlocal steps
        if frame.f_code.co_filename != _TEMPLATE:
            return None
        steps += 1
        if steps > _MAX_STEPS:
            raise TooMuch(f"it takes more than {_MAX_STEPS} steps")
        return count

    parts: list[str] = []
    size = 0
    before = sys.gettrace()
    sys.settrace(count)
    try:
        for part in template.generate(**data):
            size += len(part)
            if size > MAX_OUTPUT:
                raise TooMuch(f"it writes more than {MAX_OUTPUT} characters")
            parts.append(part)
    finally:
        sys.settrace(before)
    return "".join(parts).strip()


def _fitting(value: object, most: int) -> object:
    """Cut long texts and lists, those inside others more than those outside."""
    match value:
        case str():
            return value if len(value) <= most else f"{value[: most - 1]}…"
        case list() | tuple():
            return [_fitting(one, max(1, most // 4)) for one in value[:_MAX_ITEMS]] if most > 1 else []
        case dict():
            few = list(value.items())[:_MAX_ITEMS] if most > 1 else []
            return {str(name)[:_MAX_ITEMS]: _fitting(one, max(1, most // 4)) for name, one in few}
    return value


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _told(error: Exception) -> str:
    line = getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    return f"{where}{type(error).__name__}: {error}"[:500]
