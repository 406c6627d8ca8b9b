"""Identity of calls and of what they bring back: canonical arguments, call signatures, information.

Two calls are the same when their canonical arguments are: key order, absent against null, `10` against
`10.0` against `"10"`, white space, path and simple shell spelling do not matter. Arguments are dropped by
*name* (request ids, attempt counters, explanations), never masked by value, because the uuid or the date may
be what the call is about, and never all of them. Information is the result or error without what changes from
call to call by itself: clocks, durations, process ids, uuids, request ids.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from detectors.role import words
from detectors.shell import canonical_command, canonical_path, only_prints

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collector.step import Json


HEAD_CHARS = 8192
"""How much of a result's beginning is fingerprinted, in characters."""
TAIL_CHARS = 1024
"""How much of its end, when it is longer than that."""

VOLATILE = words(
    """
    requestid reqid traceid spanid traceparent correlationid clientrequestid clienttoken clientmsgid
    clientmessageid dedupid nonce idempotencykey now timestamp currenttime requesttime sentat attempt
    attempts attemptnumber retry retrycount retrynumber backoff backoffms backoffseconds timeout timeoutms
    timeoutseconds timeoutsec yieldtimems toolcallid tooluseid callid
    clientts clienttime clienttimestamp clientnonce clientrequesttoken clientreqid requestts requesttimestamp
    requesttoken requestnonce requestno requestnumber requestuuid requestseq requestsequence senttime sentts
    senttimestamp calltime callts calltimestamp issuedat requestedat xrequestid xcorrelationid xtraceid corrid
    correlationtoken correlationkey correlationuuid traceuuid invocationid dedupkey dedupetoken dedupeid
    dedupekey deduplicationid idempotencytoken idempotencyid cachebust cachebuster nonceid tryno trynumber
    tries attemptid attemptno retryid retryattempt retries
    """,
)
"""Arguments that say nothing about what is asked, by normalised name, wherever they are nested."""
COSMETIC = words(
    """
    brief explanation reason reasoning rationale thought thoughts thinking justification why toolsummary
    toolaction onesentenceexplanation
    """,
)
"""Arguments in which a model explains itself; dropped at the top level only."""
_TITLES = frozenset({"description", "title", "label", "summary", "purpose", "intent"})
_SHELL_KEYS = frozenset({"command", "cmd", "script"})
_LITERAL_KEYS = words(
    """
    content contents text body code patch diff old new oldstring newstring oldstr newstr oldtext newtext
    insert inserttext filetext replacement message prompt data input
    """,
)
_BRIEF_KEYS = ("prompt", "instructions")
_DELEGATES = re.compile(r"(?i)agent|task|delegat|spawn|dispatch|hand_?off|transfer|worker")

_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,12})?")
_NAME_NOISE = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Call:
    """What was asked. `signature` is 64 bits; `known` is False when the arguments were not recorded.

    `dropped` are the string values of volatile arguments, which a result may echo. `noop` tells a shell
    command that only prints.
    """

    signature: int
    known: bool = True
    dropped: tuple[str, ...] = ()
    noop: bool = False


def named(call: Call) -> dict[str, Json]:
    """What a finding about one call says of who it is, for whoever compares or stops such calls.

    `signature` is 16 hex digits; nothing when the arguments were not recorded.

    >>> named(Call(255)), named(Call(255, known=False))
    ({'signature': '00000000000000ff'}, {})
    """
    return {"signature": f"{call.signature:016x}"} if call.known else {}


@dataclass(frozen=True, slots=True)
class Names:
    """Names of arguments to drop for one tool, normalised.

    `delegates`: the tool hands work to another agent.
    """

    volatile: frozenset[str] = VOLATILE
    cosmetic: frozenset[str] = COSMETIC
    delegates: bool = False


DEFAULT_NAMES = Names()
DELEGATE_NAMES = Names(cosmetic=frozenset(), delegates=True)


def hash64(text: str) -> int:
    """Return 64 bits of BLAKE2b, equal on every machine.

    >>> hash64("a") == hash64("a"), hash64("a") == hash64("b"), hash64("a") < 2**64
    (True, False, True)
    """
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(),
        "big",
    )


