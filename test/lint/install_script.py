"""Reads wmstream--1.0.sql: which functions, views and other objects it makes in schema wmstream, and their comments."""

import collections
import re

from rules import ROOT, fail, line_of, read

INSTALL_SCRIPT = ROOT / "wmstream--1.0.sql"
KINDS = "FUNCTION|PROCEDURE|AGGREGATE|VIEW|TABLE|TYPE|DOMAIN|SEQUENCE|OPERATOR|INDEX"
NAME = r'(?:wmstream\.|@extschema@\.)?"?(\w+)"?'

Object = collections.namedtuple("Object", "kind name line")
Comment = collections.namedtuple("Comment", "kind name text")


def script():
    """The script without its comments and without what stands between dollar quotes."""
    text = re.sub(r"--[^\n]*", "", read(INSTALL_SCRIPT))
    return re.sub(r"(\$\w*\$).*?\1", lambda found: "\n" * found[0].count("\n"), text, flags=re.S)


def objects():
    text = script()
    pattern = rf"\bCREATE\s+(?:OR\s+REPLACE\s+|UNIQUE\s+|UNLOGGED\s+)*({KINDS})\s+{NAME}"
    found = [Object(match[1].upper(), match[2], line_of(text, match.start()))
             for match in re.finditer(pattern, text, re.I)]
    if not found:
        fail(f"{INSTALL_SCRIPT.name}: creates nothing")
    return found


def comments():
    pattern = rf"\bCOMMENT\s+ON\s+({KINDS})\s+{NAME}[^']*?\bIS\s+E?'((?:[^']|'')*)'"
    return [Comment(match[1].upper(), match[2], match[3]) for match in re.finditer(pattern, script(), re.I)]
