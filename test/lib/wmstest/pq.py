"""A small PostgreSQL client: libpq by ctypes.

Owns: finding the library, connections, queries with text parameters, COPY FROM STDIN, notices, errors.
A query is sent and then awaited on the socket, so that Ctrl-C works and a deadline holds even if the server hangs.
Results are lists of tuples of str or None; everything is text. Connections are for one thread at a time.
"""
import ctypes
import ctypes.util
import os
import select
import subprocess
import time
from collections import namedtuple

OK, BAD = 0, 1                                                   # ConnStatusType
EMPTY_QUERY, COMMAND_OK, TUPLES_OK, COPY_OUT, COPY_IN, BAD_RESPONSE, NONFATAL_ERROR, FATAL_ERROR = range(8)
FIELDS = {"severity": "V", "sqlstate": "C", "message": "M", "detail": "D", "hint": "H", "position": "P", "internal_position": "p", "internal_query": "q", "context": "W"}

Notice = namedtuple("Notice", "severity sqlstate message detail hint")


class PgError(Exception):
    """An error of the server; the fields are None where the server gave none."""

    def __init__(self, **fields):
        self.severity, self.sqlstate, self.message = (fields.get(f) for f in ("severity", "sqlstate", "message"))
        self.detail, self.hint, self.position, self.context = (fields.get(f) for f in ("detail", "hint", "position", "context"))
        self.internal_position, self.internal_query = fields.get("internal_position"), fields.get("internal_query")
        super().__init__(self.message)

    def __str__(self):
        parts = [f"{self.sqlstate}: {self.message}"]
        parts += [f"{name} {text}" for name, text in (("DETAIL", self.detail), ("HINT", self.hint)) if text]
        return "; ".join(parts)


class ConnectionLost(PgError):
    """The connection could not be made, or broke."""


class Timeout(PgError):
    """No answer before the deadline; the connection is closed."""


def library_names():
    yield os.environ.get("WMSTEST_LIBPQ")
    yield "libpq.so.5"
    try:
        config = os.environ.get("PG_CONFIG", "pg_config")
        yield os.path.join(subprocess.run([config, "--libdir"], capture_output=True, text=True).stdout.strip(), "libpq.so.5")
    except OSError:
        pass
    yield ctypes.util.find_library("pq")


def load():
    """libpq with the signatures of what is used here."""
    for name in filter(None, library_names()):
        try:
            lib = ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        raise OSError("libpq.so.5 not found (set WMSTEST_LIBPQ to its path)")
    pointer, text, number, strings = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)
    for function, result, arguments in (
            ("PQconnectdbParams", pointer, [strings, strings, number]), ("PQstatus", number, [pointer]),
            ("PQerrorMessage", text, [pointer]), ("PQfinish", None, [pointer]), ("PQsocket", number, [pointer]),
            ("PQbackendPID", number, [pointer]),
            ("PQsendQuery", number, [pointer, text]),
            ("PQsendQueryParams", number, [pointer, text, number, pointer, strings, pointer, pointer, number]),
            ("PQconsumeInput", number, [pointer]), ("PQisBusy", number, [pointer]), ("PQgetResult", pointer, [pointer]),
            ("PQresultStatus", number, [pointer]), ("PQresultErrorField", text, [pointer, number]),
            ("PQresultErrorMessage", text, [pointer]),
            ("PQntuples", number, [pointer]), ("PQnfields", number, [pointer]), ("PQfname", text, [pointer, number]),
            ("PQgetvalue", text, [pointer, number, number]), ("PQgetisnull", number, [pointer, number, number]),
            ("PQclear", None, [pointer]), ("PQputCopyData", number, [pointer, text, number]),
            ("PQputCopyEnd", number, [pointer, text])):
        call = getattr(lib, function)
        call.restype, call.argtypes = result, arguments
    lib.PQsetNoticeReceiver.restype = pointer
    return lib


LIB = load()
RECEIVER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def text_of(raw):
    return None if raw is None else raw.decode("utf-8", "replace")


def fields_of(result):
    return {name: text_of(LIB.PQresultErrorField(result, ord(code))) for name, code in FIELDS.items()}


def strings(values):
    """A C array of strings that ends with NULL."""
    return (ctypes.c_char_p * (len(values) + 1))(*[None if v is None else v.encode() for v in values], None)


