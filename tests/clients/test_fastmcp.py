"""The FastMCP client, in both eras."""

from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from library import LEGACY, MODERN, Visits
from listening import follower
from mcp import MCPError
from mcp.client.subscriptions import listen
from mcp.types import ResourceTemplateReference


def adapt(client, follow):
    async def complete(template, variable, typed):
        ref = ResourceTemplateReference(uri=template)
        return (await client.complete(ref, {"name": variable, "value": typed})).values

    def list_page(cursor):
        return client.list_resources_mcp(cursor=cursor)

    return SimpleNamespace(
        revision=client.protocol_version,
        list=list_page,
        read=client.read_resource,
        templates=client.list_resource_templates,
        complete=complete,
        tools=client.list_tools,
        call=client.call_tool_mcp,
        prompts=client.list_prompts,
        prompt=client.get_prompt,
        follow=follow,
    )


class FastMcp(Visits):
    error = MCPError

    @asynccontextmanager
    async def connect(self, url, command, news):
        transport = url or StdioTransport(command[0], command[1:], keep_alive=False)
        handler = news.handle if self.revision == LEGACY else None
        async with (
            Client(transport, mode=self.mode, message_handler=handler) as client,
            follower(client.session, partial(listen, client.session), news) as follow,
        ):
            yield adapt(client, follow)


class TestLegacy(FastMcp):
    mode = "legacy"
    revision = LEGACY


class TestAuto(FastMcp):
    mode = "auto"
    revision = MODERN
