"""The tools as a server of the Model Context Protocol, over stdin and stdout; needs the extra `mcp`."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from tarry.remote.assistant.tool_answers import UNTRUSTED, answer_call, input_schema
from tarry.remote.assistant.tools import AssistantTool, Methods


async def serve_tools(tools: Mapping[str, AssistantTool], methods: Methods, secret: str, version: str) -> None:
    """Serves until stdin ends. tools: by name. methods: of the server. secret: what no answer has.
    version: of tarry."""

    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_shown(tool) for tool in tools.values()])

    async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        call = partial(answer_call, tools, methods, params.name, params.arguments or {}, secret)
        answer = await anyio.to_thread.run_sync(call)
        content = types.TextContent(type="text", text=answer.text)
        return types.CallToolResult(content=[content], is_error=answer.is_error)

    server: Server[Any] = Server(
        "tarry", version=version, instructions=UNTRUSTED, on_list_tools=list_tools, on_call_tool=call_tool
    )
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _shown(tool: AssistantTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=f"{tool.description} {UNTRUSTED}",
        input_schema=input_schema(tool.takes),
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.is_write,
            destructive_hint=tool.is_write,
            idempotent_hint=not tool.is_write,
            open_world_hint=False,
        ),
    )
