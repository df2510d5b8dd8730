"""The rows that are written: the same in every run.

events(ts, user_id, kind, amount): evenly over four hours, every twentieth row up to a minute before its turn; a million users,
a hundred kinds; amounts are multiples of a quarter, so that sums are exact whatever the order of addition. All of it is made of
hash values of the row's number, by the server itself, once, as files for COPY of 100 000 rows (text and binary).
"""
import os
from dataclasses import dataclass

SECONDS = 4 * 3600
BATCHES = 40
START = "2024-03-01 00:00+00"
OUT_OF_ORDER = 20                                                # one row in so many
DISORDER_US = 60 * 1000000
ROW = f"""
    SELECT timestamptz '{START}' + interval '1 us' * (i * {{step}} - CASE WHEN h.a % {OUT_OF_ORDER} = 0 THEN h.b % {DISORDER_US} ELSE 0 END) AS ts,
           (1 + h.c % 1000000)::int AS user_id, (h.d % 100)::int AS kind, (h.e % 40000) * 0.25::float8 AS amount
    FROM   generate_series({{first}}::bigint, {{last}}) i,
           LATERAL (SELECT hashint8extended(i, 1) & 2147483647 AS a, hashint8extended(i, 2) & 2147483647 AS b, hashint8extended(i, 3) & 2147483647 AS c,
                           hashint8extended(i, 4) & 2147483647 AS d, hashint8extended(i, 5) & 2147483647 AS e) h"""


@dataclass
class Data:
    """rows in all; each file holds rows / BATCHES of them, in the order of arrival."""
    rows: int
    directory: str

    @property
    def batch_rows(self):
        return self.rows // BATCHES

    def select(self, first, last):
        """A query for the rows first … last (from 0)."""
        return ROW.format(step=SECONDS * 1000000 // self.rows, first=first, last=last)

    def file(self, batch, form="text"):
        return os.path.join(self.directory, f"{form}_{batch:02}")

    def make(self, place):
        os.mkdir(self.directory, 0o777)
        os.chmod(self.directory, 0o777)
        for batch in range(BATCHES):
            first = batch * self.batch_rows
            for form in ("text", "binary"):
                place.db.execute(f"COPY ({self.select(first, first + self.batch_rows - 1)}) TO '{self.file(batch, form)}' (FORMAT {form})")

    def load(self, place, batches=BATCHES, form="text", table="events"):
        """One COPY a file, each its own transaction."""
        for batch in range(batches):
            place.db.execute(f"COPY {table} FROM '{self.file(batch, form)}' (FORMAT {form})")

    def pieces(self, rows):
        """The same rows as text for COPY FROM STDIN, so many in each piece."""
        made = []
        for batch in range(BATCHES):
            with open(self.file(batch), encoding="ascii") as file:
                lines = file.readlines()
            made += ["".join(lines[at:at + rows]) for at in range(0, len(lines), rows)]
        return made
