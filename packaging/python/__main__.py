"""`python -m libris_mcp`"""

from libris_mcp import main

main()
