"""A minimal server of the Python SDK: serve_python.py FOLDER stdio|modern|legacy"""

import base64
import sys

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

import shelf

folder, way = sys.argv[1:]
books = shelf.load(folder)
resources = [
    types.Resource(
        uri=book.uri,
        name=book.name,
        mime_type=book.mime,
        size=book.size,
        annotations=types.Annotations(last_modified=book.modified),
    )
    for book in books
]


held = {book.uri: book for book in books}


async def list_resources(_context, params):
    start = int(params.cursor) if params and params.cursor else 0
    end = start + shelf.PAGE
    following = str(end) if end < len(resources) else None
    return types.ListResourcesResult(resources=resources[start:end], next_cursor=following)


async def read_resource(_context, params):
    book = held[str(params.uri)]
    if book.mime == "text/plain":
        content = types.TextResourceContents(uri=book.uri, mime_type=book.mime, text=book.data)
    else:
        blob = base64.b64encode(book.data).decode()
        content = types.BlobResourceContents(uri=book.uri, mime_type=book.mime, blob=blob)
    return types.ReadResourceResult(contents=[content])


server = Server("minimal", on_list_resources=list_resources, on_read_resource=read_resource)


async def stdio():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if way == "stdio":
    anyio.run(stdio)
else:
    shelf.listen(server.streamable_http_app(json_response=True))
