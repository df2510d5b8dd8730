"""Cells of cases and of query results as comparable values, and the comparison of multisets of rows.

A cell comes either as JSON (what a case expects) or as PostgreSQL's text (what a query gave); the column's type tells how
to read both. The same value then has the same form, whatever its spelling:

    None, bool, str          themselves
    Exact(int)               integers
    Number(Fraction | str)   numeric and float; equal within 1e-9, relative; str for NaN and the infinities
    Time(int | str)          microseconds since 1970 UTC; str for the infinities
    Range(lower, upper, text) bounds as Time or None; text: '[)' and so on, or 'empty'
    tuple                    arrays
    Alien(json)              a cell that is no value of its column's type; equal to nothing else
"""
import json
import re
from collections import Counter, namedtuple
from datetime import date
from fractions import Fraction

Exact = namedtuple("Exact", "value")
Number = namedtuple("Number", "value")
Time = namedtuple("Time", "value")
Range = namedtuple("Range", "lower upper ends")
Alien = namedtuple("Alien", "text")

TOLERANCE = Fraction(1, 10**9)
INTEGERS = {"smallint", "integer", "bigint", "int", "int2", "int4", "int8"}
NUMBERS = {"numeric", "real", "double precision"}
TIMES = {"timestamp with time zone", "timestamp without time zone", "timestamptz", "timestamp"}
RANGES = {"tstzrange", "tsrange"}
TIME = re.compile(r"(\d{1,6})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?(?:Z|([+-])(\d\d)(?::?(\d\d))?)?( BC)?")
SECOND = 10**6


# ---------------------------------------------------------------- reading

def parse_time(text):
    """'2024-01-01T10:00:00.5Z', '2024-01-01 10:00:00.5+00', 'infinity'."""
    if text.strip() in ("infinity", "-infinity"):
        return Time(text.strip())
    found = TIME.fullmatch(text.strip())
    if not found:
        raise ValueError(f"not a time: {text}")
    year, month, day, hour, minute, second, fraction, sign, zone_hours, zone_minutes, bc = found.groups()
    year = 1 - int(year) if bc else int(year)
    cycles, within = divmod(year, 400)                                     # date() knows the years 1 to 9999 only
    days = date(within + 400, int(month), int(day)).toordinal() + (cycles - 1) * 146097 - date(1970, 1, 1).toordinal()
    seconds = days * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second or 0)
    zone = int(zone_hours or 0) * 3600 + int(zone_minutes or 0) * 60
    return Time((seconds - (-zone if sign == "-" else zone)) * SECOND + int((fraction or "").ljust(6, "0")))


def parse_range(text):
    """'[start,end)', bounds quoted or not."""
    if text == "empty":
        return Range(None, None, "empty")
    lower, upper = (part.strip().strip('"') for part in text[1:-1].split(","))
    if text[0] not in "[(" or text[-1] not in "])":
        raise ValueError(f"not a range: {text}")
    return Range(*(parse_time(bound) if bound else None for bound in (lower, upper)), text[0] + text[-1])


def parse_number(value):
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return Number(value)
    if isinstance(value, bool):
        raise ValueError("a boolean is no number")
    return Number(Fraction(str(value)))


def parse_integer(value):
    number = parse_number(value).value
    if isinstance(number, str) or number.denominator != 1:
        raise ValueError(f"not an integer: {value}")
    return Exact(int(number))


def parse_boolean(value):
    return {True: True, False: False, "t": True, "f": False}[value]


def parse_text(value):
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value


def split_array(text):
    """PostgreSQL's array text as nested lists of str and None."""
    tokens = re.findall(r'[{},]|"(?:[^"\\]|\\.)*"|(?:[^{},"\\]|\\.)+', text, re.DOTALL)
    stack = [[]]
    for token in tokens:
        if token == "{":
            stack.append([])
        elif token == "}":
            last = stack.pop()
            stack[-1].append(last)
        elif token != ",":
            plain = re.sub(r"\\(.)", r"\1", token[1:-1] if token[0] == '"' else token, flags=re.DOTALL)
            stack[-1].append(None if token == "NULL" else plain)
    return stack[0][0]


