"""Nothing is delivered to an address that was not judged, whatever a name leads to."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

import pytest

from control.notifiers.guard import judge, never_allowed
from control.notifiers.http import Answer, Http
from control.notifiers.protocol import Failed
from tests.control.support import Receiver, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator

ALWAYS = [
    "169.254.169.254",
    "169.254.0.1",
    "fe80::1",
    "fd00:ec2::254",
    "100.100.100.200",
    "168.63.129.16",
    "0.0.0.0",
    "::",
    "224.0.0.1",
    "ff02::1",
    "240.0.0.1",
    "255.255.255.255",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
]
PRIVATE = [
    "127.0.0.1",
    "::1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "fc00::1",
    "::ffff:10.0.0.1",
]
PUBLIC = ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from receiving()


@pytest.mark.parametrize("address", ALWAYS)
def test_no_leave_opens_metadata_link_local_or_no_hosts(address: str) -> None:
    assert judge(ipaddress.ip_address(address), allow_private=True) is not None
    assert never_allowed(address) is not None


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_need_leave(address: str) -> None:
    assert judge(ipaddress.ip_address(address), allow_private=False) is not None
    assert judge(ipaddress.ip_address(address), allow_private=True) is None


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_need_none(address: str) -> None:
    assert judge(ipaddress.ip_address(address), allow_private=False) is None


def post(url: str, *answers: list[str], allow_private: bool = False) -> list[Answer | Failed]:
    """Post once for each answer that the name server is to give; a connection is not kept in between."""
    given = list(answers)

    async def resolve(_host: str, _port: int) -> list[str]:
        return given.pop(0)

    async def posts() -> list[Answer | Failed]:
        results = []
        for _ in answers:
            http = Http(1.0, allow_private=allow_private, resolve=resolve)
            results.append(await http.post(url, b"{}", {}))
            await http.close()
        return results

    return asyncio.run(posts())


def named(receiver: Receiver) -> str:
    return receiver.url.replace("127.0.0.1", "pager.example.test")


def test_a_name_that_leads_inside_is_refused_before_anything_is_sent(receiver: Receiver) -> None:
    (result,) = post(named(receiver), ["127.0.0.1"])
    assert isinstance(result, Failed)
    assert "pager.example.test leads to 127.0.0.1: a private address" in result.reason
    assert (result.unsure, result.about_message, receiver.received) == (False, False, [])


def test_a_name_may_lead_inside_with_leave(receiver: Receiver) -> None:
    (result,) = post(named(receiver), ["127.0.0.1"], allow_private=True)
    assert isinstance(result, Answer)
    assert receiver.received[0].headers["host"] == named(receiver).split("/")[2]


def test_an_address_that_the_url_spells_out_needs_no_leave(receiver: Receiver) -> None:
    (result,) = post(receiver.url, ["127.0.0.1"])
    assert isinstance(result, Answer)


def test_one_bad_address_among_many_is_enough(receiver: Receiver) -> None:
    (result,) = post(named(receiver), ["127.0.0.1", "169.254.169.254"], allow_private=True)
    assert isinstance(result, Failed)
    assert receiver.received == []


def test_a_name_that_changes_its_mind_gains_nothing(receiver: Receiver) -> None:
    """The address that was judged is the one that is connected to; each connection is judged anew."""
    first, second = post(named(receiver), ["127.0.0.1"], ["169.254.169.254"], allow_private=True)
    assert isinstance(first, Answer)
    assert isinstance(second, Failed)
    assert "metadata" in second.reason
    assert len(receiver.received) == 1


def test_a_name_that_nobody_knows_is_a_failure() -> None:
    async def nowhere(_host: str, _port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    async def once() -> Answer | Failed:
        return await Http(1.0, allow_private=False, resolve=nowhere).post(
            "http://gone.example.test/", b"", {}
        )

    result = asyncio.run(once())
    assert isinstance(result, Failed)
    assert (result.unsure, "cannot be looked up" in result.reason) == (False, True)
