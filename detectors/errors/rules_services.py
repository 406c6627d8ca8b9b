"""Rules for what services answer: providers' codes, HTTP statuses, gRPC and JSON-RPC codes, the network.

Codes are facts of the services' own documentation: RFC 9110 (HTTP), grpc.io/docs/guides/status-codes, the
error pages of the model providers (the addresses stand beside each message in
tests/testdata/errors/vendor-documented-messages.jsonl), AWS's, and the JSON-RPC and MCP specifications.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from detectors.errors.kinds import ErrorClass as E
from detectors.errors.rule import WORDS, Rule, decides, says
from detectors.errors.subject import Subject

_STATUS: Final = re.compile(
    r"\b(?:https?|http[ _]?error|http[ _]status|status|statuscode|code|error|errno"
    r"|response)[ \"'_]*(?:code|status|error)?[!\"'\\]*\s*(?:[:=(]|is|of|was"
    r"|-)?\s*[\"'\\]*(?P<a>[45]\d\d)\b(?![.%:]\d|\s*(?:ms|s|bytes|kb|mb)\b)"
    r"|\bhttp/\d(?:\.\d)?[\" ]+(?P<b>[45]\d\d)\b|\b(?P<c>[45]\d\d) (?:client error|server error"
    r"|bad request|unauthorized|payment required|forbidden|not found|method not|request time|conflict"
    r"|gone|unprocessable|too many|internal server|not implemented|bad gateway"
    r"|service (?:temporarily )?unavailable|gateway time|site is overloaded)"
    r"|^\W*(?:error )?(?P<e>[45]\d\d)(?: - |: |$)|(?:failed|error|returned|got|with"
    r"|received)[^\n]{0,40}[:( ](?P<d>40[134]|429|50[0234])\)?[.\s]*$",
)

_HTTP: Final[Mapping[int, E]] = {
    400: E.SCHEMA,
    401: E.AUTH,
    402: E.RESOURCE_EXHAUSTED,
    403: E.PERMISSION,
    404: E.NOT_FOUND,
    405: E.SCHEMA,
    406: E.SCHEMA,
    407: E.AUTH,
    408: E.TIMEOUT,
    409: E.APPLICATION,
    410: E.NOT_FOUND,
    411: E.SCHEMA,
    412: E.APPLICATION,
    413: E.RESOURCE_EXHAUSTED,
    414: E.SCHEMA,
    415: E.SCHEMA,
    416: E.SCHEMA,
    422: E.SCHEMA,
    423: E.UNAVAILABLE,
    424: E.TOOL_BUG,
    425: E.UNAVAILABLE,
    428: E.APPLICATION,
    429: E.RATE_LIMIT,
    431: E.SCHEMA,
    451: E.PERMISSION,
    500: E.TOOL_BUG,
    501: E.SCHEMA,
    502: E.UNAVAILABLE,
    503: E.UNAVAILABLE,
    504: E.TIMEOUT,
    507: E.RESOURCE_EXHAUSTED,
    508: E.TOOL_BUG,
    511: E.AUTH,
    520: E.UNAVAILABLE,
    521: E.UNAVAILABLE,
    522: E.TIMEOUT,
    523: E.UNAVAILABLE,
    524: E.TIMEOUT,
    525: E.NETWORK,
    526: E.NETWORK,
    529: E.UNAVAILABLE,
    530: E.UNAVAILABLE,
}


def _http(subject: Subject) -> E | None:
    for match in _STATUS.finditer(subject.lower):
        status = int(match[match.lastgroup or 0])
        if status in _HTTP:
            return _HTTP[status]
    return None


_GRPC_CODES: Final[Mapping[str, E]] = {
    "unavailable": E.UNAVAILABLE,
    "deadlineexceeded": E.TIMEOUT,
    "resourceexhausted": E.RATE_LIMIT,
    "invalidargument": E.SCHEMA,
    "outofrange": E.SCHEMA,
    "unimplemented": E.SCHEMA,
    "notfound": E.NOT_FOUND,
    "alreadyexists": E.APPLICATION,
    "failedprecondition": E.APPLICATION,
    "aborted": E.APPLICATION,
    "permissiondenied": E.PERMISSION,
    "unauthenticated": E.AUTH,
    "internal": E.TOOL_BUG,
    "dataloss": E.TOOL_BUG,
    "unknown": E.AMBIGUOUS,
    "cancelled": E.AMBIGUOUS,
    "canceled": E.AMBIGUOUS,
}
_GRPC_WORD: Final = (
    r"unavailable|deadline_?exceeded|resource_?exhausted|invalid_?argument|out_?of_?range"
    r"|unimplemented|not_?found|already_?exists|failed_?precondition|aborted|permission_?denied"
    r"|unauthenticated|internal|data_?loss|unknown|cancell?ed"
)
_GRPC: Final = re.compile(
    r"(?:statuscode\.|rpc error: code = |[\"']?status[\"']?: ?[\"']|^(?:error: )?\d{1,2} )"
    rf"({_GRPC_WORD})\b(?:[\"':]| desc|$|\n|,)"
    rf"|\b(deadline_exceeded|resource_exhausted|invalid_argument|failed_precondition|permission_denied)\b",
)


def _grpc(subject: Subject) -> E | None:
    match = _GRPC.search(subject.lower)
    return None if match is None else _GRPC_CODES[(match[1] or match[2]).replace("_", "")]


_ERRNO_NAMES: Final[Mapping[str, E]] = {
    **dict.fromkeys(("enoent", "enotdir", "esrch", "enxio", "enodev"), E.NOT_FOUND),
    **dict.fromkeys(("eacces", "eperm", "erofs"), E.PERMISSION),
    **dict.fromkeys(("eexist", "enotempty", "eaddrinuse", "exdev"), E.APPLICATION),
    **dict.fromkeys(("eisdir", "einval", "enametoolong", "e2big", "ebadf", "eloop"), E.SCHEMA),
    **dict.fromkeys(("enospc", "edquot", "emfile", "enfile", "enomem", "efbig"), E.RESOURCE_EXHAUSTED),
    **dict.fromkeys(("etimedout", "esockettimedout", "etime"), E.TIMEOUT),
    **dict.fromkeys(("eagain", "ebusy", "etxtbsy"), E.UNAVAILABLE),
    "enoexec": E.ENVIRONMENT,
}
_ERRNO_NUMBERS: Final[Mapping[int, E]] = {
    **dict.fromkeys((2, 3, 6, 19, 20), E.NOT_FOUND),
    **dict.fromkeys((1, 13, 30), E.PERMISSION),
    **dict.fromkeys((17, 18, 39, 66, 98, 48), E.APPLICATION),
    **dict.fromkeys((7, 9, 21, 22, 36, 40, 63), E.SCHEMA),
    **dict.fromkeys((12, 23, 24, 27, 28, 122), E.RESOURCE_EXHAUSTED),
    **dict.fromkeys((60, 110), E.TIMEOUT),
    **dict.fromkeys((11, 16, 26), E.UNAVAILABLE),
    **dict.fromkeys((-2, -3, -5, 51, 54, 61, 65, 100, 101, 103, 104, 111, 113), E.NETWORK),
    8: E.ENVIRONMENT,
}
_ERRNO: Final = re.compile(rf"\[(?:errno|winerror) (-?\d+)\]|\b({'|'.join(_ERRNO_NAMES)})\b")


def _errno(subject: Subject) -> E | None:
    match = _ERRNO.search(subject.lower)
    if match is None:
        return None
    return _ERRNO_NUMBERS.get(int(match[1])) if match[1] else _ERRNO_NAMES[match[2]]


_SPENT: Final = re.compile(
    r"insufficient_quota|billing|credit|insufficient balance|month|spend|usage limit|servicequota"
    r"|limitexceededexception|insufficient funds|quota|payment",
)
_WAIT: Final = re.compile(r"retry in \d|retrydelay|try again in \d")


def _spent(subject: Subject) -> E | None:
    """A budget that waiting does not refill; a quota that says when to come back is a rate limit."""
    if not _SPENT.search(subject.lower):
        return None
    return E.RATE_LIMIT if _WAIT.search(subject.lower) else E.RESOURCE_EXHAUSTED


PROVIDERS: Final[tuple[Rule, ...]] = (
    decides(
        "quota-or-billing",
        "insufficient_quota|exceeded your current quota|credit balance|billing_hard_limit"
        "|billing hard limit|insufficient credits|insufficient_credits|insufficient balance"
        "|out of credits|not enough credits|more credits|monthly quota|monthly usage limit|spending limit"
        "|spend limit|monthly limit|usage limit|billing_error|billing details|servicequotaexceeded"
        "|limitexceededexception|insufficient funds in|quota has been exhausted|payment required"
        "|payment_required|exceeded the quota for",
        _spent,
    ),
    says(
        "context-window",
        E.RESOURCE_EXHAUSTED,
        "context_length_exceeded|context length|context window|maximum context|prompt is too long"
        "|input is too long|too many input tokens|contextwindowexceeded|reduce the length"
        "|string_above_max_length|request_too_large|request too large|token count|exceed context limit"
        "|input token count|too many tokens|exceeds the maximum number of tokens|max_tokens_exceeded",
        r"context_length_exceeded|(?:maximum )?context (?:length|window|limit)|prompt is too long"
        r"|input is too long|contextwindowexceeded|reduce the length|request[_ ]too[_ ]large"
        r"|token count.{0,60}exceed|exceeds? (?:the )?(?:maximum|limit|context)|too many input tokens"
        r"|too many tokens(?! per|, please wait)(?:: |.{0,40}(?:max|limit|exceed|total))",
    ),
    says(
        "output-too-large",
        E.RESOURCE_EXHAUSTED,
        "too much output|exceeds maximum allowed|output too large|response too large"
        "|exceeds the maximum size|file too large|file is too large|content exceeds|exceeds maximum size"
        "|result too large|exceeds limit of|message larger than max|maxbuffer|output exceeds"
        "|output is too long|result exceeds|too large to read",
    ),
    says(
        "rate-limit",
        E.RATE_LIMIT,
        "rate limit|rate_limit|ratelimit|rate-limit|too many requests|too_many_requests|toomanyrequests"
        "|throttl|requests too quickly|slow down|slowdown|quota exceeded|quotaexceeded"
        "|requests per minute|tokens per minute|requestlimitexceeded|provisionedthroughputexceeded"
        "|bandwidthlimitexceeded|too many tokens per|too many tokens, please wait|userratelimitexceeded"
        "|requests per second|rate exceeded|calls per|requests per day|tokens per day"
        "|resource has been exhausted|resource_exhausted|secondary rate"
        "|making too many|sending requests too|call rate limit|resource exhausted|too many api"
        "|rate of requests|limit exceeded for",
        r"\brate[- _]limit(?:s|ed|ing)?\b(?![-_]\w)(?!\s*['\"]?\s*(?:does not|is not|parameter|must|option"
        r"|property))(?!['\"]\s+does)|ratelimit_?(?:error|exceeded|ed\b)|\brate_limit_exceeded"
        r"|userratelimit|too[ _]?many[ _]?requests|throttl(?:ed|ing|ingexception)|requests too (?:quickly"
        r"|fast|many)|please slow down|\bslowdown\b|\bslow down\b|quota[ _]?exceeded|requestlimitexceeded"
        r"|provisionedthroughput|bandwidthlimit|too many tokens(?: per|, please wait)|(?:exceeded|reached"
        r"|limit|quota).{0,60}(?:requests|tokens|calls) (?:per|/)|rate exceeded|(?:requests|tokens"
        r"|calls) per (?:minute|second|day|hour).{0,40}(?:limit|exceeded|quota)"
        r"|resource[ _](?:has been )?exhausted|too many api|making too many|rate of requests"
        r"|limit exceeded for",
    ),
    says(
        "overloaded",
        E.UNAVAILABLE,
        "overloaded|at capacity|server is busy|server busy|try again later|temporarily unavailable"
        "|high demand|high traffic|capacity constraints|currently unavailable|under maintenance"
        "|service unavailable|serviceunavailable|service_unavailable|not available right now"
        "|engine is currently|slots are reserved|too many connections|toomanyconnections"
        "|database is locked|deadlock|starting up|shutting down|could not serialize"
        "|no healthy upstream|bad gateway"
        "|modelnotready|model is not ready|is currently loading|no endpoints available|serverbusy"
        "|connection pool exhausted|insufficientcapacity|insufficient capacity|temporarily overloaded"
        "|resource is busy|text file busy|could not obtain lock|could not get lock|lock file|api_error"
        "|too many clients|server had an error while processing|no available|unavailableexception",
        r"overloaded|\bat capacity|server (?:is )?busy|temporarily unavailable|high (?:demand|traffic)"
        r"|capacity constraints|currently unavailable|under maintenance"
        r"|service[ _]?(?:is )?(?:temporarily )?unavailable|not available right now|slots are reserved"
        r"|too ?many ?connections|too many clients|\bapi_error\b|server had an error while processing"
        r"|no available (?:model|provider|server|worker)|database is locked|deadlock (?:found|detected)"
        r"|(?:database system|server) is (?:starting up|shutting down)|could not serialize access"
        r"|no healthy upstream|bad gateway|model_?(?: is )?not_?ready"
        r"|is currently loading|no endpoints available|serverbusy|connection pool exhausted"
        r"|insufficient ?capacity|resource is busy|text file busy|could not (?:obtain|get) lock",
    ),
    says(
        "credentials",
        E.AUTH,
        "invalid authentication|subscription key|api key|api_key|apikey|unauthorized|unauthenticated"
        "|authentication|authenticate|invalid_grant|invalid_token|token has expired|token expired"
        "|expiredtoken|expired token|invalid token|invalid_auth|not_authed|token_revoked|token_expired"
        "|account_inactive|security token|unrecognizedclient|invalidclienttokenid|signaturedoesnotmatch"
        "|invalidsignature|incompletesignature|bad credentials|unable to locate credentials"
        "|could not load credentials|could not read username|no credentials|login required|not logged in"
        "|please log in|please login|requires authentication|access token|invalid credentials"
        "|incorrect username|session expired|session has expired|expired session|credentials"
        "|missingauthenticationtoken|missing authorization|authorization header|password|publickey"
        "|invalid_client|jwt|invalidaccesskeyid|access denied for user|must be logged in|no bearer"
        "|invalid bearer",
        r"(?:invalid|incorrect|missing|no|wrong|expired|revoked|bad|required?|valid|provide"
        r"|disabled)\b[^\n]{0,40}\b(?:api[ _-]?key|apikey|x-api-key)"
        r"|api[ _-]?key\b(?![^\n]{0,40}permission)[^\n]{0,60}\b(?:not valid|invalid|required|missing"
        r"|expired|revoked|incorrect|not provided|was not|not found|not set|disabled)"
        r"|invalid authentication|invalid subscription key|invalid[_ ]api[_ ]key|\bunauthori[sz]ed\b"
        r"|unauthenticated|authentication[_ ]?(?:is )?(?:required|failed|failure|error|credentials)"
        r"|not authenticated|requires authentication|(?:failed to|could not|cannot|unable to"
        r"|must) (?:be )?authenticated?|could not be authenticated|invalid_grant|invalid_token"
        r"|invalid_client|token (?:has |is |was )?(?:expired|revoked|invalid|missing)|expired ?token"
        r"|invalid (?:access |auth |bearer |refresh |id |security )?token\b(?! ['\"]?[^\sa-z.,])"
        r"|invalid bearer|invalid_auth|not_authed|token_(?:revoked|expired)|account_inactive"
        r"|security token (?:included in the request )?is (?:invalid|expired)"
        r"|security token included in the request|unrecognizedclient|invalidclienttokenid"
        r"|signaturedoesnotmatch|invalidsignature|incompletesignature|bad credentials|(?:unable to locate"
        r"|could not load|no) (?:the )?(?:default )?credentials|could not read username"
        r"|login (?:is )?required|not logged in|please log ?in|must be logged in"
        r"|invalid (?:login )?credentials|incorrect (?:username|password)|session (?:has |is )?expired"
        r"|missing ?authentication|missing authorization|authorization header"
        r"|password authentication failed|permission denied \([^)]*publickey|jwt (?:expired|malformed"
        r"|invalid|must be)|invalidaccesskeyid|access denied for user [^\n]*using password"
        r"|access token (?:is )?(?:missing|invalid|expired)",
    ),
)

NETWORK: Final[tuple[Rule, ...]] = (
    says(
        "name-resolution",
        E.NETWORK,
        "name or service not known|nameresolution|failed to resolve|could not resolve|getaddrinfo"
        "|enotfound|eai_again|no address associated|temporary failure in name resolution"
        "|nodename nor servname|unknown host|unknownhost|err_name_not_resolved|dns|no such host"
        "|server misbehaving|temporary failure resolving|unable to resolve host|name does not resolve"
        "|can't resolve",
        r"name or service not known|nameresolution|(?:failed|could not|unable"
        r"|cannot) (?:to )?resolve (?:host|'|the host|proxy)|could not resolve host|getaddrinfo"
        r"|\benotfound\b|eai_again|no address associated|name resolution|nodename nor servname"
        r"|unknown ?host|err_name_not_resolved|\bdns\b[^\n]{0,40}(?:fail|error|resol|lookup)|no such host"
        r"|server misbehaving|temporary failure resolving|name does not resolve|failed to resolve",
    ),
    says(
        "connection",
        E.NETWORK,
        "newconnectionerror|connection refused|econnrefused|connection reset|econnreset|econnaborted"
        "|connection aborted|connection closed|connection error|connectionerror|connection issue"
        "|network is unreachable|no route to host|ehostunreach|enetunreach|socket hang up|fetch failed"
        "|err_connection|err_internet|err_network|network error|networkerror|remoteprotocolerror"
        "|server disconnected|remote end closed|broken pipe|epipe|connecterror|failed to connect"
        "|could not connect|couldn't connect|unable to connect|cannot connect|can't connect"
        "|connection lost|lost connection|server has gone away|connection terminated"
        "|did you specify the right host|incompleteread|chunkedencoding|exceeded 30 redirects"
        "|toomanyredirects|connection was|proxyerror|network failure|failed to establish"
        "|apiconnectionerror|serverdisconnected|clientconnector|unexpected eof on client"
        "|terminating connection|network changed|failed to fetch: network|host is down"
        "|did you specify the right host|connect to host|readerror|connection to server"
        "|connection attempt|tunnel connection failed|connection broken|peer closed|stream disconnected"
        "|unexpectedly closed the connection",
        r"newconnectionerror|connection (?:was |is )?(?:refused|reset|aborted|closed|lost|terminated"
        r"|broken)|econn(?:refused|reset|aborted)|connection ?error\b|connection issue"
        r"|network is unreachable|no route to host|ehostunreach|enetunreach|socket hang up|\bfetch failed"
        r"|err_(?:connection|internet|network|address)|network ?(?:error|failure|changed)"
        r"|remoteprotocolerror|server ?disconnected|remote end closed|\bepipe\b|connecterror|(?:failed"
        r"|unable) to connect|(?:could not|couldn't|cannot|can't) connect|lost connection"
        r"|server has gone away|incompleteread|chunkedencoding|exceeded \d+ redirects|toomanyredirects"
        r"|proxyerror|failed to establish|clientconnector|host is down|terminating connection"
        r"|connect to host \S+ port|(?:httpx|httpcore)\.readerror|connection to server [^\n]* failed"
        r"|tunnel connection failed|peer closed|stream disconnected|closed the connection unexpectedly",
    ),
    says(
        "tls",
        E.NETWORK,
        "ssl|tls|certificate",
        r"ssl(?:error|_error|v3|eof| routines)|sslcertverification|\bssl[: ]|tls (?:handshake|alert"
        r"|connect)|handshake (?:failed|failure)|unexpected[_ ]eof[_ ]while[_ ]reading"
        r"|eof occurred in violation|certificate (?:verify failed|has expired|is not trusted"
        r"|signed by unknown)|unable to (?:verify|get local issuer)|self[- ]signed certificate|err_(?:cert"
        r"|ssl)_|x509:",
    ),
)

TIMEOUTS: Final[tuple[Rule, ...]] = (
    says(
        "timeout",
        E.TIMEOUT,
        "timed out|timed-out|timeout|time out|deadline|took too long|time limit|did not respond"
        "|status 124|code 124|code: 124|timedout|canceling statement|execution was interrupted",
        r"\btimed[ -]out\b|\btimedout|time[- ]?out (?:error|exceeded|expired|reached|of|after|waiting"
        r"|while|to host|was)\b|timeout ?(?:error|exception|expired)\b(?!s? (?:is|must|should))"
        r"|(?:connection|request|read|gateway|operation|command|execution|query|socket|connect|wait|script"
        r"|call|navigation|response|idle|statement|upstream|server|exceeded|inference|process|job"
        r"|lock)[ _-]time[- ]?out\b(?! (?:must|parameter|value|option|should|is))"
        r"|^\W*(?:error\W+)?time[- ]?out\W*$|(?:read|connect|pool|write|connection)timeout"
        r"|deadline[ _]exceeded|deadlineexceeded|deadline has elapsed|took too long|time limit (?:exceeded"
        r"|reached|of)|exceeded (?:the )?(?:maximum )?(?:execution )?time|did not respond (?:in time"
        r"|within)|exit(?:ed with)?(?: with)? (?:code|status):? 124|status 124\b|statement timeout"
        r"|execution was interrupted|context deadline|modeltimeout|request timeout|\btimeout: "
        r"|timeout while|exceeded.{0,20}timeout",
    ),
)

# The first word of a Redis error is its code.
_REDIS_CODES: Final[Mapping[str, E]] = {
    **dict.fromkeys(("WRONGTYPE", "CROSSSLOT", "NOSCRIPT"), E.SCHEMA),
    **dict.fromkeys(("LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN"), E.UNAVAILABLE),
    **dict.fromkeys(("NOAUTH", "WRONGPASS"), E.AUTH),
    **dict.fromkeys(("NOPERM", "READONLY"), E.PERMISSION),
    "OOM": E.RESOURCE_EXHAUSTED,
}
_REDIS: Final = re.compile(rf"(?:\(error\) |[\w.]+Error: )?({'|'.join(_REDIS_CODES)}) [A-Z]?[a-z]")


def _redis(subject: Subject) -> E | None:
    match = _REDIS.match(subject.text)
    return None if match is None else _REDIS_CODES[match[1]]


STATUSES: Final[tuple[Rule, ...]] = (
    decides("redis-code", "|".join(f"{code} ".lower() for code in _REDIS_CODES), _redis),
    decides(
        "http-status",
        "400|401|402|403|404|405|406|407|408|409|41|422|423|424|425|428|429|431|451|50|52|530",
        _http,
    ),
    decides(
        "grpc-status",
        "unavailable|deadline|exhausted|invalid|range|unimplemented|found|exists|precondition|aborted"
        "|permission|unauthenticated|internal|loss|unknown|cancel",
        _grpc,
    ),
    decides("errno", "[errno|[winerror|" + "|".join(_ERRNO_NAMES), _errno),
    says("jsonrpc-schema", E.SCHEMA, "-32700|-32600|-32601|-32602"),
    says("jsonrpc-closed", E.NETWORK, "-32000", r"-32000\b.{0,10}connection closed"),
    says("jsonrpc-timeout", E.TIMEOUT, "-32001", r"-32001\b.{0,10}request timed out"),
    says("jsonrpc-not-found", E.NOT_FOUND, "-32002"),
    says("jsonrpc-internal", E.TOOL_BUG, "-32603", r"-32603"),
    says(
        "aws-codes",
        E.SCHEMA,
        "validationexception|invalidparameter|missingparameter|malformedquerystring|malformedinput"
        "|invalidrequestexception|validationerror) when|serializationexception",
    ),
    says(
        "aws-not-found",
        E.NOT_FOUND,
        "resource_missing|resourcenotfoundexception|nosuchkey|nosuchbucket|nosuchentity"
        "|invalidinstanceid.notfound|deploymentnotfound|model_not_found|not_found_error|notfoundexception",
    ),
    says(
        "aws-denied",
        E.PERMISSION,
        "accessdenied|unauthorizedoperation|not authorized to perform|missing_scope|permission_error"
        "|permissiondenied|permission_denied|optinrequired",
    ),
    says(
        "aws-internal",
        E.TOOL_BUG,
        "internalservererror|internalfailure|internalserverexception|internal_error|internal server error"
        "|internal_server_error|internal error|modelerrorexception",
    ),
    says(
        "invalid-request",
        E.SCHEMA,
        "invalid_request_error|invalid_request|badrequesterror|bad request|invalid_arguments"
        "|unprocessable entity|invalid_value|invalid_type",
    ),
)

DENIALS: Final[tuple[Rule, ...]] = (
    says(
        "forbidden-words",
        E.PERMISSION,
        "forbidden|access denied|access is denied|permission denied|not permitted|not authorized"
        "|not allowed|insufficient permission|insufficient privileges|not subscribed|upgrade your plan"
        "|read-only|access to this|do not have permission|don't have permission|does not have permission"
        "|doesn't have permission|permissionerror|command denied|must be owner|outside the allowed"
        "|outside allowed|outside of the allowed|requires a paid|requires a subscription"
        "|requires approval|not have access|denied by|insufficient scope|insufficient_scope"
        "|must be superuser|cannot list resource|readonly database|lack permission|lacks permission",
        r"\bforbidden\b|access (?:is )?denied|permission denied|operation not permitted|eperm"
        r"|not authorized|(?:is|are|was) not (?:allowed|permitted) (?:to|by|for|access)"
        r"|insufficient (?:permission|privilege|scope)|insufficient_scope|not subscribed|upgrade your plan"
        r"|read-?only (?:file ?system|database|mode|transaction|user)|(?:do|does)(?: not"
        r"|n't) have (?:the )?(?:required )?(?:permission|access|privilege|rights)|permissionerror"
        r"|command denied|must be owner|outside (?:of )?(?:the )?allowed|requires (?:a paid|a subscription"
        r"|approval)|denied by|must be superuser|cannot list resource|lacks? permission"
        r"|access to this .{0,40}(?:denied|restricted|forbidden)",
        confidence=WORDS,
    ),
)
