"""What a call is for, told from its tool's name and, for shells, its command: looking, changing, waiting.

Names are a guess, and the guess is used only where it makes detectors quieter: a call that may have changed
something ends the streaks of the others, a call that waits gets the patience of a poll.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collector.step import Json


class Role(StrEnum):
    """What a call is for. `other`: its name does not tell, so it may have changed something."""

    LOOK = "look"
    CHANGE = "change"
    WAIT = "wait"
    POLL = "poll"
    MOVE = "move"
    OTHER = "other"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SHELLS = _words("""bash shell sh zsh exec execute terminal command cmd powershell console exec_command""")
_WAITS = _words("wait sleep pause")
_POLLS = _words("""status poll progress output tail watch monitor heartbeat inbox notification notifications health healthz
    ready readiness price quote ticker""")
_POLLED_LISTS = _words("task tasks job jobs queue board messages mail events updates")
_MOVES = _words("""scroll press key keys swipe next undo redo forward back backward step down up continue advance increment
    zoom tab pan""")
_CHANGES = _words("""write edit create update delete remove add insert replace patch apply set put post send save store upload
    move rename copy install commit push merge deploy start stop click type fill submit select drag book cancel
    pay close assign reply publish approve reject charge transfer register schedule restart scale migrate
    spawn""")
_LOOKS = _words("""read get list search find grep glob view show fetch query describe lookup look check inspect cat ls extract
    count load retrieve browse screenshot snapshot recall open visit analyze analyse explain""")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_LOOK_PROGRAMS = _words("""ls cat grep egrep rg ag find fd head tail wc pwd echo printf which whereis type ps df du env printenv stat
    file tree awk sort uniq cut tr jq yq diff cmp date test [ true false : cd whoami id uname hostname nl less more
    md5sum sha256sum strings xxd od basename dirname realpath readlink column ss netstat lsof top free uptime
    man help history ping dig nslookup host""")
_LOOK_SUBCOMMANDS = {
    "git": _words("status log diff show branch blame grep ls-files rev-parse remote describe"),
    "kubectl": _words("get describe logs top explain version"),
    "docker": _words("ps logs images inspect stats"),
    "gh": _words("run pr issue repo"),
    "pip": _words("show list freeze index"),
    "npm": _words("ls view list outdated"),
    "systemctl": _words("status is-active list-units"),
    "go": _words("vet list doc version env"),
}
_REDIRECTS = re.compile(r"(?<![0-9&])>>?(?!\s*(?:/dev/null|&\d))|\btee\b")
_SEPARATORS = re.compile(r"\s*(?:&&|\|\||[|;\n]|&(?!\d|>))\s*")
_IN_PLACE = re.compile(
    r"\bsed\s+(?:-\w*\s+)*-\w*i|\bfind\b.*-(?:delete|exec)|\bcurl\b.*(?:-X\s*[PD]|-d\b|--data)"
)
_WAIT_COMMAND = re.compile(r"(?:sleep|wait)\b[\s\d.smh]*$")
_POLL_COMMAND = re.compile(
    r"\btail\b|\brollout status\b|\b(?:gh )?run (?:view|watch|list)\b|\bpr checks\b|\bsqueue\b"
    r"|\bcurl\b(?!.*(?:-X\s*[PD]|-d\b|--data)).*(?:status|health|ready|jobs?/|progress)|\bdocker logs\b|^\s*ps\b",
)
_PENDING = re.compile(
    r"pending|queued|in[ _-]progress|not (?:yet )?(?:ready|finished|started|complete|available|done)"
    r"|still (?:running|building|waiting|processing|working|in)|waiting (?:for|on)|being processed|please wait"
    r"|(?:status|state|phase|job|build|task|run)\W{1,6}(?:is )?(?:running|building|starting|deploying|processing"
    r"|scheduled|preparing|initiali[sz]ing|training|waiting|provisioning|created|rolling)\b"
    r"|^\W*(?:running|building|starting|deploying|processing|scheduled|initiali[sz]ing|provisioning)\W*$"
    r"|no(?:thing)? new\b|no (?:new )?(?:messages|mail|events|updates|output yet|change)|unchanged|0 new\b",
)
_TERMINAL = re.compile(
    r"(?:status|state|phase)\W{1,6}(?:is )?(?:completed?|finished|succeeded|success|failed|exited|done|stopped"
    r"|cancell?ed|terminated|killed|error)\b|(?:has|already) (?:finished|exited|completed|ended)"
    r"|process (?:exited|finished|ended)|no such (?:process|job|session)",
)
_TRANSIENT = re.compile(
    r"\b(?:429|500|502|503|504|529)\b|time[d -]?\s?out|rate.?limit|too many (?:requests|tokens)|temporar|unavailable"
    r"|connection (?:refused|reset|error|aborted|closed)|connect error|econn|overloaded|try again|quota"
    r"|bad gateway|network[ _]error|socket hang up|retry.after|server busy|database is locked|lock held",
)
_OPAQUE = re.compile(
    r"[\W_]*(?:(?:ok|okay|done|success|successful|succeeded|true|false|null|none|saved|sent|accepted|ack|received"
    r"|image|screenshot|clicked|typed|pressed|scrolled|updated|created|deleted|written|executed|completed"
    r"|result|status|output|content|message|data|type|stdout|stderr|exit ?code|returncode|0|200)[\W_]*)*",
)
_OPAQUE_CHARS = 80
_JUDGED_CHARS = 600


@lru_cache(maxsize=4096)
def words_of(tool: str) -> tuple[str, ...]:
    """Lower-case words of a tool's own name, without the server that an MCP name carries.

    >>> words_of("mcp__browser__getPageText"), words_of("BashOutput"), words_of("read_file")
    (('get', 'page', 'text'), ('bash', 'output'), ('read', 'file'))
    """
    return tuple(word.lower() for word in _WORDS.findall(tool.rpartition("__")[2] or tool))


@lru_cache(maxsize=4096)
def role_of_name(tool: str) -> Role | None:
    """The role that a tool's name tells; None for a shell, whose command tells.

    >>> [role_of_name(t).value for t in ("get_order", "str_replace", "job_status", "wait", "scroll", "Task")]
    ['look', 'change', 'poll', 'wait', 'move', 'other']
    >>> role_of_name("run_shell_command") is None
    True
    """
    words = words_of(tool)
    found = set(words)
    if found & _WAITS:
        return Role.WAIT
    if (found & _POLLS and "git" not in found) or (
        {"list", "get", "check", "read"} & found and found & _POLLED_LISTS
    ):
        return Role.POLL
    if found & _SHELLS:
        return None
    if found & _MOVES:
        return Role.MOVE
    for word in words:
        if word in _LOOKS:
            return Role.LOOK
        if word in _CHANGES:
            return Role.CHANGE
    return Role.OTHER


def role_of(tool: str, arguments: Json) -> Role:
    """What this call is for.

    >>> [role_of("bash", {"command": c}).value for c in ("ls -la", "sed -i s/a/b/ f", "python a.py", "sleep 5")]
    ['look', 'change', 'other', 'wait']
    >>> role_of("bash", {"command": ""}).value, role_of("write_stdin", {"chars": ""}).value
    ('poll', 'poll')
    """
    role = role_of_name(tool)
    if role is None or "stdin" in words_of(tool):
        command = _command(arguments)
        if command is None:
            return role or Role.OTHER
        return role_of_command(command) if role is None or not command.strip() else role
    return role


def _command(arguments: Json) -> str | None:
    if isinstance(arguments, str):
        return arguments
    if isinstance(arguments, Mapping):
        for key in ("command", "cmd", "script", "code", "chars", "input"):
            value = arguments.get(key)
            if isinstance(value, str):
                return value
            if isinstance(value, list) and value:
                return " ".join(
                    map(str, value[2:] if len(value) > 2 and value[1] in ("-c", "-lc") else value)
                )
    return None


@lru_cache(maxsize=1024)
def role_of_command(command: str) -> Role:
    """What a shell command is for.

    >>> [role_of_command(c).value for c in ("git status && git diff", "git commit -m x", "cat a > b", "tail -n 3 log")]
    ['look', 'change', 'change', 'poll']
    """
    if not command.strip():
        return Role.POLL
    if _WAIT_COMMAND.match(command):
        return Role.WAIT
    if _REDIRECTS.search(command) or _IN_PLACE.search(command):
        return Role.CHANGE
    if _POLL_COMMAND.search(command):
        return Role.POLL
    role = Role.LOOK
    for part in _SEPARATORS.split(command.strip()):
        words = part.split()
        while words and "=" in words[0]:
            del words[0]
        if not words or words[0] in _LOOK_PROGRAMS or (words[0] == "sed" and "-n" in words):
            continue
        known = _LOOK_SUBCOMMANDS.get(words[0])
        if known is not None:
            if len(words) > 1 and words[1] in known:
                continue
            role = Role.CHANGE
            continue
        if words[0] == "curl":
            continue
        if words[0] in ("mv", "cp", "rm", "mkdir", "touch", "patch", "chmod", "ln", "apt", "apt-get", "kill"):
            return Role.CHANGE
        if role is Role.LOOK:
            role = Role.OTHER
    return role


def is_pending(text: str) -> bool:
    """Tell whether a result says that something is still going on or has not come yet.

    >>> is_pending('{"status":"running"}'), is_pending("no new mail"), is_pending("web-7c 1/1 Running")
    (True, True, False)
    """
    return _PENDING.search(text[:_JUDGED_CHARS].lower()) is not None


def is_terminal(text: str) -> bool:
    """Tell whether a result says that what was waited for has ended.

    >>> is_terminal('{"status": "completed", "stdout": "(No content)"}'), is_terminal("running")
    (True, False)
    """
    return _TERMINAL.search(text[:_JUDGED_CHARS].lower()) is not None


def is_transient(text: str) -> bool:
    """Tell whether an error may go away by itself.

    >>> is_transient("503 Service Unavailable"), is_transient("old text not found")
    (True, False)
    """
    return _TRANSIENT.search(text[:_JUDGED_CHARS].lower()) is not None


def is_opaque(text: str) -> bool:
    """Tell whether a result is a bare acknowledgement, which says nothing about the state of the world.

    >>> is_opaque("ok"), is_opaque("[image]"), is_opaque('{"success": true}'), is_opaque("3 rows")
    (True, True, True, False)
    """
    return len(text) <= _OPAQUE_CHARS and _OPAQUE.fullmatch(text.lower()) is not None
