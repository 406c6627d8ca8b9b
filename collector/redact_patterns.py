"""What a secret looks like: shapes that are secret wherever they stand, and names whose value is secret.

All but `BOUNDARY` is written in the common subset of Python's `re` (with `re.ASCII`) and RE2, so that one
combined pattern can look for candidates in whole Arrow columns; only the rows that it finds are taken apart
in Python, and there only by the shapes whose hint is in the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from collector.redact_shell import CURL, MYSQL, option_pattern

# What may stand before a secret: no letter or digit, unless that is the end of an escape in JSON or a URL.
BOUNDARY: Final = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"

# The same for RE2, which cannot look behind: here it is part of the match.
_SEARCHED_BOUNDARY: Final = r"(?:^|[^A-Za-z0-9]|\\[nrtbf]|\\u[0-9A-Fa-f]+|%[0-9A-Fa-f]+)"

# A JWT's characters may come before it as well; a run of them is tried once, not from each `eyJ` in it.
_RUN_BOUNDARY: Final = BOUNDARY.replace("[A-Za-z0-9]", "[A-Za-z0-9_\\-]")


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of secret: `pattern` matches all of it, after `boundary`; each match has one of `hints`."""

    kind: str
    hints: tuple[str, ...]
    pattern: str
    boundary: str = BOUNDARY