class Connection:
    """A connection in autocommit. dsn: any libpq connection string; overrides: single parameters that win over it."""

    def __init__(self, dsn, timeout=60, **overrides):
        self.dsn, self.overrides, self.timeout = dsn, overrides, timeout
        self.notices, self.columns = [], []
        self.handle = None
        self.receiver = RECEIVER(self.receive)
        self.connect()

    # ---- the connection itself

    def connect(self):
        pairs = [("dbname", self.dsn), ("client_encoding", "UTF8"), ("connect_timeout", "10"), ("fallback_application_name", "wmstest")]
        pairs += [(k, str(v)) for k, v in self.overrides.items()]
        self.handle = LIB.PQconnectdbParams(strings([k for k, _ in pairs]), strings([v for _, v in pairs]), 1)
        if LIB.PQstatus(self.handle) != OK:
            self.lost()
        LIB.PQsetNoticeReceiver(ctypes.c_void_p(self.handle), self.receiver, None)
        self.pid = LIB.PQbackendPID(self.handle)

    def reconnect(self, patience=0):
        """Connects again; tries until patience (seconds) is over."""
        deadline = time.monotonic() + patience
        while True:
            self.close()
            try:
                return self.connect()
            except ConnectionLost:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.05)

    def close(self):
        if self.handle:
            LIB.PQfinish(self.handle)
        self.handle = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def lost(self):
        message = text_of(LIB.PQerrorMessage(self.handle)).strip() if self.handle else "not connected"
        self.close()
        raise ConnectionLost(sqlstate="08006", message=message or "connection lost")

    def receive(self, _, result):
        fields = fields_of(result)
        self.notices.append(Notice(*(fields[f] for f in Notice._fields)))

    # ---- queries

    def execute(self, sql, params=None):
        """Rows of the last statement. With params ($1, $2 …) one statement only; names of the columns are left in .columns."""
        self.need()
        if params is None:
            sent = LIB.PQsendQuery(self.handle, sql.encode())
        else:
            values = strings([None if p is None else str(p) for p in params])
            sent = LIB.PQsendQueryParams(self.handle, sql.encode(), len(params), None, values, None, None, 0)
        if not sent:
            self.lost()
        return self.results()

    def value(self, sql, params=None):
        """The first column of the first row; None if there is no row."""
        rows = self.execute(sql, params)
        return rows[0][0] if rows else None

    def copy_in(self, sql, data):
        """COPY … FROM STDIN with all its data (str)."""
        self.execute(sql)
        raw = data.encode()
        if LIB.PQputCopyData(self.handle, raw, len(raw)) != 1 or LIB.PQputCopyEnd(self.handle, None) != 1:
            self.lost()
        return self.results()

    def need(self):
        if not self.handle:
            self.lost()

    def results(self):
        """Takes all results of what was sent; raises the first error after the last of them."""
        deadline, rows, error = time.monotonic() + self.timeout, [], None
        while True:
            result = self.next_result(deadline)
            if not result:
                break
            status = LIB.PQresultStatus(result)
            if status == TUPLES_OK:
                rows = self.rows(result)
            elif status in (FATAL_ERROR, BAD_RESPONSE):
                error = error or self.error(result)
            LIB.PQclear(result)
            if status == COPY_IN:
                break
        if LIB.PQstatus(self.handle) != OK:
            self.close()
        if error:
            raise error
        return rows

    def next_result(self, deadline):
        while LIB.PQisBusy(self.handle):
            left = deadline - time.monotonic()
            if left <= 0:
                self.close()
                raise Timeout(sqlstate="57014", message=f"no answer within {self.timeout} seconds")
            if select.select([LIB.PQsocket(self.handle)], [], [], left)[0] and not LIB.PQconsumeInput(self.handle):
                self.lost()
        return LIB.PQgetResult(self.handle)

    def error(self, result):
        fields = fields_of(result)
        if fields["sqlstate"] is None:
            return ConnectionLost(sqlstate="08006", message=text_of(LIB.PQresultErrorMessage(result)).strip())
        return (ConnectionLost if fields["sqlstate"].startswith("57P") else PgError)(**fields)

    def rows(self, result):
        width = LIB.PQnfields(result)
        self.columns = [text_of(LIB.PQfname(result, c)) for c in range(width)]
        return [tuple(None if LIB.PQgetisnull(result, r, c) else text_of(LIB.PQgetvalue(result, r, c)) for c in range(width))
                for r in range(LIB.PQntuples(result))]
