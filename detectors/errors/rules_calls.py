"""Rules for calls that are refused as they stand: validators, arguments, edits, SQL, policies, wrappers."""

from __future__ import annotations

import re
from typing import Final

from detectors.errors.kinds import ErrorClass as E
from detectors.errors.rule import WORDS, Rule, decides, says
from detectors.errors.subject import Subject

_BLANK: Final = re.compile(r"[\W_]*(?:error|none|null|undefined|exception|failed|failure|fail)?[\W_]*")
_OPAQUE: Final = re.compile(
    r"\W*(?:(?:error|failure|exception)\W+)?(?:(?:error (?:executing|calling|running|in) (?:tool "
    r"|command |function )?\S+?:? )?(?:(?:the )?(?:command|process|script|tool|task|operation"
    r"|request)\b[^\n]{0,40}? )?(?:exit(?:ed)?(?: with)?(?: (?:status|code)){1,2}:? ?(?!124\b"
    r"|137\b)[1-9]\d{0,2}|returned (?:a )?(?:non-zero|nonzero)[^\n]{0,40}|returncode:? ?1"
    r"|(?:an? )?(?:unknown|unexpected|unspecified|internal)?\s?(?:error|failure|problem"
    r"|exception)(?: (?:has )?occurr?ed)?(?: while processing (?:your|the) request)?"
    r"|something went wrong|oops[^\n]{0,40}|(?:request|call|command|tool|operation|task|execution"
    r"|tool execution|tool call) failed|no output"
    r"|no result)(?:\W{0,3}(?:please )?try again(?: later)?)?)\W*",
)
_UNEXPLAINED: Final = re.compile(
    r"\W*(?:error[^\n:]{0,60}: )?(?:(?:failed|unable|could not|couldn't|cannot) (?:to )?(?:retrieve"
    r"|get|load|process|search|execute|perform|complete|create|update|fetch|run|generate|save|send"
    r"|delete|read|write)|error (?:processing|executing|retrieving|fetching|getting|loading|searching"
    r"|running|handling|calling|performing))(?: [\w'-]+){0,9}(?:: 400)?\W*",
)


def _unexplained(subject: Subject) -> E | None:
    return E.AMBIGUOUS if _UNEXPLAINED.fullmatch(subject.lower) else None


def _blank(subject: Subject) -> E | None:
    return E.AMBIGUOUS if len(subject.lower) < 40 and _BLANK.fullmatch(subject.lower) else None  # noqa: PLR2004 - a word or two


def _opaque(subject: Subject) -> E | None:
    return E.AMBIGUOUS if len(subject.lower) < 160 and _OPAQUE.fullmatch(subject.lower) else None  # noqa: PLR2004 - one line


