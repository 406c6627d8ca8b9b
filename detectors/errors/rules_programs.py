"""Rules for what shells, programs, test runners, compilers and the agent's own code print."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from detectors.errors.kinds import ErrorClass as E
from detectors.errors.rule import WORDS, Rule, decides, says
from detectors.errors.subject import Subject
from detectors.role import words

_COMMAND: Final = re.compile(
    r"(?:^|[:\n] ?)(?:line )?(?:\d+: )?(?P<name>[^\n]{1,80}?): (?:command )?not found\s*$", re.IGNORECASE
)
_ZSH: Final = re.compile(r"\bcommand not found: (?P<name>[^\n]{1,80})$")
_LINE_OF_SHELL: Final = re.compile(r"^[^\n]*?: (?:line )?\d+: ")
_PROGRAM: Final = re.compile(r"(?:\.{0,2}/)?[a-z_][a-z0-9_+./-]*")
_HASH: Final = re.compile(r"[0-9a-f]{16,}")
_DOCUMENT: Final = re.compile(
    r"\.(?:html?|txt|java|json|md|csv|php|xml|ya?ml|log|c|cpp|h|pdf|gz|zip|css|list|conf|py)$"
)
# Words that begin sentences, listings and placeholders; nobody calls a program so.
_PROSE: Final = words(
    """
    a an and are as at be but by can command command1 command2 command3 content copy created directories
    directory done each error exists extract file filename files first folder for from function has have hello
    here how if in index into is it its line list lists name next no none not now of on one or output please
    prints removes result results root rows run size so sorted string step sum sure tally testbed text that
    the then there these they this those thus to total true two use used uses using was we when which will
    with word words workspace you your html
    """,
)


def _command(subject: Subject) -> E | None:
    """A program that is not installed, or prose and fences that were sent as a command.

    What stands where a program should is judged: programs have short lower-case names.
    """
    names: list[str] = []
    for line in subject.text.split("\n")[:40]:
        match = _ZSH.search(line) or _COMMAND.search(_LINE_OF_SHELL.sub("", line) if " " in line else line)
        if match is not None:
            names.append(match["name"].strip())
    if not names:
        return None
    return E.ENVIRONMENT if all(_is_program(name.rpartition(": ")[2]) for name in names) else E.SCHEMA


def _is_program(name: str) -> bool:
    return (
        _PROGRAM.fullmatch(name) is not None
        and name not in _PROSE
        and _HASH.fullmatch(name) is None
        and _DOCUMENT.search(name) is None
        and not (len(name) == 1 and name != "R")
    )


SHELL_FIRST: Final[tuple[Rule, ...]] = (
    says(
        "fence-as-command",
        E.SCHEMA,
        "bash: command not found|sh: command not found|python: command not found",
        r": (?:bash|sh|shell): command not found",
    ),
    decides("command-not-found", "command not found|: not found", _command),
    says(
        "cmdlet-not-found",
        E.ENVIRONMENT,
        "is not recognized as",
        r"is not recognized as (?:an internal or external command|the name of a cmdlet)",
    ),
    says(
        "shell-syntax",
        E.SCHEMA,
        "unexpected eof while looking for|syntax error near|syntax error: unexpected|unterminated quoted"
        "|bad substitution|ambiguous redirect|unexpected end of file|unary operator expected"
        "|too many arguments|invalid arithmetic|syntax error:|event not found|binary operator expected"
        "|not a valid identifier|conditional binary operator|unterminated `s'|unknown option to `s'",
        r"unexpected eof while looking for|syntax error near unexpected|syntax error: (?:unexpected"
        r"|unterminated|end of file|\"|operand|bad)|unterminated quoted string|bad substitution"
        r"|ambiguous redirect|unexpected end of file|(?:unary|binary) operator expected"
        r"|: too many arguments|invalid arithmetic|not a valid identifier|unterminated `s'"
        r"|unknown option to `s'",
    ),
    says(
        "usage",
        E.SCHEMA,
        "invalid option|unrecognized option|illegal option|unknown option|extra operand|missing operand"
        "|--help' for more|-help' for more|usage:|unknown predicate|paths must precede"
        "|unrecognized arguments|the following arguments are required|requires an argument"
        "|option requires|expected one argument|invalid choice|missing argument to|mutually exclusive"
        "|cannot execute binary file|has no effect|never defined|runaway regular|regular expression"
        "|omitting directory|is a directory|unescaped|cannot specify|invalid mode|invalid number"
        "|unknown primary|no such option|no such command|unexpected argument|are the same file"
        "|invalid regular|invalid preceding|unmatched|not an integer|invalid date|invalid field|for help"
        "|flag provided but not defined|unknown flag|unknown shorthand|conflicting|invalid suffix"
        "|invalid line|unknown command|unknown subcommand|expression expected|bad regex|you must specify"
        "|cannot be combined|must be specified",
        r"(?:invalid|unrecogni[sz]ed|illegal|unknown) (?:option|flag|shorthand|subcommand|primary"
        r"|predicate)|(?:extra|missing) operand|help' for (?:more|additional)|(?:^|\n)\s*usage:|usage: \S+"
        r"|paths must precede|unrecognized arguments|following arguments are required|requires an argument"
        r"|expected (?:one|at least one) argument|invalid choice:|missing argument to"
        r"|are mutually exclusive|cannot execute binary file|has no effect|never defined|runaway regular"
        r"|(?:invalid|bad) (?:regular expression|regex|preceding)|regular expression compile failed"
        r"|omitting directory|: is a directory|invalid (?:mode|number|suffix|field|line|date)\b"
        r"|no such (?:option|command)|unexpected argument|are the same file|unmatched [(\[{`'\"]"
        r"|flag provided but not defined|you must specify (?:one|at least)",
    ),
)

_RUNNERS: Final = re.compile(
    r"(?<!=)={3,200} [^=\n]{0,200}\b(?:\d{1,9} (?:failed|passed|errors?|warnings?|skipped|deselected)"
    r"|no tests ran)\b[^=\n]{0,200} in [\d.:]+|\bran \d+ tests? in|failed \((?:failures|errors)=|(?:^"
    r"|\n)(?:failed|error) [\w./-]{1,300}::|interrupted: \d+ errors? during collection|(?:tests?"
    r"|suites?): +\d+ failed|\bfail(?:ed|ures?): [1-9]\d*\b[^\n]{0,80}\b(?:pass|error|skip)"
    r"|tests run: \d+, failures|test result: failed|--- fail: |(?:^|\n)fail\t|\b\d{1,9} passing"
    r"|\b\d{1,9} failing|there were failing tests|plugins: [^\n]{0,200}\w-\d|failures!!!"
    r"|internalerror>|examples?, \d{1,9} failures?",
)
_FILE_OF_RUNNER: Final = re.compile(
    r"error: (?:file or directory )?not found: |error: file not found|no tests ran[^\n]*\n?error: not found"
)
_COMPILER: Final = re.compile(
    r"error ts\d{3,5}|error\[e\d{4}\]|\berror: could not compile|\w\.(?:c|cc|cpp|h|java|go|rs|ts"
    r"|tsx|kt|swift|cs):\d+(?::\d+)?: (?:fatal )?(?:error|undefined)|compilation (?:failed|error)"
    r"|build failed|cannot find symbol|undefined reference to|make(?:\[\d+\])?: \*\*\* "
    r"|npm err! code elifecycle|property '\w+' does not exist on type|failed to compile|cmake error"
    r"|configuring incomplete|ld returned \d|nonzero exit from build|subprocess-exited-with-error"
    r"|metadata-generation-failed",
)


def _tests(subject: Subject) -> E | None:
    if not _RUNNERS.search(subject.lower):
        return None
    return E.NOT_FOUND if _FILE_OF_RUNNER.search(subject.lower) else E.APPLICATION


_LISTED: Final = re.compile(r"\s*\d{1,6}(?:[:|\t]|→)")


def _listing(subject: Subject) -> E | None:
    """Numbered lines of a file or a diff: whatever words stand in them are the file's."""
    if subject.text.startswith(("diff --git ", "--- a/", "Only in ")):
        return E.APPLICATION
    lines = subject.text.split("\n")
    if len(lines) < 2:  # noqa: PLR2004 - one numbered line is no listing
        return None
    return E.APPLICATION if sum(map(bool, map(_LISTED.match, lines))) * 3 > len(lines) * 2 else None


