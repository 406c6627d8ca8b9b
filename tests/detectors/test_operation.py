"""What calls are about: one table of shells as agents use them, and what must hold for any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import Json
from detectors.operation import MAX_CHARS, operation_of, parts_of

LINES = {
    "git commit -m 'a b'": "git commit",
    "git -C /repo add src/a.py": "git add a.py",
    "git diff HEAD~1 -- a.py": "git diff a.py",
    "git stash pop": "git stash pop",
    "git clone https://user:pw@github.com/a/b.git": "git clone github.com",
    "npm test": "npm test",
    "npm run build -- --watch": "npm run build",
    "kubectl -n web get pods": "kubectl get pods",
    "kubectl get pods -n web": "kubectl get pods",
    "docker compose -f x.yml up -d": "docker compose up",
    "gh pr view 12": "gh pr view",
    "pip install -U 'numpy==1.2'": "pip install numpy",
    "pip3 install numpy": "pip install numpy",
    "/venv/bin/python3.11 -m pip install numpy": "pip install numpy",
    "pip install -r requirements.txt": "pip install requirements.txt",
    "sudo -u root apt-get install -y libfoo": "apt-get install libfoo",
    "python -m pytest tests/test_a.py::test_b": "pytest test_a.py::test_b",
    "uv run pytest -k foo tests/": "pytest tests",
    "python3 - <<'EOF'\nprint(1)\nEOF": "python -",
    "python -c 'import x; print(1)'": "python -c",
    "python3 /repo/run.py --fast 3": "python run.py",
    "cat > /a/b.py << 'EOF'\nimport x\nEOF": "cat > b.py",
    "cat <<EOF > x.txt\na\nEOF": "cat > x.txt",
    "cat src/a.py": "cat a.py",
    "cat ./a.py 2>/dev/null || true": "cat a.py",
    "grep -rn 'a/b' src/": "grep src",
    "sed -n '1,10p' a/b.py": "sed b.py",
    "sed -i 's/a/b/' f.py": "sed f.py",
    "curl -sS -X POST -H 'A: b' https://api.ex.org/v1/a": "curl api.ex.org",
    "head -n 5 f": "head f",
    "ls -la": "ls",
    "cd /repo": "cd repo",
    "cd /repo && ls src | head": "ls src",
    "echo hi": "echo hi",
    "echo hi | python s.py": "python s.py",
    "# look around\nls src": "ls src",
    "FOO=1 BAR='a b' make -j4 test": "make test",
    "export A=1; ./x": "x",
    "time timeout -k 5 60s ./configure": "configure",
    "env A=1 nohup ./server.sh > log 2>&1 &": "server.sh > log",
    "if [ -f a ]; then cat a; fi": "cat a",
    "(cd a && ls b)": "ls b",
    'bash -lc "cd /x && git status"': "git status",
    "bash run.sh": "bash run.sh",
    "find /repo -name x | head": "find repo",
    "mkdir -p /a/b && touch /a/b/c.py": "mkdir b",
    "SELECT name FROM students WHERE x": "select students",
    "if [ -f a ]; then echo x; fi; ls b": "ls b",
    "```bash\nls b\n```": "ls b",
    "---\nls b": "ls b",
    "": "",
}


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_is_about(line: str) -> None:
    expected = f"bash:{LINES[line]}" if LINES[line] else "bash"
    assert operation_of("bash", {"command": line}) == expected


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("get_order", {"command": "ls"}, "get_order"),
        ("str_replace_editor", {"command": "view", "path": "/a"}, "str_replace_editor"),
        ("shell", {"command": ["bash", "-lc", "cd x && npm test"]}, "shell:npm test"),
        ("shell", {"command": ["git", "commit", "-m", "two words"]}, "shell:git commit"),
        ("mcp__box__run_command", {"cmd": "ls /srv"}, "mcp__box__run_command:ls srv"),
        ("bash", "ls /srv", "bash:ls srv"),
        ("bash", '{"command": "ls /srv"}', "bash:ls srv"),
        ("bash", '{"command": ', "bash"),
        ("bash", None, "bash"),
        ("bash", {}, "bash"),
        ("bash", {"command": [1, None]}, "bash"),
        ("bash", 7, "bash"),
    ],
)
def test_a_call_is_about(tool: str, arguments: Json, expected: str) -> None:
    assert operation_of(tool, arguments) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cat a.py", "cat /repo/src/a.py"),
        ("pip install foo==1", "python3 -m pip install foo"),
        ("pytest tests/a.py", "cd /repo && timeout 60 python -m pytest -x tests/a.py 2>&1 | tail -5"),
        ("curl http://h/a", "curl -s --max-time 5 http://h/b"),
    ],
)
def test_variants_of_one_attempt_are_one_operation(one: str, other: str) -> None:
    assert operation_of("bash", one) == operation_of("bash", other)


@pytest.mark.parametrize(
    ("one", "other"), [("cat a.py", "cat b.py"), ("git add a.py", "git commit a.py"), ("cat a", "cat > a")]
)
def test_different_work_is_different(one: str, other: str) -> None:
    assert operation_of("bash", one) != operation_of("bash", other)


def test_the_family_leaves_the_target_out() -> None:
    parts = parts_of("bash", {"command": "git add src/a.py"})
    assert (parts.family, parts.target) == ("bash:git add", "a.py")


SHELLISH = st.text(alphabet="ab'\"\\ \n;&|<>()$={}#-/.12~`*", max_size=200)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=80) | SHELLISH,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["command", "cmd", "x"]), inner)
    ),
    max_leaves=6,
)


@given(tool=st.sampled_from(["bash", "exec", "shell", ""]) | st.text(max_size=200), arguments=VALUES)
def test_anything_has_a_short_operation(tool: str, arguments: Json) -> None:
    parts = parts_of(tool, arguments)
    assert max(len(parts.name), len(parts.family)) <= MAX_CHARS
    assert parts.name.startswith(parts.family)
    assert parts == parts_of(tool, arguments)


@given(
    prefix=st.sampled_from(["cd /x && ", "A=b ", "sudo ", "timeout 5 ", "echo a; ", "time "]), line=SHELLISH
)
def test_what_runs_a_program_does_not_count(prefix: str, line: str) -> None:
    assert operation_of("bash", f"{prefix}git status {line}") == operation_of("bash", f"git status {line}")


@pytest.mark.parametrize(
    "text", ["'" * 100_000, '"\\' * 50_000, "a=" * 50_000, "(" * 100_000, "sudo " * 30_000]
)
def test_hostile_lines_are_bounded(text: str) -> None:
    assert len(operation_of("bash", text)) <= MAX_CHARS