FIRST: Final[tuple[Rule, ...]] = (
    decides("blank", "", _blank),
    decides("opaque", "", _opaque, confidence=WORDS),
    says(
        "no-match-or-timeout",
        E.AMBIGUOUS,
        "or search timed out|or timed out|or the request timed out",
        r"(?:no|not) [^\n]{0,40} or (?:search |the request )?timed out",
    ),
    says(
        "killed-by-harness",
        E.TIMEOUT,
        "timed out and has been killed|timed out and was killed|tool call timed out|command timed out after",
    ),
    says(
        "policy",
        E.PERMISSION,
        "robots.txt|user doesn't want|user rejected|user denied|rejected by user|user declined"
        "|denied by user|operation was rejected|hook|you cannot use this tool|not permitted by policy"
        "|blocked by|violates|requested permissions|content policy|content_filter|content filter|safety"
        "|request was rejected|refused by|approval",
        r"robots\.txt[^\n]*not allowed|user (?:doesn't want|does not want|rejected|denied|declined"
        r"|cancelled the)|(?:rejected|denied|declined) by (?:the )?user|hook[^\n]{0,60}(?:block|den|reject"
        r"|refus|prevent)|(?:blocked|denied|rejected|refused) by [^\n]{0,40}(?:hook|policy|rule|sandbox"
        r"|guard|firewall|waf|admin|setting)|you cannot use this tool|not permitted by policy"
        r"|violates? (?:the |our )?(?:[\w-]+ )?polic|requested permissions|content[ _](?:policy|filter)"
        r"|requires approval|request was rejected as a result of (?:the|our) safety|safety system",
    ),
    says(
        "format-of-answer",
        E.SCHEMA,
        "exactly one action|no code from the last|no sql code|no code was found|no code block"
        "|unknown language|no valid action|invalid action format|no tool call|could not parse your"
        "|did not contain",
    ),
    says(
        "validator",
        E.SCHEMA,
        "invalid_type|invalid_union|unrecognized_keys|invalid_enum_value|invalid_literal|invalid_string"
        "|too_small|too_big|invalid_format|validation error|required property|is not of type"
        "|is not valid under|additional properties|is not one of [|input should be|field required"
        "|does not match pattern|greater than or equal to the maximum|less than the minimum"
        "|inputvalidationerror|validation failed|failed validation|schema validation"
        "|does not match schema|is a dependency of|zoderror|invalid arguments for tool|invalid_arguments"
        "|type=missing|extra inputs are not permitted|value_error|string_type|does not conform"
        "|must have required|must be equal to one of|must not have additional|must match pattern"
        "|invalid parameters|is too short|is too long|is less than the minimum"
        "|is greater than the maximum",
        r"\"code\": ?\"(?:invalid_\w+|too_small|too_big|unrecognized_keys|custom|not_multiple_of"
        r"|not_finite)\"|input ?validation ?error|validation errors? for|'[^'\n]+' is a required property"
        r"|is not of type '|is not valid under any|additional properties are not allowed|is not one of \["
        r"|input should be|field required|does not match pattern|(?:than|equal to) the (?:minimum"
        r"|maximum) of|(?:schema |request |parameter |argument )?validation (?:failed|error)"
        r"|failed validation|does not (?:match|conform to) (?:the )?(?:expected )?schema|zoderror"
        r"|invalid_?arguments|type=missing|extra inputs are not permitted|type=value_error"
        r"|must (?:not )?have (?:required|additional) propert|must be equal to one of|must match pattern"
        r"|invalid_enum_value|unrecognized_keys|invalid parameters|'[^'\n]*' is too (?:short|long)$"
        r"|is (?:less|greater) than the (?:minimum|maximum)",
    ),
)

_ARGUMENTS: Final = re.compile(
    r"missing \d+ required (?:positional|keyword-only) arguments?|got an unexpected keyword argument"
    r"|takes (?:from )?\d+ (?:to \d+ )?positional arguments? but|got multiple values for argument",
)


def _arguments(subject: Subject) -> E | None:
    """An argument error is the call's fault unless the agent's own code made the call."""
    if subject.runs_code or not _ARGUMENTS.search(subject.lower):
        return None
    return None if subject.runs_code is None and subject.last.startswith("typeerror") else E.SCHEMA