_ASSERTION: Final = re.compile(r"(?:^|\n)(?:\w+\.)*assertionerror\b(?!\w)[^\n]*(?:\n[^\n]*){0,2}$")


def _assertion(subject: Subject) -> E | None:
    """An assertion of the agent's own code that ends it: whatever words it compares are values."""
    if subject.runs_code is False or not _ASSERTION.search(subject.lower):
        return None
    return E.APPLICATION


def _compiler(subject: Subject) -> E | None:
    return E.APPLICATION if _COMPILER.search(subject.lower) else None


TESTS: Final[tuple[Rule, ...]] = (
    decides("listing", "", _listing),
    decides("assertion", "assertionerror", _assertion),
    decides(
        "test-runner",
        "=====|ran 1 test|tests in |failed (|failed: |failed |error tests|error |interrupted: |fail: "
        "|fail\t|tests run: | passing| failing|plugins: |failures!!!|internalerror>| failures",
        _tests,
    ),
    decides(
        "compiler",
        "error ts|error[e|: error: |fatal error|compile|compilation|build failed|cannot find symbol"
        "|: undefined|undefined reference|: *** |elifecycle|does not exist on type|cmake|configuring"
        "|ld returned|subprocess-exited|metadata-generation",
        _compiler,
    ),
    says(
        "linter",
        E.APPLICATION,
        "your code has been rated|problems (|found issues|lint errors|would be reformatted",
        r"your code has been rated|✖ \d+ problems?|\b\d{1,9} problems? \(\d{1,9} errors?|lint errors"
        r"|would be reformatted",
    ),
    says(
        "configuration-syntax",
        E.SCHEMA,
        "nginx: [emerg]|directive is not allowed here|unknown directive|nginx: configuration",
        r"directive|nginx",
    ),
)

