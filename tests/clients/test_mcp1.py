"""The Python SDK of the handshake era: `mcp` 1."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

from library import LEGACY, Visits, subscriber
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import PaginatedRequestParams, ResourceTemplateReference
from pydantic import AnyUrl


def adapt(session, revision):
    async def read(uri):
        return (await session.read_resource(AnyUrl(uri))).contents

    async def templates():
        return (await session.list_resource_templates()).resourceTemplates

    async def complete(template, variable, typed):
        ref = ResourceTemplateReference(type="ref/resource", uri=template)
        return (await session.complete(ref, {"name": variable, "value": typed})).completion.values

    async def tools():
        return (await session.list_tools()).tools

    async def prompts():
        return (await session.list_prompts()).prompts

    def list_page(cursor):
        return session.list_resources(params=PaginatedRequestParams(cursor=cursor))

    def subscribe(uri):
        return session.subscribe_resource(AnyUrl(uri))

    def unsubscribe(uri):
        return session.unsubscribe_resource(AnyUrl(uri))

    return SimpleNamespace(
        revision=revision,
        list=list_page,
        read=read,
        templates=templates,
        complete=complete,
        tools=tools,
        call=session.call_tool,
        prompts=prompts,
        prompt=session.get_prompt,
        follow=subscriber(subscribe, unsubscribe),
    )


class TestMcp1(Visits):
    revision = LEGACY
    error = McpError

    @asynccontextmanager
    async def connect(self, url, command, news):
        transport = (
            streamable_http_client(url)
            if url
            else stdio_client(StdioServerParameters(command=command[0], args=command[1:]))
        )
        async with (
            transport as (reading, writing, *_),
            ClientSession(reading, writing, message_handler=news.handle) as session,
        ):
            yield adapt(session, (await session.initialize()).protocolVersion)
