"""`report`, `compare` and `roi` over a small store whose figures are known."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from api import storeaddress
from api.cli import app
from api.compare import Comparison, Side, compare, compared, side_of
from api.compare import as_json as compare_json
from api.compare import as_text as compare_text
from api.config import Settings
from api.printable import printable
from api.report import Asked, as_text, gathered, report
from api.reportdata import Report, as_json
from api.reporthtml import page
from api.roi import Given, roi
from api.storeaccess import opened
from collector.step import ToolDefinition, ToolDefinitions
from storage.client import StoreClient, connect
from storage.metrics.selection import DAY_NS, Selection
from storage.migrate import migrate
from storage.queries import Queries
from storage.rows import DefinitionRow, tool_definition_rows
from storage.writer import Writer
from tests.storage.store_process import SECRET, StoreProcess
from tests.storage.story import SECOND_NS, START_NS, Story

pytestmark = pytest.mark.store

GOLDEN: Final = Path(__file__).parents[1] / "golden/report.json"
START: Final = datetime.fromtimestamp(START_NS // SECOND_NS, UTC)
NOW: Final = START + timedelta(days=2)
HOSTILE: Final = "<script>alert(1)</script>$x^2$\x1b[2J漢[/b]:bug:"
WEEK: Final = Asked(since="7d")
FETCH: Final = ToolDefinition("fetch", "gets a page", {"type": "object"}, hash="aaaa000000000000")
OTHER: Final = replace(FETCH, description="gets any page", hash="bbbb000000000000")


def filled(store: StoreClient) -> None:
    """Version 1: 10 of 40 calls work. Version 2: 30 of 40, with another definition of `fetch`."""
    story = Story(store, service="shop")
    for version, tool, succeed in (("1", FETCH, 10), ("2", OTHER, 30)):
        offered = ToolDefinitions(f"{tool.hash[:4]}00000000dddd", {"fetch": tool}, 400)
        rows = [DefinitionRow("shop", version, offered.hash, tool, START_NS + int(version) * SECOND_NS)]
        Writer(store).insert_packed("tool_definitions", tool_definition_rows(rows), version)
        for number in range(40):
            about: dict[str, Any] = {"service_version": version, "session_id": f"v{version}-{number // 10}"}
            story.model(1000, 100, model="gpt-4o-2024-11-20", definitions=offered, **about)
            step = story.call("fetch", "ok" if number < succeed else "error", **about)
            if number >= succeed:
                at = {"failed_ns": step.end_ns, "model": "gpt-4o-2024-11-20"}
                story.failure(step_id=step.step_id, tool="fetch", recovered=version == "2", **about, **at)
    story.finding("doom_loop", story.steps[79], 10, started_at=story.steps[61].start_ns)
    story.call(HOSTILE, agent=HOSTILE, session_id="hostile", service_version="")
    story.write()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    data_dir = tmp_path_factory.mktemp("data")
    process = StoreProcess(data_dir / "store")
    process.start()
    storeaddress.leave(data_dir, process.port, SECRET)
    client = connect(process.target)
    migrate(client)
    filled(client)
    client.close()
    yield Settings(data_dir=data_dir)
    process.stop()


@pytest.fixture(scope="module")
def whole(settings: Settings) -> Report:
    return gathered(settings, WEEK, NOW)


@pytest.fixture(scope="module")
def grouped(settings: Settings) -> Report:
    return gathered(settings, replace(WEEK, by="tool,agent,service_version"), NOW)


def test_the_report_is_the_golden_one(grouped: Report) -> None:
    """Write it anew with RECLOSER_WRITE_GOLDEN=1 when the change is meant."""
    told = json.dumps(as_json(grouped), indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("RECLOSER_WRITE_GOLDEN"):
        GOLDEN.write_text(told, encoding="utf-8")
    assert json.loads(told) == json.loads(GOLDEN.read_text(encoding="utf-8"))


def test_the_figures_are_those_of_the_store(whole: Report) -> None:
    told = as_json(whole)
    values = {each["name"]: each["rows"][0].get("value") for each in told["metrics"] if each["rows"]}
    assert values["recovery_rate"] == 0.25  # 10 of 40 failures, all of version 2
    assert values["execution_success"] == round(41 / 81, 6)
    assert values["definitions_token_share"] == 0.1
    missing = {each["name"] for each in told["metrics"] if each["status"] == "not recorded"}
    assert missing == {"selection_accuracy", "pass_k", "results_token_share", "confused_tools", "lift"}
    # The session's last ten calls failed: seven beyond the ceiling, at 1000 tokens in and 100 out.
    assert (told["tax"]["calls"], told["tax"]["over"]) == (10, 7)
    assert told["tax"]["usd"] == round(7 * (1000 * 2.5 + 100 * 10) / 1e6, 6)
    [change] = told["definition_changes"]
    assert (change["tool"], change["service_version"], change["changed"]) == ("fetch", "2", ["description"])


def test_a_table_tells_what_is_not_recorded(whole: Report) -> None:
    lines = as_text(whole).splitlines()
    [recovery] = [line for line in lines if line.startswith("Recovery rate")]
    assert recovery.split() == ["Recovery", "rate", "25.0", "%", "14.2", "to", "40.2", "%", "10/40"]
    assert any(line.startswith("Selection accuracy") and "not recorded" in line for line in lines)
    assert any("fetch of shop 2: description" in line for line in lines)


def test_names_of_strangers_are_escaped(whole: Report, grouped: Report) -> None:
    for told in (page(whole), page(grouped)):
        assert "<script" not in told
        assert "\x1b" not in told
        assert "<svg" in told
        assert "href=" not in told.replace('xlink:href="#', "")
    assert "&lt;script&gt;" in page(grouped)


def test_equal_reports_are_equal_bytes(grouped: Report) -> None:
    assert page(grouped) == page(grouped)


def test_a_table_holds_no_control_characters(grouped: Report) -> None:
    assert printable(HOSTILE, 60) in as_text(grouped, width=400)
    assert "\x1b" not in as_text(grouped)


def test_an_empty_window_says_so(whole: Report) -> None:
    empty = replace(whole, overview=replace(whole.overview, calls=0, model_calls=0))
    assert as_text(empty).endswith("Nothing was recorded in this window.\n")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (replace(WEEK, by="tool,colour"), "--by colour: there is tool, operation,"),
        (replace(WEEK, since="yesterday"), "'yesterday' is no time"),
        (replace(WEEK, until="2020-01-01"), "--since 7d is not before --until 2020-01-01"),
        (replace(WEEK, prices=Path("/no/such/prices.toml")), "/no/such/prices.toml: No such file"),
    ],
)
def test_what_cannot_be_reported_is_named(
    settings: Settings, capsys: pytest.CaptureFixture[str], asked: Asked, told: str
) -> None:
    assert report(settings, asked, now=NOW, output="table", out=None) == 2
    assert told in capsys.readouterr().err


def test_a_data_directory_without_a_store_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(Settings(data_dir=tmp_path), WEEK, now=NOW, output="table", out=None) == 2
    assert f"nothing is stored in {tmp_path}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_comparison_takes_names_as_they_are(versions: Comparison) -> None:
    [first, *_] = versions.moved
    hostile = replace(versions, moved=(replace(first, group=(("tool", HOSTILE),)),))
    assert printable(HOSTILE, 60) in compare_text(hostile, width=400)


@pytest.fixture(scope="module")
def versions(settings: Settings) -> Comparison:
    return compared(settings, ("1", "2"), Asked(since="30d"), NOW)


def test_what_moved_is_told_with_its_interval(versions: Comparison) -> None:
    told = compare_json(versions)
    rows = {each["name"]: each for each in told["metrics"] if not each["group"]}
    success = rows["execution_success"]
    assert (success["a"], success["b"], success["difference"]) == (0.25, 0.75, 0.5)
    assert success["excludes_no_change"] is True
    assert success["verdict"] == "better"
    assert 0 < success["p"] < success["p_corrected"] < 0.05
    same = rows["parameter_pass_rate"]
    assert (same["difference"], same["excludes_no_change"], same["verdict"]) == (0, False, None)
    assert told["tested"] == sum(each["p"] is not None for each in told["metrics"])
    assert [each["tool"] for each in told["definition_changes"]] == ["fetch"]


def test_what_moved_is_told_in_words(versions: Comparison) -> None:
    told = compare_text(versions)
    assert "A: version 1, 4 sessions, 40 tool calls, 30 failed" in told
    assert "Better: Recovery rate" in told
    assert "the definition of fetch of shop 2 changed (description)" in told


@pytest.mark.parametrize(
    ("name", "kind", "selected"),
    [
        ("1", "version", {"service_version": "1"}),
        ("version:2", "version", {"service_version": "2"}),
        ("aaaa00000000dddd", "definitions", {"definitions": ("aaaa00000000dddd",)}),
        ("aaaa0000000000", "definitions", {"definitions": ("aaaa00000000dddd",), "tool": "fetch"}),
        (
            "2025-11-01..2025-11-02",
            "window",
            {"since_ns": 1761955200 * 10**9, "until_ns": 1762041600 * 10**9},
        ),
    ],
)
def test_a_bare_value_is_what_it_can_be(
    settings: Settings, name: str, kind: str, selected: dict[str, Any]
) -> None:
    within = Selection(since_ns=0, until_ns=START_NS + DAY_NS)
    with opened(settings) as client:
        side = side_of(client, name, within, NOW)
    assert side == Side(name.rpartition(":")[2], kind, replace(within, **selected))


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (("1", "3"), "3: no version, window or hash of tool definitions that is known here"),
        (("1", "version:3"), "version 3: unknown; there is 1, 2"),
        (("1", "definitions:cccc"), "definitions cccc: no tool definitions with this hash"),
        (("1", "definitions:ab"), "definitions ab: 4 digits of the hash at least"),
        (("1", "aaaa00000000dddd"), "1 is a version, aaaa00000000dddd a definitions"),
        (("1", "version:1"), "1 and version:1 are the same"),
        (("1", "2020-01-02..2020-01-01"), "it ends before it begins"),
        (("2020-01-01..2020-01-02", "7d.."), "window 2020-01-01..2020-01-02: nothing is stored of it"),
        (("version:", "2"), "nothing stands behind the colon"),
    ],
)
def test_what_cannot_be_compared_is_named(
    settings: Settings, capsys: pytest.CaptureFixture[str], names: tuple[str, str], problem: str
) -> None:
    assert compare(settings, names, Asked(since="30d"), now=NOW, output="table") == 2
    assert problem in capsys.readouterr().err


def test_savings_are_arithmetic(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    given = Given(calls=50, price=0.5, sessions_per_day=10)
    assert roi(settings, given, None, ceiling=5, now=NOW, output="json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["calls_a_day"], told["usd_a_day"], told["usd_a_month"]) == (450, 225, 6750)
    assert told["measured"] == []


def test_savings_are_measured_where_not_given(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    asked = Asked(since="7d")
    assert roi(settings, Given(sessions_per_day=100), asked, ceiling=3, now=NOW, output="json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["calls"], told["price_usd"], told["measured"]) == (10, 0.0035, ["calls", "price"])
    assert told["usd_a_day"] == round(7 * 0.0035 * 100, 6)


@pytest.mark.parametrize(
    ("given", "asked", "told"),
    [
        (Given(calls=5, price=1), None, "--sessions-per-day is missing"),
        (Given(calls=-5), WEEK, "--calls must be 0 or more"),
        (Given(calls=5), Asked(since="2020-01-01", until="2020-01-02"), "nothing to save"),
    ],
)
def test_what_cannot_be_reckoned_is_named(
    settings: Settings, capsys: pytest.CaptureFixture[str], given: Given, asked: Asked | None, told: str
) -> None:
    assert roi(settings, given, asked, ceiling=3, now=NOW, output="table") == 2
    assert told in capsys.readouterr().err


def test_commands_take_their_options(settings: Settings) -> None:
    run = CliRunner()
    data_dir = ["--data-dir", str(settings.data_dir)]
    told = run.invoke(app, ["report", "--since", "2025-11-01", "--by", "tool", "--format", "json", *data_dir])
    assert told.exit_code == 0
    assert json.loads(told.stdout)["by"] == ["tool"]
    told = run.invoke(app, ["compare", "1", "3", "--since", "2025-11-01", "--by", "tool", *data_dir])
    assert (told.exit_code, told.stdout) == (2, "")
    told = run.invoke(app, ["roi", "--calls", "50", "--price", "1", "--sessions-per-day", "2", *data_dir])
    assert told.exit_code == 0
    assert "$94.00" in told.stdout


def test_a_store_that_nothing_serves_is_opened_and_closed_again(tmp_path: Path) -> None:
    process = StoreProcess(tmp_path / "store")
    process.start()
    client = connect(process.target)
    migrate(client)
    filled(client)
    client.close()
    storeaddress.leave(tmp_path, process.port, SECRET)
    process.stop()  # its address is left behind
    with opened(Settings(data_dir=tmp_path)) as own:
        assert Queries(own).counts()["steps"] == 161
    process.start()  # the folder is free again
    process.stop()