# The exception that ends a program: its class, perhaps with a module before it.
_EXCEPTION: Final = re.compile(
    r"\b(?P<name>[A-Z]\w{0,80}?(?:Error|Exception|Warning|Exit"
    r"|Interrupt|Unavailable|NotFound|Refused)|KeyboardInterrupt|StopIteration|SystemExit"
    r"|SkipNode)(?=:|\s*$|\n|\()",
)
_LINE_OF_EXCEPTION: Final = re.compile(
    r"(?P<module>(?:[A-Za-z_]\w*\.){0,12})(?P<name>[A-Z]\w{0,80}(?:Error|Exception|Warning|Exit|Interrupt"
    r"|NotReady|DoesNotExist|ConfigurationError|Failure|NotFound|Unavailable|Timeout)"
    r"|KeyboardInterrupt|StopIteration|SystemExit|error)(?=:|\s*$)",
)
_RAISED: Final = re.compile(r"(?:[a-z_]\w*\.)+[A-Z]\w+(?=:|\s*$)")  # an exception by another name
_EXCEPTIONS: Final[Mapping[str, E]] = {
    **dict.fromkeys(
        (
            "FileNotFoundError",
            "NotADirectoryError",
            "NoSuchFileException",
            "FileNotFoundException",
            "DirectoryNotFoundException",
            "ProcessLookupError",
        ),
        E.NOT_FOUND,
    ),
    **dict.fromkeys(
        ("PermissionError", "AccessDeniedException", "SecurityException", "UnauthorizedAccessException"),
        E.PERMISSION,
    ),
    **dict.fromkeys(
        (
            "TimeoutError",
            "TimeoutException",
            "TimeoutExpired",
            "ReadTimeout",
            "ConnectTimeout",
            "ReadTimeoutError",
            "ConnectTimeoutError",
            "Timeout",
            "SocketTimeoutException",
            "APITimeoutError",
            "CancelledError",
        ),
        E.TIMEOUT,
    ),
    **dict.fromkeys(
        (
            "ConnectionError",
            "ConnectionRefusedError",
            "ConnectionResetError",
            "ConnectionAbortedError",
            "BrokenPipeError",
            "SSLError",
            "ProxyError",
            "ConnectError",
            "URLError",
            "RemoteProtocolError",
            "UnknownHostException",
            "ConnectException",
            "ChunkedEncodingError",
            "IncompleteRead",
            "ServerDisconnectedError",
            "APIConnectionError",
            "ClientConnectorError",
            "GeocoderUnavailable",
            "SSLEOFError",
            "SSLCertVerificationError",
        ),
        E.NETWORK,
    ),
    **dict.fromkeys(("MemoryError", "OutOfMemoryError", "OutOfMemoryException"), E.RESOURCE_EXHAUSTED),
    **dict.fromkeys(("SyntaxError", "IndentationError", "TabError"), E.SCHEMA),
    **dict.fromkeys(
        (
            "WebDriverException",
            "SessionNotCreatedException",
            "TesseractNotFoundError",
            "NoSuchDriverException",
            "PDFInfoNotInstalledError",
            "ClassNotFoundException",
            "NoClassDefFoundError",
        ),
        E.ENVIRONMENT,
    ),
    **dict.fromkeys(("RateLimitError", "TooManyRequests"), E.RATE_LIMIT),
    **dict.fromkeys(("AuthenticationError",), E.AUTH),
    **dict.fromkeys(("PermissionDeniedError",), E.PERMISSION),
    **dict.fromkeys(("ServiceUnavailableError", "InternalServerError"), E.UNAVAILABLE),
}
# What an agent calls the modules it writes beside its script.
_OWN_MODULE: Final = re.compile(
    r"(?:^|_)(?:test|tests|testing|repro|reproduce|reproducer|reproduction|app|apps|my\w*|main|util"
    r"|utils|helper|helpers|settings|config|conf|models?|forms?|views?|urls|local|script|src|demo"
    r"|example|module|mod|foo|bar|baz|fix|verify|check|issue|sample|project|site|temp|tmp|solution"
    r"|code|lib|core|common|dummy|fake|mock|conftest|pkg|package|plugin|extension|ext)\d*(?:_|$)",
)
_NAMESPACES: Final = frozenset(
    {
        "google",
        "azure",
        "ruamel",
        "zope",
        "backports",
        "opentelemetry",
        "sphinxcontrib",
        "mpl_toolkits",
        "jaraco",
    }
)
_MODULE: Final = re.compile(
    r"no module named '?\"?([\w.-]+)|cannot find (?:module|package) ['\"]([^'\"\n]+)"
    r"|no required module provides package (\S+)|could not find (?:a version that satisfies|package) "
)


