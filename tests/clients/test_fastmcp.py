"""The FastMCP client, in both eras."""

from contextlib import asynccontextmanager
from types import SimpleNamespace

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from library import LEGACY, MODERN, Visits
from mcp import MCPError
from mcp.types import ResourceTemplateReference


def adapt(client):
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
    )


class FastMcp(Visits):
    error = MCPError

    @asynccontextmanager
    async def connect(self, url, command):
        transport = url or StdioTransport(command[0], command[1:], keep_alive=False)
        async with Client(transport, mode=self.mode) as client:
            yield adapt(client)


class TestLegacy(FastMcp):
    mode = "legacy"
    revision = LEGACY


class TestAuto(FastMcp):
    mode = "auto"
    revision = MODERN
