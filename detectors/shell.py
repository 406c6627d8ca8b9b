"""Shell commands: one spelling, what they are for, and which only print."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import dropwhile

from detectors.role import Role, words

_LOOK_PROGRAMS = words(
    """
    ls cat grep egrep rg ag find fd head tail wc pwd echo printf which whereis type ps df du env printenv stat
    file tree awk sort uniq cut tr jq yq diff cmp date test [ true false : cd whoami id uname hostname nl less
    more md5sum sha256sum strings xxd od basename dirname realpath readlink column ss netstat lsof top free
    uptime man help history ping dig nslookup host curl
    """,
)
_CHANGE_PROGRAMS = words("mv cp rm mkdir rmdir touch patch chmod chown ln apt apt-get kill truncate dd rsync")
_SUBCOMMANDS = {
    "git": words("status fetch log diff show branch blame grep ls-files rev-parse remote describe"),
    "kubectl": words("get describe logs top explain version"),
    "docker": words("ps logs images inspect stats"),
    "gh": words("run pr issue repo"),
    "pip": words("show list freeze index"),
    "npm": words("ls view list outdated"),
    "systemctl": words("status is-active list-units"),
    "go": words("vet list doc version env"),
}
"""Programs that change things, but for these subcommands."""
_REMEMBERED_CHARS = 2000
_OPTIONS_WITH_VALUE = words("-C -c -n -f -p --namespace --context --file --prefix")
_REDIRECTS = re.compile(r"(?<![0-9&])>>?(?!\s*(?:/dev/null|&\d))|\btee\b")
# Commands of strangers may be as long as a result. So nothing here looks at the rest of a line again from
# each place of its own: counts are bounded, and what is found first is not looked for again, `(?>...)`.
_IN_PLACE = re.compile(
    r"\bsed\s{1,9}(?:-\w{0,32}\s{1,9}){0,9}-\w{0,32}i"
    r"|(?m:^)(?>.*?\bfind\b).*-(?:delete|exec)|(?m:^)(?>.*?\bcurl\b).*(?:-X\s{0,9}[PD]|-d\b|--data)",
)
_SEPARATORS = re.compile(r"&&|\|\||[|;\n]|&(?!\d|>)")
_WAITING = re.compile(r"(?:sleep|wait)\b[\s\d.smh]*$")
_POLLING = re.compile(
    r"^\s*tail\b|\btail (?:-\w{1,32} ){0,9}(?:-\w{0,32}[fF]|--follow)\b|\bsleep \d"
    r"|^\s*(?:test|\[|until|while(?! (?:IFS=\S* )?read\b)) |\brollout status\b"
    r"|\b(?:gh )?run (?:view|watch|list)\b|\bpr checks\b|\bsqueue\b"
    r"|(?m:^)(?>.*?\bcurl\b).*(?:status|health|ready|jobs?/|progress)|\bdocker logs\b|^\s*ps\b",
)

_QUOTED = re.compile(
    r"""('[^']*'|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))"""
)  # what nothing closes is quoted to the end
_PLAIN_WORD = re.compile(r"[\w./:@%+=,~-]+")
_SHORT_FLAG = re.compile(r"-[A-Za-z]+")
_PATH = re.compile(r"(?:\.{0,2}/|~/)?[^\s:?#*\"'<>|]*/[^\s:?#*\"'<>|]*")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_PRINTS = re.compile(
    r"\s*(?:(?:echo|printf|true|:|date|pwd)\b(?:[^;&|<>`$]|\$\([^()]*\)|\$(?!\())*(?:;|&&|\|\||$)\s*)+",
)
_ASKS = re.compile(r"\$\((?!\s*date\b)|`")
_VOLATILE_QUERY = re.compile(
    r"(?i)(?<=[?&])(?:_|cb|cache_?bust(?:er)?|nonce|timestamp|request_?id|ts|try|attempt|retry)=[^&#]*&?"
)


def role_of_command(command: str) -> Role:
    """What a shell command is for. An empty one looks at what runs already.

    >>> [role_of_command(c).value for c in ("git status && git diff", "git commit -m x", "cat a > b", "make")]
    ['look', 'change', 'change', 'other']
    >>> [role_of_command(c).value for c in ("", "sleep 5", "sleep 5; kubectl get pods", "sed -i s/a/b/ f")]
    ['poll', 'wait', 'poll', 'change']
    >>> [role_of_command(f"while {c}; do date; done").value for c in ("read -r f", "pgrep make")]
    ['other', 'poll']
    >>> [role_of_command(f"{c} -1").value for c in ("tail b.log", "tail -F b.log", "ls -l | sort -n | tail")]
    ['poll', 'poll', 'look']
    """
    command = command.strip()
    if len(command) > _REMEMBERED_CHARS:
        return _role_of_command.__wrapped__(command)
    return _role_of_command(command)