CALLS: Final[tuple[Rule, ...]] = (
    decides(
        "call-signature",
        "required positional|required keyword|unexpected keyword|positional argument"
        "|multiple values for argument",
        _arguments,
    ),
    says(
        "unknown-tool",
        E.SCHEMA,
        "unknown tool|no such function name|no such tool|tool not found|unknown function|not a valid tool"
        "|unknown command. do not|unknown command|method not found|is not available. available tools"
        "|tool '|tool \"|tool `|no tool named|unknown action|invalid tool",
        r"unknown (?:tool|function|action)\b|no such (?:function name|tool)|tool not found"
        r"|not a valid tool|: unknown command|^(?:error: )?method not found"
        r"|\btool ['\"`]?[\w.:/-]+['\"`]? (?:was |is )?(?:not found|does not exist|is not (?:available"
        r"|a valid|recognized)|doesn't exist|not available)|no tool named|invalid tool name",
    ),
    says(
        "edit-target-ambiguous",
        E.SCHEMA,
        "multiple occurrences of|found 2 matches|matches of the string to replace|must be different"
        "|are exactly the same|not unique|multiple matches|no changes to make|expected 1 occurrence",
        r"multiple (?:occurrences|matches)|found \d+ (?:matches|occurrences)"
        r"|\b\d{1,9} matches of the string|must be different|are exactly the same|is not unique"
        r"|no changes to make|expected 1 occurrence",
    ),
    says(
        "edit-target-absent",
        E.NOT_FOUND,
        "did not appear verbatim|string to replace not found|old_string not found|no match found for"
        "|could not find the string|could not find old|search block|failed to find expected lines"
        "|search text not found|old text not found|no replacement was performed|context not found"
        "|0 occurrences found|could not find oldtext|patch does not apply|no exact match",
        r"verbatim|not found|no match|could not find|failed to find expected|search block (?:not|failed)"
        r"|0 occurrences|patch does not apply|no exact match",
    ),
    says(
        "parameter",
        E.SCHEMA,
        "is required for command|missing required|required parameter|required argument|required field"
        "|invalid parameter|invalid argument|invalid value for|must be an integer|must be a|must be an"
        "|must be one of|must be between|must be in|must be of type|is required|unrecognized|is invalid"
        "|expects|expected a|cannot be empty|is empty|should be smaller|not a valid|invalid `"
        "|invalid input|out of range|invalid date|malformed|invalid format|invalid enum|non empty"
        "|invalid json|json arguments|json decode|json parse|unexpected token|could not be parsed"
        "|unable to parse|unexpected end of json|expecting value|is not supported for|unsupported"
        "|unknown parameter|unexpected parameter|unknown argument|unknown field|unknown name|wrong type"
        "|illegal argument|not a valid value|badly formed|bad request|invalid url|invalid uri"
        "|invalid regex|invalid range|invalid path|query parameter|must start with|must contain"
        "|must not be",
        r"is required for command|missing (?:a |the )?(?:required|mandatory)|required (?:parameter"
        r"|argument|field)s?\b|invalid (?:`[^`\n]+` )?(?:parameter|argument|value for|input\b|format"
        r"|date\b|enum|json|url|uri|range)|[\w\"'`\]] must (?:not )?(?:be (?:an? |one of|between|of type"
        r"|in the|non|greater|less|at least|at most|positive|either|set|provided|specified|absolute|empty)"
        r"|start with|contain|match)|\w['\"`]? (?:field |parameter |argument )?(?:is"
        r"|are) required(?! to (?:access|authenticate))|unrecognized (?:genre|arguments?|option|parameter"
        r"|field|value|name|keys?|request)|(?:selected|given|provided|specified"
        r"|supplied) [\w ]{1,40} (?:is|are) (?:invalid|empty)|(?:cannot|must not|can't) be empty"
        r"|(?:you passed|is) empty\. please|should be smaller|(?:is )?not a valid (?:value|\w{0,30}id|uuid"
        r"|date|number|integer|json|url|email|enum|choice|argument)|decoding json|json (?:decode|parse"
        r"|parsing) ?error|jsondecodeerror|unexpected token|could not be parsed|unable to parse"
        r"|unexpected end of (?:json|input)|expecting value: line|unknown (?:parameter|argument|field"
        r"|name \")|unexpected (?:parameter|argument)|wrong type|illegal argument|malformed (?:command"
        r"|input|request|json|url|query)|badly formed|expects? (?:an? )?(?:integer|string|number|array"
        r"|object|list|boolean)|expected (?:an? )?(?:integer|string|number|array|object|list|boolean"
        r"|type)\b|unsupported (?:parameter|value|argument|file|format|media)|id out of range",
        confidence=WORDS,
    ),
)

