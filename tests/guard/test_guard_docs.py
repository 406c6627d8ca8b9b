"""The examples of the guard's documentation: all compile, those without a framework run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recloser_guard import Guard
from scripted import Scripted, Stream, breaker, scripted, snapshot

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs/guard.md", ROOT / "guard/README.md")
EXAMPLES = [
    pytest.param(found, id=f"{page.name}-{number}")
    for page in PAGES
    for number, found in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]
FRAMEWORKS = ("langchain", "agents", "pydantic_ai", "mcp")


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_compiles(example: str) -> None:
    compile(example, "example", "exec")


@pytest.mark.parametrize(
    "requirement",
    [
        line
        for file in sorted((ROOT / "tests/guard/adapters").glob("requirements-*.txt"))
        for line in file.read_text().split()
    ],
)
def test_the_page_tells_the_versions_that_are_tested(requirement: str) -> None:
    assert requirement.replace("==", " ") in PAGES[0].read_text()


def of_framework(example: str) -> bool:
    return any(re.search(rf"(?m)^from (recloser_guard\.adapters\.)?{name}\b", example) for name in FRAMEWORKS)


RUNNING = [param for param in EXAMPLES if not of_framework(str(param.values[0]))]


def ran(example: str, sidecar: Scripted, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("RECLOSER_URL", sidecar.url)
    monkeypatch.setenv("XDG_CACHE_HOME", "/nonexistent/recloser")
    with Guard(sidecar.url, cache=None) as known:  # an example may go on with the one before it
        names: dict[str, object] = {"guard": known}
        try:
            exec(example.replace("http://127.0.0.1:4319", sidecar.url), names)
        finally:
            made = names["guard"]
            assert isinstance(made, Guard)
            made.close()
    return names


@pytest.mark.parametrize("example", RUNNING)
def test_examples_without_a_framework_run(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(stream: Stream) -> None:
        stream.write(snapshot(revision=1))
        stream.hold()

    with scripted(tell) as sidecar:
        names = ran(example, sidecar, monkeypatch)
    if "fetch_page(" in example:
        assert str(names.get("result", "what")).startswith("what")


@pytest.mark.parametrize("example", [param for param in RUNNING if "guarded()" in str(param.values[0])])
def test_the_first_example_obeys(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "fetch_page" in example
    for action in ("deny", "halt"):

        def tell(stream: Stream, action: str = action) -> None:
            stream.write(snapshot(breaker(session="chat-17", action=action, message="No.")))
            stream.hold()

        with scripted(tell) as sidecar:
            if action == "deny":
                assert ran(example, sidecar, monkeypatch)["result"] == "No."
            else:
                with pytest.raises(SystemExit, match=r"No\."):
                    ran(example, sidecar, monkeypatch)
