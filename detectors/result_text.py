"""What the text of a result or error tells: still going on, ended, may go away by itself, says nothing."""

from __future__ import annotations

import re

_JUDGED_CHARS = 600
_OPAQUE_CHARS = 80

_PENDING = re.compile(
    r"pending|queued|in[ _-]progress|not (?:yet )?(?:ready|finished|started|complete|available|done)"
    r"|still (?:running|building|waiting|processing|working|in)|waiting (?:for|on)|being processed"
    r"|please wait|(?:status|state|phase|health|job|build|task|run)\W{1,6}(?:is )?(?:running|building"
    r"|starting|deploying|processing|scheduled|preparing|initiali[sz]ing|training|waiting"
    r"|provisioning|created|rolling)\b|^\W*(?:running|building|starting|deploying|processing"
    r"|scheduled|initiali[sz]ing|provisioning)\W*$|no(?:thing)? new\b|no (?:new )?(?:messages|mail"
    r"|events|updates|output yet)|no changes? (?:yet|so far|since)|unchanged|0 new\b"
    r"|containercreating",
)
_TERMINAL = re.compile(
    r"(?:status|state|phase)\W{1,6}(?:is )?(?:completed?|finished|succeeded|success|failed|exited"
    r"|done|stopped|cancell?ed|terminated|killed|error)\b|(?:has|already) (?:finished|exited"
    r"|completed|ended)|process (?:exited|finished|ended)|no such (?:process|job|session)",
)
_TRANSIENT = re.compile(
    r"\b(?:429|500|502|503|504|529)\b|time[d -]?\s?out|rate.?limit|too many (?:requests|tokens)"
    r"|temporar|unavailable|connection (?:refused|reset|error|aborted|closed)|connect error|econn"
    r"|overloaded|try again|quota|bad gateway|network[ _]error|socket hang up|retry.after|server busy"
    r"|database is locked|lock held",
)
_ERROR = re.compile(
    r"\W*(?:error|exception|traceback|failed|failure|fatal|permission denied|access denied|no such|invalid"
    r"|unknown|cannot|can't|unable|unauthorized|forbidden|not found)\b",
)
_OPAQUE = re.compile(
    r"[\W_]*(?:(?:okay|ok|done|successful|success|succeeded|true|false|null|none|saved|sent|accepted"
    r"|ack|received|image|screenshot|captured|taken|clicked|typed|pressed|scrolled|updated|created"
    r"|deleted|written|executed|completed|result|status|output|content|message|data|type|stdout"
    r"|stderr|exit ?code|returncode|200|0)[\W_]*)*",
)


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


def is_error(text: str) -> bool:
    """Tell whether a result begins as an error does, whatever its outcome says.

    >>> is_error("Error: no such session"), is_error('{"error": "bad id"}'), is_error("0 errors")
    (True, True, False)
    """
    return _ERROR.match(text[:_JUDGED_CHARS].lower()) is not None


def is_opaque(text: str) -> bool:
    """Tell whether a result is a bare acknowledgement, which says nothing about the state of the world.

    >>> is_opaque("ok"), is_opaque("[image]"), is_opaque('{"success": true}'), is_opaque("3 rows")
    (True, True, True, False)
    """
    return len(text) <= _OPAQUE_CHARS and _OPAQUE.fullmatch(text.lower()) is not None
