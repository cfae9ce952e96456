"""A program that speaks MCP, with the memory as its tools. The memory's server is started and stopped by the client."""

import asyncio

from mcp import Client, StdioServerParameters


async def main() -> None:
    words = ["serve", "--memory", "mcp.mem", "--encoder", "hashing", "--stdio", "--user", "ana"]
    async with Client(StdioServerParameters(command="keepworth", args=words)) as tools:
        print("tools:", ", ".join(sorted(tool.name for tool in (await tools.list_tools()).tools)))
        await tools.call_tool("add_memory", {"text": "I live in Oslo."})
        found = await tools.call_tool("search_memories", {"query": "where do I live?"})
        print("found:", found.structured_content["notes"])


asyncio.run(main())