SQL: Final[tuple[Rule, ...]] = (
    says(
        "database-of-the-tool",
        E.TOOL_BUG,
        "error calling tool|error executing tool",
        r"^error (?:calling|executing) tool '?(?![^'\n:]*(?:sql|query|db))[^\n:]*: \(\w+\.\w*error\)",
    ),
    says(
        "sql-syntax",
        E.SCHEMA,
        "error in your sql syntax|syntax error|parse error",
        r"error in your sql syntax|syntax error at or near|near \"[^\n]*\": syntax error"
        r"|syntax error at end of input|sql (?:compilation|syntax|parse) error|syntax error: (?:unexpected"
        r"|expected)|parse error near",
    ),
    says(
        "sql-statement",
        E.SCHEMA,
        "subquery|in field list|is ambiguous|group by|group function|group statement|own alias"
        "|unique table|columns|derived table|column count|doesn't have a default|data too long|incorrect"
        "|operator does not exist|cannot be cast|invalid input syntax|aggregate|truncated"
        "|no database selected|number of columns|could not determine|result columns|out of range value"
        "|datatype mismatch|not null constraint",
        r"is ambiguous|in group by|group (?:function|statement)|must have its own alias|not unique table"
        r"|column\(s\)|different number of columns|column count doesn't match|subquery returns more"
        r"|doesn't have a default value|data too long|incorrect [\w ]+ (?:value|count)"
        r"|operator does not exist|cannot be cast|invalid input syntax for|aggregate function"
        r"|no database selected|same number of result columns|out of range value|misuse of aggregate",
    ),
    says(
        "sql-object",
        E.NOT_FOUND,
        "unknown column|no such column|unknown table|no such table|doesn't exist|does not exist"
        "|unknown database|no such function|invalid object name|invalid column name|table or view"
        '|no such index|relation "',
        r"unknown (?:column|table|database)|no such (?:column|table|function|index)"
        r"|table '[^'\n]*' doesn't exist|(?:relation|column|table|view|database|schema|function|role|type"
        r"|index) [^\n]{1,80} (?:does not|doesn't) exist|invalid (?:object|column) name"
        r"|table or view (?:does not exist|not found)",
    ),
    says(
        "sql-denied",
        E.PERMISSION,
        "access denied for user|command denied to user",
        r"access denied for user|command denied to user",
    ),
    says(
        "sql-constraint",
        E.APPLICATION,
        "duplicate entry|duplicate key|foreign key|constraint failed|unique constraint|check constraint"
        "|already exists|violates",
        r"duplicate (?:entry|key)|foreign key constraint|constraint failed|(?:unique|check|exclusion"
        r"|not-null) constraint|(?:table|relation|database|index|view)[^\n]{1,80} already exists",
    ),
    says(
        "sql-query-refused",
        E.SCHEMA,
        "error executing query: |query error: ",
        r"^error executing query: |^query error: ",
        confidence=WORDS,
    ),
)

_WRAPPED: Final = re.compile(
    r"^(?:error (?:executing|calling|in|running) (?:tool|function)|function executing from"
    r"|(?:internal )?tool error|error: )"
)
_INSIDE: Final = re.compile(
    r"'nonetype' object|object has no attribute|object is not (?:iterable|subscriptable|callable)"
    r"|codec can't (?:decode|encode)|list index out of range|string indices must be"
    r"|unsupported operand type|cannot read propert(?:y|ies) (?:of|')|is not a function"
    r"|is not iterable|undefined is not|null pointer|nullpointerexception|panic(?:ked)?(?: at|:)"
    r"|runtime error:|traceback \(most recent call last\)|operationalerror|unboundlocalerror"
    r"|local variable|attributeerror|keyerror|indexerror|nameerror|typeerror|runtimeerror"
    r"|assertionerror|maximum recursion depth|maximum call stack|must be str, not|can't convert"
    r"|not enough values to unpack|too many values to unpack|event loop is|name '\w+' is not defined"
    r"|dictionary changed|internal_error|cannot access local variable|referenceerror|bytes-like object"
    r"|should not happen",
)


