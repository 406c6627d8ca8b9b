"""A loop of one's own around an MCP client."""

import asyncio

from mcp.client import Client
from mcp.server import MCPServer
from recloser_guard import RunHalted
from recloser_guard.adapters.mcp import GuardedSession
from scene import SESSION, ended, guard, model, work

server = MCPServer("ops-tools")


@server.tool()
def fetch_page(url: str) -> str:
    """Fetch a page."""
    return work("fetch_page", {"url": url})


@server.tool()
def replanned(url: str) -> str:
    """Fetch a page, another way."""
    return work("replanned", {"url": url})


@server.tool()
def search(q: str) -> str:
    """Search."""
    return work("search", {"q": q})


async def main():
    result = ""
    async with Client(server) as client:
        session = GuardedSession(client, guard)
        with guard.session(SESSION):
            while True:
                step = await asyncio.to_thread(model.next, result)
                if step is None:
                    return ended("finished", result)
                try:
                    answer = await session.call_tool(*step)
                except RunHalted as halt:
                    return ended("halted", halt.message_for_model)
                result = answer.content[0].text


asyncio.run(main())