@lru_cache(maxsize=1024)
def _role_of_command(command: str) -> Role:
    """What `role_of_command` says; remembered, because calls come again."""
    if not command:
        return Role.POLL
    if _WAITING.match(command):
        return Role.WAIT
    if _REDIRECTS.search(command) or _IN_PLACE.search(command):
        return Role.CHANGE
    roles = {_role_of_part(part.split()) for part in _SEPARATORS.split(command)}
    if Role.CHANGE in roles:
        return Role.CHANGE
    if _POLLING.search(command):
        return Role.POLL
    return Role.OTHER if Role.OTHER in roles else Role.LOOK


def _role_of_part(part: list[str]) -> Role:
    """What one simple command of a line is for."""
    part = list(dropwhile(lambda word: "=" in word, part))
    if not part or part[0] in _LOOK_PROGRAMS or (part[0] == "sed" and "-n" in part):
        return Role.LOOK
    looks = _SUBCOMMANDS.get(part[0])
    if looks is not None:
        return Role.LOOK if _subcommand(part[1:]) in looks else Role.CHANGE
    return Role.CHANGE if part[0] in _CHANGE_PROGRAMS else Role.OTHER


def _subcommand(arguments: list[str]) -> str:
    """The first word that is no option of the program itself, nor such an option's value.

    >>> _subcommand("-n web --context=eu get pods".split()), _subcommand(["compose", "ps"])
    ('get', 'ps')
    """
    words_left = iter(arguments)
    for word in words_left:
        if word in _OPTIONS_WITH_VALUE:
            next(words_left, None)
        elif word[0] != "-" and word != "compose":
            return word
    return ""


def only_prints(command: str) -> bool:
    """Tell whether a command only prints, so that nothing is asked and nothing is done.

    >>> only_prints("echo s1 $(date +%T)"), only_prints("echo x > f"), only_prints("echo $(cat f)")
    (True, False, False)
    """
    if command[:1] not in "ep:td " or not command:
        return False
    return _PRINTS.fullmatch(command) is not None and not _ASKS.search(command)


def canonical_path(text: str) -> str:
    r"""One spelling of a path or URL; other text stays as it is.

    >>> canonical_path("/srv/app/"), canonical_path("/srv/./app//x"), canonical_path("https://ex.org/a/")
    ('/srv/app', '/srv/app/x', 'https://ex.org/a')
    >>> canonical_path("https://ex.org/a?attempt=2&q=1&_=1699"), canonical_path("a / b")
    ('https://ex.org/a?q=1', 'a / b')
    >>> canonical_path("C:\\src\\a.cs"), canonical_path("c:/src/./a.cs")
    ('c:/src/a.cs', 'c:/src/a.cs')
    """
    if "://" in text:
        if " " in text:
            return text
        if "?" in text:
            return _VOLATILE_QUERY.sub("", text).rstrip("?&")
        scheme, _, rest = text.partition("://")
        return f"{scheme.lower()}://{rest.rstrip('/')}"
    if _DRIVE.match(text):
        return text[0].lower() + ":" + canonical_path(text[2:].replace("\\", "/"))
    if not _PATH.fullmatch(text):
        return text
    while "//" in text:
        text = text.replace("//", "/")
    text = text.replace("/./", "/").removeprefix("./")
    return text.rstrip("/") or "/"


def canonical_command(command: str) -> str:
    """One spelling of a simple command: white space, quotes around plain words, paths, short flags.

    What has several lines keeps its inside, and so does what is quoted for a reason.

    >>> canonical_command("ls  -l -a '/srv/app/' ") == canonical_command('ls -la "/srv/app"')
    True
    >>> canonical_command("grep 'a  b' f") == canonical_command("grep 'a b' f")
    False
    """
    command = command.strip()
    if "\n" in command:
        return command
    if "'" in command or '"' in command:
        command = _plainly_quoted(command)
    merged: list[str] = []
    flags: list[str] = []
    for word in command.split():
        if word[0] == "-" and _SHORT_FLAG.fullmatch(word):
            flags += word[1:]
            continue
        if flags:
            merged.append("-" + "".join(sorted(flags)))
            flags = []
        merged.append(canonical_path(word) if "/" in word else word)
    if flags:
        merged.append("-" + "".join(sorted(flags)))
    return " ".join(merged)


def _plainly_quoted(command: str) -> str:
    """Take the quotes off plain words, and keep the white space of everything else that is quoted."""
    pieces = _QUOTED.split(command)
    for i in range(1, len(pieces), 2):
        piece = pieces[i]
        if piece[0] == piece[-1] and _PLAIN_WORD.fullmatch(piece, 1, len(piece) - 1):
            pieces[i] = piece[1:-1]
        else:
            pieces[i] = piece.replace(" ", "\x00").replace("\t", "\x01")
    return "".join(pieces)