@lru_cache(maxsize=4096)
def normal_name(name: str) -> str:
    """Spell an argument's name one way.

    >>> normal_name("Request-ID"), normal_name("requestId"), normal_name("request_id")
    ('requestid', 'requestid', 'requestid')
    """
    return _NAME_NOISE.sub("", name.lower())


def names_for(tool: str, extra_volatile: Iterable[str] = ()) -> Names:
    """Choose what to drop for a tool.

    Delegations keep their briefs and reasons: these are the work itself.
    """
    base = DELEGATE_NAMES if _DELEGATES.search(tool) else DEFAULT_NAMES
    extra = frozenset(map(normal_name, extra_volatile))
    return Names(base.volatile | extra, base.cosmetic, delegates=base.delegates) if extra else base


def call_of(tool: str, arguments: Json, names: Names = DEFAULT_NAMES) -> Call:
    """Return the identity of a call of `tool`; arguments None means "not recorded".

    >>> a = call_of("search", {"q": "x", "limit": 10, "request_id": "f5057fee"})
    >>> b = call_of("search", {"request_id": "f41fcb28", "limit": "10.0", "q": "x ", "after": None})
    >>> a.signature == b.signature, a.dropped
    (True, ('f5057fee',))
    >>> call_of("get", {"id": 1}).signature == call_of("get", {"id": 2}).signature
    False
    >>> call_of("get", None).known
    False
    """
    if arguments is None:
        return Call(hash64(tool + "\x1e?"), known=False)
    if isinstance(arguments, str):
        arguments = _parsed(arguments)
    if not isinstance(arguments, Mapping):
        return Call(hash64(f"{tool}\x1e{_canonical(arguments, '', names)}"))
    dropped: list[str] = []
    kept, noop = _canonical_top(arguments, names, dropped)
    return Call(hash64(f"{tool}\x1e{kept}"), dropped=tuple(dropped), noop=noop)


def _parsed(text: str) -> Json:
    """Read arguments that were recorded as JSON text; any other text stands for itself."""
    if text[:1] in "{[" and text:
        try:
            value: Json = json.loads(text)
        except ValueError:
            return text
        return value
    return text


def _canonical_top(arguments: Mapping[str, Json], names: Names, dropped: list[str]) -> tuple[str, bool]:
    """Canonical text of all arguments of a call, and whether it is a shell command that only prints."""
    shell = noop = False
    titled = names.delegates and any(arguments.get(key) for key in _BRIEF_KEYS)
    for key in _SHELL_KEYS:
        command = arguments.get(key)
        if isinstance(command, str):
            shell, noop = True, only_prints(command)
    parts: list[tuple[str, str]] = []
    for key, value in arguments.items():
        if value is None:
            continue
        name = normal_name(key)
        if name in names.volatile:
            if isinstance(value, str):
                dropped.append(value)
            continue
        if name in names.cosmetic or ((shell or titled) and name in _TITLES):
            continue
        if shell and name in _SHELL_KEYS and isinstance(value, str):
            parts.append((name, "noop" if noop else canonical_command(value)))
        else:
            parts.append((name, _canonical(value, name, names)))
    if not parts and arguments:
        dropped.clear()
        parts = [(normal_name(k), _canonical(v, "", names)) for k, v in arguments.items() if v is not None]
    parts.sort()
    return "\x1f".join([f"{name}={value}" for name, value in parts]), noop


def _canonical(value: Json, name: str, names: Names) -> str:
    """Canonical text of one value under the normalised argument name `name`."""
    if isinstance(value, str):
        return _canonical_text(value, name)
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, (int, float)):
        return _canonical_number(value)
    if isinstance(value, Mapping):
        return _canonical_object(value, names)
    return "[" + "\x1f".join([_canonical(item, name, names) for item in value]) + "]"


def _canonical_object(value: Mapping[str, Json], names: Names) -> str:
    """Canonical text of a nested object."""
    parts = sorted(
        f"{name}={_canonical(item, name, names)}"
        for name, item in ((normal_name(key), item) for key, item in value.items())
        if item is not None and name not in names.volatile
    )
    return "{" + "\x1f".join(parts) + "}"


