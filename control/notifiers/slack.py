"""A Slack incoming webhook (https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks).

Such a webhook can neither edit nor delete what it posted: each notice is a message of its own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

import orjson

from control.notifiers.common import DestinationConfig
from control.notifiers.http import Http, judge
from control.notifiers.protocol import (
    TEST,
    Audience,
    Capabilities,
    Delivered,
    Failed,
    Message,
    Notice,
    Result,
)
from control.notifiers.shorten import cut, length
from control.plain import plain
from control.wording import Wording, mrkdwn

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BLOCKS: Final = 50
MAX_SECTION: Final = 3000
MAX_HEADER: Final = 150
MAX_ALL_BLOCKS: Final = 12_000
"""Characters in all blocks: beyond some 13,000 Slack answers msg_blocks_too_long (slackapi/bolt-js #2509)."""
MAX_TEXT: Final = 4000
"""Of the fallback: longer ones are discouraged, and cut at 40,000."""
_MARKS: Final = {"critical": "🔴", "warning": "🟠"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackConfig(DestinationConfig):
    """The webhook's address, which is a secret. Raises `ValueError` naming the key that makes no sense."""

    SECTION: ClassVar[str] = "slack"

    url: str

    def __post_init__(self) -> None:
        """Check every key."""
        self.check()
        self.check_url("url", self.url)


class Slack:
    """Posts to one channel, one message a second."""

    def __init__(
        self,
        config: SlackConfig,
        *,
        template: str = "",
        on_broken: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self._config = config
        self.wording = Wording("slack", mrkdwn, part="slack", override=template, on_broken=on_broken)
        self._plain = Wording("slack", plain)
        self._http = Http(config.timeout_s, allow_private=config.allow_private, ca_file=config.ca_file)
        self.capabilities = Capabilities(
            audience=Audience.CHAT,
            acknowledges=True,
            rate_per_s=1.0,
            burst=1,
            fallback=config.fallback,
            fallback_after_s=config.fallback_after_s,
        )

    @property
    def address(self) -> str:
        """The URL's hash: the URL itself lets everybody post."""
        return f"slack:{hashlib.sha256(self._config.url.encode()).hexdigest()[:16]}"

    def render(self, notice: Notice) -> bytes:
        """Write text and blocks within Slack's limits."""
        data = notice.data
        if notice.brief:
            return orjson.dumps({"text": cut(self.wording.render("brief", data), MAX_TEXT)})
        headline = self._plain.render("summary", data)
        if notice.type == TEST:
            headline = f"Test: {headline}"
        mark = "✅" if data.get("state") == "resolved" else _MARKS.get(str(data.get("severity")), "⚪")
        whole = " ".join(f"{mark} {headline}".split())
        header = cut(whole, MAX_HEADER)
        data = {**data, "headline_cut": header != whole}
        return orjson.dumps(
            {
                "text": cut(mrkdwn(f"{mark} {headline}"), MAX_TEXT),
                "blocks": [
                    {"type": "header", "text": {"type": "plain_text", "text": header, "emoji": True}},
                    *_sections(self.wording.render("slack", data), MAX_ALL_BLOCKS - length(header)),
                ],
                "unfurl_links": False,
            }
        )

    async def send(self, message: Message, at_s: int) -> Result:
        """Make one attempt. Success is status 200 with the body `ok`; an archived channel answers 410."""
        answer = await self._http.post(self._config.url, message.body, {}, read_body=True)
        result = judge(answer, at_s)
        if isinstance(result, Delivered) and not isinstance(answer, Failed) and answer.body.strip() != "ok":
            said = " ".join(answer.body.split())[:100]
            return Failed(f"HTTP {answer.status}, but not the ok of Slack: {said}", answer.status)
        if isinstance(result, Failed) and result.status in (403, 404):
            return replace(result, about_message=False)
        return result

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()


def _sections(text: str, room: int) -> list[dict[str, object]]:
    """Put paragraphs into sections, as many as there is room for (characters)."""
    blocks: list[dict[str, object]] = []
    for paragraph in filter(None, (part.strip() for part in text.split("\n\n"))):
        limit = min(MAX_SECTION, room)
        if limit < 2 or len(blocks) == MAX_BLOCKS - 1:  # noqa: PLR2004 - a character and the mark of the cut
            break
        fitting = cut(paragraph, limit)
        room -= length(fitting)
        # verbatim: addresses and names that agents wrote become neither links nor mentions
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": fitting, "verbatim": True}})
    return blocks
