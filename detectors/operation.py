"""What a call is about, in a few words: the key under which its failure and its recovery belong together.

For most tools it is the tool. A shell is one tool for everything: 99 % of the failing shell calls of coding
agents are followed within five calls by one that works, which says nothing. So for a shell the operation is
the program that does the work, its subcommand, and the first path, host or package that it is about. Passed
over are wrappers (`sudo`, `env`, `timeout 5`, `bash -lc`), changes of folder, assignments, what only prints.
Of a path the last part counts, because path variants are attempts at the same thing; of a URL the host; of a
package its name without version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from detectors.role import words
from detectors.tool_role import role_of_name

if TYPE_CHECKING:
    from collector.step import Json

MAX_CHARS: Final = 120
_REMEMBERED_CHARS: Final = 2000
"""Characters of an operation's name at most."""
_HEAD_CHARS: Final = 2000
_MAX_WORDS: Final = 64
_MAX_DEPTH: Final = 3
_MAX_PART: Final = 48

_COMMAND_KEYS: Final = ("command", "cmd", "script", "commands", "input", "code")
_DASH_C: Final = re.compile(r"-[a-z]*c")
_SHELL_PROGRAMS: Final = words("bash sh zsh dash ksh")

_WORD: Final = re.compile(
    r"""(?x)
      (?P<comment>(?<![^\s;&|])\#[^\n]*+)
    | (?P<redirect>\d?(?:>>?\|?(?:&\d)?|<<<|<<-?|<(?!\()|&>>?))
    | (?P<end>\n|;|\|\|?|&&?)
    | (?P<word>(?:'[^']*+'|"(?:[^"\\]++|\\.)*+"|\\.|[^\s'"\\;|&<>]|<\(|['"\\])++)
    """,
    re.DOTALL,
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_ESCAPED: Final = re.compile(r"""['"\\]""")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/@\s]*@)?([^/?#\s]*)", re.IGNORECASE)
_PATH: Final = re.compile(r"[^\s=,*]*(?:/[^\s=]*|\.[A-Za-z]\w{0,5}|\.)")
_VERSION: Final = re.compile(r"(?:[=<>~!]=|[<>]|(?<=.)@|\[).*")
_NUMERIC: Final = re.compile(r"[\d.,:;smhKMG%+-]*p?")
_VERSIONED: Final = re.compile(r"(python|pip|node|ruby|perl|php|gcc|clang|java)[\d.]+")

_PASSED: Final = words(
    """
    cd pushd popd export set unset source . echo printf true : sleep alias shopt ulimit umask trap eval for
    case select function local declare wait date pwd test [ [[
    """
)
"""Programs that only prepare: the one after them does the work, if there is one."""
_KEYWORDS: Final = words(
    "if then else elif fi do done esac while until ! { } ( time nohup exec command builtin coproc"
)
_WRAPPERS: Final[Mapping[str, frozenset[str]]] = {
    "sudo": words("-u -g -h -p -C"),
    "env": words("-u -C -S"),
    "timeout": words("-s -k --signal --kill-after"),
    "nice": words("-n"),
    "ionice": words("-c -n -p"),
    "stdbuf": words("-i -o -e"),
    "xvfb-run": words("-s -n"),
    "watch": words("-n"),
    "xargs": words("-n -I -P -d -L"),
    "npx": words("-p"),
    "strace": words("-e -o"),
    "gtimeout": words("-s -k"),
}
"""Programs that run another, with their options that take a value."""
_COUNTED: Final = words("timeout gtimeout")
_RUNNERS: Final = words("uv poetry pipenv conda mamba hatch pdm rye bundle")
_RUNNER_VALUES: Final = words("-n --name -p --with --python --env-file --project --directory")
_SUBCOMMANDS: Final = words(
    """
    git npm yarn pnpm bun kubectl oc docker podman docker-compose gh pip pipx systemctl service go cargo apt
    apt-get apk yum dnf brew gem conda mamba helm terraform aws gcloud az poetry uv pipenv dotnet rails bundle
    rustup composer heroku fly vercel journalctl svn hg ansible nix snap flutter dart mix
    """
)
_LEVELS: Final[Mapping[str, frozenset[str] | None]] = {
    "git": words("stash remote submodule worktree bisect config"),
    "npm": words("run run-script"),
    "yarn": words("run"),
    "pnpm": words("run"),
    "bun": words("run"),
    "docker": words("compose image container network volume system buildx"),
    "podman": words("compose image container network volume system"),
    "kubectl": words("rollout config auth set"),
    "gh": None,
    "aws": None,
    "gcloud": None,
    "az": None,
    "uv": words("pip tool"),
    "go": words("mod tool"),
    "helm": words("repo"),
    "dotnet": words("tool"),
}
"""Subcommands that have subcommands; None: all of the program's."""
_BEFORE_SUBCOMMAND: Final = words(
    "-C -c -n -f -p -R --namespace --context --file --prefix --git-dir --profile --region"
)
_VALUES: Final[Mapping[str, frozenset[str]]] = {
    "git": words("-m -am --message -c -C --author"),
    "curl": words("-X -H -d -o -u -A --data --header --request --max-time -m --connect-timeout -w"),
    "wget": words("-O -o -T -t --timeout --tries"),
    "pytest": words("-k -m -n -p -c -o --tb --maxfail --timeout"),
    "kubectl": words("-n -o -c -l --namespace --context --output --timeout"),
    "docker": words("-e -p -v -w -u --name --network --env"),
    "ssh": words("-p -i -o -l"),
    "psql": words("-c -d -U -p -h"),
    "mysql": words("-e -u -P"),
    "find": words("-name -type -path -maxdepth -mindepth -iname"),
}
_PATTERNED: Final = words("grep egrep fgrep rg ag ack sed awk gawk jq perl")
"""Programs whose first argument is what to look for, not where."""
_INTERPRETERS: Final = words("python node ruby perl php deno ts-node java bash sh zsh Rscript julia")
_SQL: Final = re.compile(
    r"(?i)\s*(select|insert|update|delete|with|show|describe|desc|create|alter|drop|explain)\b"
)
_SQL_TABLE: Final = re.compile(
    r"(?i)\b(?:from|into|update|table|describe|desc)\s+(?:if\s+(?:not\s+)?exists\s+)?[`\"\[]?([\w.]+)"
)


@dataclass(frozen=True, slots=True)
class Operation:
    """What a call is about: `name` is the key; `family` is it without the target (`bash:git commit`)."""

    name: str
    family: str
    target: str = ""


def operation_of(tool: str, arguments: Json) -> str:
    """Return the operation of a call: the tool, or for shells `tool:program subcommand target`.

    >>> operation_of("get_order", {"id": 7})
    'get_order'
    >>> operation_of("bash", {"command": "cd /repo && A=1 timeout 60 python3 -m pytest -x tests/test_a.py"})
    'bash:pytest test_a.py'
    >>> operation_of("shell", {"command": ["bash", "-lc", "kubectl -n web get pods"]})
    'shell:kubectl get pods'
    >>> [operation_of("bash", command) for command in ("pip install 'requests[socks]==2.31'", "cat a/b.py")]
    ['bash:pip install requests', 'bash:cat b.py']
    """
    return parts_of(tool, arguments).name


def parts_of(tool: str, arguments: Json) -> Operation:
    """Return the operation of a call with its parts. Never raises; at most `MAX_CHARS` characters each.

    >>> parts_of("bash", {"command": "git -C /repo add src/a.py"})
    Operation(name='bash:git add a.py', family='bash:git add', target='a.py')
    """
    if role_of_name(tool) is not None:
        return _plain(tool)
    command = _command(arguments)
    if command is None:
        return _plain(tool)
    size = len(command) if isinstance(command, str) else sum(map(len, command))
    return _of_command(tool, command) if size <= _REMEMBERED_CHARS else _of_command.__wrapped__(tool, command)


def _command(arguments: Json) -> str | tuple[str, ...] | None:
    """The command line, or the list of words, of a shell's arguments."""
    if isinstance(arguments, str):
        if arguments[:1] != "{":
            return arguments[:_HEAD_CHARS]
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return None
    if isinstance(arguments, list):
        return _argv(arguments)
    if isinstance(arguments, Mapping):
        for key in _COMMAND_KEYS:
            value = arguments.get(key)
            if isinstance(value, str):
                return value[:_HEAD_CHARS]
            if isinstance(value, list):
                return _argv(value)
    return None


def _argv(value: list[Json]) -> str | tuple[str, ...] | None:
    """The words of a list of arguments; a list of one is a line."""
    found = tuple(word[:_HEAD_CHARS] for word in value[:_MAX_WORDS] if isinstance(word, str))
    return found[0] if len(found) == 1 else found or None


@lru_cache(maxsize=1024)
def _plain(tool: str) -> Operation:
    return Operation(tool[:MAX_CHARS], tool[:MAX_CHARS])


@lru_cache(maxsize=2048)
def _of_command(tool: str, command: str | tuple[str, ...]) -> Operation:
    """The operation of a command line or of its words; remembered, because calls come again."""
    if isinstance(command, str) and (verb := _SQL.match(command)):
        table = _SQL_TABLE.search(command)
        return _operation(tool, verb[1].lower(), table[1] if table else "")
    if isinstance(command, str):
        program, rest = _effective(_simple_commands(command), _MAX_DEPTH)
    else:
        program, rest = _effective(iter([list(command)]), _MAX_DEPTH)
    if not program:
        return _plain(tool)
    family, rest = _with_subcommand(program, rest)
    return _operation(tool, family, _target(family.partition(" ")[0], rest))


def _operation(tool: str, family: str, target: str) -> Operation:
    family = f"{tool[:_MAX_PART]}:{family}"[:MAX_CHARS]
    return Operation(f"{family} {target}"[:MAX_CHARS] if target else family, family, target)


def _simple_commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a line, each as its words; redirections stay as words of their own."""
    found: list[str] = []
    for token in _WORD.finditer(line):
        kind = token.lastgroup
        if kind == "end":
            if found:
                yield found
                found = []
        elif kind != "comment" and len(found) < _MAX_WORDS:
            found.append(token[0])
    if found:
        yield found


def _effective(commands: Iterator[list[str]], depth: int) -> tuple[str, list[str]]:
    """The first program that does the work, and its arguments; the first at all when all only prepare."""
    first: tuple[str, list[str]] = ("", [])
    for command in commands:
        program, rest = _unwrapped(command, depth)
        if program and program not in _PASSED:
            return program, rest
        if program and not first[0]:
            first = program, rest
    return first


def _unwrapped(command: list[str], depth: int) -> tuple[str, list[str]]:
    """The program of a simple command without what runs it, and its arguments."""
    at = 0
    while at < len(command):
        word = command[at].lstrip("(")
        at += 1
        if not word.strip("-=*") or word in _KEYWORDS or _ASSIGNMENT.match(word) or word[:3] == "```":
            continue
        program = _program(word)
        values = _WRAPPERS.get(program)
        if values is not None:
            at = _past_options(command, at, values) + (program in _COUNTED)
        elif program in _RUNNERS and command[at : at + 1] in (["run"], ["exec"]):
            at = _past_options(command, at + 1, _RUNNER_VALUES)
        elif program in _SHELL_PROGRAMS and depth and (script := _script(command[at:])):
            return _effective(_simple_commands(script), depth - 1)
        elif program == "python" and command[at : at + 1] == ["-m"] and at + 1 < len(command):
            return _program(command[at + 1]), command[at + 2 :]
        else:
            return program, command[at:]
    return "", []


def _past_options(command: list[str], at: int, values: frozenset[str]) -> int:
    while at < len(command) and command[at][:1] == "-":
        at += 2 if command[at] in values else 1
    return at


def _script(arguments: list[str]) -> str:
    """The script that `sh -c` is given, else nothing."""
    for word, following in pairwise(arguments):
        if _DASH_C.fullmatch(word):
            return _unquoted(following)
        if word[:1] != "-":
            break
    return ""


def _unquoted(word: str) -> str:
    r"""A word without the quotes that keep it together.

    >>> _unquoted("'a b'"), _unquoted('a"b c"'), _unquoted("it\\'s")
    ('a b', 'ab c', "it's")
    """
    if len(word) > 1 and word[0] == word[-1] == "'":
        return word[1:-1]
    return _ESCAPED.sub("", word) if "\\" not in word else re.sub(r"""\\(.)|['"]""", r"\1", word)


def _program(word: str) -> str:
    """A program's name: without its folder and version.

    >>> _program("/usr/bin/python3.11"), _program("./run.sh")
    ('python', 'run.sh')
    """
    name = _unquoted(word).rstrip("/").rpartition("/")[2][:_MAX_PART]
    versioned = _VERSIONED.fullmatch(name)
    return versioned[1] if versioned else name.strip("()")


def _with_subcommand(program: str, rest: list[str]) -> tuple[str, list[str]]:
    """The program with its subcommand, and the arguments after that."""
    if program not in _SUBCOMMANDS:
        return program, rest
    levels = _LEVELS.get(program, frozenset[str]())
    family, at = program, 0
    for _ in range(2):
        at = _past_options(rest, at, _BEFORE_SUBCOMMAND)
        if at >= len(rest) or rest[at][0] in "<>&":
            break
        word = _unquoted(rest[at])[:_MAX_PART]
        family, at = f"{family} {word}", at + 1
        if levels is not None and word not in levels:
            break
    return family, rest[at:]


def _target(program: str, rest: list[str]) -> str:
    """The first path, host or package among a program's arguments, else its first plain word."""
    values = _VALUES.get(program, frozenset[str]())
    patterns = 1 if program in _PATTERNED else 0
    plain = written = ""
    words_left = iter(rest)
    for raw in words_left:
        if raw[0] in "<>&" or raw[:2] in ("1>", "2>"):
            following = next(words_left, "") if "&" not in raw[1:] else ""
            if ">" in raw and raw[0] != "2":
                written = written or _short(_unquoted(following))
        elif raw[0] == "-":
            if program in _INTERPRETERS and raw in ("-c", "-e", "-"):
                return raw
            if raw in values:
                next(words_left, None)
        elif patterns:
            patterns -= 1
        else:
            word = _unquoted(raw)
            if _URL.match(word) or _PATH.fullmatch(word):
                return _short(word)
            plain = plain or (_short(word) if _names(word) else "")
    return plain or (f"> {written}" if written else "")


def _names(word: str) -> bool:
    """Whether a word may be the name of something: no number, no variable, no text, no brackets."""
    return bool(
        word
        and word[0] != "$"
        and not any(map(str.isspace, word))
        and not _NUMERIC.fullmatch(word)
        and word.strip("{}()[].")
    )


def _short(word: str) -> str:
    """How a target is called: the host of a URL, the last part of a path, a package without its version.

    >>> _short("https://u@api.ex.org:8080/v1?q=1"), _short("/srv/app/"), _short("numpy>=1.2")
    ('api.ex.org:8080', 'app', 'numpy')
    """
    url = _URL.match(word)
    if url:
        return url[1][:_MAX_PART].lower()
    name = word.rstrip("/;)").rpartition("/")[2] or word
    return (_VERSION.sub("", name) or name)[:_MAX_PART]