def _canonical_number(value: float) -> str:
    if isinstance(value, int):
        return f"n{value}"
    if value.is_integer() and abs(value) < 1e15:  # noqa: PLR2004 - beyond, floats skip integers
        return f"n{int(value)}"
    return f"n{value!r}"


def _canonical_text(text: str, name: str) -> str:
    """Canonical text of a string: numbers as numbers, one spelling of white space and of paths.

    >>> [_canonical_text(text, "path") for text in ("src//lib/", "./src/lib", "10.0")]
    ['src/lib', 'src/lib', 'n10']
    """
    if name in _LITERAL_KEYS or "\n" in text:
        return text.strip("\r\n")
    text = " ".join(text.split())
    if len(text) < 24 and text[-1:].isdigit() and _NUMBER.fullmatch(text):  # noqa: PLR2004 - longest match
        return _canonical_number(float(text)) if "." in text else f"n{int(text)}"
    if "/" in text or ":\\" in text:
        return canonical_path(text)
    return text


# What starts with a digit is found by one scan with a literal prefix set, ten times faster than an
# alternation.
_CLOCKS = re.compile(
    r"""(?x)\d(?:
      \d{3}-\d\d-\d\d[t\ ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|[+-]\d\d:?\d\d)?
    | \d{3}-\d\d-\d\dt\d\d[_-]\d\d[_-]\d\d(?:[_.-]\d+)?z?
    | (?<![\w:.]\d)\d?:\d\d(?::\d\d(?:[.,]\d+)?)?(?![\d:])
    | (?<=1)[6-9]\d{8}(?:\d{3}|\.\d+)?(?!\d)
    | (?<!\d\d)\d*+(?:\.\d++)?+\ ?+(?:ms|[µμun]s|s|secs?|seconds?|milliseconds?|times)\b
    )""",
)
# Digits, the first letters of units, and the marks that clocks have; all else is one.
_CLOCK_LIKE = bytes(
    b"0"[0] if byte in b"0123456789" else b"m"[0] if byte in b"munst" else byte if byte in b" :" else 1
    for byte in range(256)
)
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UUID_TAIL = re.compile(r"(?i)-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# Led by a separator and then by a letter that some name begins with, so that most positions are passed
# cheaply.
_KEYED = re.compile(
    r"""(?x)[\s"'{(,;:\[\x1e_=?&/](?=[delptcursgfbmwarhi])(?:
      (?:
        (?:(?:total|execution|wall|run|build|response)_?)?
        (?:duration|elapsed|latency|took|time_?taken)(?:_?(?:ms|s|secs?|seconds))?
      | p?pid
      | up_?time(?:_?(?:ms|s|secs?|seconds))?
      | (?:served|handled|processed|answered)_?by
      | (?:started|finished|ended|completed|created|updated|generated|checked|fetched|last_?checked)_?at
      | timestamp
      | (?:message|msg|request|req|trace|span|event|correlation|response|error|incident)[_\ ]?id
      | attempts? | retry | retries | try
      )
      \\?["']?\ ?[:=\#]?\ ?
      (?:\\?"[^"\\]*\\?"|'[^']*'|[\d.]+(?:\s?(?:of|/)\s?\d+)?|(?<=[:=\#\ ])[\w.-]*\d[\w.-]*)
    | (?:req|request|trace|span|batch|msg|message|worker|agent|call|corr|event|run|txn)
      [-_](?:(?=[a-z]*\d)[0-9a-z]{6,}|[0-9a-z]{12,})
    )""",
)
_CUES = (
    "dura",
    "elap",
    "laten",
    "took",
    "pid",
    "ed_at",
    "edat",
    "stamp",
    "req",
    "trac",
    "atte",
    "retr",
    "try",
    "uptime",
    "up_time",
    "edby",
    "ed_by",
    "incident",
    "error id",
    "error_id",
    "errorid",
)
_DASHED_CUES = (
    "span",
    "batch",
    "mess",
    "msg",
    "worker",
    "call",
    "event",
    "corr",
    "run",
    "txn",
    "resp",
    "_taken",
)
_NEW_IDS = re.compile(
    r"""(?x)["']?\b(?:(?:\w+_)?(?:id|ids|key|number|url|uri|href|link|permalink|self|ts|sha|hash)|[a-z]\w*Id|ID)["']?\s?[:=]\s?
        (?:"[^"]*"|'[^']*'|[\w./:-]*\d[\w./:-]*)
      | \#\d+
      | \b(?:\w+_)?tokens(?:_\w+)?["']?\s?[:=]\s?\d+
      | (?<![a-z])(?:agent|worker|task|job|batch|run|thread)[-_][\w-]*\d[\w-]*""",
)
_HEX = re.compile(r"(?<![0-9a-z-])(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{8,}(?![0-9a-z-])")
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}|/tmp/[\w.-]*[\w/.-]*|tmp[a-z0-9_]{8}\b")


