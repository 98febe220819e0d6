"""The Python SDK of both eras: `mcp` 2."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

from library import LEGACY, MODERN, Visits
from listening import follower
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import ResourceTemplateReference


def adapt(client, follow):
    async def read(uri):
        return (await client.read_resource(uri)).contents

    async def templates():
        return (await client.list_resource_templates()).resource_templates

    async def complete(template, variable, typed):
        ref = ResourceTemplateReference(uri=template)
        return (await client.complete(ref, {"name": variable, "value": typed})).completion.values

    async def tools():
        return (await client.list_tools()).tools

    async def prompts():
        return (await client.list_prompts()).prompts

    def list_page(cursor):
        return client.list_resources(cursor=cursor)

    return SimpleNamespace(
        revision=client.protocol_version,
        list=list_page,
        read=read,
        templates=templates,
        complete=complete,
        tools=tools,
        call=client.call_tool,
        prompts=prompts,
        prompt=client.get_prompt,
        follow=follow,
    )


class Mcp2(Visits):
    error = MCPError

    @asynccontextmanager
    async def connect(self, url, command, news):
        server = url or StdioServerParameters(command=command[0], args=command[1:])
        handler = news.handle if self.revision == LEGACY else None
        async with (
            Client(server, mode=self.mode, message_handler=handler) as client,
            follower(client.session, client.listen, news) as follow,
        ):
            yield adapt(client, follow)


class TestLegacy(Mcp2):
    mode = "legacy"
    revision = LEGACY


class TestAuto(Mcp2):
    mode = "auto"
    revision = MODERN
