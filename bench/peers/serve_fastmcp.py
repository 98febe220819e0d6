"""A server of FastMCP: serve_fastmcp.py FOLDER stdio|modern|legacy"""

import sys

from fastmcp import FastMCP
from fastmcp.resources import BinaryResource, TextResource
from mcp_types import Annotations

import shelf

folder, way = sys.argv[1:]
server = FastMCP("minimal", list_page_size=shelf.PAGE)
books = shelf.load(folder)
texts = {str(book.uri): book.data for book in books if book.mime == "text/plain"}


@server.tool
def read_resource(uri: str) -> str:
    return texts[uri]


for book in books:
    known = {
        "uri": book.uri,
        "name": book.name,
        "mime_type": book.mime,
        "annotations": Annotations(last_modified=book.modified),
    }
    if book.mime == "text/plain":
        server.add_resource(TextResource(**known, text=book.data))
    else:
        server.add_resource(BinaryResource(**known, data=book.data))

if way == "stdio":
    server.run("stdio", show_banner=False, log_level="ERROR")
else:
    shelf.listen(server.http_app(path="/mcp", json_response=True))