# The vendors' documentation and the rule sets of public secret scanners are the source of the prefixes;
# lengths are lower bounds, so that longer ones match too. First match wins: `sk-ant-` before `sk-`.
SHAPES: Final = (
    Shape("anthropic", ("sk-ant-",), r"sk-ant-[A-Za-z0-9_\-]{16,}"),
    Shape("langfuse", ("k-lf-",), r"[sp]k-lf-[0-9A-Za-z\-]{16,}"),
    Shape("openai", ("sk-",), r"sk-[A-Za-z0-9_\-]{20,}"),
    Shape(
        "stripe",
        ("_live_", "_test_", "whsec_"),
        r"(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}"
        r"|whsec_[A-Za-z0-9+/=_\-]{16,}",
    ),
    Shape(
        "google",
        ("AIza", "ya29.", "GOCSPX-"),
        r"AIza[0-9A-Za-z_\-]{30,}"
        r"|ya29\.[0-9A-Za-z_\-]{20,}"
        r"|GOCSPX-[0-9A-Za-z_\-]{20,}",
    ),
    Shape(
        "aws",
        ("AKIA", "ASIA", "ABIA", "ACCA", "ABSK"),
        r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"
        r"|ABSK[A-Za-z0-9+/=]{40,}",
    ),
    Shape(
        "github",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        r"gh[pousr]_[A-Za-z0-9]{20,}"
        r"|github_pat_[A-Za-z0-9_]{22,}",
    ),
    Shape(
        "gitlab",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glsoat-", "glft-", "glagent-"),
        r"gl(?:pat|dt|rt|cbt|ptt|soat|ft|agent)-[A-Za-z0-9_\-]{20,}",
    ),
    Shape(
        "slack",
        ("xox", "xapp-", "hooks.slack.com"),
        r"xox[abeoprs]-[A-Za-z0-9\-]{10,}"
        r"|xapp-[0-9]-[A-Za-z0-9\-]{10,}"
        r"|hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_\-]{20,}",
    ),
    Shape("huggingface", ("hf_", "api_org_"), r"(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    Shape("npm", ("npm_",), r"npm_[A-Za-z0-9]{30,}"),
    Shape("pypi", ("pypi-",), r"pypi-[A-Za-z0-9_\-]{40,}"),
    Shape("langsmith", ("lsv2_", "ls__"), r"(?:lsv2_(?:pt|sk)|ls__)_?[A-Za-z0-9_]{20,}"),
    Shape("groq", ("gsk_",), r"gsk_[A-Za-z0-9]{20,}"),
    Shape("xai", ("xai-",), r"xai-[A-Za-z0-9]{20,}"),
    Shape("perplexity", ("pplx-",), r"pplx-[A-Za-z0-9]{20,}"),
    Shape("replicate", ("r8_",), r"r8_[A-Za-z0-9]{20,}"),
    Shape("nvidia", ("nvapi-",), r"nvapi-[A-Za-z0-9_\-]{20,}"),
    Shape("tavily", ("tvly-",), r"tvly-[A-Za-z0-9_\-]{16,}"),
    Shape("pinecone", ("pcsk_",), r"pcsk_[A-Za-z0-9_]{20,}"),
    Shape("sendgrid", ("SG.",), r"SG\.[A-Za-z0-9_\-]{16,}\.[A-Za-z0-9_\-]{16,}"),
    Shape("twilio", ("SK",), r"SK[0-9a-f]{32}\b"),
    Shape("mailgun", ("key-",), r"key-[0-9a-f]{32}\b"),
    Shape("telegram", (":AA",), r"[0-9]{8,10}:AA[A-Za-z0-9_\-]{32,}"),
    Shape("shopify", ("shp",), r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
    Shape("digitalocean", ("_v1_",), r"do[opr]_v1_[a-f0-9]{64}"),
    Shape("databricks", ("dapi",), r"dapi[0-9a-f]{32}"),
    Shape("vault", ("hvs.", "hvb.", "hvr."), r"hv[sbr]\.[A-Za-z0-9_\-]{20,}"),
    Shape("atlassian", ("ATATT3",), r"ATATT3[A-Za-z0-9_\-=]{20,}"),
    Shape("linear", ("lin_",), r"lin_(?:api|oauth)_[A-Za-z0-9]{30,}"),
    Shape("notion", ("ntn_", "secret_"), r"ntn_[A-Za-z0-9]{30,}|secret_[A-Za-z0-9]{43}\b"),
    Shape("supabase", ("sbp_", "sb_secret_"), r"sb(?:p|_secret)_[A-Za-z0-9_]{20,}"),
    Shape("postman", ("PMAK-",), r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    Shape("age", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    Shape(
        "jwt", ("eyJ",), r"eyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}(?:\.[A-Za-z0-9_\-]*)?", _RUN_BOUNDARY
    ),
)

# Where only a part of the match is secret.
PRIVATE_KEY: Final = r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
PRIVATE_KEY_END: Final = r"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"

# A URL with a password in it, slashes escaped or not; an `@` inside the password counts to it.
_AFTER_SCHEME: Final = r":(?:\\*/){2}[^\s/:@\"'<>\\]*:[^\s/\"'<>\\]+@"
URL: Final = r"[A-Za-z][A-Za-z0-9+.\-]{0,20}" + _AFTER_SCHEME

BEARER: Final = r"(?i:bearer)\s+[A-Za-z0-9._~+/=\-]{8,}"
# Base64 that is lower case only is a word of the language: "basic understanding".
BASIC: Final = r"(?i:basic)\s+[A-Za-z0-9+/=_\-]*[A-Z0-9+/=][A-Za-z0-9+/=_\-]*"

# Parts of connection strings of Azure and of signed URLs: the name alone makes the value secret.
SIGNED: Final = r"(?:AccountKey|SharedAccessKey|sig|X-Amz-Signature|X-Goog-Signature)=[A-Za-z0-9+/=%_\-]{16,}"

_WORDS: Final = (
    r"passwords?|passwd|passphrase|passcode|pwd|secrets?|token|api[_\- ]?keys?|authorization|cookie"
    r"|(?:private|access|secret|signing|encryption|account|subscription|auth|master|service)[_\- ]?key"
    r"|credentials?|connection[_\- ]?string"
)

_COUNTED: Final = re.compile(r"(?<=\])\{[0-9]+(?:,[0-9]*)?\}")
_WORD_END: Final = r"\b"

SEPARATOR: Final = r"\s*(?:=>|:=|[:=])\s*"
QUOTE: Final = r"\\*[\"']"


def name_pattern(extra_keys: tuple[str, ...]) -> str:
    """Return a pattern for the end of a lower-case name of a secret, up to where the value begins."""
    return rf"(?:{_words_of(extra_keys)})(?:{QUOTE})?{SEPARATOR}"


def _words_of(extra_keys: tuple[str, ...]) -> str:
    return _WORDS + "".join(f"|{re.escape(key.lower())}" for key in extra_keys)


def candidates(extra_keys: tuple[str, ...], extra_patterns: tuple[str, ...]) -> str:
    """Return one RE2 pattern that matches every text with a secret in it, and few others.

    Repetitions lose their counts, because RE2 unrolls them and compiles ten times longer: Arrow compiles the
    pattern anew for each call. Word ends go with them, since they may now fall inside a match.
    """
    shapes = "|".join((*(shape.pattern for shape in SHAPES), SIGNED))
    # With its scheme, a counted run of letters, RE2 takes a second for 2 MB of base64.
    own = (f"{_SEARCHED_BOUNDARY}(?:{shapes})", _AFTER_SCHEME, BEARER, BASIC)
    return "|".join(
        (
            PRIVATE_KEY,
            f"(?i:{name_pattern(extra_keys)})",
            f"(?i:{option_pattern(_words_of(extra_keys))})",
            CURL,
            MYSQL,
            *(_COUNTED.sub("+", text).replace(_WORD_END, "") for text in own),
            *extra_patterns,
        )
    )


# --- names

_SECRET_NAME: Final = re.compile(
    r"(?:.*_)?(?:[a-z]*(?:password|passwd|passphrase|passcode)s?|[a-z]*pwd"
    r"|(?:client|app|shared|webhook|consumer|api)?secrets?"
    r"|(?:access|auth|refresh|id|session|bearer|api|bot|csrf|xsrf|security|oauth|jwt)?token"
    r"|(?:[a-z]*_?api|private|access|secret|signing|encryption|account|subscription|auth|master|service)_?keys?"
    r"|(?:proxy_?)?authorization|(?:set_?)?cookie|credentials?|connection_?string)"
)
# Tokens that are counted, paged through or drawn by a model.
_HARMLESS: Final = re.compile(
    r"(?:.*_)?(?:next|page|continuation|cursor|sync|prompt|completion|first|last|output|input|per|stop|eos|bos|pad"
    r"|unk|sep|cls|mask|special|cancellation|max|min|total|reasoning|thinking|cached|start|end|delta|new|budget"
    r"|current|previous|prev)_?token"
)
_STRONG: Final = re.compile(
    r".*(?:pass|pwd|key|client_?secret|(?:access|auth|refresh|session|bearer)_?token).*"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME_CHARS: Final = 128  # of a name, its end decides; what is remembered of names stays small
_NO_WORD: Final = re.compile(r"[^a-z0-9]+")


def is_secret_name(name: str) -> bool:
    """Tell whether what this name holds is secret: `db.password`, `X-Api-Key`; not `max_tokens`."""
    return _is_secret_name(name[-_NAME_CHARS:])


def is_strong_name(name: str) -> bool:
    """Tell whether the name says so plainly that a value in running text is taken to be secret too."""
    return _is_strong_name(name[-_NAME_CHARS:])


@lru_cache(maxsize=8192)
def _is_secret_name(name: str) -> bool:
    words = _words(name)
    return _SECRET_NAME.fullmatch(words) is not None and _HARMLESS.fullmatch(words) is None


@lru_cache(maxsize=4096)
def _is_strong_name(name: str) -> bool:
    return _STRONG.fullmatch(_words(name)) is not None


def _words(name: str) -> str:
    return _NO_WORD.sub("_", _CAMEL.sub("_", name).lower()).strip("_")