def _module(subject: Subject) -> E | None:
    """A module that is not installed; one of the agent's own that is not there is its code's fault.

    Python names the outermost package that is missing, so a dotted name means: the package is there and
    has no such part.
    """
    match = _MODULE.search(subject.lower)
    if match is None:
        return None
    name = match[1] or match[2] or match[3] or ""
    if name.startswith((".", "/", "@/")):
        return E.APPLICATION
    top, _, rest = name.partition(".")
    if match[1] and rest and top not in _NAMESPACES and "__" not in rest:
        return E.APPLICATION
    return E.APPLICATION if _OWN_MODULE.search(name.lstrip("_")) else E.ENVIRONMENT


def _exception(subject: Subject) -> E | None:
    """The class of the exception in the last line that names one; of tools that run code, or are unknown."""
    if subject.runs_code is False and "traceback" not in subject.lower:
        return None
    for line in reversed(subject.text.rsplit("\n", 12)[-12:]):
        match = _LINE_OF_EXCEPTION.match(line.strip())
        if match is None or (match["name"] == "error" and not match["module"]):
            if "traceback" in subject.lower and _RAISED.match(line):
                return E.TOOL_BUG if subject.runs_code is False else E.APPLICATION
            continue
        known = _EXCEPTIONS.get(match["name"])
        if known is not None:
            return known
        if match["name"] in {"OSError", "IOError", "HTTPError"}:
            return None
        return E.TOOL_BUG if subject.runs_code is False else E.APPLICATION
    return None


def _named(subject: Subject) -> E | None:
    """A known exception's name anywhere: what a tool wraps."""
    for match in _EXCEPTION.finditer(subject.text):
        known = _EXCEPTIONS.get(match["name"])
        if known is not None:
            return known
    return None


_SAID: Final = re.compile(r"(?:^|\n)(?:[\w ]{0,40} )?(?:error|fail|failure|failed): ?")


def _own_code(subject: Subject) -> E | None:
    """`Error: …` of a tool that runs code: the agent's own program said so."""
    said = subject.runs_code and _SAID.search(subject.lower) is not None
    return E.APPLICATION if said else None