def information_text(text: str, dropped: tuple[str, ...] = ()) -> str:
    """A result or error without its volatile parts; numbers stay.

    >>> information_text("done batch-5747d1df-afee-4375-8b62-aff1f0a3117a ok in 300 ms")
    'done batch-# ok in #'
    >>> information_text('{"exitCode": 0, "durationMs": 180, "pid": 4000, "text": "web-7c 1/1"}')
    '{"exitcode": 0, #, #, "text": "web-7c 1/1"}'
    >>> information_text("60991.8 at 12:00:01"), information_text("m1.ts(5,3): error TS2322 (9 errors)")
    ('60991.8 at #', 'm1.ts(5,3): error ts2322 (9 errors)')
    """
    for value in dropped:
        if len(value) > 3:  # noqa: PLR2004 - shorter ones occur by chance
            text = text.replace(value, "#")
    text = text.lower()
    if _UUID_TAIL.search(text):
        text = _UUID.sub("#", text)
    if _may_be_clock(text):
        text = _CLOCKS.sub("#", text)
    if _may_be_keyed(text):
        text = _KEYED.sub("#", text)
    if "0x" in text or "tmp" in text:
        text = _ADDRESS.sub("#", text)
    return text


def without_new_ids(text: str) -> str:
    """What a change brought back without the ids of what it made: made again, it has another id.

    >>> without_new_ids('{"id": 17, "state": "open"}'), without_new_ids("created issue #124, 3 left")
    ('{#, "state": "open"}', 'created issue #, 3 left')
    """
    return _NEW_IDS.sub("#", text)


def _may_be_clock(text: str) -> bool:
    """A cheap look: whether digits are where they are in a clock, an epoch or a duration; most have none."""
    if not text.isascii():
        return True
    like = text.encode().translate(_CLOCK_LIKE)
    return b"0m" in like or b"0 m" in like or b"0:0" in like or b"0000000000" in like


def without_hashes(text: str) -> str:
    """An error without container ids, digests and the like: which one it names is no news.

    >>> without_hashes("container 4f5e6d7c8b9a is not running, 20260311 tries, 9 errors")
    'container # is not running, 20260311 tries, 9 errors'
    """
    return _HEX.sub("#", text)


def _may_be_keyed(text: str) -> bool:
    """A cheap look before the dear expression: whether any of the names that it knows occurs."""
    for cue in _CUES:
        if cue in text:
            return True
    if "-" in text or "_" in text:
        for cue in _DASHED_CUES:
            if cue in text:
                return True
    return False


def information(text: str, dropped: tuple[str, ...] = ()) -> int:
    """64-bit fingerprint of what a call brought back.

    Of a long text the beginning (`HEAD_CHARS`), the end (`TAIL_CHARS`) and the number of lines count.
    """
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        lines = text.count("\n")
        text = f"{text[:HEAD_CHARS]}\x1e{lines}\x1e{text[-TAIL_CHARS:]}"
    return _fingerprint(text, dropped)


@lru_cache(maxsize=1024)
def _fingerprint(text: str, dropped: tuple[str, ...]) -> int:
    """Remembered for a while: what polls and loops bring back is the same text again and again."""
    return hash64(information_text(text, dropped))


def identifiers(text: str, limit: int = 4) -> tuple[int, ...]:
    """Fingerprints of the first uuids in a text, at most `limit`.

    An id that a result brought and a later call uses is information, not noise.
    """
    if _UUID_TAIL.search(text) is None:
        return ()
    return tuple(
        hash64(found.group()) for found, _ in zip(_UUID.finditer(text.lower()), range(limit), strict=False)
    )
