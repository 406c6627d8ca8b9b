from __future__ import annotations

import stat
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from control.stop_link import LIFETIME_S, BadLink, ExpiredLink, LinkKeyError, StopLinks, load_key
from tests.control.support import ManualClock

if TYPE_CHECKING:
    from pathlib import Path

SESSION = "chat 17/ä&sig=x"


def parts_of(link: str) -> tuple[str, str, str]:
    query = parse_qs(urlsplit(link).query)
    return query["session"][0], query["exp"][0], query["sig"][0]


def test_a_link_holds_for_a_day() -> None:
    clock = ManualClock()
    links = StopLinks(b"k" * 32, "https://recloser.example/", clock)
    link = links.of(SESSION)
    assert link.startswith("https://recloser.example/stop?session=chat+17")
    assert parts_of(link)[0] == SESSION
    links.check(*parts_of(link))
    clock.advance(LIFETIME_S - 1)
    links.check(*parts_of(link))
    clock.advance(2)
    with pytest.raises(ExpiredLink):
        links.check(*parts_of(link))


@pytest.mark.parametrize("part", range(3))
def test_whatever_is_changed_it_does_not_hold(part: int) -> None:
    links = StopLinks(b"k" * 32, "", ManualClock())
    parts = list(parts_of(links.of(SESSION)))
    parts[part] = {0: "chat 18", 1: str(int(parts[1]) + 1), 2: "0" * 64}[part]
    with pytest.raises(BadLink):
        links.check(*parts)


@pytest.mark.parametrize("expires", ["", "-1", "1e9", "99999999999999999999", "١٢٣", "1\n2"])
def test_an_end_that_is_no_number_does_not_hold(expires: str) -> None:
    links = StopLinks(b"k" * 32, "", ManualClock())
    session, _, signature = parts_of(links.of(SESSION))
    with pytest.raises(BadLink):
        links.check(session, expires, signature)


def test_another_key_makes_other_links() -> None:
    clock = ManualClock()
    link = StopLinks(b"k" * 32, "", clock).of(SESSION)
    with pytest.raises(BadLink):
        StopLinks(b"l" * 32, "", clock).check(*parts_of(link))
    with pytest.raises(BadLink):
        StopLinks(b"k" * 32, "", clock).check("s", "1", "\udcff")


def test_the_key_is_made_once_and_for_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "link.key"
    key = load_key(path)
    assert load_key(path) == key
    assert len(key) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"short")
    with pytest.raises(LinkKeyError, match=r"link\.key: holds no key"):
        load_key(path)
    path.write_bytes(b"")
    assert len(load_key(path)) == 32
    with pytest.raises(LinkKeyError, match="No such file"):
        load_key(tmp_path / "nowhere" / "link.key")
