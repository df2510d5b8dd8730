"""The CSV files of test/data: reading them, their tables, and sending their rows in transactions."""
import csv
import io
import os

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "data")
TYPES = {"seq": "int", "event_ts": "timestamptz", "updated_ts": "timestamptz", "known_ts": "timestamptz", "mag": "numeric",
         "lon": "float8", "lat": "float8", "depth_km": "float8", "distance_mi": "int", "dep_delay_min": "int", "arr_delay_min": "int"}


def read(name):
    """Rows of test/data/<name>.csv as dicts of text."""
    with open(os.path.join(DATA, f"{name}.csv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def replayed(name):
    """The same in the order in which they arrived."""
    return sorted(read(name), key=lambda row: int(row["seq"]))


def create_table(db, name, columns):
    definitions = [f"{column} {TYPES.get(column, 'text')}" for column in columns]
    db.execute(f"CREATE TABLE {name} ({', '.join(definitions)})")


def send(db, name, rows):
    """Rows into their table, as one transaction."""
    if len(rows) == 1:
        marks = ", ".join(f"${n}" for n in range(1, 1 + len(rows[0])))
        db.execute(f"INSERT INTO {name} VALUES ({marks})", list(rows[0].values()))
    elif rows:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(row.values() for row in rows)
        db.copy_in(f"COPY {name} FROM STDIN (FORMAT csv)", text.getvalue())
