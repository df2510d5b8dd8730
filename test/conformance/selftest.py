#!/usr/bin/env python3
"""Tests of the test code that need no server: reading and comparing values, lists of names, shrinking, composed definitions."""
import os
import re
import sys
import unittest
from fractions import Fraction

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), HERE]

import composed  # noqa: E402
from wmstest import runner, shrink, values  # noqa: E402
from wmstest.values import Alien, Exact, Number, Time, differences, plain, read, read_rows  # noqa: E402

STAMP = "timestamp with time zone"


class Reading(unittest.TestCase):
    def test_times_are_instants(self):
        self.assertEqual(read("2024-01-01T10:00:00.000001Z", STAMP), read("2024-01-01 12:00:00.000001+02", STAMP))
        self.assertEqual(read("1970-01-01T00:00:00Z", STAMP), Time(0))
        self.assertEqual(read("1969-12-31 23:59:59.5+00", STAMP), Time(-500000))
        self.assertEqual(read("2024-01-01 10:00:00", "timestamp without time zone"), read("2024-01-01T10:00:00Z", STAMP))
        self.assertNotEqual(read("2024-01-01T10:00:00Z", STAMP), read("2024-01-01T10:00:00.000001Z", STAMP))
        self.assertEqual(read("infinity", STAMP), Time("infinity"))

    def test_times_far_away(self):
        for text in ("9024-01-01T00:00:00Z", "12024-02-29T00:00:00.25Z", "1960-02-29T23:59:59.999999Z"):
            self.assertEqual(plain(read(text, STAMP)), text)
        self.assertLess(read("0044-03-15 00:00:00+00 BC", STAMP).value, read("0001-01-01 00:00:00+00", STAMP).value)

    def test_ranges_by_bounds(self):
        got = read('["2024-01-01 10:00:00+00","2024-01-01 10:00:05+00")', "tstzrange")
        self.assertEqual(got, read("[2024-01-01T10:00:00Z,2024-01-01T10:00:05Z)", "tstzrange"))
        self.assertNotEqual(got, read("[2024-01-01T10:00:00Z,2024-01-01T10:00:05Z]", "tstzrange"))
        self.assertEqual(plain(got), "[2024-01-01T10:00:00Z,2024-01-01T10:00:05Z)")

    def test_arrays(self):
        self.assertEqual(read("{1,NULL,3}", "integer[]"), read([1, None, 3], "integer[]"))
        self.assertEqual(read('{a,"b c","d\\"e",NULL,"NULL",""}', "text[]"), ("a", "b c", 'd"e', None, "NULL", ""))
        self.assertEqual(read("{{1,2},{3,4}}", "integer[]"), ((Exact(1), Exact(2)), (Exact(3), Exact(4))))
        self.assertEqual(read("{}", "integer[]"), ())

    def test_numbers(self):
        self.assertEqual(read("1.50", "numeric"), Number(Fraction(3, 2)))
        self.assertEqual(read("7", "bigint"), read(7, "bigint"))
        self.assertEqual(read("NaN", "double precision"), Number("NaN"))
        self.assertEqual(read("1e-7", "numeric(10,2)"), Number(Fraction(1, 10**7)))

    def test_wrong_types_are_alien(self):
        for value, column_type in ((1, "text"), ("x", "integer"), (1.5, "integer"), (True, "numeric"), ("noon", STAMP), (3, "tstzrange")):
            self.assertIsInstance(read(value, column_type), Alien, (value, column_type))
        self.assertIs(read("t", "boolean"), True)
        self.assertIs(read(False, "boolean"), False)


