"""When the cascade detector speaks, and when it must not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import Json, Step
from detectors.cascade import Cascade, CascadeConfig, cascaded_from, share_cascaded
from detectors.protocol import Finding
from tests.detectors.case_steps import BLIND_CASES, read_cases, steps_of
from tests.detectors.stream import Stream, first, judged

ALARMS = ("warning", "critical")


def call(stream: Stream, agent: str, tool: str, arguments: Json = None, **more: Any) -> Stream:  # noqa: ANN401 - fields of Step
    stream.agent = agent
    return stream.call(tool, arguments, **more)


def told(steps: Sequence[Step]) -> list[tuple[int, Finding]]:
    return judged(steps, Cascade())


def failing(*calls: tuple[str, str, str], after: float = 4.0) -> Stream:
    """Calls as (agent, tool, error); an empty error is a success."""
    stream = Stream()
    for n, (agent, tool, error) in enumerate(calls):
        if error:
            call(stream, agent, tool, {"n": f"v{n}_users"}, error=error, after=after)
        else:
            call(stream, agent, tool, {"n": f"v{n}"}, ok="fine", after=after)
    return stream


DB = "could not connect to db-1.internal:5432: connection refused"


@pytest.mark.parametrize(
    ("calls", "at", "rule"),
    [
        # One host is down, each tool says so in its own words.
        (
            [
                ("a", "orders_get", DB),
                ("b", "stock_get", "dial tcp db-1.internal:5432: connect: connection refused"),
                ("c", "user_get", "upstream timed out: db-1.internal:5432"),
                ("a", "mail_log", DB),
                ("b", "stock_get", DB),
            ],
            5,
            "failing_together",
        ),
        # One agent, one credential.
        (
            [("a", tool, "401 Unauthorized: token expired") for tool in ("crm", "mail", "drive", "wiki")],
            4,
            "one_cause",
        ),
        # What was to be made is not there; every tool that needs it says so.
        (
            [
                ("a", "run_migration", "migration failed: syntax error"),
                ("a", "insert_row", 'relation "v0_users" does not exist'),
                ("a", "count_rows", 'relation "v0_users" does not exist'),
                ("a", "index_rows", "no such table: v0_users"),
            ],
            4,
            "named_upstream",
        ),
        # One agent, words that nobody knows, but the same ones from everything it has.
        (
            [("a", f"browser_{n}", "Target page, context or browser has been closed") for n in range(5)],
            5,
            "one_cause",
        ),
        # The dependents name who failed before them, each its neighbour.
        (
            [
                ("a", "extract_rows", "KeyError: 'rows'"),
                ("b", "clean_rows", "no output of extract_rows"),
                ("c", "load_rows", "input from clean_rows is missing"),
                ("d", "report_rows", "load_rows has not run"),
            ],
            4,
            "named_upstream",
        ),
    ],
)
def test_failures_of_one_cause(calls: list[tuple[str, str, str]], at: int, rule: str) -> None:
    found = told(failing(*calls).steps)
    assert first(found, *ALARMS) == at
    finding = found[0][1]
    assert finding.evidence["rule"] == rule
    assert finding.evidence["root_tool"] == calls[0][1]
    assert finding.evidence["root_step_id"] == "s/a/1"


def test_the_root_is_what_failed_before_with_another_error() -> None:
    stream = failing(("main", "read_notes", ""), ("main", "mcp_start", "spawn failed: server not found"))
    for n, agent in enumerate("abca"):
        call(stream, agent, f"tool_{n}", {"n": n}, error=f"Unknown tool: tool_{n}")
    found = told(stream.steps)
    assert first(found, *ALARMS) == 6
    evidence = found[0][1].evidence
    assert evidence["root_tool"] == "mcp_start"
    assert evidence["last_clean_step_id"] == "s/main/1"
    assert cascaded_from(found[0][1]) == {f"s/{agent}/{n}": "s/main/2" for n, agent in enumerate("abca", 3)}


@pytest.mark.parametrize(
    "calls",
    [
        # Unrelated errors.
        [
            ("a", "orders_get", "invalid date"),
            ("b", "mail", "mailbox full"),
            ("c", "build", "2 tests failed"),
            ("a", "wiki", "no such page"),
            ("d", "deploy", "quota exceeded"),
        ],
        # Every tool works again before the next fails.
        [
            pair
            for n, tool in enumerate(("crm", "mail", "drive", "wiki", "billing"))
            for pair in (("abc"[n % 3], tool, DB), ("abc"[n % 3], tool, ""))
        ],
        # The network is away for a moment: each tool fails once, and works when it is tried again.
        [
            *[(agent, f"tool_{n}", "connection reset by peer") for n, agent in enumerate("abca")],
            *[(agent, f"tool_{n}", "") for n, agent in enumerate("abca")],
        ],
        # Failing tests are nobody's cause.
        [(f"a{n}", f"test_{n}", "2 failed, 3 passed in 0.1 s") for n in range(6)],
        # A bare exit code says nothing.
        [(f"a{n}", f"tool_{n}", "exit code 1") for n in range(6)],
        # One agent makes tools up.
        [("a", f"fix_it_{n}", f"Error: Cannot execute 'fix_it_{n}': unknown command.") for n in range(7)],
        # Nothing is there, which is an answer.
        [(f"a{n}", f"tool_{n}", "404 Not Found") for n in range(6)],
        # Other files are not there.
        [(f"a{n}", f"tool_{n}", f"no such file: v{n}_users") for n in range(6)],
        # One tool, many agents: a storm at most.
        [(f"a{n}", "fetch", DB) for n in range(8)],
    ],
)
def test_what_is_no_cascade(calls: list[tuple[str, str, str]]) -> None:
    assert told(failing(*calls).steps) == []


def test_other_hosts_that_were_asked_for_are_no_cascade() -> None:
    stream = Stream()
    for n, agent in enumerate("abcabc"):
        url = f"https://s{n}.example.com"
        call(stream, agent, f"tool_{n}", {"url": url}, error=f"timeout after 30 s fetching {url}")
    assert told(stream.steps) == []


def test_failures_far_apart_are_no_cascade() -> None:
    calls = [(agent, f"tool_{n}", "503 Service Unavailable") for n, agent in enumerate("abcabc")]
    assert first(told(failing(*calls, after=4.0).steps), *ALARMS) == 5
    assert told(failing(*calls, after=400.0).steps) == []


def servers(*names: str, error: str, works: str = "") -> list[tuple[int, Finding]]:
    stream = Stream()
    for name in names:
        if works:
            stream.call(works, {"n": name}, ok="fine")
        stream.call(name, {"key": "aBc9"}, error=error)
    return told(stream.steps)


FIGMA = [
    f"mcp__figma__{name}" for name in ("get_node", "get_styles", "export_png", "get_comments", "get_file")
]


@pytest.mark.parametrize(
    ("names", "error", "at"),
    [
        (FIGMA, "Not connected", 4),
        ([f"figma.{name[12:]}" for name in FIGMA], "Not connected", 4),
        (FIGMA, "MCP error -32000: Connection closed", 5),
        (FIGMA, "no node aBc9", None),
        (["mcp__a__get", "mcp__b__get", "mcp__c__get", "mcp__d__get"], "Not connected", None),
    ],
)
def test_a_dead_server_takes_all_its_tools_down(names: list[str], error: str, at: int | None) -> None:
    assert first(servers(*names, error=error), *ALARMS) == at


def test_a_server_of_which_one_tool_works_is_not_dead() -> None:
    assert servers(*FIGMA[:4], error="Not connected", works="mcp__figma__list_pages") == []


def test_the_same_part_of_errors_that_say_else_other_things_is_one_cause() -> None:
    errors = [
        ("deployer", "vault_read", "Error reading kv/prod/db: 503. Errors: * Vault is sealed"),
        ("migrator", "migrate_up", "cannot get database credentials: Vault is sealed"),
        ("deployer", "helm_upgrade", "UPGRADE FAILED: pre-upgrade hook: vault is sealed (503)"),
        ("backup", "snapshot_db", "credentials unavailable: Vault is sealed"),
        ("certs", "renew_cert", "pki/issue: Vault is sealed"),
    ]
    found = told(failing(*errors).steps)
    assert first(found, *ALARMS) == 4
    assert found[0][1].evidence["cause"] == "clause:vault is sealed"
    alone = told(failing(*[("main", tool, error) for _, tool, error in errors]).steps)
    assert first(alone, *ALARMS) == 5
    other = [(agent, tool, error.replace("ealed", f"ealed {tool[::-1]}")) for agent, tool, error in errors]
    assert told(failing(*other).steps) == []


@pytest.mark.parametrize(("count", "at"), [(4, None), (5, 5)])
def test_one_agents_tools_are_all_refused_for_who_it_is(count: int, at: int | None) -> None:
    errors = ("401 Unauthorized", "token has expired", "invalid credentials", "not logged in", "bad API key")
    calls = [("main", f"tool_{n}", error) for n, error in enumerate(errors[:count])]
    assert first(told(failing(*calls).steps), *ALARMS) == at


@pytest.mark.parametrize("head", ["```BASH", "```bash", "```"])
def test_a_fence_around_every_command(head: str) -> None:
    stream = Stream()
    for command in ("ls /testbed", "find . -name x", "cat a.php", "pwd"):
        wrapped = f"{head}\n{command}\n```"
        error = f"bash: line 1: {head.strip('`') or '```'}: command not found"
        stream.call("bash", {"command": wrapped}, error=error)
    found = told(stream.steps)
    assert first(found, *ALARMS) == 3
    assert found[0][1].evidence["rule"] == "wrapper"


def test_a_wrapper_that_works_is_not_what_is_wrong() -> None:
    stream = Stream()
    for n in range(5):
        stream.call("bash", {"command": f"```bash\nls {n}\n```"}, error="bash: bash: command not found")
        stream.call("bash", {"command": f"```bash\nls {n}\n```"}, ok="a b")
    assert told(stream.steps) == []


POISONED = '{"customer_id": null, "status": "ok"}'


@pytest.mark.parametrize(
    ("result", "uses", "at"),
    [
        (POISONED, [("create_order", {"customer_id": "null"}), ("send_invoice", {"customer_id": "None"})], 3),
        (POISONED, [("create_order", {"customer_id": None}), ("send_invoice", {"customer_id": "null"})], 3),
        (
            POISONED,
            [("put_file", {"path": "/c/undefined/a"}), ("create_order", {"customerId": "undefined"})],
            3,
        ),
        (
            POISONED,
            [("send_mail", {"body": "Dear undefined, hello"}), ("create_order", {"customer_id": "nil"})],
            3,
        ),
        (
            '{"id": null}',
            [(tool, {"customer_id": None}) for tool in ("create_order", "charge", "send_bill")],
            4,
        ),
        ('{"rate": NaN}', [("set_price", {"rate": "NaN"}), ("publish_quote", {"rate": "NaN"})], 3),
        ("undefined", [("save_note", {"user": "undefined"}), ("charge_card", {"user": "undefined"})], 3),
        (
            "Error: model overloaded, please retry",
            [
                ("save_summary", {"content": "Error: model overloaded, please retry"}),
                ("publish_page", {"text": "error: model overloaded, please retry"}),
            ],
            3,
        ),
    ],
)
def test_a_poisoned_value_goes_on_though_every_step_succeeds(
    result: str, uses: list[tuple[str, Json]], at: int
) -> None:
    stream = Stream().call("read_page", {"p": 1}, ok="fine").call("get_customer", {"name": "Ann"}, ok=result)
    for tool, arguments in uses:
        stream.call(tool, arguments, ok="done")
    found = told(stream.steps)
    assert first(found, *ALARMS) == at + 1
    finding = found[-1][1]
    assert finding.evidence["rule"] == "value_flow"
    assert finding.evidence["root_tool"] == "get_customer"
    assert finding.evidence["last_clean_step_id"] == "s/main/1"


def test_what_is_made_of_a_poisoned_value_is_poisoned() -> None:
    stream = Stream().call("get_customer", {"name": "Ann"}, ok=POISONED)
    stream.call("create_order", {"customer_id": "null"}, ok='{"order_id": "ord-88123"}')
    stream.agent = "shipping"
    stream.call("ship_order", {"order": "ord-88123"}, ok="shipped")
    found = told(stream.steps)
    assert [at for at, _ in found] == [2, 3]
    assert [finding.severity for _, finding in found] == ["info", "warning"]
    assert "ship_order.order=ord-88123" in str(found[-1][1].evidence["values"])


@pytest.mark.parametrize(
    ("result", "uses"),
    [
        # An optional field stays empty.
        ('{"parent_id": null, "title": "x"}', [("update_page", {"parent_id": None})] * 3),
        # Optional fields stay empty, in however many tools.
        (
            '{"phone": null}',
            [(tool, {"phone": None}) for tool in ("update_user", "ship", "send_mail", "book")],
        ),
        # A plain null alone, in two tools.
        (POISONED, [("create_order", {"customer_id": None}), ("send_invoice", {"customer_id": None})]),
        # A placeholder that no result had under this name.
        (POISONED, [("fill_form", {"middle_name": "N/A"}), ("submit_form", {"fax": "none"})]),
        # Reading changes nothing.
        (POISONED, [("get_order", {"customer_id": "null"}), ("list_invoices", {"customer_id": "null"})]),
        # Telling people about an error is what errors are for.
        (
            "Error: model overloaded, please retry",
            [
                ("create_incident", {"description": "Error: model overloaded, please retry"}),
                ("notify_team", {"text": "Error: model overloaded, please retry"}),
            ],
        ),
        # Code has null in it.
        (
            POISONED,
            [
                ("write_file", {"content": "if (a == null) { return undefined; }"}),
                ("edit", {"new": "x = None"}),
            ],
        ),
    ],
)
def test_what_is_no_poison(result: str, uses: list[tuple[str, Json]]) -> None:
    stream = Stream().call("get_customer", {"name": "Ann"}, ok=result)
    for tool, arguments in uses:
        stream.call(tool, arguments, ok="done")
    assert first(told(stream.steps), *ALARMS) is None


HALF_MADE = '{"error": "commit conflict", "upload_id": "up-553201"}'


def test_an_id_that_a_failed_call_named_fails_on() -> None:
    stream = Stream().call("create_upload", {"name": "x"}, error=HALF_MADE)
    for tool in ("attach_upload", "publish_upload", "share_upload", "copy_upload"):
        stream.call(tool, {"upload_id": "up-553201"}, error="the upload is in a bad state")
    assert first(told(stream.steps), *ALARMS) == 4


def test_an_id_that_a_good_result_has_is_clean() -> None:
    stream = Stream().call("create_upload", {"name": "x"}, error=HALF_MADE)
    stream.call("list_uploads", {}, ok='[{"upload_id": "up-553201", "state": "open"}]')
    for tool in ("attach_upload", "publish_upload", "share_upload", "copy_upload"):
        stream.call(tool, {"upload_id": "up-553201"}, error="the upload is in a bad state")
    assert first(told(stream.steps), *ALARMS) is None


def test_a_users_turn_ends_a_flow() -> None:
    stream = Stream().call("get_customer", {"name": "Ann"}, ok=POISONED).model(1).user()
    stream.call("create_order", {"customer_id": "null"}, ok="done")
    stream.call("send_invoice", {"customer_id": "null"}, ok="done")
    assert told(stream.steps) == []


def delegated(briefs: Sequence[str], *, parents: bool) -> Stream:
    stream = Stream()
    for n, brief in enumerate(briefs):
        parent = f"agent-{n - 1}" if n and parents else None
        call(stream, f"agent-{n}", "Task", {"prompt": brief}, ok="dispatched", parent_agent=parent)
    return stream


@pytest.mark.parametrize("parents", [True, False])
def test_one_brief_passed_on_without_work(*, parents: bool) -> None:
    found = told(delegated(["do it all"] * 6, parents=parents).steps)
    assert first(found, *ALARMS) == 4
    assert found[0][1].evidence["agents"] == ["agent-0", "agent-1", "agent-2", "agent-3"]


def test_other_briefs_need_a_longer_chain() -> None:
    briefs = [f"part {n}" for n in range(8)]
    assert first(told(delegated(briefs, parents=True).steps), *ALARMS) == 5


def test_an_agent_that_works_ends_a_chain() -> None:
    stream = Stream()
    for n in range(6):
        parent = f"agent-{n - 1}" if n else None
        call(stream, f"agent-{n}", "Task", {"prompt": "do it"}, ok="dispatched", parent_agent=parent)
        call(stream, f"agent-{n}", "read_file", {"path": f"{n}"}, ok="text", parent_agent=parent)
    assert told(stream.steps) == []


def test_workers_with_briefs_of_their_own_are_no_chain() -> None:
    stream = Stream()
    for n in range(9):
        call(stream, "main", "Task", {"prompt": f"part {n}"}, ok="dispatched")
        call(stream, f"w{n}", "read_file", {"path": f"{n}"}, ok="text", parent_agent="main")
    assert told(stream.steps) == []


QUOTA = "sub-agent failed: 429 quota"


def test_children_that_die_alike_one_after_the_other() -> None:
    stream = Stream()
    for n in range(6):
        call(stream, "main", "Task", {"prompt": f"try {n}"}, ok="started")
        call(stream, f"child-{n}", "llm", {"m": 1}, error="429 quota exceeded", parent_agent="main")
        call(stream, f"child-{n}", "llm", {"m": 1}, error="429 quota exceeded", parent_agent="main")
    found = [(at, finding) for at, finding in told(stream.steps) if finding.evidence["rule"] == "respawn"]
    assert first(found, *ALARMS) == 8
    assert first(found, "critical") == 17


def test_children_that_die_side_by_side_are_not_respawned() -> None:
    stream = Stream()
    for n in range(6):
        start = stream.now_ns
        call(stream, "main", "Task", {"prompt": f"part {n}"}, error=QUOTA, after=0.0, start_ns=start)
        stream.now_ns = start
    assert told(stream.steps) == []


def handed(count: int, note: str = "please check {}") -> Stream:
    stream = Stream()
    for n in range(count):
        one, other = ("writer", "reviewer") if n % 2 else ("reviewer", "writer")
        call(stream, one, "handoff", {"to": other, "note": note.format(n % 2)}, ok="handed off")
    return stream


def test_handing_to_and_fro() -> None:
    found = told(handed(20).steps)
    assert (first(found, "warning"), first(found, "critical")) == (8, 16)


def test_a_conversation_is_no_ping_pong() -> None:
    stream = Stream()
    for n in range(20):
        call(stream, "ab"[n % 2], "send_message", {"to": "ba"[n % 2], "text": f"point {n}"}, ok="sent")
    assert told(stream.steps) == []


def test_work_in_between_is_no_ping_pong() -> None:
    stream = Stream()
    for n in range(20):
        call(stream, "ab"[n % 2], "handoff", {"to": "ba"[n % 2]}, ok="handed off")
        call(stream, "ba"[n % 2], "edit", {"line": n}, ok="edited")
    assert told(stream.steps) == []


@pytest.mark.parametrize(
    "case",
    [case for case in read_cases(BLIND_CASES) if case["expect"]["verdict"] == "none"],
    ids=lambda c: c["id"],
)
def test_traps_bring_no_alarm(case: dict[str, Any]) -> None:
    assert first(told([step for _, step in steps_of(case)]), *ALARMS) is None


ERRORS = st.sampled_from(
    [DB, "401 Unauthorized", "invalid date", "Unknown tool: x", "503 Service Unavailable"]
)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("wxy"), ERRORS), max_size=40))
def test_three_tools_are_never_a_cascade(calls: list[tuple[str, str, str]]) -> None:
    assert told(failing(*calls).steps) == []


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from("vwxyz"), ERRORS), min_size=1, max_size=60)
)
def test_the_root_lies_before_what_came_of_it(calls: list[tuple[str, str, str]]) -> None:
    stream = failing(*calls)
    order = {step.step_id: at for at, step in enumerate(stream.steps)}
    for _, finding in told(stream.steps):
        for step, root in cascaded_from(finding).items():
            assert order[root] < order[step]


def test_the_share_of_failures_that_cascaded() -> None:
    stream = failing(*[("a", tool, "401 Unauthorized: token expired") for tool in ("c", "m", "d", "w")])
    call(stream, "a", "build", {}, error="2 tests failed")
    failed = [step.step_id for step in stream.steps]
    findings = [finding for _, finding in told(stream.steps)]
    assert share_cascaded(failed, findings) == pytest.approx(3 / 5)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"cascade\.tools must be at least 2"):
        CascadeConfig(tools=1)
    with pytest.raises(ValueError, match=r"cascade\.window_s must be more than 0"):
        CascadeConfig(window_s=0.0)