CODE_FIRST: Final[tuple[Rule, ...]] = (
    decides(
        "module",
        "no module named|cannot find module|cannot find package|no required module|could not find a version",
        _module,
    ),
    says(
        "python-syntax",
        E.SCHEMA,
        "syntaxerror|indentationerror|taberror|expected an indented block|unexpected indent"
        "|invalid syntax|, line ",
        r"(?:syntax|indentation|tab)error: |^(?:syntaxerror|indentationerror)|expected an indented block"
        r"|unexpected indent|: invalid syntax|\([\w.<>/-]{1,80}, line \d+\)\s*$",
    ),
    says(
        "not-installed",
        E.ENVIRONMENT,
        "is not installed|not installed or|failed to launch the browser|failed to launch browser"
        "|executable doesn't exist|playwright install|error while loading shared libraries"
        "|cannot open shared object|webdriverexception|session not created|sessionnotcreated"
        "|exec format error|not in your path|not in path|libgl|no chrome|cannot open display"
        "|missing x server|chrome failed to start|undefined symbol|version `glibc|command failed: which"
        "|no java runtime|is not set up|environment variable|dll load failed|unsupported python"
        "|requires python|browser is not|please install|needs to be installed|isn't installed"
        "|driver not found|drivernotfound|unsupported engine|cuda|glibc|no such image|docker daemon"
        "|cannot connect to the docker|bad interpreter",
        r"(?:is|are|was)(?: not|n't) installed|failed to launch (?:the )?browser|executable doesn't exist"
        r"|playwright install|loading shared libraries|cannot open shared object|webdriverexception"
        r"|session ?not ?created|exec format error|not in (?:your )?(?:\$?)path|libgl\."
        r"|cannot open display|missing x server|chrome failed to start|undefined symbol|version `glibc"
        r"|no java runtime|environment variable[^\n]{0,60}(?:not set|missing|must be set|required"
        r"|undefined)|(?:must set|missing)[^\n]{0,30}environment variable|dll load failed|requires python"
        r"|please (?:run: )?(?:pip |npm )?install|needs to be installed|cuda (?:driver|error|not)"
        r"|docker daemon|bad interpreter",
    ),
    says(
        "machine-resources",
        E.RESOURCE_EXHAUSTED,
        "no space left|disk quota exceeded|cannot allocate memory|out of memory|oomkilled"
        "|too many open files|memoryerror|heap limit|heap out of memory|memory limit|disk is full"
        "|disk full|unable to allocate|no more memory|resource temporarily unavailable|file size limit"
        "|cuda out of memory|java heap space|exit code 137|code 137|evicted|memory exhausted"
        "|not enough memory|pids limit|exceeded quota",
        r"no space left on device|disk quota exceeded|(?:cannot|unable to|can't) allocate|out of memory"
        r"|oomkilled|too many open files|memoryerror|heap (?:limit|out of memory)|memory limit"
        r"|disk (?:is )?full|fork: [^\n]*resource temporarily unavailable|file size limit exceeded"
        r"|java heap space|(?:exit )?code:? 137\b|was evicted|memory exhausted|not enough memory"
        r"|exceeded quota:",
    ),
)

EXCEPTIONS: Final[tuple[Rule, ...]] = (
    decides(
        "exception",
        "error|exception|warning|exit|interrupt|notready|doesnotexist|failure|notfound|unavailable"
        "|timeout|stopiteration",
        _exception,
    ),
    decides("named-exception", "error|exception|refused|unavailable", _named),
)

SHELL: Final[tuple[Rule, ...]] = (
    says(
        "no-such-file",
        E.NOT_FOUND,
        "no such file|cannot access|can't open file|not a directory|cannot find the path"
        "|cannot find the file|file not found|file does not exist|path does not exist|no such process"
        "|no such container|did not match any file|no such remote|unknown revision|not a git repository"
        "|couldn't find remote|can't cd to|path not found",
        r"no such (?:file|process|container|remote)|cannot access|can't open file|not a directory"
        r"|cannot find the (?:path|file)|(?:file|path)(?: \S+)? (?:was )?(?:not found|does not exist)"
        r"|did not match any file|unknown revision|not a git repository|couldn't find remote|can't cd to",
    ),
    says(
        "file-denied",
        E.PERMISSION,
        "permission denied|operation not permitted|read-only file system|must be root|are you root"
        "|superuser|sudo: a password|sudo: a terminal|not in the sudoers",
        r"permission denied(?! \([^)]*publickey)|operation not permitted|read-only file system"
        r"|must be root|are you root|sudo: a (?:password|terminal)|not in the sudoers",
    ),
    says(
        "state-of-files",
        E.APPLICATION,
        "file exists|directory not empty|merge conflict|automatic merge failed|nothing to commit"
        "|device or resource busy|hunk|broken pipe|terminated by signal|segmentation fault|core dumped"
        "|would be overwritten|non-fast-forward|conflict (",
        r"file exists|directory not empty|conflict|automatic merge failed|nothing to commit|resource busy"
        r"|hunks? (?:failed|ignored)|\b\d{1,9} out of \d{1,9} hunk|terminated by signal|segmentation fault"
        r"|core dumped|would be overwritten|non-fast-forward",
    ),
    decides("own-code", "error:|fail:|failure:|failed:", _own_code, confidence=WORDS),
)