class Comparing(unittest.TestCase):
    def differ(self, expected, got, types):
        return differences(read_rows(expected, types), read_rows(got, types))

    def test_order_does_not_matter_but_duplicates_do(self):
        self.assertEqual(self.differ([["a"], ["b"], ["a"]], [("b",), ("a",), ("a",)], ["text"]), ([], []))
        self.assertEqual(self.differ([["a"]], [("a",), ("a",)], ["text"]), ([], [("a",)]))
        self.assertEqual(self.differ([["a"], ["a"]], [("a",)], ["text"]), ([("a",)], []))

    def test_null_and_mixed_types(self):
        rows = [[None, 1, "x"], ["a", None, None]]
        self.assertEqual(self.differ(rows, [("a", None, None), (None, "1", "x")], ["text", "integer", "text"]), ([], []))
        self.assertEqual(len(self.differ([[None]], [("",)], ["text"])[0]), 1)

    def test_tolerance(self):
        self.assertEqual(self.differ([[0.3333333333]], [("0.33333333333333333333",)], ["numeric"]), ([], []))
        self.assertNotEqual(self.differ([[0.33333]], [("0.33333333333333333333",)], ["numeric"]), ([], []))
        self.assertNotEqual(self.differ([[10000000000]], [("10000000001",)], ["bigint"]), ([], []))

    def test_tolerance_needs_a_matching(self):
        """The first expected row fits both, the second only the first got: greedy pairing would fail."""
        near = [["1.0000000005"], ["1.0000000000"]]
        self.assertEqual(self.differ(near, [("0.9999999996",), ("1.0000000012",)], ["numeric"]), ([], []))

    def test_width(self):
        self.assertEqual(len(self.differ([["a", 1]], [("a",)], ["text"])[0]), 1)

    def test_booleans_are_no_integers(self):
        self.assertNotEqual(self.differ([[True]], [("1",)], ["integer"]), ([], []))
        self.assertFalse(values.equal(True, 1))


class Names(unittest.TestCase):
    def test_list_of_names(self):
        self.assertEqual(runner.parse_names("# head\n\na  # why\n b\n"), {"a", "b"})


class Shrinking(unittest.TestCase):
    CASE = {"name": "x", "kind": "window", "sources": {"t": {"ts": "timestamptz", "v": "int"}}, "query": "", "output_mode": "append", "options": {},
            "plan": {"op": "scan", "table": "t"},
            "steps": [{"insert": {"t": [["2024-01-01T00:00:00Z", n] for n in range(4)]}}, {"expect": []}, {"restart": True},
                      {"insert": {"t": [["2024-01-01T00:00:00Z", 7]]}}, {"expect": []}, {"insert": {"t": [["2024-01-01T00:00:00Z", 8]]}}, {"expect": []}]}

    def test_keeps_only_what_makes_it_fail(self):
        def fails(case):
            return any(row[1] == 7 for s in case["steps"] for row in s.get("insert", {}).get("t", []))
        small = shrink.shrink(self.CASE, fails, lambda case: case["steps"])
        self.assertEqual(small["steps"], [{"insert": {"t": [["2024-01-01T00:00:00Z", 7]]}}])
        self.assertEqual(len(self.CASE["steps"]), 7)


class Composing(unittest.TestCase):
    ROUNDS = [composed.generate(seed, 40) for seed in range(1, 6)]

    def test_the_same_seed_makes_the_same_round(self):
        again = composed.generate(1, 40)
        self.assertEqual([d.stream for d in again.definitions], [d.stream for d in self.ROUNDS[0].definitions])
        self.assertEqual((again.delays, again.steps), (self.ROUNDS[0].delays, self.ROUNDS[0].steps))

    def test_no_row_is_late(self):
        """Every row against all transactions before its own."""
        for made in self.ROUNDS:
            watermark = {}
            for transaction in (transaction for step in made.steps for transaction in step):
                table = transaction.split()[2]
                times = [int(time) for time in re.findall(r"to_timestamp\((\d+)\)", transaction)]
                self.assertTrue(all(time >= watermark.get(table, 0) for time in times), transaction)
                watermark[table] = max([watermark.get(table, 0), *(time - composed.DELAYS[made.delays[table]] for time in times)])

    def test_everything_is_made(self):
        text = "\n".join(d.stream for made in self.ROUNDS for d in made.definitions)
        for word in ("LEFT JOIN (", "RIGHT JOIN", "FULL JOIN", "WHERE EXISTS", "NOT EXISTS", "GROUP BY", "HAVING", "SELECT DISTINCT q", "DISTINCT ON", "row_number()",
                     "UNION ALL", "UNION SELECT", "session_window", "cumulate_window", "JOIN names", "BETWEEN", "lower(", "upper("):
            self.assertIn(word, text)

    def test_what_only_the_batch_query_is_told(self):
        made = composed.Relation([], "SELECT w FROM (", composed.Relation([], "TABLE t"), ") q", composed.known(["w"]), " GROUP BY w")
        self.assertEqual(made.stream, "SELECT w FROM (TABLE t) q GROUP BY w")
        self.assertEqual(made.batch, "SELECT w FROM (TABLE t) q WHERE w IS NOT NULL GROUP BY w")


if __name__ == "__main__":
    unittest.main()
