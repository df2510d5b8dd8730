"""Helpers of wmstream's tests: a libpq client, private servers, values and their comparison, conformance cases.

    pq.py       connections by ctypes on libpq, nothing else
    server.py   a PostgreSQL server of one's own in a temporary directory: start, stop, crash, drop
    csvfiles.py the CSV files of test/data
    values.py   cells of cases and of query results as comparable values; comparison of multisets
    case.py     one conformance case against one database
    runner.py   many cases: servers or databases for them, parallel jobs, report
    options.py  the options of the programs that run cases
    shrink.py   making a failing case smaller

Standard library only; python3 >= 3.9. Nothing here knows how wmstream is built.
"""
