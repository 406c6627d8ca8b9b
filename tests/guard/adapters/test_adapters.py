"""Real frameworks with a stub model in a doom loop against a real sidecar: each stops, or takes another way.

Each framework has an environment of its own, made once in `.venv-guard/` from `requirements-NAME.txt`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import OnCall
from scripted import eventually
from sidecar import GuardedSidecar

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
LIMIT_S = 90
AGENTS = (
    ("function", "function_agent", ()),
    ("langchain", "langchain_agent", ()),
    ("langchain", "langchain_agent", ("async",)),
    ("langchain", "langchain_agent", ("async", "raise")),
    ("openai-agents", "openai_agents_agent", ()),
    ("pydantic-ai", "pydantic_ai_agent", ()),
    ("pydantic-ai", "pydantic_ai_agent", ("toolset",)),
    ("mcp", "mcp_agent", ()),
)

pytestmark = pytest.mark.accept
agents = pytest.mark.parametrize(
    ("environment", "program", "more"), AGENTS, ids=["-".join((a[1], *a[2])) for a in AGENTS]
)


def python_of(environment: str) -> Path:
    """The interpreter of a framework's environment, which is made when it is not there yet."""
    if environment == "function":
        return Path(sys.executable)
    requirements = HERE / f"requirements-{environment}.txt"
    mark = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()[:12]
    folder = ROOT / ".venv-guard" / f"{environment}-{mark}"
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip: list[str | Path] = [
            python,
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "install",
            "-r",
            requirements,
        ]
        subprocess.run(pip, check=True)
        (folder / "made").touch()
    return python


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedSidecar]:
    on_call = OnCall.start()
    served = GuardedSidecar(tmp_path_factory.mktemp("adapters"), on_call)
    try:
        served.start()
        yield served
    finally:
        served.stop()
        on_call.stop()


def played(sidecar: GuardedSidecar, environment: str, program: str, *words: str) -> list[dict[str, Any]]:
    """What happened, as the program tells it; `words`: session, part, and more."""
    paths = (str(ROOT / "guard/src"), str(HERE.parent / "core"))
    run = subprocess.run(
        [python_of(environment), HERE / f"programs/{program}.py", sidecar.url, sidecar.otlp, *words],
        capture_output=True, text=True, check=False, timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-4000:]
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"what"')]


def finding_of(sidecar: GuardedSidecar, session: str) -> dict[str, Any]:
    """The first finding that may trip something."""
    found = sidecar.api("GET", f"/v1/findings?session_id={session}")["findings"]
    return dict(next(f for f in found if f["kind"] == "doom_loop" and f["severity"] == "critical"))


@agents
def test_an_agent_in_a_doom_loop_is_stopped(
    sidecar: GuardedSidecar, environment: str, program: str, more: tuple[str, ...]
) -> None:
    session = "-".join(("loop", program, *more))
    story = played(sidecar, environment, program, session, "loop", *more)
    finding = finding_of(sidecar, session)
    late = [e for e in story if e["what"] == "call" and e["at"] > finding["detected_at"]]
    assert len(late) <= 1, "calls after the finding"
    end = story[-1]
    assert (end["what"], end["how"]) == ("end", "halted")
    assert "fetch_page" in end["text"]
    calls, turns = ([e for e in story if e["what"] == what] for what in ("call", "turn"))
    assert len(calls) <= 5
    assert len(turns) - len(calls) <= 1, "the model was asked again after the halt"


@agents
def test_a_model_that_follows_the_text_recovers(
    sidecar: GuardedSidecar, environment: str, program: str, more: tuple[str, ...]
) -> None:
    session = "-".join(("replan", program, *more))
    story = played(sidecar, environment, program, session, "replan", *more)
    end = story[-1]
    assert (end["what"], end["how"]) == ("end", "finished")
    refusals = [e for e in story if e["what"] == "turn" and e["last"].startswith("Stopped by Recloser")]
    assert len(refusals) == 1
    assert "replanned" in refusals[0]["last"]
    assert [e["tool"] for e in story if e["what"] == "call"][-1] == "search"
    late = [
        e
        for e in story
        if e.get("tool") == "replanned" and e["at"] > finding_of(sidecar, session)["detected_at"]
    ]
    assert len(late) <= 1

    def counted() -> bool:
        listed = sidecar.api("GET", f"/v1/breakers?session_id={session}")["breakers"]
        return [(b["action"], b["denied"]) for b in listed] == [("replan", 1)]

    eventually(counted)


@pytest.mark.parametrize(
    ("environment", "heading"),
    [
        ("langchain", "LangChain and LangGraph"),
        ("openai-agents", "OpenAI Agents SDK"),
        ("pydantic-ai", "Pydantic AI"),
        ("mcp", "MCP"),
    ],
)
def test_what_the_documentation_imports_is_there(environment: str, heading: str) -> None:
    page = (ROOT / "docs/guard.md").read_text()
    example = page.partition(f"### {heading}\n")[2].partition("```python\n")[2].partition("```")[0]
    imports = [line for line in example.splitlines() if line.startswith(("from ", "import "))]
    assert len(imports) >= 3
    subprocess.run(
        [python_of(environment), "-c", "\n".join(imports)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "guard/src")},
    )


def test_a_run_goes_back_to_the_checkpoint_before_the_first_tainted_step(sidecar: GuardedSidecar) -> None:
    session = "quarantined"
    story = played(sidecar, "langchain", "langgraph_quarantine", session, "loop")
    back = next(e for e in story if e["what"] == "rolled_back")
    assert back["kept"] == ["Look at the page.", "The notes say: be careful."]
    assert back["tainted"][0] == "call_2"
    assert back["last_clean"] == "call_1"
    assert story[-1]["text"] == "Done without it."
    assert not [text for text in story[-1]["last_seen"] if "KeyError" in text]
