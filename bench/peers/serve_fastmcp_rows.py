"""A server of FastMCP with a template for the rows of a SQLite database: serve_fastmcp_rows.py FILE"""

import json
import sqlite3
import sys

from fastmcp import FastMCP

import shelf

server = FastMCP("rows")
database = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, check_same_thread=False)


@server.resource("sqlite://shop/items/rows/{key}", mime_type="application/json")
def row(key: str) -> str:
    found = database.execute("SELECT id, name FROM items WHERE id = ?", [int(key)]).fetchone()
    return json.dumps({"id": found[0], "name": found[1]})


shelf.listen(server.http_app(path="/mcp", json_response=True))