def parser(column_type):
    """The reader for one scalar type."""
    if column_type in INTEGERS:
        return parse_integer
    if column_type in NUMBERS:
        return parse_number
    if column_type in TIMES:
        return parse_time
    if column_type in RANGES:
        return parse_range
    return parse_boolean if column_type in ("boolean", "bool") else parse_text


def base_type(column_type):
    """'numeric(10,2)[]' -> ('numeric', True)."""
    plain = re.sub(r"\(\d+(,\d+)?\)", "", column_type)
    return (plain[:-2], True) if plain.endswith("[]") else (plain, False)


def read(value, column_type):
    """A cell, JSON or text, as a value."""
    name, is_array = base_type(column_type)
    one = parser(name)

    def deep(v):
        return tuple(map(deep, v)) if isinstance(v, list) else None if v is None else one(v)
    if value is None:
        return None
    try:
        if is_array:
            return deep(split_array(value) if isinstance(value, str) else value)
        return one(value)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return Alien(json.dumps(value))


def read_rows(rows, types):
    """Rows of cells as rows of values; a row of another width than the table's can equal none of its rows."""
    return [tuple(read(v, t) for v, t in zip(row, types)) if len(row) == len(types) else (Alien(json.dumps(row)),) for row in rows]


# ---------------------------------------------------------------- comparing

def equal(a, b):
    if isinstance(a, Number) and isinstance(b, Number):
        x, y = a.value, b.value
        if isinstance(x, str) or isinstance(y, str):
            return x == y
        return abs(x - y) <= TOLERANCE * max(abs(x), abs(y))
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


def tagged(value):
    """As a key for counting: True and 1 must not be the same."""
    return (type(value).__name__, tuple(map(tagged, value)) if type(value) is tuple else value)


def differences(expected, got):
    """(missing, surplus) of two multisets of rows of values. What is equal exactly is paired by counting; the rest, where the
    tolerance may pair rows in more than one way, by searching a largest matching."""
    want, have = {tagged(r): r for r in expected}, {tagged(r): r for r in got}
    missing, surplus = Counter(map(tagged, expected)), Counter(map(tagged, got))
    missing, surplus = missing - surplus, surplus - missing
    left, right = [want[k] for k in missing.elements()], [have[k] for k in surplus.elements()]
    partner = {}                                                           # index in right -> index in left

    def place(i, tried):
        for j, row in enumerate(right):
            if j not in tried and equal(left[i], row):
                tried.add(j)
                if j not in partner or place(partner[j], tried):
                    partner[j] = i
                    return True
        return False
    alone = [left[i] for i in range(len(left)) if not place(i, set())]
    return alone, [row for j, row in enumerate(right) if j not in partner]


# ---------------------------------------------------------------- showing

def format_time(time):
    if isinstance(time.value, str):
        return time.value
    days, us = divmod(time.value, 86400 * SECOND)
    cycles, within = divmod(days + date(1970, 1, 1).toordinal() - 1, 146097)
    day = date.fromordinal(within + 1)
    text = f"{day.year + 400 * cycles:04d}-{day:%m-%d}T{us // (3600 * SECOND):02d}:{us // (60 * SECOND) % 60:02d}:{us // SECOND % 60:02d}"
    return text + (f".{us % SECOND:06d}".rstrip("0") if us % SECOND else "") + "Z"


def plain(value):
    """A value as a case would write it."""
    if isinstance(value, Time):
        return format_time(value)
    if isinstance(value, Range):
        bounds = ["" if b is None else format_time(b) for b in value[:2]]
        return "empty" if value.ends == "empty" else f"{value.ends[0]}{bounds[0]},{bounds[1]}{value.ends[1]}"
    if isinstance(value, Number) and isinstance(value.value, Fraction):
        return int(value.value) if value.value.denominator == 1 else float(value.value)
    if isinstance(value, Alien):
        return json.loads(value.text)
    if isinstance(value, (Exact, Number)):
        return value.value
    return [plain(v) for v in value] if isinstance(value, tuple) else value


def show(rows, limit=3000):
    text = json.dumps([plain(r) for r in rows], ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= limit else f"{text[:limit]}… ({len(rows)} rows)"
