"""What a failure of the store asks of the caller, decided by ClickHouse's error code.

The cautious side is `Unavailable`: a batch that is refused for a reason nobody foresaw is tried again
later and alarmed on, never thrown away. Only codes that blame the data itself mean `Rejected`.
Codes: ClickHouse `src/Common/ErrorCodes.cpp`.
"""

from __future__ import annotations

from typing import Final

from collector.consumer import IngestError, Rejected, Unavailable

BAD_DATA: Final = frozenset(
    {
        6,  # CANNOT_PARSE_TEXT
        26,  # CANNOT_PARSE_QUOTED_STRING
        27,  # CANNOT_PARSE_INPUT_ASSERTION_FAILED
        32,  # ATTEMPT_TO_READ_AFTER_EOF
        33,  # CANNOT_READ_ALL_DATA
        38,  # CANNOT_PARSE_DATE
        41,  # CANNOT_PARSE_DATETIME
        53,  # TYPE_MISMATCH
        69,  # ARGUMENT_OUT_OF_BOUND
        70,  # CANNOT_CONVERT_TYPE
        72,  # CANNOT_PARSE_NUMBER
        117,  # INCORRECT_DATA
        128,  # TOO_LARGE_ARRAY_SIZE
        131,  # TOO_LARGE_STRING_SIZE
        321,  # VALUE_IS_OUT_OF_RANGE_OF_DATA_TYPE
        349,  # CANNOT_INSERT_NULL_IN_ORDINARY_COLUMN
        407,  # DECIMAL_OVERFLOW
        469,  # VIOLATED_CONSTRAINT
    }
)
BAD_QUERY: Final = frozenset(
    {
        36,  # BAD_ARGUMENTS
        42,  # NUMBER_OF_ARGUMENTS_DOESNT_MATCH
        43,  # ILLEGAL_TYPE_OF_ARGUMENT
        46,  # UNKNOWN_FUNCTION
        47,  # UNKNOWN_IDENTIFIER
        62,  # SYNTAX_ERROR
        115,  # UNKNOWN_SETTING
        386,  # NO_COMMON_TYPE
        456,  # UNKNOWN_QUERY_PARAMETER
        457,  # BAD_QUERY_PARAMETER
    }
)

_SOON: Final = 1.0
_LATER: Final = 5.0
_AFTER_A_PERSON: Final = 30.0
_RETRY_AFTER: Final = {
    164: _AFTER_A_PERSON,  # READONLY
    192: _AFTER_A_PERSON,  # UNKNOWN_USER
    193: _AFTER_A_PERSON,  # WRONG_PASSWORD
    202: _LATER,  # TOO_MANY_SIMULTANEOUS_QUERIES
    241: _LATER,  # MEMORY_LIMIT_EXCEEDED
    242: _AFTER_A_PERSON,  # TABLE_IS_READ_ONLY
    243: _AFTER_A_PERSON,  # NOT_ENOUGH_SPACE
    252: _LATER,  # TOO_MANY_PARTS
    497: _AFTER_A_PERSON,  # ACCESS_DENIED
    516: _AFTER_A_PERSON,  # AUTHENTICATION_FAILED
}


def insert_error(code: int | None, message: str) -> IngestError:
    """Say what a refused INSERT asks for; `code` None means that no ClickHouse answered.

    >>> insert_error(252, "too many parts").retry_after
    5.0
    >>> type(insert_error(349, "NULL in a column that has none")).__name__
    'Rejected'
    """
    if code in BAD_DATA:
        return Rejected(message)
    return _unavailable(code, message)


def query_error(code: int | None, message: str) -> IngestError:
    """Say what a refused statement that carries no data asks for: a wrong query stays wrong."""
    if code in BAD_DATA or code in BAD_QUERY:
        return Rejected(message)
    return _unavailable(code, message)


def _unavailable(code: int | None, message: str) -> Unavailable:
    return Unavailable(message, _RETRY_AFTER.get(code, _SOON) if code is not None else _SOON)