def _tool_bug(subject: Subject) -> E | None:
    """An exception that a tool lets out is its own fault, if it does not run the agent's code."""
    if subject.runs_code or not _INSIDE.search(subject.lower):
        return None
    if subject.runs_code is None and not _WRAPPED.search(subject.lower):
        return None
    return E.TOOL_BUG


TOOLS: Final[tuple[Rule, ...]] = (
    decides(
        "tool-exception",
        "object|codec|index|indices|operand|cannot read|is not a function|not iterable|undefined|null"
        "|panic|runtime error|traceback|error|local variable|recursion|call stack|must be str|convert"
        "|unpack|event loop|not defined|dictionary|bytes-like|should not happen",
        _tool_bug,
    ),
)

NOT_THERE: Final[tuple[Rule, ...]] = (
    says(
        "absent",
        E.NOT_FOUND,
        "not found|no such|does not exist|doesn't exist|could not find|couldn't find|cannot find"
        "|can't find|unable to find|no results|not available on|unknown user|not exist|did not match any"
        "|no matching|unable to locate|can't cd to|no longer exists|not available|unknown revision"
        "|non-existent|nonexistent|no records|is not defined in|has been deleted|unknown channel"
        "|user_not_found|not_found|can't open|can't read|cannot open|no matches|no rows|no data"
        "|no element|unable to open|failed to find|notfound|resource_missing",
        r"\bnot[ _]found\b|no such|(?:does|do|did)(?: not|n't) (?:exist|match any)|(?:could not|couldn't"
        r"|cannot|can't|unable to|failed to) find|no (?:results|records|matches|rows|data|match|entries"
        r"|items|documents|element)s? (?:were |was )?(?:found|for|match|available|return|with)"
        r"|not available(?: on|\W*$)|no matching|unable to locate|can't (?:cd to|open|read)|cannot open"
        r"|no longer exists|unknown (?:revision|user|channel|host key|id)|non-?existent|has been deleted"
        r"|_not_found\b|unable to open|notfound(?:error|exception)?\b|resource_missing",
        confidence=WORDS,
    ),
)

BUSINESS: Final[tuple[Rule, ...]] = (
    says(
        "precondition",
        E.APPLICATION,
        "already exists|already been|cannot be|can not be|not enough|should match|does not add up|first."
        "|first|no presentation|not empty|conflict|already in use|already|insufficient stock|out of stock"
        "|was declined|expired|not eligible|is not active|would exceed|must match|nothing to commit"
        "|up-to-date|up to date|not supported|cannot overwrite|no changes|is closed|cannot delete"
        "|unmerged|not currently|is not open|not loaded|no active|stale|has not been read|modified since",
        r"already (?:exists?|been|in use|has|have|a|running|open|started|registered|taken)|file exists"
        r"|cannot be (?:modified|returned|exchanged|cancelled|canceled|used|changed|updated|deleted"
        r"|combined|refunded|removed|undone|processed|booked)|(?:is |are )?not enough|should match"
        r"|does not add up|please use '[^'\n]+' first|\w first\W{0,9}$|no (?:presentation|document|canvas"
        r"|file|page|browser|session|workbook)[^\n]{0,30} (?:loaded|open|generated|active|selected)"
        r"|not empty|conflict|(?:out of|insufficient) stock|was declined|not eligible|is not active"
        r"|would exceed|nothing to commit|cannot overwrite|is closed|has not been read|modified since"
        r"|no active",
        confidence=WORDS,
    ),
    says("unexplained-status", E.TOOL_BUG, "status_code=500|internal"),
    decides("unexplained", "failed|unable|could not|couldn't|cannot|error", _unexplained, confidence=WORDS),
)
