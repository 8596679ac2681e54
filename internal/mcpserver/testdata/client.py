"""Talk to Hindsight with the official Python client, as an agent would: over stdio and over HTTP, in each mode it has."""

import asyncio
import json
import os
import sys

import mcp

url, stdio_program = sys.argv[1], sys.argv[2]

TOOLS = [
    "check_action", "get_rules", "memory_feedback", "memory_forget",
    "memory_search", "memory_write", "retrieve_similar", "store_snapshot",
]


def same_halves(result):
    text = json.loads(result.content[0].text)
    assert result.structured_content == text, (result.structured_content, text)
    return text


async def use(client, where):
    names = [tool.name for tool in (await client.list_tools()).tools]
    assert names == TOOLS, (where, names)

    answer = same_halves(await client.call_tool("retrieve_similar", {"current_context": {"task_type": "refund"}, "top_k": "3"}))
    assert "look first 先看 🙂" in answer["items"][0]["text"], (where, answer)

    stored = same_halves(await client.call_tool("memory_write", {"key": "region " + where, "value": "eu", "entities": None}))
    assert stored["status"] == "stored", (where, stored)
    item = await client.read_resource("memory://item/" + stored["memory_id"])
    assert json.loads(item.contents[0].text)["item"]["value"] == "eu", (where, item)

    refused = await client.call_tool("memory_search", {"query": "x", "memory_type": "vibes"})
    assert refused.is_error and "vibes" in refused.content[0].text, (where, refused)

    templates = (await client.list_resource_templates()).resource_templates
    assert len(templates) == 4, (where, templates)
    prompt = await client.get_prompt("before_task", {"goal": "pay back"})
    assert "pay back" in prompt.messages[0].content.text, (where, prompt)


async def main():
    program = mcp.StdioServerParameters(
        command=stdio_program,
        env={**os.environ, "HINDSIGHT_TEST_ROLE": "stdio", "HINDSIGHT_TEST_ENDPOINT": url},
    )
    for mode in ("auto", "legacy"):
        async with mcp.Client(url, mode=mode) as client:
            await use(client, "http " + mode)
        async with mcp.Client(mcp.stdio_client(program), mode=mode) as client:
            await use(client, "stdio " + mode)
    print("ok")


asyncio.run(main())
