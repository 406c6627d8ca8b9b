from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.tomllines import Lines, Path

TEXT = '''# a comment with [[rule]] in it
title = "x # no comment"   # 2

[[rule]]
name = """
[[rule]]
kinds = 3
"""  # the text ends on line 8
kinds = [ # 9
  "a",  # 10
  'b]', "c,",

  [ 1, 2 ],  # 13
]
trip.scope = "session"
"trip"."act\\"ion" = "deny"
at = 2026-11-30T08:00:00Z

[[rule]] # 19
trip = { scope = "s", x = { y = [1, {z = 2}] } }
[rule.deep."a.b"] # 21
k = 1
[[rule.inner]]
k = 23.5
[[rule.inner]]

k = true
[breaker]
probes = 2
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("title",), 2),
        (("rule",), 4),
        (("rule", 0), 4),
        (("rule", 0, "name"), 5),
        (("rule", 0, "kinds"), 9),
        (("rule", 0, "kinds", 0), 10),
        (("rule", 0, "kinds", 2), 11),
        (("rule", 0, "kinds", 3, 1), 13),
        (("rule", 0, "trip"), 15),
        (("rule", 0, "trip", 'act"ion'), 16),
        (("rule", 0, "at"), 17),
        (("rule", 0, "missing"), 4),
        (("rule", 1), 19),
        (("rule", 1, "trip", "x", "y", 1, "z"), 20),
        (("rule", 1, "deep", "a.b", "k"), 22),
        (("rule", 1, "inner", 0, "k"), 24),
        (("rule", 1, "inner", 1), 25),
        (("rule", 1, "inner", 1, "k"), 27),
        (("breaker", "probes"), 29),
        (("nothing", "here"), 1),
        ((), 1),
    ],
)
def test_every_key_is_found_on_its_line(path: Path, line: int) -> None:
    tomllib.loads(TEXT)
    assert Lines(TEXT).of(path) == line


def paths(value: object, at: Path = ()) -> Iterator[Path]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from paths(inner, (*at, key))


SCALARS = st.one_of(
    st.integers(-5, 5).map(str),
    st.booleans().map(lambda flag: str(flag).lower()),
    st.text(alphabet='ab[]{}#,=."\\\n', max_size=8).map(json.dumps),
    st.text(alphabet='ab[]{}#,="\\', max_size=8).map(lambda text: f"'{text}'"),
    st.text(alphabet="ab[]{}#,='\n", max_size=8).map(lambda text: f'"""{text}"""'),
    st.text(alphabet='ab[]{}#,=\n\\"', max_size=8)
    .filter(lambda text: '"""' not in text and not text.endswith('"'))
    .map(lambda text: f"'''{text}'''"),
    st.sampled_from(["1979-05-27", "07:32:00", "1_000.5e3", "inf", "0xdead"]),
)
KEYS = st.one_of(
    st.sampled_from(["a", "b-c", "d_1"]), st.sampled_from(["x.y", "[q]", 'q"', "é"]).map(json.dumps)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[ # c\n" + ",\n".join(items) + "\n]"),
        st.dictionaries(KEYS, inner, max_size=3).map(
            lambda pairs: "{ " + ", ".join(f"{k} = {v}" for k, v in pairs.items()) + " }"
        ),
    ),
    max_leaves=5,
)


@given(
    tables=st.lists(
        st.tuples(
            st.sampled_from(["[[t]]", "[[ t . u ]] # c", "[s]", "[t.v]"]),
            st.dictionaries(KEYS, VALUES, max_size=3),
        ),
        max_size=4,
    )
)
def test_whatever_tomllib_reads_has_lines_that_point_at_the_key(
    tables: list[tuple[str, dict[str, str]]],
) -> None:
    text = "".join(
        f"{head}\n" + "".join(f"{k} = {v}\n" for k, v in body.items()) + "\n" for head, body in tables
    )
    try:
        read: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines, written = Lines(text), text.split("\n")
    for path in paths(read):
        line = lines.of(path)
        assert 1 <= line <= len(written)
        key = path[-1]
        if isinstance(key, str):
            spelled = (key, json.dumps(key, ensure_ascii=True), json.dumps(key, ensure_ascii=False))
            assert any(each in written[line - 1] for each in spelled), (path, line)
        if len(path) > 1:
            assert line >= lines.of(path[:1])
