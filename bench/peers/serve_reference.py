"""A reference server over stdio: serve_reference.py MODULE ARGUMENT..."""

import importlib
import sys

sys.argv.pop(0)
importlib.import_module(sys.argv[0]).main()
