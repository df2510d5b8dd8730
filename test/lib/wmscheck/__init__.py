"""The parts of test/check: the place where suites run (place.py) and the suites themselves (suites.py)."""
